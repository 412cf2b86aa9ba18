# SPDX-License-Identifier: Apache-2.0
"""Going on after ranks have died: what a recovery came to, and what was last heard of a rank."""
from __future__ import annotations

from typing import Any, NamedTuple, Optional

from . import low


class Recovery(NamedTuple):
    """What :meth:`libddp.Group.recover` came to."""

    rank: int  #: of this rank, now
    size: int  #: number of ranks, now
    previous_rank: int  #: of this rank, before
    previous_size: int  #: number of ranks, before
    generation: int  #: 1 for the group as it was made, and one more with each recovery
    source: Optional[int]  #: rank (of now) whose parameters, buffers and optimizers all ranks have now; None: all had the same
    seconds: float  #: how long the call took
    step: Optional[int]  #: steps that the optimizers have made: repeat step + 1; None: none counts, or a checkpoint has to be loaded
    gone: tuple[int, ...]  #: ranks (of before) that are not there any more
    joined: tuple[int, ...]  #: ranks (of now) that are new
    renumbered: tuple[Optional[int], ...]  #: by rank of before: the rank of now; None: it is gone
    went_back: int = 0  #: steps that are repeated because all ranks went back to what keep() has kept
    kept_epoch: Optional[int] = None  #: epoch of that state; None: they did not go back
    kept_step: Optional[int] = None  #: its step; all that the program keeps itself goes back with it
    own: bytes = b""  #: the program's own bytes that were kept with it


class RankProgress(NamedTuple):
    """Where a rank was when it was last heard."""

    pass_index: Optional[int]  #: backward pass in which it was, counted from 0; None: none yet
    bucket: Optional[int]  #: bucket of that pass; None: none
    silent: float  #: seconds since it was heard
    call: Optional[str]  #: the last collective call that it made, as C names it: "ddp_group_barrier"; None: none yet
    in_call: bool  #: it was in this call; otherwise it had returned from it, and computed


def recovery_of(report: Any, raw: Any) -> Recovery:
    """From the struct of C, and the group as it is now."""
    renumbered = tuple(_or_none(rank) for rank in low.ddp_group_get_renumbered(raw))
    return Recovery(report.rank, report.size, report.previous_rank, report.previous_size, report.generation, _or_none(report.source),
                    report.seconds, _or_none(report.step), low.ddp_group_get_gone(raw), low.ddp_group_get_joined(raw), renumbered,
                    report.went_back, _or_none(report.kept_epoch), None if report.kept_epoch < 0 else report.kept_step,
                    b"" if report.kept_epoch < 0 else low.ddp_group_get_kept(raw))


def progress_of(report: Any) -> RankProgress:
    """From the struct of C."""
    return RankProgress(_or_none(report.pass_index), _or_none(report.bucket), report.silent, low.ddp_call_name(report.call) or None, report.in_call != 0)


def _or_none(number: int) -> Optional[int]:
    return None if number < 0 else number
