#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The tests of all bindings, with the current releases of the frameworks that they are for: PyTorch, LibTorch, JAX, flax, optax and NumPy from
# the package index. Not part of tests/run.sh, which takes what is installed.
#
#   tests/bindings/frameworks.sh           into an environment of its own, build/frameworks
#   tests/bindings/frameworks.sh PYTHON    this Python, with the packages that it has
#
# As root on Debian it installs what is missing. The build stays in build/tests-frameworks.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tests/support/debian_packages.sh
ddp_install_packages build-essential cmake ninja-build pkg-config git python3 python3-dev python3-venv swig golang-go gfortran cargo \
  libgloo-dev libasio-dev nlohmann-json3-dev libsodium-dev libcli11-dev libxxhash-dev libcmocka-dev
command -v julia >/dev/null || bindings/julia/get_julia.sh build/julia || echo "going on without Julia" >&2

python=${1:-build/frameworks/bin/python}
if [ $# -eq 0 ]; then
  python3 -m venv build/frameworks
  "$python" -m pip install --quiet --upgrade pip
  "$python" -m pip install --quiet --upgrade numpy torch jax flax optax "scikit-build-core>=0.10" ninja
fi
python=$(realpath --no-symlinks "$(command -v "$python")")
torch=$("$python" -c 'import os, torch; print(os.path.dirname(torch.__file__))' 2>/dev/null || true)
if command -v ccache >/dev/null; then
  export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
fi
build=build/tests-frameworks
cmake --preset release -B "$build" -DPython3_EXECUTABLE="$python" -DDDP_LIBTORCH="$torch" -DDDP_PYTHON=ON -DDDP_CUDA=OFF -DDDP_BUILD_BENCH=OFF
# What these tests run, and not all tests of the library.
known=$(cmake --build "$build" --target help | sed -n 's/^\([a-z_]*\): .*/\1/p')
targets=()
for each in ddp ddp_gloo ddprun ddp_python ddp_xla same_bits same_bits_fused go_programs rust_crates; do
  if grep -q -x "$each" <<<"$known"; then targets+=("$each"); fi
done
cmake --build "$build" --parallel "$(nproc)" --target "${targets[@]}"
ctest --test-dir "$build" --output-on-failure --no-tests=error -R '^bindings\.'
