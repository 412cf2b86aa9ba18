# SPDX-License-Identifier: Apache-2.0
# What tests/gpu/run.sh does with PyTorch and JAX on a GPU works on two ranks without one too.
if [ ! -e "$DDP_BUILD_DIR/bindings/python/libddp/_low.so" ]; then
  echo "the Python package is not built"
  exit 77
fi
export PYTHONPATH=$DDP_BUILD_DIR/bindings/python${PYTHONPATH:+:$PYTHONPATH}
ran=''
for program in torch_gpu jax_gpu; do
  "$DDP_BUILD_DIR/bin/ddprun" -n 2 --show 0 --no-prefix --timeout 200 "${PYTHON:-python3}" -B "$DDP_SOURCE_DIR/tests/gpu/$program.py" --device cpu
  case $? in
    0) ran=1 ;;
    77) ;; # not installed
    *) exit 1 ;;
  esac
done
[ -n "$ran" ] || exit 77
