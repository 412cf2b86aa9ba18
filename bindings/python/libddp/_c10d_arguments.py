# SPDX-License-Identifier: Apache-2.0
"""Arguments of torch.distributed's operations: part of libddp.c10d."""
from __future__ import annotations

from typing import Any, Sequence

import torch
import torch.distributed as dist

from ._errors import InvalidArgumentError


def one(tensors: Any) -> Any:
    if isinstance(tensors, torch.Tensor):
        return tensors
    if len(tensors) != 1:
        raise InvalidArgumentError(f"one tensor is needed, not {len(tensors)}: a process has one rank")
    return tensors[0]


def reducing(opts: Any, kind: type) -> Any:
    if isinstance(opts, (dist.ReduceOp, dist.ReduceOp.RedOpType)):
        opts, op = kind(), opts
        opts.reduceOp = op
    return kind() if opts is None else opts


def split_rows(tensor: torch.Tensor, sizes: Sequence[int], count: int, what: str) -> list:
    """The parts of a tensor along its first dimension."""
    length = tensor.shape[0] if tensor.dim() else 1
    if not sizes:
        if length % count:
            raise InvalidArgumentError(f"all_to_all_single: the {what} has {length} rows, which {count} ranks cannot share evenly: give its split "
                                       "sizes")
        sizes = [length // count] * count
    if len(sizes) != count or sum(sizes) != length:
        raise InvalidArgumentError(f"all_to_all_single: {count} {what} split sizes with the sum {length} are needed, not {list(sizes)}")
    return list((tensor if tensor.dim() else tensor.view(1)).split(list(sizes)))
