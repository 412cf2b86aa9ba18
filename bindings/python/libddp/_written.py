# SPDX-License-Identifier: Apache-2.0
"""What libddp writes into tensors of PyTorch, autograd is told of, so that a backward pass that needs the old values is an error."""
from __future__ import annotations

import sys
from typing import Any, Iterable


def written(tensors: Iterable[Any]) -> None:
    """These have other values now, and no operation of PyTorch has written them. What is no tensor of PyTorch is passed over."""
    torch = sys.modules.get("torch")
    if torch is None:
        return
    found = [tensor for tensor in tensors if isinstance(tensor, torch.Tensor)]
    try:
        torch.autograd.graph.increment_version(found)
    except (AttributeError, TypeError):  # an old release: an operation that changes no element counts too
        for tensor in found:
            if not tensor.is_inference():
                tensor.detach().reshape(-1)[:0].zero_()
