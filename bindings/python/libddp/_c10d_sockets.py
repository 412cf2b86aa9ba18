# SPDX-License-Identifier: Apache-2.0
"""Where the ranks of a process group find each other for messages, and both ends of a connection: part of libddp.c10d."""
from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import hmac
import os
import secrets
import select
import socket
import struct
import time
from collections import deque
from typing import Any, Callable, Optional

HEADER = struct.Struct("<cqqq")  #: kind, tag, bytes, number of the offer
# M: a message, whose bytes follow. O: an offer of one. T: it is taken, R: refused, for another size. D: its bytes follow.
HELLO = struct.Struct("<8si32s")  #: what follows is one of libddp's connections, from this rank, which knows the group's secret
_MAGIC = b"ddpc10d1"
_RECORD = 160  # bytes that a rank tells the others about itself
NOTHING = memoryview(bytearray())
IN, OUT = select.EPOLLIN, select.EPOLLOUT
AHEAD = 16 << 10  #: bytes of the largest message that is read together with its header
PATIENCE = 0.25  #: seconds after which a thread that waits for a message looks around
_PATIENCE = struct.pack("@ll", 0, int(PATIENCE * 1e6))

_view_of = ctypes.pythonapi.PyMemoryView_FromMemory
_view_of.argtypes, _view_of.restype = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int), ctypes.py_object


def memory(address: int, size: int) -> memoryview:
    """Memory of a tensor, for reading and writing. The tensor must be kept."""
    return _view_of(address, size, 0x200) if size else NOTHING


