#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The tests of all bindings with the current releases of PyTorch, LibTorch, JAX, flax, optax, NumPy, mpi4py, safetensors, accelerate,
# transformers, Lightning and peft from the package index, and the tests that need Open MPI or Clang from Debian. tests/run.sh skips them
# where these are not installed.
#
#   tests/bindings/frameworks.sh           in a virtual environment that stays from run to run: $XDG_CACHE_HOME/libddp/frameworks
#   tests/bindings/frameworks.sh PYTHON    with this Python, and the packages that it has
#   tests/bindings/frameworks.sh --in FOLDER [PYTHON]   in a build folder that tests/run.sh has made, so that the library is not built again
#
# As root on Debian it installs missing packages. Without --in the build stays in build/tests-frameworks.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=build/tests-frameworks
tests='^(bindings\.|process\.(mpirun|torchrun|safetensors)|cpp\.other_compiler)'
configure=(--preset release -B "$build" -DDDP_CUDA=OFF -DDDP_BUILD_BENCH=OFF)
if [ "${1:-}" = --in ]; then
  build=$2
  tests='^(bindings\.(python\.|libtorch|same_bits)|process\.(mpirun|torchrun|safetensors)|cpp\.other_compiler)' # what tests/run.sh has not run
  configure=(-S . -B "$build")
  shift 2
fi
. tests/support/debian_packages.sh
ddp_install_packages build-essential cmake ninja-build pkg-config git python3 python3-dev python3-venv swig golang-go gfortran cargo \
  libgloo-dev libssl-dev libasio-dev nlohmann-json3-dev libsodium-dev libcli11-dev libxxhash-dev libcmocka-dev mold openmpi-bin libopenmpi-dev clang
command -v julia >/dev/null || bindings/julia/get_julia.sh build/julia || echo "going on without Julia" >&2

if [ $# -gt 0 ]; then
  python=$1
else
  frameworks=${XDG_CACHE_HOME:-$HOME/.cache}/libddp/frameworks
  [ -x "$frameworks/bin/python" ] || python3 -m venv "$frameworks"
  python=$frameworks/bin/python
  "$python" -m pip install --quiet --upgrade pip
  "$python" -m pip install --quiet --upgrade numpy torch jax flax optax mpi4py safetensors accelerate transformers lightning peft expecttest "scikit-build-core>=0.10" ninja
fi
python=$(realpath --no-symlinks "$(command -v "$python")")
torch=$("$python" -c 'import os, torch; print(os.path.dirname(torch.__file__))' 2>/dev/null || true)
cmake "${configure[@]}" -DPython3_EXECUTABLE="$python" -DDDP_LIBTORCH="$torch" -DDDP_PYTHON=ON
# What these tests run, and not all tests of the library.
known=$(cmake --build "$build" --target help | sed -n 's/^\([a-z_.]*\): .*/\1/p')
targets=()
for each in ddp ddp_gloo ddprun ddp_python ddp_xla ddp_fake_cuda same_bits same_bits_fused go_programs rust_crates test.bindings.python.average_gpu; do
  if grep -q -x -F "$each" <<<"$known"; then targets+=("$each"); fi
done
cmake --build "$build" --parallel "$(nproc)" --target "${targets[@]}"
ctest --test-dir "$build" --parallel 2 --output-on-failure --no-tests=error --output-junit results-frameworks.xml \
  -R "$tests"
