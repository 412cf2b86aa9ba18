#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What takes too long for every change.
#
#   tests/nightly.sh builds   the library and all tests, each file compiled alone and a folder at a time, debug and optimised; the consumer's build.
#                             A missing include, or a name that two headers define, shows in one of these alone.
#   tests/nightly.sh full     tests/run.sh, and the tests that it leaves out: the fake GPU that assumes the worst, all calls of NCCL,
#                             a project that builds the library with add_subdirectory
#
# As root on Debian it installs missing packages. Builds stay in build/nightly-*.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. tests/support/debian_packages.sh
jobs=$(nproc)
build() { # folder, preset, options of CMake
  printf '\n== %s: cmake --preset %s\n' "$1" "${*:2}"
  cmake --preset "$2" -B "build/nightly-$1" "${@:3}"
  cmake --build "build/nightly-$1" --parallel "$jobs"
}
case ${1:-} in
  builds)
    ddp_install_packages build-essential cmake ninja-build pkg-config python3 python3-dev python3-numpy swig \
      libgloo-dev libssl-dev libasio-dev nlohmann-json3-dev libsodium-dev libcli11-dev libxxhash-dev libcmocka-dev
    build together dev
    build alone dev -DDDP_UNITY=OFF
    build optimised release -DDDP_UNITY=OFF
    build consumer consumer
    ;;
  full)
    tests/run.sh
    ctest --test-dir build/tests -C full -L 'pessimist|nccl-sweep|consumer-full' --parallel "$((jobs + 1))" --output-on-failure --no-tests=error
    ;;
  *)
    echo "usage: tests/nightly.sh builds|full" >&2
    exit 2
    ;;
esac
