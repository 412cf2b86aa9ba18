# SPDX-License-Identifier: Apache-2.0
"""Everything that can be measured: who does it, and by which command."""

import sys
from dataclasses import dataclass
from typing import Callable

SIZES = (1 << 10, 64 << 10, 1 << 20, 25 << 20, 100 << 20)
SIZE_NAMES = {1 << 10: "1 KiB", 64 << 10: "64 KiB", 1 << 20: "1 MiB", 25 << 20: "25 MiB", 100 << 20: "100 MiB"}
MODELS = {"mlp": "MLP of 25.1 M parameters, batch 32", "gpt": "GPT-like, 13.8 M parameters, 128 tokens"}


@dataclass
class Way:
    name: str
    label: str
    needs: str  # a peer's name, or "" for libddp
    command: Callable  # (programs, ranks, folder) -> commands
    beyond_cores: bool = False  # makes sense with more ranks than cores
    thorough: bool = False  # left out by --quick


def _ours(*arguments):
    return lambda programs, ranks, _folder: programs.ddprun(ranks, *arguments)


def _mpi(mpi, kind):
    return lambda programs, ranks, _folder: programs.mpirun(mpi, ranks, kind)


def _each(command):
    """One process a rank, that meet in a folder."""
    return lambda programs, ranks, folder: [command(programs, rank, ranks, folder) for rank in range(ranks)]


def _python(script):
    from programs import BENCH
    return _each(lambda programs, rank, ranks, folder: [sys.executable, "%s/peers/%s" % (BENCH, script), str(rank), str(ranks), folder + "/store"])


ALL_REDUCE = [
    Way("zero-copy", "libddp, zero-copy", "", _ours("bench.all_reduce", "zero-copy", "shm"), beyond_cores=True),
    Way("staged", "libddp, staged", "", _ours("bench.all_reduce", "staged", "shm"), beyond_cores=True),
    Way("shared", "libddp, the program's memory shared in place", "", _ours("bench.all_reduce", "shared", "shm"), thorough=True),
    Way("bound", "bound: a bare shared-memory loop", "bound", lambda programs, ranks, _folder: [[programs.peers["bound"], str(ranks)]]),
    Way("openmpi", "Open MPI", "openmpi", _mpi("openmpi", "blocking")),
    Way("mpich", "MPICH", "mpich", _mpi("mpich", "blocking")),
    Way("openmpi-i", "Open MPI, Iallreduce", "openmpi", _mpi("openmpi", "nonblocking"), thorough=True),
    Way("mpich-i", "MPICH, Iallreduce", "mpich", _mpi("mpich", "nonblocking"), thorough=True),
    Way("over-gloo", "libddp over Gloo's links", "gloo", _ours("bench.all_reduce", "staged", "gloo")),
    Way("gloo", "Gloo", "gloo", _each(lambda programs, rank, ranks, folder: [programs.peers["gloo"], str(rank), str(ranks), folder])),
    Way("torch", "PyTorch (Gloo)", "torch", _python("torch_all_reduce.py")),
]


def _torch_step(model):
    run = _python("torch_step.py")
    return lambda programs, ranks, folder: [command + [model] for command in run(programs, ranks, folder)]


STEP_VARIANTS = [
    ("user", "libddp, gradients in the program's memory"),
    ("user-in-place", "libddp, the program's memory shared in place"),
    ("library", "libddp, gradients in library memory"),
    ("fused", "libddp, update in backward"),
    ("sharded", "libddp, sharded update"),
    ("sharded-shared", "libddp, sharded, values shared"),
    ("fused-sharded-shared", "libddp, sharded, shared, in backward"),
]


def step_ways(model):
    ways = [Way(name, label, "", _ours("bench.step", model, name), beyond_cores=True) for name, label in STEP_VARIANTS]
    return ways + [Way("torch", "PyTorch DDP (Gloo), fused AdamW", "torch", _torch_step(model))]


def adamw_ours(programs, _ranks, _folder):
    return [[programs.ours("bench.adamw"), "figures"]]


def adamw_torch(_programs, _ranks, _folder):
    from programs import BENCH
    return [[sys.executable, BENCH + "/peers/torch_adamw.py"]]
