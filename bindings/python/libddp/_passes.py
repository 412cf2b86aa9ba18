# SPDX-License-Identifier: Apache-2.0
"""Passes over the gradients of a model: equal on all ranks, or with unequal data."""
from __future__ import annotations

import array
import contextlib
from typing import Any, Callable, Container, ContextManager, Iterator, NamedTuple, Optional, TypeVar, Union

from . import low
from ._enums import PassMode, choose
from ._errors import CallbackError, Error, InvalidStateError, TensorError
from ._tensor import Watched

Key = Union[int, str]
Self = TypeVar("Self", bound="Passes")


class PassReport(NamedTuple):
    """Who took part in a pass, the same on all ranks."""

    contributors: int  #: ranks whose gradients counted
    weight: float  #: sum of their weights
    last: bool  #: has some rank no batch for the next pass?
    absent: tuple[int, ...] = ()  #: the ranks that did not contribute


class Passes:
    """What a :class:`libddp.Model` does with its gradients in a step."""

    group: Any
    _raw: Any
    _watched: Watched
    _collective: Callable[..., Any]
    _check_in_place: Callable[[], None]
    _values_written: Callable[..., None]
    index: Callable[[Key], int]
    _failed: list

    @contextlib.contextmanager
    def backward(self: Self, *, part: Optional[int] = None, stream: Optional[int] = None) -> Iterator[Self]:
        """A pass whose gradients are reduced over the ranks::

            with model.backward():
                ...                          # compute a gradient
                model.mark_ready("w")        # from here on it travels

        An exception inside ends the pass on all ranks: the others get InvalidStateError with its text instead of waiting. Where it is no
        Exception (KeyboardInterrupt, SystemExit) the group is aborted.

        Where the global batch has parts (``Group(virtual_ranks=8)``), one pass for each of this rank's::

            for part in group.parts:
                with model.backward(part=part):   # the last one is reduced
                    ...
        """
        self._open(low.DDP_PASS_REDUCE if part is None or part == self.group.parts[-1] else low.DDP_PASS_PART)
        try:
            yield self
        except BaseException as error:
            self._give_up(error)
            raise
        self.end_backward(stream=stream)

    def accumulate(self: Self, *, stream: Optional[int] = None) -> ContextManager[Self]:
        """A pass that sends nothing: add to the gradients; a later backward() sends the whole."""
        return self._quiet(low.DDP_PASS_ACCUMULATE, stream)

    def local_backward(self: Self, *, stream: Optional[int] = None) -> ContextManager[Self]:
        """A pass that sends nothing and whose gradients are final on this rank alone: local SGD, with average_parameters() every few
        steps."""
        return self._quiet(low.DDP_PASS_LOCAL, stream)

    @contextlib.contextmanager
    def _quiet(self: Self, mode: int, stream: Optional[int]) -> Iterator[Self]:
        self._open(mode)
        try:
            yield self
        finally:
            low.ddp_model_end_backward(self._raw, stream)

    def average_parameters(self, *, stream: Optional[int] = None) -> None:
        """Every parameter becomes its mean over the ranks."""
        self._check_in_place()
        self._collective(low.ddp_model_average_parameters, stream)
        self._values_written()

    def begin_backward(self, mode: Union[PassMode, str] = PassMode.REDUCE) -> None:
        """Open a pass, where a with statement does not fit."""
        self._open(choose(PassMode, mode))

    def end_backward(self, *, stream: Optional[int] = None) -> None:
        """Close the pass and wait for all ranks."""
        try:
            self._collective(low.ddp_model_end_backward, stream)
        except CallbackError as error:
            if self._failed:
                raise self._failed.pop() from error  # what the hook raised on this rank
            raise

    def _open(self, mode: int, may_have_moved: bool = False) -> None:
        if not may_have_moved:
            self._check_moved()
        self._failed.clear()
        low.ddp_model_begin_backward(self._raw, mode)

    def _give_up(self, error: BaseException) -> None:
        reason = f"{type(error).__name__}: {error}"
        with contextlib.suppress(Error):
            if isinstance(error, Exception):
                self.abandon_backward(reason)
                return
            if self.group.size > 1:
                self.group.abort(reason)
            low.ddp_model_end_backward(self._raw, None)

    def _check_moved(self) -> None:
        what = self._watched.moved()
        if what is not None:
            raise TensorError(f"{what} was moved to other memory since it was lent (resized, or its data replaced); libddp would "
                              "read the old place: copy into it instead")

    def mark_ready(self, key: Key, *, stream: Optional[int] = None) -> None:
        """The gradient of a parameter is complete. Until the pass ends it is libddp's: neither read nor write it."""
        low.ddp_model_mark_ready(self._raw, key if isinstance(key, int) else self.index(key), stream)

    def _mark_all(self, numbers: array.array, used: Optional[Container[int]], stream: Optional[int]) -> None:
        """Many at once; with `used` those that are not in it as unused."""
        if used is not None and (unused := [number for number in numbers if number not in used]):
            for number in unused:
                low.ddp_model_mark_unused(self._raw, number)
            numbers = array.array("i", [number for number in numbers if number in used])
        low.mark_all_ready(self._raw, numbers.buffer_info()[0], len(numbers), stream)

    def mark_range_ready(self, key: Key, first: int, count: int, *, stream: Optional[int] = None) -> None:
        """Elements `first` to ``first + count`` of a flattened gradient are complete: one array that holds many layers."""
        low.ddp_model_mark_range_ready(self._raw, self.index(key), first, count, stream)

    def mark_unused(self, key: Key) -> None:
        """The gradient of a parameter will not come in this pass on this rank. Needs unused="allow"."""
        low.ddp_model_mark_unused(self._raw, self.index(key))

    def was_used(self, key: Key) -> bool:
        """Did any rank contribute to this parameter in the last reducing pass?"""
        answer = low.ddp_model_was_used(self._raw, self.index(key))
        if answer < 0:
            raise InvalidStateError("no reducing pass has ended yet, or there is no such parameter")
        return answer == 1

    # ---- Unequal data: include/README.md says which to use when. ----

    def set_weight(self, weight: float) -> None:
        """How much this rank's gradients count from the next pass on: its number of samples or tokens. Needs divisor="weights"."""
        low.ddp_model_set_weight(self._raw, weight)

    def set_last_pass(self) -> None:
        """Say that this rank has no batch after this pass; all ranks find it in pass_report() when it has ended."""
        low.ddp_model_set_last_pass(self._raw)

    def pass_report(self) -> PassReport:
        """Who took part in the last reducing pass."""
        report = low.ddp_model_get_pass_report(self._raw)
        return PassReport(report.contributors, report.weight, bool(report.last), low.ddp_model_get_absent(self._raw))

    def skip_backward(self, *, stream: Optional[int] = None) -> None:
        """Take part in one reducing pass without a batch, in the place of backward(): contribute nothing, receive the result."""
        self._collective(low.ddp_model_skip_backward, stream)

    def abandon_backward(self, reason: Optional[str] = None, *, stream: Optional[int] = None) -> None:
        """Leave the open pass because this rank failed in it; the other ranks get the reason."""
        self._collective(low.ddp_model_abandon_backward, reason, stream)

    def join(self, *, stream: Optional[int] = None) -> None:
        """This rank is out of data: answer the other ranks' passes until all have joined. Needs uneven_inputs=True."""
        self._collective(low.ddp_model_join, stream)
        self._values_written()
