# SPDX-License-Identifier: Apache-2.0
"""Who else is there: the ranks that a framework of this process knows already. Nothing is imported for it.

A group that is made "from the environment" has the ranks of torch.distributed or jax.distributed, over their stores, where these are
initialised. What a launcher or mpi4py says must agree; otherwise each rank would silently train alone, or with the wrong ones.
"""
from __future__ import annotations

import os
import sys
from typing import Any, NamedTuple, Optional

from ._errors import InvalidArgumentError
from ._store import Notes


class World(NamedTuple):
    """Ranks, as somebody counts them."""

    name: str  #: whose ranks they are, for errors
    rank: int
    size: int
    notes: Optional[Notes] = None  #: where they can meet
    device_index: Optional[int] = None  #: this rank's GPU, where the framework knows it

    def __str__(self) -> str:
        return f"{self.name} says rank {self.rank} of {self.size}"

    def is_as(self, other: World) -> bool:
        return (self.rank, self.size) == (other.rank, other.size)


# Launchers that start one process a rank, as src/discovery/launchers.cpp reads them. Those that may start one process a host,
# in which the program starts its ranks (Slurm, Kubernetes), are left out: a framework's ranks need not be theirs.
_VARIABLES = (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"))


def of_launcher() -> Optional[World]:
    """What the launcher's variables say."""
    for rank, size in _VARIABLES:
        values = os.environ.get(rank, ""), os.environ.get(size, "")
        if all(value.isdecimal() for value in values):
            return World(f"the launcher ({rank}={values[0]}, {size}={values[1]})", int(values[0]), int(values[1]))
    return None


def of_torch(process_group: Any = None) -> Optional[World]:
    """The ranks of a process group of PyTorch, by default those of the whole world; None where there is none."""
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return None
    chosen = dist.group.WORLD if process_group is None else process_group
    cuda = sys.modules["torch"].cuda
    device = cuda.current_device() if cuda.is_initialized() and "LOCAL_RANK" not in os.environ else None
    return World("torch.distributed", dist.get_rank(chosen), dist.get_world_size(chosen), _notes_of_torch(dist, chosen), device)


def _notes_of_torch(dist: Any, process_group: Any) -> Optional[Notes]:
    store = dist.distributed_c10d._world.pg_map.get(process_group, (None, None))[1]
    if store is None:
        return None  # MPI's backend has none
    ours = dist.PrefixStore("libddp", store)  # the store under it is the process group's own
    return Notes(ours.set, lambda key: bytes(ours.get(key)) if ours.check([key]) else None)


def of_jax() -> Optional[World]:
    """The processes of jax.distributed; None where it is not initialised, or for one process."""
    module = sys.modules.get("jax._src.distributed")  # JAX publishes neither the numbers without a backend nor the store
    state = getattr(module, "global_state", None)
    client, size = getattr(state, "client", None), getattr(state, "num_processes", None) or 1
    if client is None or size == 1:
        return None
    return World("jax.distributed", getattr(state, "process_id"), size, _notes_of_jax(client))


def _notes_of_jax(client: Any) -> Optional[Notes]:
    if not hasattr(client, "key_value_try_get"):
        return None  # an old JAX

    def put(key: str, value: bytes) -> None:
        client.key_value_set("libddp/" + key, value.hex(), allow_overwrite=True)

    def look(key: str) -> Optional[bytes]:
        try:
            return bytes.fromhex(client.key_value_try_get("libddp/" + key))
        except Exception as error:
            if "NOT_FOUND" in str(error):
                return None
            raise

    return Notes(put, look)


def of_mpi() -> Optional[World]:
    """The ranks of mpi4py's COMM_WORLD; None where there is one: a program that mpirun did not start is such a one."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None or not mpi.Is_initialized() or mpi.Is_finalized() or mpi.COMM_WORLD.Get_size() == 1:
        return None
    return World("mpi4py", mpi.COMM_WORLD.Get_rank(), mpi.COMM_WORLD.Get_size())


def find() -> Optional[World]:
    """The ranks that a group from the environment must have; None: the library reads the environment itself."""
    found = [world for world in (of_torch(), of_jax()) if world is not None]
    if not found or (_torch_is_chosen and found[0].name == "torch.distributed"):
        return found[0] if found else None
    launcher = of_launcher()
    for other in (*found[1:], *(() if launcher is None else (launcher,))):
        if not other.is_as(found[0]):
            raise InvalidArgumentError(f"{found[0]}, {other}: which ranks train together? {_choice(found[0])}; or start the program so "
                                       "that both agree")
    return found[0]


_torch_is_chosen = False


def choose_torch() -> None:
    """The program has said that PyTorch's ranks are meant, whatever a launcher says."""
    global _torch_is_chosen
    _torch_is_chosen = True


def check(rank: int, size: int) -> None:
    """Raise where somebody counts other ranks than a group from the environment has."""
    made = World("the group", rank, size)
    torch = of_torch()
    for world in (torch,) if torch is not None and _torch_is_chosen else (torch, of_jax(), of_mpi()):
        if world is None or world.is_as(made):
            continue
        alone = "would train alone" if size == 1 else "would train with the wrong ranks"
        where = f"{world}, but this group is rank {rank} of {size}, so this rank {alone}."
        if world.notes is not None:
            raise InvalidArgumentError(f"{where} The group was made before {world.name} was initialised: initialise that first. Or, if "
                                       f"these ranks are meant: {_choice(world)}")
        raise InvalidArgumentError(f"{where} No variable of a launcher that libddp reads says so: {_choice(world)}")


def _choice(world: World) -> str:
    if world.name == "torch.distributed":
        return ("pass process_group=torch.distributed.group.WORLD to libddp.torch.DistributedDataParallel for PyTorch's ranks, or "
                "libddp.Group(place, rank=..., world_size=...) for others")
    return (f'say where the ranks meet, as in libddp.Group("tcp://host-of-rank-0:29500", rank={world.rank}, '
            f"world_size={world.size})")
