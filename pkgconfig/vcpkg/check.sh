#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The vcpkg port from this tree, and a C program of two ranks that uses it.
#
#   pkgconfig/vcpkg/check.sh            vcpkg is taken from PATH or VCPKG_ROOT; it fetches what the port is built with
#   pkgconfig/vcpkg/check.sh --fetch    where there is none, into build/vcpkg; as root on Debian it installs what that needs
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
vcpkg=$(command -v vcpkg || echo "${VCPKG_ROOT:-build/vcpkg}/vcpkg")
if [ ! -x "$vcpkg" ] && [ "${1:-}" = --fetch ]; then
  . tests/support/debian_packages.sh
  ddp_install_packages build-essential cmake ninja-build pkg-config git ca-certificates curl zip unzip tar autoconf automake libtool python3
  [ -d build/vcpkg ] || git clone --quiet --depth 1 https://github.com/microsoft/vcpkg build/vcpkg
  build/vcpkg/bootstrap-vcpkg.sh -disableMetrics
  vcpkg=$PWD/build/vcpkg/vcpkg
fi
[ -x "$vcpkg" ] || { echo "no vcpkg in PATH or VCPKG_ROOT (--fetch gets one)" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$vcpkg" install libddp --overlay-ports=pkgconfig/vcpkg/ports --x-install-root="$work/installed"
installed=$(echo "$work"/installed/*-linux*)
PKG_CONFIG_PATH=$installed/lib/pkgconfig
export PKG_CONFIG_PATH
# shellcheck disable=SC2046 # flags are several words
cc -std=c99 tests/consumer/train.c -o "$work/train" $(pkg-config --cflags --libs --static ddp) -lm
timeout 60 "$installed/tools/libddp/ddprun" -n 2 --no-pty "$work/train" env:// -1 -1
