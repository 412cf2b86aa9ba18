"""Going on after ranks have died: what a recovery came to, and what was last heard of a rank."""
from __future__ import annotations

from typing import Any, NamedTuple, Optional


class Recovery(NamedTuple):
    """What :meth:`libddp.Group.recover` came to."""

    rank: int  #: of this rank, now
    size: int  #: number of ranks, now
    previous_rank: int  #: of this rank, before
    previous_size: int  #: number of ranks, before
    generation: int  #: 1 for the group as it was made, and one more with each recovery
    source: Optional[int]  #: rank (of now) whose parameters, buffers and optimizers all ranks have now; None: all had the same
    seconds: float  #: how long the call took


class RankProgress(NamedTuple):
    """Where a rank was when it was last heard."""

    pass_index: Optional[int]  #: backward pass in which it was, counted from 0; None: none yet
    bucket: Optional[int]  #: bucket of that pass; None: none
    silent: float  #: seconds since it was heard


def recovery_of(report: Any) -> Recovery:
    """From the struct of C."""
    return Recovery(report.rank, report.size, report.previous_rank, report.previous_size, report.generation, _or_none(report.source),
                    report.seconds)


def progress_of(report: Any) -> RankProgress:
    """From the struct of C."""
    return RankProgress(_or_none(report.pass_index), _or_none(report.bucket), report.silent)


def _or_none(number: int) -> Optional[int]:
    return None if number < 0 else number
