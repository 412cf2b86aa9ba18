# SPDX-License-Identifier: Apache-2.0
# The comparison with PyTorch's DistributedDataParallel works: on two ranks without GPUs, where its figures mean nothing. The gradients of both
# wrappers must agree.
if [ ! -e "$DDP_BUILD_DIR/bindings/python/libddp/_low.so" ]; then
  echo "the Python package is not built"
  exit 77
fi
export PYTHONPATH=$DDP_BUILD_DIR/bindings/python${PYTHONPATH:+:$PYTHONPATH}
exec "$DDP_BUILD_DIR/bin/ddprun" -n 2 --show 0 --no-prefix --timeout 200 "${PYTHON:-python3}" -B "$DDP_SOURCE_DIR/tests/gpu/bench/torch_ranks.py" --quick --device cpu
