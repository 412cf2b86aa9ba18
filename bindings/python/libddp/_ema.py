# SPDX-License-Identifier: Apache-2.0
"""Moving averages of a model's parameters."""
from __future__ import annotations

import contextlib
from typing import Any, Iterator, Optional, Sequence, Union

from . import low
from ._handle import Closing, Handle
from ._model import Model


class Ema(Closing):
    """Averages of all parameters, one for each decay: ``average = decay * average + (1 - decay) * value`` at each update()."""

    def __init__(self, model: Model, decays: Union[float, Sequence[float]]) -> None:
        model._check_all_here()
        model._check_in_place()
        given = [decays] if isinstance(decays, (int, float)) else list(decays)
        self._handle = Handle(low.ddp_ema_create(model._raw, given), low.ddp_ema_destroy, model._handle)
        self._model = model

    @property
    def _raw(self) -> Any:
        return self._handle.get("average")

    def update(self, *, stream: Optional[int] = None) -> None:
        """Take the current parameters into every average. Call after each step."""
        low.ddp_ema_update(self._raw, stream)

    def swap(self, which: int = 0, *, stream: Optional[int] = None) -> None:
        """Exchange the parameters with an average; the same call swaps back."""
        low.ddp_ema_swap(self._raw, which, stream)
        self._model._values_written()

    @contextlib.contextmanager
    def average(self, which: int = 0, *, stream: Optional[int] = None) -> Iterator[None]:
        """The parameters are the average inside a with statement: for evaluation, or to save it. `stream`: of parameters on a GPU, as everywhere."""
        self.swap(which, stream=stream)
        try:
            yield
        finally:
            self.swap(which, stream=stream)
