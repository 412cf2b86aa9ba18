# SPDX-License-Identifier: Apache-2.0
"""Passes that ended without all gradients: part of libddp.torch."""
from __future__ import annotations

import warnings
import weakref
from typing import Any, Optional, Sequence

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ._errors import InvalidStateError


class Unfinished:
    """The error of a pass in which a parameter got no gradient. As with PyTorch's wrapper backward() itself returns, with a warning. The error
    comes at the next forward(), or before an optimizer would make a step with the gradients that were not reduced."""

    def __init__(self) -> None:
        self._text: Optional[str] = None
        self._parameters: set[int] = set()
        self._handle: Any = None

    def put(self, text: str, parameters: Sequence[torch.Tensor]) -> None:
        """Keep an error for these parameters."""
        self.clear()
        self._text, self._parameters = text, set(map(id, parameters))
        reference = weakref.ref(self)

        def before_step(optimizer: Any, *_: Any) -> None:
            alive = reference()
            if alive is not None and any(id(p) in alive._parameters for group in optimizer.param_groups for p in group["params"]):
                alive.check()

        self._handle = register_optimizer_step_pre_hook(before_step)
        warnings.warn("this backward() did not reduce gradients, so a step of an optimizer and the next forward() will fail: " + text,
                      RuntimeWarning, stacklevel=2)

    def check(self) -> None:
        """Raise it, once."""
        text = self._text
        self.clear()
        if text is not None:
            raise InvalidStateError(text)

    def clear(self) -> None:
        """Forget it."""
        self._text = None
        if self._handle is not None:
            self._handle.remove()
            self._handle = None


def is_incomplete(error: InvalidStateError) -> bool:
    """Did this pass end so because parameters got no gradient, and for no other reason?"""
    return " did not mark " in str(error) and " abandoned the pass: " not in str(error)
