#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The test command: from a fresh clone to the verdict of every test that needs no GPU.
#
#   tests/run.sh [KIND] [CMAKE OPTIONS]
#
#   dev (default)   debug build, warnings are errors
#   release         as distributions build it
#   asan            address and undefined-behaviour sanitizers
#   tsan            thread sanitizer
#   clang           the debug build by Clang
#
# As root on Debian it installs missing packages. The build stays in build/tests (build/tests-asan, ...), so the next run is quick.
# CMake's options, such as -DDDP_CUDA=OFF, hold for that folder. To use ccache, set CMAKE_C_COMPILER_LAUNCHER and CMAKE_CXX_COMPILER_LAUNCHER
# before the first run. The exit status is ctest's. Its summary comes last, with the reasons of skipped tests.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

kind=dev
case ${1:--} in
  -*) ;;
  *)
    kind=$1
    shift
    ;;
esac
case $kind in
  dev) build=build/tests ;;
  release | asan | tsan | clang) build=build/tests-$kind ;;
  *)
    echo "usage: tests/run.sh [dev|release|asan|tsan|clang] [CMake options]" >&2
    exit 2
    ;;
esac

. tests/support/debian_packages.sh
ddp_install_packages build-essential cmake ninja-build pkg-config git python3 python3-dev python3-numpy swig golang-go gfortran cargo \
  libgloo-dev libssl-dev libasio-dev nlohmann-json3-dev libsodium-dev libcli11-dev libxxhash-dev libcmocka-dev libdlpack-dev mold \
  iproute2 openssh-server procps abigail-tools
# Debian 13 has no version 14; the test of the format prints that and is skipped.
command -v clang-format-14 >/dev/null || ddp_install_packages clang-format-14 || echo "going on without clang-format-14" >&2
[ "$kind" != clang ] || ddp_install_packages clang

# Debian 12 has no Julia; without one the tests of its package say so and are skipped. A library with sanitizers needs none.
case $kind in
  dev | release | clang)
    command -v julia >/dev/null || bindings/julia/get_julia.sh build/julia || echo "going on without Julia" >&2
    ;;
esac

jobs=$(nproc)
# A fast linker, line numbers without variables, and a little optimisation, with which tests compute three times as fast. A folder that was
# configured before stays as it is; for a debugger, configure it with `cmake --preset dev -B build/tests`.
quick=()
if [ ! -f "$build/CMakeCache.txt" ]; then
  quick+=('-DCMAKE_CXX_FLAGS_DEBUG=-g1 -O1')
  command -v mold >/dev/null && quick+=(-DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=mold -DCMAKE_SHARED_LINKER_FLAGS=-fuse-ld=mold)
fi
# Options of the sanitizers stand in tests/CMakeLists.txt, what they may ignore in tests/support/*.supp.
preset=$kind
if [ "$kind" = clang ]; then
  preset=dev
  export CC=clang CXX=clang++
fi
cmake --preset "$preset" -B "$build" "${quick[@]}" "$@"
cmake --build "$build" --parallel "$jobs"
# One more than cores, because many tests wait most of their time.
ctest --test-dir "$build" --parallel "$((jobs + 1))" --output-on-failure --no-tests=error --output-junit results.xml
