# SPDX-License-Identifier: Apache-2.0
"""Messages from one rank to another, which libddp's groups do not have: part of libddp.c10d.

Each rank listens once for each process group, where the others of its host find it (an abstract Unix socket) or, with several hosts, on a TCP
port as well. A rank connects to another when it first sends to it; that connection carries messages one way and the answers to offers the
other. A message of at most 1 MiB is sent at once and waits at the receiver; of a larger one an offer is sent, and its bytes when the receiver
has called. One thread serves all connections of a group; it starts with the first message. But a thread of the program that waits for a message
reads the connection itself, so that the message wakes one thread and not two; the other one does not look at that connection meanwhile.

A message is for the first receive that was called for its sender (or for any) and its tag. Sizes must agree.
"""
from __future__ import annotations

import contextlib
import functools
import os
import socket
import threading
import time
from typing import Any, Callable, Optional

from ._c10d_mail import ANY, Mailbox, Transfer
from ._c10d_receiving import Receiving, end_all, has_left
from ._c10d_sockets import HEADER, IN, OUT, Incoming, Outgoing, Peers, Poller
from ._errors import (AbortedError, BrokenGroupError, Error, InternalError, InvalidArgumentError, InvalidStateError, TimedOutError)

EAGER = 1 << 20  #: bytes of the largest message that does not wait for its receiver
_STRANGER_S = 10  # seconds in which a connection says who it is
_LEFT = 0.001  #: seconds after which the thread looks again at a connection that the program has read
_LOOK = 0.25  #: seconds between two looks at the group, while somebody waits


