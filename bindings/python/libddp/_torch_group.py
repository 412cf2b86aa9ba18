# SPDX-License-Identifier: Apache-2.0
"""Which libddp group belongs to which process group of PyTorch; part of libddp.torch."""
from __future__ import annotations

import weakref
from typing import Any, Optional

import torch.distributed as dist

from . import _world
from ._errors import InvalidArgumentError
from ._group import Group

_groups: weakref.WeakKeyDictionary[Any, Group] = weakref.WeakKeyDictionary()  # by PyTorch's process group
_norm_groups: weakref.WeakKeyDictionary[Group, Group] = weakref.WeakKeyDictionary()
_made_over_torch: weakref.WeakSet[Group] = weakref.WeakSet()
_group: Optional[Group] = None  # the last one that was asked for without a process group


def group(process_group: Any = None, *, device_index: Optional[int] = None) -> Group:
    """The libddp group with the ranks of one of PyTorch's process groups; made, by all of its ranks, when it is first asked for.

    Without `process_group` it is that of torch.distributed's whole world, or, where torch.distributed is not initialised, of the launcher's
    ranks. A libddp group is given back as it is. `device_index` is this rank's GPU, by default PyTorch's current one."""
    global _group
    if isinstance(process_group, Group):
        return process_group
    world = dist.group.WORLD if dist.is_initialized() else None
    if process_group is not None:
        return _over(process_group, device_index)
    found = _usable(_group if world is None else _groups.get(world))
    if found is None:
        former = _usable(_group)
        if world is not None and former is not None and former not in _made_over_torch:
            former._check_company()  # made before torch.distributed was initialised
            _groups[world] = found = former
        else:
            found = Group(**_on(device_index))
            if world is not None:
                _groups[world] = found
                _made_over_torch.add(found)
    _group = found
    return found


def _usable(found: Optional[Group]) -> Optional[Group]:
    """Not a closed one, and not that of the process of which this one is a fork."""
    return found if found is not None and not found.closed and found._handle.is_here else None


def _over(process_group: Any, device_index: Optional[int]) -> Group:
    if process_group is dist.GroupMember.NON_GROUP_MEMBER:
        raise InvalidArgumentError("this rank is not in that process group: make the wrapper on its ranks alone")
    if not isinstance(process_group, dist.ProcessGroup):
        raise TypeError(f"process_group is a process group of torch.distributed or a libddp.Group, not {type(process_group).__name__}")
    if process_group is dist.group.WORLD:
        _world.choose_torch()
    found = _usable(_groups.get(process_group))
    if found is None:
        found = _groups[process_group] = _meet(process_group, "", device_index)
    return found


def _meet(process_group: Any, name: str, device_index: Optional[int]) -> Group:
    """A new group of the ranks of a process group, over its store."""
    world = _world.of_torch(process_group)
    if world is None or world.rank < 0:
        raise InvalidArgumentError("this rank is not in that process group, or it was destroyed")
    if world.notes is None and world.size > 1:
        raise InvalidArgumentError(f"a process group of the backend {dist.get_backend(process_group)} has no store over which libddp's "
                                   "ranks could meet: pass libddp.Group(place, rank=..., world_size=...)")
    return Group("store://" + name if world.size > 1 else None, store=world.notes, rank=world.rank, world_size=world.size,
                 **_on(world.device_index if device_index is None else device_index))


def _on(device_index: Optional[int]) -> dict[str, int]:
    return {} if device_index is None else {"device_index": device_index}


def batch_norm_group(process_group: Any = None) -> Group:
    """A second group of the ranks of group(process_group), for layers that communicate while a pass is open on that. A libddp group is given
    back as it is."""
    ranks = group(process_group)
    if ranks is process_group:
        return ranks
    found = _usable(_norm_groups.get(ranks))
    if found is None:
        found = _norm_groups[ranks] = Group("env://#batch_norm") if process_group is None else _meet(process_group, "#batch_norm", None)
    return found


def check_company(found: Group) -> None:
    """Raise where it is a group of one that nobody asked for, and torch.distributed has more ranks."""
    if not found.closed and found.size == 1 and dist.is_initialized() and dist.get_world_size() > 1:
        found._check_company()