_libc = ctypes.CDLL(None, use_errno=True)  # Python has these since 3.13
_timer, _set_timer = _libc.timerfd_create, _libc.timerfd_settime
_set_timer.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class Poller:
    """What becomes readable or writable, and who is told. And one alarm."""

    def __init__(self, on_alarm: Callable[[], None], seconds: float) -> None:
        self._epoll = select.epoll()
        self._alarm = _timer(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._alarm < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self._when = (ctypes.c_long * 4)(0, 0, int(seconds), int(seconds % 1 * 1e9))  # no repetition, so much from now
        self._where = ctypes.addressof(self._when)
        self._handlers: dict[int, Callable[[int], None]] = {self._alarm: lambda _events: on_alarm()}
        self._epoll.register(self._alarm, IN | select.EPOLLET)

    def set_alarm(self) -> None:
        """For the last time that this was called."""
        _set_timer(self._alarm, 0, self._where, None)

    def add(self, sock: socket.socket, events: int, handler: Callable[[int], None]) -> None:
        self._handlers[sock.fileno()] = handler
        self._epoll.register(sock, events)

    def listen(self, sock: socket.socket, events: int) -> None:
        """From now on to these events."""
        self._epoll.modify(sock, events)

    def forget(self, sock: socket.socket) -> None:
        if self._handlers.pop(sock.fileno(), None) is not None:
            self._epoll.unregister(sock)

    def poll(self, timeout: Optional[float]) -> None:
        """Tell who waits for what has happened. Ends and errors count as both kinds of events."""
        for number, events in self._epoll.poll(timeout):
            handler = self._handlers.get(number)
            if handler is not None:  # else an earlier one has closed it
                handler(events if events & (IN | OUT) == events else IN | OUT)

    def close(self) -> None:
        self._epoll.close()
        os.close(self._alarm)


class Outgoing:
    """The connection on which this rank sends to another."""

    def __init__(self, peer: int) -> None:
        self.peer = peer
        self.socket: Optional[socket.socket] = None
        self.connected = False  #: may one write without the thread?
        self.error: Optional[BaseException] = None
        self.is_closed = False
        self.queue: deque = deque()  # (bytes, the transfer that ends with them)
        self.offers: dict[int, Any] = {}  # transfers whose bytes nobody has called for
        self._answers = b""

    def put(self, header: bytes, transfer: Any) -> None:
        if transfer is None or not transfer.size:
            self.queue.append((memoryview(header), transfer))
        else:
            self.queue.append((memoryview(header), None))
            self.queue.append((transfer.view, transfer))

    def write(self, header: bytes, view: memoryview) -> int:
        """Write a message at once, as far as the connection takes it. Returns how many bytes."""
        if self.queue or not self.connected:
            return 0
        try:
            return self.socket.sendmsg((header, view))  # type: ignore[union-attr]
        except OSError:
            return 0  # who flushes the queue finds the cause

    def put_rest(self, header: bytes, transfer: Any, written: int) -> None:
        """Of a message that was written in part, if at all."""
        self.put(header, transfer)
        self._cut(written)

    def flush(self) -> list:
        """Write until the connection takes no more. Returns the transfers whose bytes it has."""
        ended = []
        while self.queue:
            parts = [self.queue[index][0] for index in range(min(2, len(self.queue)))]
            try:
                written = self.socket.sendmsg(parts)  # type: ignore[union-attr]
            except BlockingIOError:
                break
            ended += self._cut(written)
        return ended

    def _cut(self, written: int) -> list:
        """So many bytes of the queue are written. Returns the transfers of which these were the last."""
        ended = []
        while self.queue and written >= len(self.queue[0][0]):
            view, transfer = self.queue.popleft()
            written -= len(view)
            if transfer is not None:
                ended.append(transfer)
        if written:
            view, transfer = self.queue.popleft()
            self.queue.appendleft((view[written:], transfer))
        return ended

    def read_answers(self) -> Optional[list]:
        """Answers to offers; None: the connection has ended."""
        try:
            data = self.socket.recv(64 * HEADER.size)  # type: ignore[union-attr]
        except BlockingIOError:
            return []
        if not data:
            return None
        data = self._answers + data
        whole = len(data) - len(data) % HEADER.size
        self._answers = data[whole:]
        return list(HEADER.iter_unpack(data[:whole]))

    def close(self) -> None:
        self.is_closed = True
        self.socket.close()  # type: ignore[union-attr]

    def transfers(self) -> list:
        return [transfer for _, transfer in self.queue if transfer is not None] + list(self.offers.values())

    def lose(self, error: BaseException) -> list:
        """Nothing can be sent any more. Returns the transfers that waited."""
        ended = self.transfers()
        self.error = self.error or error
        self.queue.clear(), self.offers.clear()
        return ended


class Incoming:
    """The connection on which another rank sends to this one."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.born = time.monotonic()
        self.peer: Optional[int] = None  #: who is it, once it has said so
        self.stage = "hello"
        self.memory = bytearray(max(HELLO.size, HEADER.size))
        self.left = memoryview(self.memory)[:HELLO.size]  #: what is to be filled
        self.transfer: Any = None  #: whose bytes these are
        self.message: Any = None
        self.taking: dict[int, Any] = {}  #: transfers whose bytes were called for, by the number of the offer
        self.answers = bytearray()
        self.is_read = False  #: is somebody reading it?
        self.is_left = False  #: a thread of the program has read it last: the group's does not look at it yet
        self.is_closed = False
        self.buffer = bytearray(HEADER.size + AHEAD)
        self.ahead = NOTHING  #: what lies in it and was not looked at
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _PATIENCE)

    @property
    def is_idle(self) -> bool:
        """Between two messages?"""
        return self.stage == "header" and len(self.left) == HEADER.size

    @property
    def events(self) -> int:
        """What the thread should know of."""
        return (0 if self.is_read or self.is_left else IN) | (OUT if self.answers else 0)

    def read_ahead(self, seconds: float) -> Optional[int]:
        """Wait for what comes next, and read it as far as it fits. None: nothing has come; 0: the connection has ended."""
        try:
            if seconds < PATIENCE:
                self._poll.poll(max(0.0, seconds) * 1e3)
                got = self.socket.recv_into(self.buffer, 0, socket.MSG_DONTWAIT)
            else:
                got = self.socket.recv_into(self.buffer)
        except BlockingIOError:
            return None
        self.ahead = memoryview(self.buffer)[:got]
        return got

    def close(self) -> None:
        """Who is reading it finds its end, and closes it then."""
        self.is_closed = True
        if self.is_read:
            with contextlib.suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)
        else:
            self.socket.close()

    def expect_header(self) -> None:
        self.stage, self.left, self.transfer, self.message = "header", memoryview(self.memory)[:HEADER.size], None, None

    def expect(self, view: memoryview, transfer: Any, message: Any) -> None:
        self.stage, self.left, self.transfer, self.message = "payload", view, transfer, message

    def fill(self) -> Optional[int]:
        """Read without waiting. None: there is nothing now; 0: the connection has ended."""
        if self.ahead:
            got = min(len(self.left), len(self.ahead))
            self.left[:got], self.ahead = self.ahead[:got], self.ahead[got:]
        else:
            try:
                got = self.socket.recv_into(self.left, 0, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
        self.left = self.left[got:]
        return got

    def flush(self) -> bool:
        """Write the answers. True: some are left."""
        with contextlib.suppress(OSError):
            while self.answers:
                del self.answers[: self.socket.send(self.answers, socket.MSG_DONTWAIT)]
        return bool(self.answers)

    def transfers(self) -> list:
        return [*self.taking.values(), *(() if self.transfer is None else (self.transfer,))]


class Peers:
    """The addresses of a group's ranks. `exchange` gathers a record of all ranks; a rank that cannot listen says so in its own."""

    def __init__(self, rank: int, size: int, exchange: Callable[[bytes], list], interface: Callable[[], str], host: Optional[bytes] = None) -> None:
        self.rank, self.size = rank, size
        self.listeners: list[socket.socket] = []
        self._host = this_host() if host is None else host
        self._name = secrets.token_hex(16)
        secret = secrets.token_bytes(32)
        problem = self._listen(socket.AF_UNIX, "\0libddp-" + self._name)
        records = exchange(_record(self._host, secret, problem or self._name))
        self._hosts = [record[:32] for record in records]
        self._names = [_text(record) for record in records]
        self._secret = records[0][32:64]
        self._places = [""] * size
        if len(set(self._hosts)) > 1:
            place = self._listen_everywhere(interface) if problem is None else problem
            self._places = [_text(record) for record in exchange(_record(self._host, secret, place))]

    def _listen(self, family: int, address: Any) -> Optional[str]:
        """Returns the problem."""
        listener = None
        try:
            listener = socket.socket(family, socket.SOCK_STREAM)
            listener.bind(address)
            listener.listen(self.size + 16)
            listener.setblocking(False)
        except OSError as error:
            if listener is not None:
                listener.close()
            return f"!{error}"
        self.listeners.append(listener)
        return None

    def _listen_everywhere(self, interface: Callable[[], str]) -> str:
        try:
            address = interface()
        except OSError as error:
            return f"!{error}"
        problem = self._listen(socket.AF_INET6 if ":" in address else socket.AF_INET, (address, 0))
        return problem or f"{address} {self.listeners[-1].getsockname()[1]}"

    def connect(self, peer: int) -> socket.socket:
        """A connection that may still be on its way."""
        near = self._hosts[peer] == self._hosts[self.rank]
        place = self._names[peer] if near else self._places[peer]
        if place.startswith("!"):
            raise OSError(f"it could not listen: {place[1:]}")
        if near:
            sock, address = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), "\0libddp-" + place  # type: tuple[socket.socket, Any]
        else:
            name, port = place.split()
            sock, address = socket.socket(socket.AF_INET6 if ":" in name else socket.AF_INET, socket.SOCK_STREAM), (name, int(port))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            sock.connect(address)
        return sock

    def hello(self, peer: int) -> bytes:
        """What a connection to a rank begins with."""
        return HELLO.pack(_MAGIC, self.rank, self._proof(self.rank, peer))

    def admit(self, hello: bytes) -> Optional[int]:
        """Which rank has connected? None: a stranger."""
        magic, peer, proof = HELLO.unpack(hello)
        known = magic == _MAGIC and 0 <= peer < self.size and hmac.compare_digest(proof, self._proof(peer, self.rank))
        return peer if known else None

    def _proof(self, source: int, target: int) -> bytes:
        return hmac.new(self._secret, struct.pack("<ii", source, target), hashlib.sha256).digest()

    def close(self) -> None:
        for listener in self.listeners:
            listener.close()


