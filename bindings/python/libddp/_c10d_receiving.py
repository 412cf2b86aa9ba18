# SPDX-License-Identifier: Apache-2.0
"""What comes from other ranks, on its way to a receive: part of libddp.c10d."""
from __future__ import annotations

import selectors
import socket
import threading
from typing import Any, Optional

from ._c10d_mail import Mailbox, Message, Transfer, wrong_size
from ._c10d_sockets import HEADER, HELLO, Incoming, Peers


class Receiving:
    """The half of Links that reads."""

    _peers: Peers
    _mail: Mailbox
    _incoming: set[Incoming]
    _lock: threading.Lock
    _selector: Any

    def _wake(self) -> None:
        raise NotImplementedError

    def _forget(self, sock: Optional[socket.socket]) -> None:
        raise NotImplementedError

    def _reason(self, peer: int, what: str, cause: Optional[OSError] = None) -> BaseException:
        raise NotImplementedError

    # ---- With the lock held. ----

    def _match(self, message: Message, transfer: Transfer) -> Optional[BaseException]:
        """A message and a receive have found each other."""
        transfer.work.source = message.source
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

    # ---- On the thread. ----

    def _on_incoming(self, link: Incoming, mask: int) -> None:
        with self._lock:
            if mask & selectors.EVENT_WRITE and not link.flush():
                self._selector.modify(link.socket, selectors.EVENT_READ, link.handler)
        try:
            alive = not mask & selectors.EVENT_READ or self._read(link)
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
        if peer is None or any(other.peer == peer for other in self._incoming):
            return False  # a stranger
        link.peer = peer
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
            self._incoming.discard(link)
            self._forget(link.socket)
            if link.peer is None:
                return
            error = self._reason(link.peer, "sends no message any more")
            lost = link.transfers() + self._mail.lose(link.peer, error, link)
        end_all([(transfer, error) for transfer in lost])


def end_all(ended: list) -> None:
    """Outside of the lock: what waits for a transfer may send again."""
    for transfer, error in ended:
        transfer.end(error)
