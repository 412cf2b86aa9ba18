#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Which lines and branches of src the tests execute: a table by folder, and the files below 80 % of their lines.
#
#   tests/coverage.sh [CTEST OPTIONS]    such as -R '^unit\.' for what these tests reach alone
#
# Ranks that are forks end by exit() here, which writes their counts (support/procs.cpp). Those of a process that a signal ends are lost, so
# deaths are covered better than it says. The GPU module and the programs of the bindings are not counted. As root on Debian it installs missing
# packages. The build stays in build/coverage; counts of an earlier run are removed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. tests/support/debian_packages.sh
ddp_install_packages build-essential cmake ninja-build pkg-config git python3 python3-dev python3-numpy \
  libgloo-dev libssl-dev libasio-dev nlohmann-json3-dev libsodium-dev libcli11-dev libxxhash-dev libcmocka-dev libdlpack-dev mold gcovr
build=build/coverage
cmake --preset dev -B "$build" -DDDP_CUDA=OFF -DDDP_INSIDE_SHARED=OFF -DDDP_BUILD_BENCH=OFF -DCMAKE_CXX_FLAGS_DEBUG=-g1 -DCMAKE_C_FLAGS_DEBUG=-g1 \
  -DCMAKE_EXE_LINKER_FLAGS='-Wl,-u,__gcov_dump' \
  -DCMAKE_C_FLAGS='--coverage -fprofile-update=atomic' -DCMAKE_CXX_FLAGS='--coverage -fprofile-update=atomic'
cmake --build "$build" --parallel "$(nproc)"
find "$build" -name '*.gcda' -delete
ctest --test-dir "$build" --parallel "$(($(nproc) + 1))" -E '^(lint|consumer|bindings)\.' "$@" || echo "some tests failed: what they cover is counted" >&2
gcovr --root . --object-directory "$build" --filter src/ --exclude-unreachable-branches --exclude-throw-branches -j "$(nproc)" \
  --json-summary "$build/coverage.json" >/dev/null
python3 -B tests/support/coverage_table.py "$build/coverage.json"
