# SPDX-License-Identifier: Apache-2.0
"""Dense tensors whose axes lie in another order in memory, as channels_last: part of libddp.torch. libddp sees them in the order of memory."""
from __future__ import annotations

from typing import Any

import torch


def order_of(tensor: torch.Tensor) -> tuple[int, ...]:
    """The axes as they lie in memory, if the tensor is dense in some order; otherwise as they are."""
    plain = tuple(range(tensor.dim()))
    if tensor.layout != torch.strided or tensor.is_contiguous():
        return plain
    order = tuple(sorted(plain, key=lambda axis: -tensor.stride(axis)))
    return order if tensor.permute(order).is_contiguous() else plain


def in_memory_order(tensor: torch.Tensor) -> torch.Tensor:
    """A view in the order of memory; the tensor itself where nothing is gained."""
    order = order_of(tensor)
    return tensor if order == tuple(range(len(order))) else tensor.detach().permute(order)


def like(tensor: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """What libddp has for a parameter, with the axes of the parameter."""
    order = order_of(parameter)
    back = sorted(range(len(order)), key=order.__getitem__)
    return tensor.view([parameter.shape[axis] for axis in order]).permute(back) if back else tensor.view(parameter.shape)


def is_reordered(tensor: Any) -> bool:
    """Does libddp see other axes than the program?"""
    order = order_of(tensor)
    return order != tuple(range(len(order)))
