#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The vcpkg port from this tree, and a C program of two ranks that uses it. vcpkg is taken from PATH or VCPKG_ROOT; it fetches what the port
# is built with.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
vcpkg=$(command -v vcpkg || echo "${VCPKG_ROOT:-}/vcpkg")
[ -x "$vcpkg" ] || { echo "no vcpkg in PATH or VCPKG_ROOT" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$vcpkg" install libddp --overlay-ports=.vcpkg/ports --x-install-root="$work/installed"
installed=$(echo "$work"/installed/*-linux*)
PKG_CONFIG_PATH=$installed/lib/pkgconfig
export PKG_CONFIG_PATH
# shellcheck disable=SC2046 # flags are several words
cc -std=c99 tests/consumer/train.c -o "$work/train" $(pkg-config --cflags --libs --static ddp) -lm
timeout 60 "$installed/tools/libddp/ddprun" -n 2 --no-pty "$work/train" env:// -1 -1
