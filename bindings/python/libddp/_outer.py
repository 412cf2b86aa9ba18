# SPDX-License-Identifier: Apache-2.0
"""Training over slow links: steps of each rank on its own, and an outer optimizer over the movements of all."""
from __future__ import annotations

from typing import Any

from . import low
from ._handle import Closing, Handle
from ._model import Model
from ._options import fill, read


class Outer(Closing):
    """The outer optimizer of a model whose passes are LOCAL (DiLoCo). Options are the fields of ``ddp_outer_options``: ``every``, ``overlap``,
    ``rate``, ``momentum``, ``keep``, ``fragments``, ``nesterov``, ``bits``, ``error_feedback``."""

    def __init__(self, model: Model, **options: Any) -> None:
        model._check_all_here()
        model._check_in_place()
        struct = fill(low.ddp_outer_options(), low.ddp_outer_options_init, options)
        self._model = model
        self._handle = Handle(low.ddp_outer_create(model._raw, struct), low.ddp_outer_destroy, model._handle)

    @property
    def _raw(self) -> Any:
        return self._handle.get("outer optimizer")

    def step(self) -> None:
        """After each step of the rank's own optimizer: begin the exchanges that are due, take what others have brought. Collective."""
        self._model._collective(lambda _: low.ddp_outer_step(self._raw))
        self._model._values_written()

    def sync(self) -> None:
        """Exchange everything at once; afterwards the replicas are equal. Before evaluation and checkpoints. Collective."""
        self._model._collective(lambda _: low.ddp_outer_sync(self._raw))
        self._model._values_written()

    @property
    def stats(self) -> dict[str, int]:
        """``steps``, ``exchanges``, ``under_way``, ``sent_bytes``, ``wait_ns``."""
        return read(low.ddp_outer_get_stats(self._raw))
