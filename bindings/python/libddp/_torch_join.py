# SPDX-License-Identifier: Apache-2.0
"""PyTorch's context managers for unequal data, Join([...]) and join(): part of libddp.torch."""
from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from ._torch_strides import in_memory_order
from ._written import written

try:
    from torch.distributed.algorithms.join import Join as Join
    from torch.distributed.algorithms.join import Joinable as Joinable
    from torch.distributed.algorithms.join import JoinHook
except ImportError:  # a PyTorch without torch.distributed
    Join = Joinable = JoinHook = object  # type: ignore[assignment, misc]


class JoinedRank(JoinHook):
    """What a rank does in the place of a step when it has run out of data."""

    def __init__(self, wrapper: Any, divide_by_initial_world_size: bool) -> None:
        wrapper._joined = True
        wrapper._divides_by_world = divide_by_initial_world_size
        self.wrapper = wrapper
        super().__init__()

    def main_hook(self) -> None:
        """Answer one forward and backward computation of the others."""
        wrapper = self.wrapper
        if wrapper._sends_buffers():
            wrapper._send_buffers(root_of(wrapper, False))
        wrapper.require_forward_param_sync = reduces_somewhere(wrapper, False)
        if wrapper.require_forward_param_sync:
            wrapper.model.skip_backward(stream=wrapper._stream())
            wrapper._sparse.reduce(wrapper.model, wrapper._parameters_lent, has_data=False)

    def post_hook(self, is_last_joiner: bool) -> None:
        """All have joined: the parameters and buffers of one that trained to the last go to everybody."""
        wrapper = self.wrapper
        wrapper._authoritative_rank = root = root_of(wrapper, is_last_joiner)
        for parameter in wrapper._parameters_lent:
            wrapper.group.broadcast(in_memory_order(parameter.detach()), root, stream=wrapper._stream())
            written([parameter])
        if wrapper.forward_sync_buffers:
            wrapper._send_buffers(root)


def root_of(wrapper: Any, candidate: bool) -> int:
    """The highest of the ranks that are candidates, the same on all."""
    rank = torch.tensor([wrapper.group.rank if candidate else -1], device=wrapper.device)
    dist.all_reduce(rank, op=dist.ReduceOp.MAX, group=wrapper.process_group)
    return int(rank.item())


def reduces_somewhere(wrapper: Any, reduces: bool) -> bool:
    """Does any rank reduce in this step? A rank in no_sync() does not, and all are alike."""
    answer = torch.tensor([float(reduces)], device=wrapper.device)
    dist.all_reduce(answer, group=wrapper.process_group)
    return answer.item() != 0