def _record(host: bytes, secret: bytes, text: str) -> bytes:
    data = text.encode("utf-8", "replace")[: _RECORD - 64]
    return host + secret + data + bytes(_RECORD - 64 - len(data))


def _text(record: bytes) -> str:
    return record[64:].rstrip(b"\0").decode("utf-8", "replace")


def this_host() -> bytes:
    """Processes that give the same can reach each other's Unix sockets."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return hashlib.sha256(f"{file.read()} {os.readlink('/proc/self/ns/net')}".encode()).digest()


def this_address(meeting: Optional[str]) -> str:
    """The address of this host for the others: that of the interface in DDP_SOCKET_IFNAME, else the one by which it reaches `meeting`, the
    host where the ranks have met."""
    interface = os.environ.get("DDP_SOCKET_IFNAME")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        if interface:
            answer = fcntl.ioctl(probe.fileno(), 0x8915, struct.pack("256s", interface.encode()[:15]))  # SIOCGIFADDR
            return socket.inet_ntoa(answer[20:24])
    for name in (meeting, socket.gethostname()):
        if not name:
            continue
        with contextlib.suppress(OSError):
            family, _, _, _, place = socket.getaddrinfo(name, 1, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect(place)
                found = probe.getsockname()[0]
            if not found.startswith("127.") and found != "::1":
                return found
    raise OSError("no network address of this host is known to the other hosts; set DDP_SOCKET_IFNAME to the network interface to use")
