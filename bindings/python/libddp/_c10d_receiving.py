# SPDX-License-Identifier: Apache-2.0
"""What comes from other ranks, on its way to a receive: part of libddp.c10d."""
from __future__ import annotations

import os
import threading
import time
from typing import Any, Optional

from ._c10d_mail import ANY, Mailbox, Message, Transfer, wrong_size
from ._c10d_sockets import HEADER, HELLO, IN, NOTHING, OUT, PATIENCE, Incoming, Peers, Poller
from ._errors import PeerFailedError

_PATIENCE = 0.1  # seconds in which the group may learn why a connection has ended


class Receiving:
    """The half of Links that reads."""

    _peers: Peers
    _pid: int
    _mail: Mailbox
    _incoming: set[Incoming]
    _sources: dict[int, Incoming]
    _lock: threading.Lock
    _poller: Poller
    _closing: bool

    def _wake(self) -> None:
        raise NotImplementedError

    def _forget(self, link: Any) -> None:
        raise NotImplementedError

    def _cause(self) -> Optional[BaseException]:
        raise NotImplementedError

    # ---- With the lock held. ----

    def _match(self, message: Message, transfer: Transfer) -> Optional[BaseException]:
        """A message and a receive have found each other."""
        transfer.source = message.source
        if message.size != transfer.size:
            if message.link is not None:
                self._answer(message.link, HEADER.pack(b"R", transfer.tag, transfer.size, message.offer))
            return wrong_size(transfer, message)
        if message.link is not None:
            transfer.busy = True
            message.link.taking[message.offer] = transfer
            self._answer(message.link, HEADER.pack(b"T", transfer.tag, transfer.size, message.offer))
        return None

    def _answer(self, link: Incoming, data: bytes) -> None:
        link.answers += data
        if link.flush():
            self._wake()

    def _discard(self, link: Incoming) -> None:
        self._incoming.discard(link)
        if link.peer is not None and self._sources.get(link.peer) is link:
            del self._sources[link.peer]
        self._forget(link)

    def _let_go(self, link: Incoming) -> None:
        """Somebody has read it."""
        link.is_read = False
        if link.is_closed:
            link.close()

    # ---- On a thread of the program. ----

    def _read_for(self, transfer: Transfer, seconds: float) -> None:
        """Read the connection from the rank that is to send, until the transfer has ended or the time is over. If another thread reads it, that
        one goes on with it."""
        if self._pid != os.getpid():
            return  # a fork has the connections too, but no messages
        with self._lock:
            link = self._sources.get(1 - self._peers.rank if transfer.peer == ANY and self._peers.size == 2 else transfer.peer)
            if link is None or link.is_read:
                return
            link.is_read = True
            if not link.is_left:
                link.is_left = True
                self._poller.listen(link.socket, link.events)
        try:
            until = min(time.monotonic() + seconds, transfer.until)
            while not (transfer.is_completed() or link.is_closed):
                left = until - time.monotonic()
                if left <= 0:
                    break
                self._read_next(link, min(left, PATIENCE))
        finally:
            with self._lock:
                self._let_go(link)
                if not self._closing:
                    self._poller.set_alarm()

    def _read_next(self, link: Incoming, seconds: float) -> None:
        try:
            if link.read_ahead(seconds) is None:
                return
        except OSError:
            pass  # reading once more tells
        whole = len(link.ahead)
        if whole >= HEADER.size and link.is_idle:
            kind, tag, size, _ = HEADER.unpack_from(link.buffer)
            if kind == b"M" and whole == HEADER.size + size and self._take(link, tag, size):
                return
        self._read_all(link)
        while link.ahead and not link.is_closed:
            self._read_all(link)

    def _take(self, link: Incoming, tag: int, size: int) -> bool:
        """Is one whole message, which was read, for the receive that was called first? Then it ends."""
        with self._lock:
            receives = self._mail.receives
            if not receives or not receives[0].takes(link.peer, tag) or receives[0].size != size:
                return False
            transfer = receives.popleft()
        transfer.source = link.peer
        transfer.view[:] = link.ahead[HEADER.size:]
        link.ahead = NOTHING
        transfer.end()
        return True

    # ---- On the thread. ----

    def _take_back(self) -> None:
        """For a while the program has read nothing."""
        with self._lock:
            for link in self._sources.values():
                if link.is_left and not link.is_read:
                    link.is_left = False
                    self._poller.listen(link.socket, link.events)

    def _on_incoming(self, link: Incoming, events: int) -> None:
        with self._lock:
            if events & OUT and not link.is_closed and not link.flush():
                self._poller.listen(link.socket, link.events)
            if not events & IN or link.is_read or link.is_left or link.is_closed:
                return
            link.is_read = True
        self._read_all(link)
        with self._lock:
            self._let_go(link)

    # ---- On either; link.is_read is its. ----

    def _read_all(self, link: Incoming) -> None:
        try:
            alive = self._read(link)
        except OSError:
            alive = False
        if not alive:
            self._lose_source(link)

    def _read(self, link: Incoming) -> bool:
        """Read messages. False: the connection has ended."""
        for _ in range(64):  # then the others' turn
            got = link.fill()
            if got is None:
                return True
            if got == 0:
                return False
            if link.left:
                continue
            if link.stage == "hello":
                if not self._admit(link):
                    return False
            elif link.stage == "header":
                self._on_header(link)
            if link.stage == "payload" and not link.left:
                self._on_payload(link)
                return True  # there may be nothing more, and the program waits for this
        return True

    def _admit(self, link: Incoming) -> bool:
        peer = self._peers.admit(bytes(link.memory[:HELLO.size]))
        with self._lock:
            if peer is None or peer in self._sources:
                return False  # a stranger
            link.peer, self._sources[peer] = peer, link
        link.expect_header()
        return True

    def _on_header(self, link: Incoming) -> None:
        kind, tag, size, offer = HEADER.unpack(link.memory[:HEADER.size])
        ended: list = []
        with self._lock:
            if kind == b"D":
                link.expect(link.taking[offer].view, link.taking.pop(offer), None)
            else:
                message = Message(link.peer, tag, size, offer, link if kind == b"O" else None)
                transfer = self._mail.claim(link.peer, tag)
                if transfer is not None:
                    error = self._match(message, transfer)
                    if error is not None:
                        ended.append((transfer, error))
                        transfer = None
                elif kind == b"O":
                    self._mail.keep(message)
                if kind == b"O":
                    link.expect_header()
                elif transfer is not None:
                    link.expect(transfer.view, transfer, None)
                else:
                    message.data = bytearray(size)
                    link.expect(memoryview(message.data), None, None if ended else message)
        end_all(ended)

    def _on_payload(self, link: Incoming) -> None:
        transfer, message = link.transfer, link.message
        link.expect_header()
        error = None
        if message is not None:
            with self._lock:  # the receive may have been called meanwhile
                transfer = self._mail.claim(message.source, message.tag)
                if transfer is None:
                    self._mail.keep(message)
                else:
                    error = self._match(message, transfer)
            if transfer is not None and error is None:
                transfer.view[:] = message.data
        if transfer is not None:
            transfer.end(error)

    def _lose_source(self, link: Incoming) -> None:
        """A connection from a rank has ended."""
        with self._lock:
            peer = link.peer
            if link.is_closed:
                return  # who waited has been told
            if peer is None:
                self._discard(link)
                return
            awaited = link.transfers() or any(one.peer in (ANY, peer) for one in self._mail.receives)
        error = self._cause()
        until = time.monotonic() + _PATIENCE
        while error is None and awaited and time.monotonic() < until:
            time.sleep(0.002)
            error = self._cause()
        error = error or has_left(peer, "sends no message any more")
        with self._lock:
            if link.is_closed:
                return
            self._discard(link)
            lost = link.transfers() + self._mail.lose(peer, error, link)
        end_all([(transfer, error) for transfer in lost])


def has_left(peer: int, what: str) -> PeerFailedError:
    return PeerFailedError(f"rank {peer} {what}: it left the process group, or its program ended")


def end_all(ended: list) -> None:
    """Outside of the lock: what waits for a transfer may send again."""
    for transfer, error in ended:
        transfer.end(error)
