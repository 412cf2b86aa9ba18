# SPDX-License-Identifier: Apache-2.0
# Programs that use libddp start under Open MPI and MPICH as they do under ddprun. Skipped where neither is installed.
. "$DDP_SOURCE_DIR/tests/process/ddprun_support.sh" || exit 1
examples=$DDP_BUILD_DIR/examples
[ -x "$examples/02_train" ] || {
  echo "the examples are not built"
  exit 77
}
cd "$work" || exit 1
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
export MASTER_ADDR=127.0.0.1 MASTER_PORT=$port

train() { # a name, then the command that starts two ranks
  local name=$1 code=0
  shift
  timeout -s KILL 100 "$@" "$examples/02_train" --epochs 2 --checkpoint "$name" >"$work/out" 2>"$work/err" </dev/null || code=$?
  check "${name}_starts_two_ranks" [ "$code" = 0 ]
  check "${name}_ranks_agree" grep -q 'all equal' "$work/out"
  check "${name}_ranks_are_two" grep -q '^2 ranks' "$work/out"
}

found=0
if command -v mpirun.openmpi >/dev/null; then
  found=1
  train openmpi mpirun.openmpi -n 2 --oversubscribe
fi
if command -v mpirun.mpich >/dev/null; then
  found=1
  train mpich mpirun.mpich -n 2
fi
if [ "$found" = 0 ]; then
  echo "neither mpirun.openmpi nor mpirun.mpich is installed"
  exit 77
fi
finish
