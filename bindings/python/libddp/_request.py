# SPDX-License-Identifier: Apache-2.0
"""Requests: calls that return at once and end by themselves."""
from __future__ import annotations

import array
import asyncio
import time
from typing import Any, Generator, Optional, Sequence, Union

from . import low
from ._enums import Reduce, choose
from ._handle import Handle
from ._tensor import Lent, lend

_SLICE_MS = 50  # of a wait, after which Python answers signals


class Request:
    """A call that was posted: ``group.post_all_reduce(tensor)``. Until it has ended the tensors belong to it. It is a future: ``wait()``, ``done()``,
    and ``await request``. One that nobody keeps is given up: a receive for which nothing has come is withdrawn, all else is waited for."""

    __slots__ = ("__weakref__", "_group", "_handle", "_value")

    def __init__(self, group: Any, raw: Any, value: Any, *lent: Optional[Lent]) -> None:
        self._group, self._value = group, value
        self._handle = Handle(raw, low.ddp_request_destroy, group._handle, *lent)

    def done(self) -> bool:
        """Has it ended well? Never waits. Raises the error that it has ended with."""
        return bool(low.ddp_request_test(self._handle.get("request")))

    def wait(self, timeout: Optional[float] = None) -> Any:
        """Wait until it has ended, and return what the blocking call returns: of a receive the rank that sent. After `timeout` seconds
        TimeoutError, and the request goes on. Raises the error that it has ended with. Ctrl-C aborts the group."""
        raw = self._handle.get("request")
        until = None if timeout is None else time.monotonic() + timeout
        try:
            while not low.ddp_request_wait(raw, _slice(until)):
                if until is not None and time.monotonic() >= until:
                    raise TimeoutError(f"the request has not ended within {timeout:g} s; it goes on")
        except KeyboardInterrupt:
            self._group.abort("KeyboardInterrupt on a rank that was waiting")
            raise
        return self._result()

    def close(self) -> None:
        """Give it up, or forget that it has ended."""
        self._handle.close()

    def _result(self) -> Any:
        return low.ddp_request_get_source(self._handle.get("request")) if self._value is None else self._value

    def __await__(self) -> Generator[Any, None, Any]:
        if not self.done():
            yield from asyncio.get_running_loop().run_in_executor(None, self.wait).__await__()
        return self._result()


def _slice(until: Optional[float]) -> int:
    return _SLICE_MS if until is None else max(0, min(_SLICE_MS, int(1000 * (until - time.monotonic()) + 0.999)))


def wait_any(requests: Sequence[Request], timeout: Optional[float] = None) -> int:
    """Wait until one of the requests has ended, and return its place in the sequence. After `timeout` seconds TimeoutError. Raises the error of
    that request."""
    if not requests:
        raise ValueError("no request is given")
    ids = array.array("q", [low.ddp_request_get_id(request._handle.get("request")) for request in requests])
    until = None if timeout is None else time.monotonic() + timeout
    while True:
        found = low.ddp_request_wait_any(ids.buffer_info()[0], len(ids), _slice(until))
        if found >= 0:
            return found
        if until is not None and time.monotonic() >= until:
            raise TimeoutError(f"none of {len(ids)} requests has ended within {timeout:g} s; they go on")


