#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Conan package from this tree, shared and static: created without a remote, then a C program of two ranks that uses it.
#
#   pkgconfig/conan/check.sh            both
#   pkgconfig/conan/check.sh False      static alone
#
# Conan is taken from PATH, or installed into a folder for a while.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tests/support/debian_packages.sh
ddp_install_packages build-essential cmake ninja-build pkg-config python3-venv libasio-dev nlohmann-json3-dev libsodium-dev libcli11-dev libxxhash-dev
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
conan=$(command -v conan || true)
if [ -z "$conan" ]; then
  python3 -m venv "$work/python"
  "$work/python/bin/pip" install --quiet conan
  conan=$work/python/bin/conan
fi
export CONAN_HOME=$work/home
if command -v ccache >/dev/null && [ -z "${CMAKE_CXX_COMPILER_LAUNCHER:-}" ]; then
  export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_BASEDIR=$work CCACHE_NOHASHDIR=1
fi
"$conan" profile detect >/dev/null 2>&1
cp -R pkgconfig/conan/test_package "$work/test_package" # Conan builds in it
sed -i "s|[$]{CMAKE_CURRENT_SOURCE_DIR}/../../..|$PWD|" "$work/test_package/CMakeLists.txt"
for shared in ${1:-True False}; do
  echo "== shared=$shared"
  "$conan" create pkgconfig/conan --no-remote --test-folder "$work/test_package" -o "libddp/*:shared=$shared" -c tools.cmake.cmaketoolchain:generator=Ninja \
    >"$work/log" 2>&1 || { tail -n 60 "$work/log" >&2; exit 1; }
  grep 'rank [01] of 2' "$work/log"
done
