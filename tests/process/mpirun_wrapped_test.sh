# SPDX-License-Identifier: Apache-2.0
# Under mpirun on one host the ranks find each other without MASTER_ADDR, also when mpirun starts a script that starts the program.
. "$DDP_SOURCE_DIR/tests/process/ddprun_support.sh" || exit 1
program=$DDP_BUILD_DIR/examples/01_all_reduce
[ -x "$program" ] || {
  echo "the examples are not built"
  exit 77
}
cd "$work" || exit 1
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
printf '#!/bin/bash\n"%s"\ncode=$?\nexit $code\n' "$program" >wrapped
chmod +x wrapped

sums() { # a name, then the command that starts three ranks
  local name=$1 code=0
  shift
  timeout -s KILL 50 "$@" >"$work/out" 2>"$work/err" </dev/null || code=$?
  check "${name}_starts" [ "$code" = 0 ]
  check "${name}_is_one_group" [ "$(grep -c 'of 3: the sums are 6 and 60' "$work/out")" = 3 ]
}

found=0
for mpirun in mpirun.openmpi mpirun.mpich; do
  command -v $mpirun >/dev/null || continue
  found=1
  many=
  [ $mpirun = mpirun.openmpi ] && many=--oversubscribe
  sums "$mpirun" $mpirun -n 3 $many "$program"
  sums "${mpirun}_through_a_script" $mpirun -n 3 $many ./wrapped
done
if [ "$found" = 0 ]; then
  echo "neither mpirun.openmpi nor mpirun.mpich is installed"
  exit 77
fi
finish