class Requests:
    """The posted form of a group's collectives and messages. All ranks post the same collectives in the same order, whatever else they call
    meanwhile. The first one of a group waits for all ranks, and is posted while no pass is open (or the group is made with requests=1)."""

    rank: int
    size: int
    _raw: Any

    def post_barrier(self) -> Request:
        """As barrier()."""
        return Request(self, low.ddp_group_post_barrier(self._raw), True)

    def post_all_reduce(self, tensor: Any, op: Union[Reduce, str] = Reduce.AVERAGE, *, stream: Optional[int] = None) -> Request:
        """As all_reduce()."""
        lent = lend(tensor)
        return Request(self, low.ddp_group_post_all_reduce(self._raw, lent.tensor, choose(Reduce, op), stream), tensor, lent)

    def post_all_gather(self, value: Any, output: Any, *, stream: Optional[int] = None) -> Request:
        """As all_gather()."""
        given, taken = lend(value, "value", write=False), lend(output, "output")
        return Request(self, low.ddp_group_post_all_gather(self._raw, given.tensor, taken.tensor, stream), output, given, taken)

    def post_reduce_scatter(self, value: Any, output: Any, op: Union[Reduce, str] = Reduce.AVERAGE, *, stream: Optional[int] = None) -> Request:
        """As reduce_scatter()."""
        given, taken = lend(value, "value", write=False), lend(output, "output")
        return Request(self, low.ddp_group_post_reduce_scatter(self._raw, given.tensor, taken.tensor, choose(Reduce, op), stream), output, given,
                       taken)

    def post_broadcast(self, tensor: Any, root: int = 0, *, stream: Optional[int] = None) -> Request:
        """As broadcast()."""
        lent = lend(tensor)
        return Request(self, low.ddp_group_post_broadcast(self._raw, lent.tensor, root, stream), tensor, lent)

    def post_reduce(self, tensor: Any, op: Union[Reduce, str] = Reduce.AVERAGE, root: int = 0, *, stream: Optional[int] = None) -> Request:
        """As reduce()."""
        lent = lend(tensor)
        return Request(self, low.ddp_group_post_reduce(self._raw, lent.tensor, choose(Reduce, op), root, stream), tensor, lent)

    def post_gather(self, value: Any, output: Any = None, root: int = 0, *, stream: Optional[int] = None) -> Request:
        """As gather()."""
        given, taken = lend(value, "value", write=False), lend(output, "output") if self.rank == root else None
        raw = low.ddp_group_post_gather(self._raw, given.tensor, None if taken is None else taken.tensor, root, stream)
        return Request(self, raw, True if output is None else output, given, taken)

    def post_scatter(self, value: Any, output: Any, root: int = 0, *, stream: Optional[int] = None) -> Request:
        """As scatter()."""
        given, taken = lend(value, "value", write=False) if self.rank == root else None, lend(output, "output")
        raw = low.ddp_group_post_scatter(self._raw, None if given is None else given.tensor, taken.tensor, root, stream)
        return Request(self, raw, output, given, taken)

    def post_all_to_all(self, value: Any, output: Any, value_counts: Optional[Sequence[int]] = None,
                        output_counts: Optional[Sequence[int]] = None, *, stream: Optional[int] = None) -> Request:
        """As all_to_all()."""
        given, taken = lend(value, "value", write=False), lend(output, "output")
        sent, received = self._counts(value_counts), self._counts(output_counts)  # type: ignore[attr-defined]
        raw = low.ddp_group_post_all_to_all(self._raw, given.tensor, taken.tensor, None if sent is None else sent.buffer_info()[0],
                                            None if received is None else received.buffer_info()[0], stream)
        return Request(self, raw, output, given, taken)

    def post_all_gather_counts(self, value: Any, output: Any, counts: Sequence[int], *, stream: Optional[int] = None) -> Request:
        """As all_gather_counts()."""
        given, taken = lend(value, "value", write=False), lend(output, "output")
        each = self._counts(counts)  # type: ignore[attr-defined]
        return Request(self, low.ddp_group_post_all_gather_counts(self._raw, given.tensor, taken.tensor, each.buffer_info()[0], stream), output, given,
                       taken)

    def post_send(self, tensor: Any, peer: int, tag: int = 0, *, stream: Optional[int] = None) -> Request:
        """As send(). Any thread, also while a pass is open."""
        lent = lend(tensor, write=False)
        return Request(self, low.ddp_group_post_send(self._raw, lent.tensor, peer, tag, stream), True, lent)

    def post_receive(self, tensor: Any, source: Optional[int] = None, tag: int = 0, *, stream: Optional[int] = None) -> Request:
        """As receive(): wait() returns the rank that sent. Any thread, also while a pass is open."""
        lent = lend(tensor)
        raw = low.ddp_group_post_receive(self._raw, lent.tensor, low.DDP_ANY_SOURCE if source is None else source, tag, stream)
        return Request(self, raw, None, lent)
