# SPDX-License-Identifier: Apache-2.0
"""Messages that wait for their receive, and receives that wait for their message: part of libddp.c10d."""
from __future__ import annotations

import time
from collections import deque
from typing import Any, Callable, Optional

import torch.distributed as dist

from ._c10d_sockets import NOTHING
from ._c10d_work import Work
from ._errors import InvalidArgumentError, TimedOutError

_LONG = 1e9  # seconds
ANY = -1  #: the source of a receive that takes from any rank


class Transfer(Work):
    """One end of a message: a send or a receive. Few and short lines, because of a small message they are what takes time."""

    size = 0  #: bytes
    view = NOTHING  #: of them, while it runs
    busy = False  #: do its bytes travel?
    then: Optional[Callable[[], None]] = None  #: called before it ends well
    read: Optional[Callable[[Transfer, float], None]] = None  #: how a thread that waits for it can end it

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

    def of(self, view: memoryview) -> Transfer:
        """These bytes."""
        self.view = view
        self.size = len(view)
        return self

    def takes(self, source: int, tag: int) -> bool:
        return tag == self.tag and self.peer in (ANY, source)

    def end(self, error: Optional[BaseException] = None) -> None:
        if error is None and self.then is not None:
            try:
                self.then()
            except BaseException as raised:
                error = raised
        self.view, self.then, self.read = NOTHING, None, None
        super().end(error)

    def _wait(self, until: Optional[float]) -> bool:
        read = self.read
        if read is not None:
            read(self, _LONG if until is None else until - time.monotonic())
        return self.is_completed() or super()._wait(until)

    def __str__(self) -> str:
        return self.what


class Sent(Work):
    """A message that was sent at once."""

    _ended = True
    what = "send"

    def __init__(self, tensors: list) -> None:
        dist.Work.__init__(self)
        self.tensors = tensors


class Message:
    """A message that has come, or that is offered."""

    __slots__ = ("data", "link", "offer", "size", "source", "tag")

    def __init__(self, source: int, tag: int, size: int, offer: int, link: Any) -> None:
        self.source, self.tag, self.size, self.offer = source, tag, size, offer
        self.link = link  #: of an offer: the connection on which its bytes will come
        self.data: Optional[bytearray] = None  #: of another one


class Mailbox:
    """Both kinds, in the order in which they came. For one thread at a time."""

    def __init__(self, others: int) -> None:
        self.receives: deque[Transfer] = deque()
        self._others = others
        self._messages: deque[Message] = deque()
        self._gone: dict[int, BaseException] = {}  # ranks from which nothing comes any more

    def take(self, transfer: Transfer) -> Optional[Message]:
        """The first message for a receive; without one the receive waits, or ends with the exception that this raises."""
        for message in self._messages:
            if transfer.takes(message.source, message.tag):
                self._messages.remove(message)
                return message
        error = self._hopeless(transfer.peer) if self._gone else None
        if error is not None:
            raise error
        self.receives.append(transfer)
        return None

    def claim(self, source: int, tag: int) -> Optional[Transfer]:
        """The first receive for a message."""
        for transfer in self.receives:
            if transfer.takes(source, tag):
                self.receives.remove(transfer)
                return transfer
        return None

    def keep(self, message: Message) -> None:
        self._messages.append(message)

    def lose(self, source: int, error: BaseException, link: Any) -> list:
        """Nothing comes from a rank any more. Returns the receives that wait in vain."""
        self._gone[source] = error
        self._messages = deque(message for message in self._messages if message.link is None or message.link is not link)
        lost = [one for one in self.receives if one.peer in (source, ANY) and self._hopeless(one.peer) is not None]
        self.receives = deque(one for one in self.receives if one not in lost)
        return lost

    def _hopeless(self, peer: int) -> Optional[BaseException]:
        if peer != ANY:
            return self._gone.get(peer)
        return next(iter(self._gone.values())) if len(self._gone) == self._others else None

    def expire(self, now: float) -> list:
        """Receives that have waited too long."""
        late = [one for one in self.receives if now >= one.until]
        for transfer in late:
            self.receives.remove(transfer)
        return [(transfer, TimedOutError(f"{transfer}: nothing came within its timeout")) for transfer in late]


def wrong_size(transfer: Transfer, message: Message) -> InvalidArgumentError:
    return InvalidArgumentError(f"{transfer} takes {transfer.size} bytes, but rank {message.source} sent {message.size}: the tensors of a send "
                                "and its receive have the same size")
