# SPDX-License-Identifier: Apache-2.0
"""mpi4py: what it counts must be what the group has."""
import os
import shutil
import subprocess
import sys
import tempfile

from support import Test, main, need

need("mpi4py")
MPIEXEC = os.path.join(os.path.dirname(sys.executable), "mpiexec")
MPIEXEC = MPIEXEC if os.path.exists(MPIEXEC) else shutil.which("mpiexec")
# Open MPI refuses root and more ranks than cores unless it is told otherwise; MPICH knows none of these.
WILLING = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
           "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
if MPIEXEC is None:
    print("skipped: there is no mpiexec")
    sys.exit(77)


class Ranks(Test):
    def mpi(self, program, size=2):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "program.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(program)
            return subprocess.run([MPIEXEC, "-n", str(size), sys.executable, "-B", path], capture_output=True, text=True, timeout=100,
                                  check=False, env={**os.environ, **WILLING})

    def test_variables_that_are_missing(self):
        self.ends_well(self.mpi("""
import os
from mpi4py import MPI
rank = MPI.COMM_WORLD.Get_rank()
for name in list(os.environ):
    if name.startswith(("PMI", "OMPI", "MPI_", "HYDRA", "SLURM", "PALS")):
        del os.environ[name]
import libddp
try:
    libddp.Group()
except libddp.InvalidArgumentError as error:
    assert f"mpi4py says rank {rank} of 2, but this group is rank 0 of 1, so this rank would train alone" in str(error), error
    assert f'libddp.Group("tcp://host-of-rank-0:29500", rank={rank}, world_size=2)' in str(error), error
else:
    raise SystemExit("no error")
assert libddp.Group(rank=0, world_size=1).size == 1
"""))

    def test_variables_that_agree(self):
        self.ends_well(self.mpi("""
from mpi4py import MPI
import libddp
group = libddp.Group()
assert (group.rank, group.size) == (MPI.COMM_WORLD.Get_rank(), 2)
assert group.reduce_metrics([1]) == [2]
"""))


if __name__ == "__main__":
    main()
