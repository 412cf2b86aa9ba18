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
_NOTHING = memoryview(bytearray())

_view_of = ctypes.pythonapi.PyMemoryView_FromMemory
_view_of.argtypes, _view_of.restype = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int), ctypes.py_object


def memory(address: int, size: int) -> memoryview:
    """Memory of a tensor, for reading and writing. The tensor must be kept."""
    return _view_of(address, size, 0x200) if size else _NOTHING


class Outgoing:
    """The connection on which this rank sends to another."""

    def __init__(self, peer: int) -> None:
        self.peer = peer
        self.socket: Optional[socket.socket] = None
        self.connected = False  #: may one write without the thread?
        self.error: Optional[BaseException] = None
        self.queue: deque = deque()  # (bytes, the transfer that ends with them)
        self.offers: dict[int, Any] = {}  # transfers whose bytes nobody has called for
        self.handler: Callable[[int], None] = lambda _mask: None
        self._answers = b""

    def put(self, header: bytes, transfer: Any) -> None:
        if transfer is None or not transfer.size:
            self.queue.append((memoryview(header), transfer))
        else:
            self.queue.append((memoryview(header), None))
            self.queue.append((transfer.view, transfer))

    def flush(self) -> list:
        """Write until the connection takes no more. Returns the transfers whose bytes it has."""
        ended = []
        while self.queue:
            parts = [self.queue[index][0] for index in range(min(2, len(self.queue)))]
            try:
                written = self.socket.sendmsg(parts)  # type: ignore[union-attr]
            except BlockingIOError:
                break
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
        self.handler: Callable[[int], None] = lambda _mask: None

    def expect_header(self) -> None:
        self.stage, self.left, self.transfer, self.message = "header", memoryview(self.memory)[:HEADER.size], None, None

    def expect(self, view: memoryview, transfer: Any, message: Any) -> None:
        self.stage, self.left, self.transfer, self.message = "payload", view, transfer, message

    def fill(self) -> Optional[int]:
        """Read. None: there is nothing now; 0: the connection has ended."""
        try:
            got = self.socket.recv_into(self.left)
        except BlockingIOError:
            return None
        self.left = self.left[got:]
        return got

    def flush(self) -> bool:
        """Write the answers. True: some are left."""
        with contextlib.suppress(OSError):
            while self.answers:
                del self.answers[: self.socket.send(self.answers)]
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
