# SPDX-License-Identifier: Apache-2.0
"""Messages of torch.distributed from one rank to one other, as requests of the library: part of libddp.c10d.

A message is sent and compared as bytes. The thread that waits for one works on all messages of the process group; if no thread waits, the
library's own thread does.
"""
from __future__ import annotations

import array
import threading
import time
from typing import Any, Callable, Optional

import torch
import torch.distributed as dist

from . import low
from ._c10d_work import Work
from ._enums import DType
from ._errors import AbortedError, BrokenGroupError, Error, InvalidArgumentError, InvalidStateError, MismatchError, TimedOutError
from ._tensor import CPU

ANY: int = low.DDP_ANY_SOURCE  #: the source of a receive that takes from any rank
_BYTES = int(DType.U8)
_SLICE = 0.05  # seconds of a wait, after which Python answers signals
_WATCHED = 0.005  # seconds in which the thread behind futures learns of one more


class Transfer(Work):
    """One end of a message: a send or a receive."""

    then: Optional[Callable[[], None]] = None  #: called before it ends well
    watch: Optional[Callable[[Transfer], None]] = None  #: makes it end though nobody waits
    request: Any = None  #: of the library, until it has ended
    _taken = False  # has a thread seen its end?

    def __init__(self, tensors: list, abort: Callable[[str], None], explain: Callable[[BaseException], BaseException], sends: bool, peer: int,
                 tag: int, limit: float) -> None:
        dist.Work.__init__(self)
        self.tensors, self._abort, self._explain = tensors, abort, explain
        self.sends, self.peer, self.tag = sends, peer, tag
        self.until = time.monotonic() + limit  #: when it has taken too long

    @property
    def what(self) -> str:  # type: ignore[override]
        other = "any rank" if self.peer == ANY else f"rank {self.peer}"
        return f"{'send to' if self.sends else 'receive from'} {other} (tag {self.tag})"

    def __str__(self) -> str:
        return self.what

    def post(self, group: Any, tensor: torch.Tensor) -> None:
        """Begin, with the bytes of this dense tensor, which is kept."""
        self.kept = tensor
        given = (tensor.data_ptr(), _BYTES, CPU, 0, (tensor.numel() * tensor.element_size(),))
        post = low.ddp_group_post_send if self.sends else low.ddp_group_post_receive
        self.request = post(group, given, self.peer, self.tag, None)

    def _look(self) -> bool:
        """Has it ended? Never waits."""
        if not self._ended:
            self._step(low.ddp_request_test)
            if not self._ended and time.monotonic() >= self.until:
                self._expire()
        return self._ended

    def _wait(self, until: Optional[float]) -> bool:
        while not self._ended:
            now = time.monotonic()
            if now >= self.until:
                self._expire()
                continue
            if until is not None and now >= until:
                return False
            left = min(self.until, now + _SLICE, until if until is not None else self.until) - now
            self._step(low.ddp_request_wait, max(1, int(left * 1000)))
        return True

    def _step(self, function: Callable, *arguments: Any) -> None:
        request = self.request
        try:
            if request is not None and function(request, *arguments):
                self._finish(None)
        except Error as error:
            self._finish(error)
        if self._taken and not self._ended:
            super()._wait(None)  # another thread ends it

    def _finish(self, error: Optional[BaseException]) -> None:
        """It has ended. The first thread that sees it is the one that says so."""
        with self._mutex:
            if self._taken:
                return
            self._taken = True
            request, self.request = self.request, None
        self.source = low.ddp_request_get_source(request)
        low.ddp_request_destroy(request)
        if isinstance(error, MismatchError):
            error = InvalidArgumentError(str(error).replace(" U8 elements", " bytes"))
        self._conclude(error)

    def _conclude(self, error: Optional[BaseException]) -> None:
        if error is None and self.then is not None:
            try:
                self.then()
            except BaseException as raised:
                error = raised
        self.kept = self.then = None
        self.end(error)

    def _expire(self) -> None:
        """A receive is withdrawn. What was offered for sending cannot be, so the group ends with it."""
        with self._mutex:
            if self._taken:
                return
            self._taken = True
            request, self.request = self.request, None
        if self.sends:
            self._abort(f"{self} was not received within its timeout")
        low.ddp_request_destroy(request)
        what = "it was not received" if self.sends else "nothing came"
        self._conclude(TimedOutError(f"{self}: {what} within its timeout"))

    def is_completed(self) -> bool:
        return self._look()

    def is_success(self) -> bool:
        return self._look() and self._error is None

    def get_future(self) -> torch.futures.Future:
        future = super().get_future()
        if not self._look() and self.watch is not None:
            self.watch(self)
        return future


class Messages:
    """The messages of one process group: those under way are kept, whoever forgets them. A thread, which starts with the first future of one
    that has not ended, tells futures."""

    def __init__(self, group: Any) -> None:
        self._group = group
        self._changed = threading.Condition()
        self._open: set[Transfer] = set()
        self._watched: list[Transfer] = []
        self._thread: Optional[threading.Thread] = None
        self._closing = False

    def post(self, transfer: Transfer, tensor: torch.Tensor) -> Transfer:
        if self._closing:
            raise InvalidStateError("the process group was destroyed")
        if len(self._open) > 16:
            self._open = {each for each in self._open if not each._look()}
        transfer.watch = self._watch
        try:
            transfer.post(self._group._raw, tensor)
        except BrokenGroupError as error:  # the wait tells
            transfer._taken = True
            transfer._conclude(error)
            return transfer
        transfer._step(low.ddp_request_wait, 0)  # unlike a test this wakes no thread
        if not transfer._ended:
            self._open.add(transfer)
        return transfer

    def _watch(self, transfer: Transfer) -> None:
        with self._changed:
            self._watched.append(transfer)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="libddp-messages", daemon=True)
                self._thread.start()
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._watched and not self._closing:
                    self._changed.wait()
                watched = [each for each in self._watched if not each._ended]
                self._watched = list(watched)
                if self._closing:
                    return
            ids = array.array("q", [low.ddp_request_get_id(request) for each in watched if (request := each.request) is not None])
            try:
                if ids:
                    low.ddp_request_wait_any(ids.buffer_info()[0], len(ids), int(1000 * _WATCHED))
            except Error:
                pass  # it is that transfer's
            for each in watched:
                each._look()

    def stop(self) -> None:
        """No message is posted any more, and futures are told no more."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def end(self) -> None:
        """The group is gone: what is under way ends with an exception."""
        for transfer in list(self._open):
            if not transfer._look():
                transfer._finish(AbortedError("the process group was destroyed"))
        self._open.clear()
