#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Fortran module: its additions to the C functions, the example, and programs that find the installed module.
set -euo pipefail
build=$DDP_BUILD_DIR/bindings/fortran
if [ ! -x "$build/api_test" ]; then
  echo "skipped: the Fortran module is not tested in this build (no Fortran compiler, a sanitizer, or -DDDP_FORTRAN=OFF; cmake said which)"
  exit 77
fi
folder=$DDP_SOURCE_DIR/bindings/fortran
ddprun=$DDP_BUILD_DIR/bin/ddprun
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

timeout 60 "$ddprun" -n 2 "$build/api_test" "$work" >"$work/output" || { cat "$work/output"; exit 1; }
[ "$(grep -c 'all as it should be' "$work/output")" = 2 ] || { cat "$work/output"; exit 1; }
for error in 'unasked:DDP_ERROR_INVALID_ARGUMENT: ddp_group_broadcast' 'gaps:has gaps' 'shape:number of dimensions'; do
  if "$build/api_test" "${error%%:*}" >"$work/output" 2>&1; then echo "${error%%:*}: went on"; exit 1; fi
  grep -q "${error#*:}" "$work/output" || { cat "$work/output"; exit 1; }
done

train() {
  timeout 60 "$ddprun" "$@" >"$work/output" || { cat "$work/output"; exit 1; }
  grep -q 'all equal' "$work/output"
  awk '/test accuracy/ { found = $NF >= 95 } END { exit !found }' "$work/output" || { cat "$work/output"; exit 1; }
}
train -n 2 --no-prefix "$build/digits" "$DDP_SOURCE_DIR/examples/data/digits.csv" 10 "$work/digits"
train -n 1 --no-prefix "$build/digits" "$DDP_SOURCE_DIR/examples/data/digits.csv" 11 "$work/digits" resume

# The program of the README, built by the README's commands, with an installed and then moved libddp.
for component in runtime development; do
  cmake --install "$DDP_BUILD_DIR" --prefix "$work/first" --component "$component" >"$work/install.log" || { cat "$work/install.log"; exit 1; }
done
mv "$work/first" "$work/moved"
readme_block() { awk -v language="$1" '$0 == "```" language { inside = 1; next } /^```$/ { inside = 0 } inside' "$folder/README.md"; }
mkdir "$work/project"
readme_block fortran >"$work/project/line.f90"
readme_block cmake >"$work/project/CMakeLists.txt"
learned() {
  timeout 60 "$ddprun" -n 2 "$1" >"$work/output" || { cat "$work/output"; exit 1; }
  [ "$(grep -c 'of 2: y = 3.00 x -1.00' "$work/output")" = 2 ] || { cat "$work/output"; exit 1; }
}
cmake -S "$work/project" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/moved" >"$work/log"
cmake --build "$work/build" >>"$work/log" || { cat "$work/log"; exit 1; }
learned "$work/build/line"
if command -v pkg-config gfortran >/dev/null; then
  PKG_CONFIG_PATH=$(dirname "$(find "$work/moved" -name ddp.pc)")
  export PKG_CONFIG_PATH
  (cd "$work/project" && eval "$(readme_block sh | grep '^gfortran')")
  learned "$work/project/line"
fi
