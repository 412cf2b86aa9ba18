# SPDX-License-Identifier: Apache-2.0
# The commands of README.md and pkgconfig/README.md for installing and using work as they are typed, by a user without any setup: its program, and the commands of the
# ways that use an installed library. add_subdirectory_test.sh has the third way.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
export HOME=$work/home
mkdir "$HOME"
unset PKG_CONFIG_PATH CMAKE_PREFIX_PATH LD_LIBRARY_PATH DDP_MODULE_PATH OMP_NUM_THREADS CC CXX

# The library is built already: only the last part of the line that builds and installs it is run, on this build.
readme_block sh 'HOME/.local"$' >"$work/install.sh"
grep -Fxq 'cmake --preset consumer && cmake --build build/consumer && cmake --install build/consumer --prefix "$HOME/.local"' \
  "$work/install.sh" || { echo "pkgconfig/README.md installs in another way; change this test" >&2; cat "$work/install.sh" >&2; exit 1; }
cmake --install "$DDP_BUILD_DIR" --prefix "$HOME/.local" >"$work/install.log"
strange=$(cd "$HOME/.local" && ls -d -- * lib*/* | grep -Evx 'bin|include|share|lib|lib64|lib(64)?/(libddp\.(a|so.*)|ddp|cmake|pkgconfig)' || true)
[ -z "$strange" ] || { echo "strange things were installed: $strange" >&2; exit 1; }
[ "$(cd "$HOME/.local/share" && find . -type f | sort | paste -sd ' ')" = "./ddp/ddp.f90 ./doc/ddp/LICENSE" ] ||
  { echo "share holds more than the Fortran module and the licence" >&2; exit 1; }
[ "$(cd "$HOME/.local/bin" && ls)" = ddprun ] || { echo "bin holds more than ddprun" >&2; exit 1; }

readme_program >"$work/program.c"
# It is strict C99.
"$cc" -std=c99 -pedantic-errors -Wall -Wextra -Werror -I"$HOME/.local/include" -c "$work/program.c" -o "$work/program.o"

# as_typed BLOCK: run its commands in a new folder with the program, and see what two ranks print
as_typed() {
  mkdir "$work/way"
  cp "$work/program.c" "$work/way"
  [ ! -e "$work/CMakeLists.txt" ] || mv "$work/CMakeLists.txt" "$work/way"
  (cd "$work/way" && timeout 100 bash -ec "$1") >"$work/output" 2>&1 || { cat "$work/output" >&2; return 1; }
  learned 2
  rm -r "$work/way"
}
as_typed "$(readme_block sh '^cc ')"
readme_block cmake find_package >"$work/CMakeLists.txt"
as_typed "$(readme_block sh 'CMAKE_PREFIX_PATH=')"

# Alone it is a group of one.
PKG_CONFIG_PATH=$(dirname "$(find "$HOME/.local" -name ddp.pc)")
export PKG_CONFIG_PATH
# shellcheck disable=SC2046 # flags are several words
"$cc" -std=c99 "$work/program.c" $(pkg-config --cflags --libs ddp) -Wl,-rpath,"$(pkg-config --variable=libdir ddp)" -o "$work/program"
timeout 60 "$work/program" >"$work/output"
learned 1
