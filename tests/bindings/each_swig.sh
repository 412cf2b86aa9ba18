#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The generated files, the module that Go makes of them, and the other languages, with each version of SWIG that the bindings know. Not part of
# a run of the tests, because it downloads SWIG from PyPI: run it once after a change of an interface file or of the header.
#
#   DDP_BUILD_DIR=build/tests tests/bindings/each_swig.sh [VERSION...]
set -euo pipefail
DDP_SOURCE_DIR=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
DDP_BUILD_DIR=$(realpath "${DDP_BUILD_DIR:-$DDP_SOURCE_DIR/build/tests}")
export DDP_SOURCE_DIR DDP_BUILD_DIR DDP_LIBRARY=$DDP_BUILD_DIR/src/libddp.so CC=${CC:-cc}

if [ "${1:-}" != --one ]; then
  [ $# -gt 0 ] || set -- 4.0.2 4.1.1 4.2.1 4.3.1 4.4.1 4.5.1
  failed=()
  for version; do
    echo "== SWIG $version"
    bash "${BASH_SOURCE[0]}" --one "$version" || failed+=("$version")
  done
  [ ${#failed[@]} -eq 0 ] || { echo "failed with SWIG ${failed[*]}"; exit 1; }
  exit 0
fi

version=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check "swig==$version"
export PATH=$work/venv/bin:$PATH
swig -version | grep "SWIG Version $version"
python3 "$DDP_SOURCE_DIR/tests/bindings/generated_test.py"
bash "$DDP_SOURCE_DIR/tests/bindings/any_test.sh" || [ $? -eq 77 ]
if [ ! -f "$DDP_BUILD_DIR/bindings/go/pkgconfig/ddp.pc" ]; then
  echo "Go is left out: its module is not part of this build"
  exit 0
fi
export PKG_CONFIG_PATH=$DDP_BUILD_DIR/bindings/go/pkgconfig CGO_LDFLAGS="-Wl,-rpath,$DDP_BUILD_DIR/src" GOFLAGS=-mod=mod
mkdir -p "$work/tree/bindings"
cp -r "$DDP_SOURCE_DIR/include" "$work/tree/"
cp -r "$DDP_SOURCE_DIR"/bindings/{go,swig} "$work/tree/bindings/"
cd "$work/tree/bindings/go"
go generate ./internal/low
go test -count=1 .
