# SPDX-License-Identifier: Apache-2.0
# The layer for C++17 is installed: the example is built from it with pkg-config and with find_package, and runs on two ranks.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install_library
example=$DDP_SOURCE_DIR/examples/11_cpp.cpp
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name ddp.pc)")
export PKG_CONFIG_PATH
# shellcheck disable=SC2046 # flags are several words
"${CXX:-c++}" -std=c++17 -Wall -Wextra -Werror "$example" -o "$work/one" $(pkg-config --cflags --libs ddp) \
  "-Wl,-rpath,$(pkg-config --variable=libdir ddp)"
mkdir "$work/project"
cat >"$work/project/CMakeLists.txt" <<'TXT'
cmake_minimum_required(VERSION 3.16)
project(consumer CXX)
find_package(ddp 0.1 REQUIRED)
add_executable(two ${EXAMPLE})
target_compile_features(two PRIVATE cxx_std_17)
target_link_libraries(two PRIVATE ddp::ddp)
TXT
cmake -S "$work/project" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" -DEXAMPLE="$example" >"$work/configure.log"
cmake --build "$work/build" >"$work/build.log" || { cat "$work/build.log"; exit 1; }
for program in "$work/one" "$work/build/two"; do
  timeout 60 "$prefix/bin/ddprun" -n 2 "$program" >"$work/output"
  learned 2
done
