#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One interface file serves the languages without a layer by hand: each that is installed trains on two ranks and meets an error.
set -euo pipefail
if [ -n "${DDP_SANITIZE:-}" ]; then
  echo "skipped: the interpreters have no sanitizers"
  exit 77
fi
command -v swig >/dev/null || { echo "skipped: swig is not installed"; exit 77; }
any=$DDP_SOURCE_DIR/bindings/any
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
library=$(dirname "$DDP_LIBRARY")
ran=0

# wrap LANGUAGE OUTPUT FLAG...: the module of one language.
wrap() {
  local language=$1 output=$2
  shift 2
  mkdir -p "$work/$language"
  swig "-$language" -includeall -I"$DDP_SOURCE_DIR/include" -I"$DDP_SOURCE_DIR/bindings/swig" -outdir "$work/$language" \
    -o "$work/$language/wrap.c" "$any/ddp_any.i"
  "$CC" -Werror=incompatible-pointer-types -shared -fPIC -I"$DDP_SOURCE_DIR/include" "$@" "$work/$language/wrap.c" -o "$work/$language/$output" \
    -L"$library" -lddp "-Wl,-rpath,$library"
}

# expect NAME COMMAND...: both ranks say 1.5 (three steps of half the mean of 0 and 2) and that the error came.
expect() {
  local name=$1 out
  shift
  out=$(timeout 60 "$DDP_BUILD_DIR/bin/ddprun" --no-prefix --no-pty -n 2 "$@")  # Tcl ends lines with \r\n on a terminal
  echo "$out"
  [ "$(grep -c "^$name: 1.5, refused$" <<<"$out")" = 2 ] || { echo "$name: not what two ranks should say"; exit 1; }
  ran=$((ran + 1))
}

core=$(perl -MConfig -e 'print "$Config{archlibexp}/CORE"' 2>/dev/null || true)
if [ -f "$core/perl.h" ]; then
  # shellcheck disable=SC2046
  wrap perl5 ddp.so $(perl -MConfig -e 'print $Config{ccflags}') -I"$core"
  expect perl perl -I"$work/perl5" "$any/smoke.pl"
else
  echo "Perl is left out: no perl.h"
fi

tcl=$(echo 'puts $tcl_version' | tclsh 2>/dev/null || true)
if [ -n "$tcl" ] && [ -f "/usr/include/tcl$tcl/tcl.h" ]; then
  wrap tcl8 ddp.so -I"/usr/include/tcl$tcl"
  DDP_ANY=$work/tcl8 expect tcl tclsh "$any/smoke.tcl"
else
  echo "Tcl is left out: no tclsh or no tcl.h"
fi

home=$(command -v javac >/dev/null && dirname "$(dirname "$(readlink -f "$(command -v javac)")")" || true)
if [ -n "$home" ] && [ -f "$home/include/jni.h" ]; then
  wrap java libddp_java.so -fno-strict-aliasing -I"$home/include" -I"$home/include/linux"
  javac -d "$work/java" "$work"/java/*.java "$any/Smoke.java"
  expect java "$home/bin/java" -cp "$work/java" "-Djava.library.path=$work/java" Smoke
else
  echo "Java is left out: no javac or no jni.h"
fi

[ "$ran" -gt 0 ] || { echo "skipped: none of Perl, Tcl and Java has its headers here"; exit 77; }
