# SPDX-License-Identifier: Apache-2.0
"""Exceptions: one class for each status, with the library's sentence as text."""
from __future__ import annotations

from typing import NamedTuple, Optional

from . import low
from ._enums import Status


class ErrorDetails(NamedTuple):
    """What an error is about, as numbers. A list that is empty, a call "" and bytes -1 mean: it is not about that, or not known."""

    ranks: tuple[int, ...] = ()  #: ranks of the group, ascending, at most 128
    rank_count: int = 0  #: how many, also if there are more
    parameters: tuple[int, ...] = ()  #: numbers of parameters, ascending, at most 128
    parameter_count: int = 0  #: how many, also if there are more
    call: str = ""  #: the collective call that failed, as C names it; of DifferentCallsError that of the first of the two ranks
    other_call: str = ""  #: of DifferentCallsError that of the second
    bytes_expected: int = -1  #: where sizes differ, of the receiver or the lower rank
    bytes_got: int = -1  #: where sizes differ, of the sender or the other rank


class Error(RuntimeError):
    """A call of libddp failed. ``status`` says how, the text who and what to do, ``details`` the same in numbers."""

    status: int
    details: ErrorDetails = ErrorDetails()

    def __init__(self, text: str, status: Optional[int] = None) -> None:
        super().__init__(text)
        if status is not None:
            self.status = status


class InvalidArgumentError(Error, ValueError):
    """A value that can never be right."""

    status = Status.INVALID_ARGUMENT


class TensorError(InvalidArgumentError):
    """A tensor that libddp would misread or must not write."""


class InvalidStateError(Error):
    """The right call at the wrong moment."""

    status = Status.INVALID_STATE


class NotSupportedError(Error):
    """This build, machine or version cannot do it."""

    status = Status.NOT_SUPPORTED


class OutOfMemoryError(Error):
    """Memory, descriptors or threads ran out."""

    status = Status.OUT_OF_MEMORY


class BrokenGroupError(Error):
    """The group is broken: every later call on it repeats the first cause. A group with recoverable=True goes on after
    :meth:`libddp.Group.recover`; close any other and make a new one. Other errors (OutOfMemoryError, InternalError) may have broken it
    too: :meth:`libddp.Group.check` says that after any error."""


class TimedOutError(BrokenGroupError):
    """A rank is alive but did not come in time."""

    status = Status.TIMED_OUT


class PeerFailedError(BrokenGroupError):
    """A rank is dead, stopped or unreachable."""

    status = Status.PEER_FAILED


class AbortedError(BrokenGroupError):
    """Somebody aborted the group, or a rank left."""

    status = Status.ABORTED


class DifferentCallsError(BrokenGroupError):
    """Ranks wait for each other in different calls, or in calls on data of other sizes."""

    status = Status.DIFFERENT_CALLS


class MismatchError(Error):
    """Ranks, or a rank and a file, differ in what they give to one call. The group is whole."""

    status = Status.MISMATCH


class FileError(Error):
    """A file, a port or a name could not be used."""

    status = Status.IO


class CallbackError(Error):
    """A callback failed; its own exception is ``__cause__`` where it was Python's."""

    status = Status.CALLBACK


class InternalError(Error):
    """A defect of libddp; please report the text."""

    status = Status.INTERNAL


class TooFewRanksError(Error):
    """Of :meth:`libddp.Group.recover`: fewer ranks are left than min_ranks."""

    status = Status.TOO_FEW_RANKS


class FencedError(Error):
    """Of :meth:`libddp.Group.recover`: this rank was silent, and the others have gone on without it. End the process."""

    status = Status.FENCED


class NoCheckpointError(Error):
    """Of :meth:`libddp.State.load_latest`: the folder is there and holds no checkpoint yet."""

    status = Status.NO_CHECKPOINT


class NoMajorityError(Error):
    """Of :meth:`libddp.Group.recover`: ranks that are out of reach may go on without this one. End the process."""

    status = Status.NO_MAJORITY


_CLASSES = {int(cls.status): cls for cls in (
    InvalidArgumentError, InvalidStateError, NotSupportedError, OutOfMemoryError, TimedOutError, PeerFailedError, AbortedError,
    MismatchError, FileError, CallbackError, InternalError, TooFewRanksError, FencedError,
    NoCheckpointError, NoMajorityError, DifferentCallsError)}


def make(status: int, text: str, details: tuple = ()) -> Error:
    """What a failed call of the module `low` raises."""
    error = _CLASSES.get(status, Error)(text, Status(status) if status in _CLASSES else status)
    error.details = ErrorDetails(*details)
    return error


low.set_error_factory(make)
