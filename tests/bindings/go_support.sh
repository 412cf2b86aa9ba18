# SPDX-License-Identifier: Apache-2.0
# What the tests of the Go module share. Sourced; leaves the environment in which it finds this tree's library.
set -euo pipefail
module=$DDP_SOURCE_DIR/bindings/go
build=$DDP_BUILD_DIR/bindings/go
if [ ! -f "$build/pkgconfig/ddp.pc" ]; then
  echo "skipped: the Go module is not tested in this build (no go 1.19, a sanitizer, or -DDDP_GO=OFF; cmake said which)"
  exit 77
fi
export PKG_CONFIG_PATH=$build/pkgconfig CGO_LDFLAGS="-Wl,-rpath,$DDP_BUILD_DIR/src" GOFLAGS=-mod=mod
cd "$module"
