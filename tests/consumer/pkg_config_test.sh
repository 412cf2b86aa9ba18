# SPDX-License-Identifier: Apache-2.0
# A C program built with the flags of pkg-config, against an installed and then moved libddp.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install_library
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name ddp.pc)")
export PKG_CONFIG_PATH
pkg-config --exists --print-errors 'ddp >= 0.1'

flags=$(pkg-config --cflags --libs ddp)
case $(pkg-config --libs-only-l ddp) in
  "-lddp" | "-lddp ") ;;
  *)
    echo "ddp.pc asks programs for more than -lddp: $(pkg-config --libs ddp)" >&2
    exit 1
    ;;
esac
libdir=$(pkg-config --variable=libdir ddp)
[ "$(pkg-config --variable=plugindir ddp)" = "$libdir/ddp" ]
[ -e "$libdir/libddp.so.0.1" ] || { echo "no libddp.so.0.1 in $libdir" >&2; exit 1; }

# shellcheck disable=SC2086 # flags are several words
"${CC:-cc}" -std=c99 -Wall -Werror "$here/train.c" -o "$work/train" $flags -lm "-Wl,-rpath,$libdir"
run_train "$work/train"

# The launcher starts the same program, where it is installed.
if [ -x "$prefix/bin/ddprun" ]; then
  timeout 60 "$prefix/bin/ddprun" -n 2 "$work/train" env:// -1 -1
fi
