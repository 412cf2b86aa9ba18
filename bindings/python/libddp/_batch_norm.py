# SPDX-License-Identifier: Apache-2.0
"""Batch normalisation over the samples of all ranks: the same numbers as one rank with the whole batch."""
from __future__ import annotations

import dataclasses
from typing import Any, Optional

from . import low
from ._group import Group
from ._options import fill
from ._tensor import lend


@dataclasses.dataclass(frozen=True)
class BatchNorm:
    """What batch_norm_backward() needs of the forward computation."""

    x: Any
    weight: Any
    saved_mean: Any  #: F64, one a channel
    saved_invstd: Any
    count: int  #: values per channel over all ranks
    options: dict


def _low(value: Any, what: str, write: bool = False) -> Optional[tuple]:
    return None if value is None else lend(value, what, write).tensor


def batch_norm_forward(group: Group, x: Any, y: Any, *, weight: Any = None, bias: Any = None, running_mean: Any = None,
                       running_var: Any = None, saved_mean: Any = None, saved_invstd: Any = None, stream: Optional[int] = None,
                       **options: Any) -> BatchNorm:
    """Normalise `x` [N, C, ...] into `y`, with the mean and variance of each channel over all ranks. `saved_mean` and `saved_invstd`
    are F64 [C], needed when a backward follows. Keywords: epsilon, momentum, training, accumulate. Use a group of its own where a
    model's pass is open."""
    struct = fill(low.ddp_batch_norm_options(), low.ddp_batch_norm_options_init, options)
    arguments = (_low(x, "x"), _low(weight, "weight"), _low(bias, "bias"), _low(running_mean, "running_mean", True),
                 _low(running_var, "running_var", True), _low(y, "y", True), _low(saved_mean, "saved_mean", True),
                 _low(saved_invstd, "saved_invstd", True))
    count = group._collective(low.ddp_batch_norm_forward, struct, *arguments, stream)
    return BatchNorm(x, weight, saved_mean, saved_invstd, count, options)


def batch_norm_backward(group: Group, saved: BatchNorm, dy: Any, *, dx: Any = None, dweight: Any = None, dbias: Any = None,
                        stream: Optional[int] = None) -> None:
    """Gradients: `dx` over the samples of all ranks; `dweight` and `dbias` are this rank's share, reduced with all other gradients."""
    struct = fill(low.ddp_batch_norm_options(), low.ddp_batch_norm_options_init, saved.options)
    arguments = (_low(dy, "dy"), _low(saved.x, "x"), _low(saved.weight, "weight"), _low(saved.saved_mean, "saved_mean"),
                 _low(saved.saved_invstd, "saved_invstd"), saved.count, _low(dx, "dx", True), _low(dweight, "dweight", True),
                 _low(dbias, "dbias", True))
    group._collective(low.ddp_batch_norm_backward, struct, *arguments, stream)