class Links(Receiving):
    """The messages of one process group."""

    def __init__(self, peers: Peers, check: Callable[[], None]) -> None:
        self._peers = peers
        self._check = check  # raises what broke the group
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._outgoing: dict[int, Outgoing] = {}
        self._incoming: set[Incoming] = set()
        self._sources: dict[int, Incoming] = {}  # those whose rank is known
        self._mail = Mailbox(peers.size - 1)
        self._offers = 0
        self._thread: Optional[threading.Thread] = None
        self._asleep = False
        self._unconnected = False  # was a connection asked for?
        self._idle_from = 0.0  # when the thread may sleep until it is woken
        self._look = 0.0  # when to look at the group and the deadlines
        self._closing = False
        self._poller: Any = None
        self._wakes = self._woken = None  # type: Any

    # ---- Called by the program. ----

    def send_now(self, peer: int, tag: int, view: memoryview, make: Callable[[], Transfer]) -> Optional[Transfer]:
        """Send, and make a transfer if that is not done at once."""
        size = len(view)
        header = HEADER.pack(b"M", tag, size, 0)
        with self._lock:
            link = self._outgoing.get(peer)
            written = 0 if link is None or size > EAGER or self._closing or self._pid != os.getpid() else link.write(header, view)
            if written == HEADER.size + size:
                return None
            if written:
                transfer = make()
                self._look = min(self._look, transfer.until)
                link.put_rest(header, transfer, written)  # type: ignore[union-attr]
                self._wake()
                return transfer
        return self.send(make())

    def send(self, transfer: Transfer) -> Transfer:
        """Send to `transfer.peer`."""
        ended: list = []
        with self._lock:
            self._start()
            self._look = min(self._look, transfer.until)
            link = self._outgoing.get(transfer.peer)
            if link is None:
                link = self._outgoing[transfer.peer] = Outgoing(transfer.peer)
                self._unconnected = True
            if link.error is not None:
                ended.append((transfer, link.error))
            elif transfer.size <= EAGER:
                link.put(HEADER.pack(b"M", transfer.tag, transfer.size, 0), transfer)
            else:
                self._offers += 1
                link.offers[self._offers] = transfer
                link.put(HEADER.pack(b"O", transfer.tag, transfer.size, self._offers), None)
            if link.error is None and link.connected:
                ended += self._flush(link)
            if link.error is None and (not link.connected or link.queue or self._asleep and link.offers):
                self._wake()
        end_all(ended)
        return transfer

    def receive(self, transfer: Transfer) -> Transfer:
        """Receive from `transfer.peer`, or from ANY."""
        error: Optional[BaseException] = None
        message = None
        with self._lock:
            if self._thread is None or self._closing or self._pid != os.getpid():
                self._start()
            if transfer.until < self._look:
                self._look = transfer.until
            try:
                message = self._mail.take(transfer)
            except Error as hopeless:
                error = hopeless
            if message is None and error is None:
                if self._asleep:
                    self._wake()
                transfer.read = self._read_for
                return transfer
            if message is not None:
                error = self._match(message, transfer)
                if error is None and message.link is not None:
                    return transfer  # its bytes are on their way
        if error is None and message is not None and message.data is not None:
            transfer.view[:] = message.data
        transfer.end(error)
        return transfer

    def close(self) -> None:
        """Let go of everything; what waits ends with an exception."""
        if self._pid != os.getpid():
            return
        with self._lock:
            self._closing = True
            if self._thread is not None:
                self._wake()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._peers.close()

    # ---- With the lock held. ----

    def _start(self) -> None:
        if self._pid != os.getpid():
            raise InvalidStateError("this process group was made by the process of which this one is a fork: make one of your own")
        if self._closing:
            raise InvalidStateError("the process group was destroyed")
        if self._thread is None:
            self._poller = Poller(self._take_back, _LEFT)
            self._woken, self._wakes = socket.socketpair()
            for end in (self._woken, self._wakes):
                end.setblocking(False)
            self._poller.add(self._woken, IN, self._on_wake)
            for listener in self._peers.listeners:
                self._poller.add(listener, IN, lambda _events, listener=listener: self._on_accept(listener))
            self._thread = threading.Thread(target=self._run, name="libddp-messages", daemon=True)
            self._thread.start()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._wakes.send(b"w")

    def _flush(self, link: Outgoing) -> list:
        """Write what the connection takes. Returns what has ended."""
        try:
            return [(transfer, None) for transfer in link.flush()]
        except OSError as error:
            return self._lose(link, error)

    def _lose(self, link: Outgoing, cause: Optional[OSError] = None) -> list:
        """A connection to a rank is gone."""
        self._forget(link)
        what = "takes no message any more" + (f" ({cause})" if cause else "")
        return [(transfer, link.error) for transfer in link.lose(self._cause() or has_left(link.peer, what))]

    def _cause(self) -> Optional[BaseException]:
        """What broke the group, if it is broken."""
        try:
            self._check()
        except BrokenGroupError as error:
            return error
        except Error:  # the group was closed
            pass
        return None

    def _forget(self, link: Any) -> None:
        if link.socket is not None and not link.is_closed:
            self._poller.forget(link.socket)
            link.close()

    def _waiting(self) -> list[Transfer]:
        """All that has not ended."""
        found = list(self._mail.receives)
        for link in self._outgoing.values():
            found += link.transfers()
        for source in self._incoming:
            found += source.transfers()
        return found

    # ---- On the thread. ----

    def _run(self) -> None:
        error: BaseException = AbortedError("the process group was destroyed")
        try:
            self._serve()
        except BaseException as raised:
            error = InternalError(f"the thread of messages has ended: {raised!r}")
        ended = []
        with self._lock:
            self._closing = True
            for transfer in self._waiting():
                ended.append((transfer, error))
            for link in list(self._outgoing.values()):
                self._forget(link)
            for source in list(self._incoming):
                self._forget(source)
            self._mail.receives.clear(), self._outgoing.clear(), self._incoming.clear(), self._sources.clear()
            self._poller.close(), self._woken.close(), self._wakes.close()
        end_all(ended)

    def _serve(self) -> None:
        while True:
            with self._lock:
                if self._closing:
                    return
                timeout = self._pause()
                self._asleep = timeout is None
            self._poller.poll(timeout)
            if self._unconnected:
                self._connect()
            if time.monotonic() >= self._look:
                self._expire()

    def _pause(self) -> Optional[float]:
        """How long the thread may sleep. None, until it is woken, when nobody has waited for a while: to wake it takes time."""
        if not (self._mail.receives or any(link.queue or link.offers for link in self._outgoing.values())
                or any(link.taking or link.transfer for link in self._incoming)):
            return None if time.monotonic() > self._idle_from else _LOOK
        now = time.monotonic()
        self._idle_from = now + _LOOK
        return max(0.0, self._look - now)

    def _on_wake(self, _events: int) -> None:
        with contextlib.suppress(OSError):
            self._woken.recv(4096)
        with self._lock:
            for source in self._incoming:
                if source.answers:
                    self._poller.listen(source.socket, source.events)
            for link in self._outgoing.values():
                if link.connected and link.queue:
                    self._poller.listen(link.socket, IN | OUT)

    def _on_accept(self, listener: socket.socket) -> None:
        try:
            sock, _ = listener.accept()
        except BlockingIOError:
            return
        except OSError:  # out of descriptors, most likely: who has connected waits
            time.sleep(0.05)
            return
        sock.setblocking(True)  # the thread itself never waits for one
        link = Incoming(sock)
        with self._lock:
            self._incoming.add(link)
            self._poller.add(sock, IN, functools.partial(self._on_incoming, link))

    def _connect(self) -> None:
        """Open the connections that were asked for."""
        with self._lock:
            self._unconnected = False
            wanted = [link for link in self._outgoing.values() if link.socket is None and link.error is None]
        for link in wanted:
            ended = []
            try:
                sock = self._peers.connect(link.peer)
            except OSError as error:
                with self._lock:
                    ended = self._lose(link, error)
            else:
                with self._lock:
                    link.socket = sock
                    link.queue.appendleft((memoryview(self._peers.hello(link.peer)), None))
                    self._poller.add(sock, IN | OUT, functools.partial(self._on_outgoing, link))
            end_all(ended)

    def _on_outgoing(self, link: Outgoing, events: int) -> None:
        ended = []
        with self._lock:
            if link.socket is None or link.error is not None:
                return
            if events & OUT:
                link.connected = True
                ended += self._flush(link)
                if link.error is None and not link.queue:
                    self._poller.listen(link.socket, IN)
            if events & IN and link.error is None:
                ended += self._read_answers(link)
        end_all(ended)

    def _read_answers(self, link: Outgoing) -> list:
        try:
            answers = link.read_answers()
        except OSError as error:
            return self._lose(link, error)
        if answers is None:
            return self._lose(link)
        ended: list = []
        for kind, _tag, size, offer in answers:
            transfer = link.offers.pop(offer, None)
            if transfer is None:
                continue
            if kind == b"T":
                transfer.busy = True
                link.put(HEADER.pack(b"D", transfer.tag, transfer.size, offer), transfer)
            else:
                ended.append((transfer, InvalidArgumentError(f"{transfer} has {transfer.size} bytes, but rank {link.peer} takes {size}: "
                                                             "the tensors of a send and its receive have the same size")))
        ended += self._flush(link)
        if link.error is None and link.queue:
            self._poller.listen(link.socket, IN | OUT)
        return ended

    def _expire(self) -> None:
        """End what has waited too long, or in vain."""
        now = time.monotonic()
        with self._lock:
            self._look = min([now + _LOOK, *(transfer.until for transfer in self._waiting() if transfer.until > now)])
        somebody_left = False
        try:
            self._check()
        except AbortedError as error:
            somebody_left = " aborted the group" not in str(error)
            if not somebody_left:
                self._break(error)
                return
        except BrokenGroupError as error:
            self._break(error)
            return
        except Error:  # the group was closed
            return
        with self._lock:
            for stranger in [link for link in self._incoming if link.peer is None and now > link.born + _STRANGER_S]:
                self._discard(stranger)
            ended = self._mail.expire(now)
            if somebody_left:
                ended += self._probe()
            for link in list(self._outgoing.values()):
                if any(now >= transfer.until for transfer in link.transfers()):
                    ended += self._expire_sends(link, now)
            for source in list(self._incoming):
                if any(now >= transfer.until for transfer in source.transfers()):
                    ended += self._expire_reads(source)
        end_all(ended)

    def _probe(self) -> list:
        """A rank has left. It may be one that is waited for and has not sent yet; a connection to it shows that."""
        wanted = {transfer.peer for transfer in self._mail.receives}
        if ANY in wanted:
            wanted = set(range(self._peers.size)) - {self._peers.rank}
        ended: list = []
        for peer in wanted - {link.peer for link in self._incoming}:
            link = self._outgoing.get(peer)
            if link is None:
                self._outgoing[peer] = Outgoing(peer)
                self._unconnected = True
            elif link.error is not None:
                ended += [(transfer, link.error) for transfer in self._mail.lose(peer, link.error, None)]
        return ended

    def _expire_sends(self, link: Outgoing, now: float) -> list:
        late = [(offer, transfer) for offer, transfer in link.offers.items() if now >= transfer.until]
        for offer, _ in late:
            del link.offers[offer]  # its receiver will be told that the sender has given up, by silence: it has a timeout too
        ended = [(transfer, TimedOutError(f"{transfer}: rank {link.peer} did not take it within its timeout")) for _, transfer in late]
        if any(now >= transfer.until for transfer in link.transfers()):  # bytes of one are on their way: nothing can follow them
            ended += self._lose(link, None)
        return ended

    def _expire_reads(self, link: Incoming) -> list:
        self._discard(link)
        error = TimedOutError(f"rank {link.peer} stopped within a message")
        return [(transfer, error) for transfer in link.transfers() + self._mail.lose(link.peer, error, link)]

    def _break(self, error: BaseException) -> None:
        """The group is broken: what can still be read is read, and all else ends."""
        self._poller.poll(0)
        with self._lock:
            waiting = self._waiting()
            self._mail.receives.clear()
            for link in self._outgoing.values():
                link.lose(error)
            for source in [source for source in self._incoming if source.transfers()]:
                self._expire_reads(source)
        end_all([(transfer, error) for transfer in waiting])
