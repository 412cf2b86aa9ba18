# SPDX-License-Identifier: Apache-2.0
"""The buckets of PyTorch's Reducer, and libddp's memory for them: part of libddp.torch.

Where that is host memory in the reach of the other ranks, both are one. The storage of a bucket is moved once, with all its views, to pages of its own
(`_share_fd_cpu_` of PyTorch). Then the pages of libddp's memory are mapped over these, so that the bucket and libddp's gradients are the same memory at
two addresses. Elsewhere a bucket is copied there and back."""
from __future__ import annotations

import array
import contextlib
import ctypes
import mmap
import os
from typing import Any, Iterator, Optional, Sequence

import torch

from ._errors import InvalidStateError
from ._torch_tensors import like
from ._view import View

_MAYMOVE, _FIXED, _MAP_FIXED = 1, 2, 0x10
_FAILED = ctypes.c_void_p(-1).value
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mremap.restype = _libc.mmap.restype = ctypes.c_void_p
_libc.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class Bucket:
    """One of them. `numbers` are those of its parameters, in order; `parts` their gradients in libddp's memory, as vectors."""

    def __init__(self, numbers: array.array, parts: list[torch.Tensor], first: Optional[View]) -> None:
        self.numbers, self._parts = numbers, parts
        self._whole: Any = None  # all of them as one vector, in host memory, where there are no gaps
        if first is not None:
            self._whole = torch.from_dlpack(View((*first.__libddp_tensor__[:4], (sum(part.numel() for part in parts),)), first))
        self._storage: Optional[torch.UntypedStorage] = None  # PyTorch's, while it has libddp's pages
        self.can_share = True

    def split(self, buffer: torch.Tensor) -> list[torch.Tensor]:
        """The gradients in PyTorch's memory, as vectors."""
        return list(buffer.split([part.numel() for part in self._parts]))

    def bring(self, buffer: torch.Tensor) -> bool:
        """This rank's gradients go to libddp's memory. Is that the buffer's from now on?"""
        if self._whole is None:
            torch._foreach_copy_(self._parts, self.split(buffer))
        elif not self._shares(buffer):
            self._whole.copy_(buffer)
            self.unshare()
            self.can_share = self.can_share and self._share(buffer)
            return self.can_share
        return False

    def result(self, buffer: torch.Tensor) -> torch.Tensor:
        """What the bucket is now that the pass has ended."""
        if self._whole is None:
            torch._foreach_copy_(self.split(buffer), self._parts)
        return buffer if self._whole is None or self._shares(buffer) else self._whole

    def _shares(self, buffer: torch.Tensor) -> bool:
        """PyTorch may have put a new tensor in the place of the one that was shared."""
        return self._storage is not None and self._storage.data_ptr() == buffer.data_ptr()

    def _share(self, buffer: torch.Tensor) -> bool:
        """Give the storage of the buffer libddp's pages, which hold the same. False: that is not possible here (the memory is not shared, no room in
        /dev/shm, no support by the system), and the storage holds what it did."""
        storage, address = buffer.untyped_storage(), self._whole.data_ptr()
        if storage.nbytes() != buffer.nbytes or address % mmap.PAGESIZE:
            return False
        length = _pages(buffer.nbytes)
        found = _libc.mremap(address, 0, length, _MAYMOVE, None)  # old length 0: the same pages once more; only of shared memory
        if found == _FAILED:
            return False
        with contextlib.suppress(RuntimeError):  # of PyTorch: no room in /dev/shm
            file, _ = storage._share_fd_cpu_()
            if storage.data_ptr() % mmap.PAGESIZE == 0:
                if _libc.mremap(found, length, length, _MAYMOVE | _FIXED, storage.data_ptr()) != _FAILED:
                    os.ftruncate(file, 0)  # PyTorch's pages, which nothing maps any more
                    self._storage, self._pid = storage, os.getpid()
                    return True
                _map_private(storage, ctypes.string_at(found, storage.nbytes()))
        _libc.munmap(found, length)
        return False

    def unshare(self) -> None:
        """The storage gets pages of its own again, with what it holds."""
        storage, self._storage = self._storage, None
        if storage is not None and self._pid == os.getpid():
            _map_private(storage, ctypes.string_at(storage.data_ptr(), storage.nbytes()))

    def __del__(self) -> None:
        self.unshare()


class Buckets:
    """All of a Reducer. It knows one by its address."""

    def __init__(self, parameters: list[torch.nn.Parameter], given: Sequence[Any]) -> None:
        """`given`: the Reducer's assignment, which is final."""
        self._parameters, index_of = parameters, {id(parameter): index for index, parameter in enumerate(parameters)}
        self.numbers = [array.array("i", [index_of[id(each)] for each in bucket.parameters()]) for bucket in given]  #: of each one's parameters
        self.grads: list[torch.Tensor] = []  #: of each parameter, in libddp's memory
        self._all: list[Bucket] = []
        self._found: dict[int, Bucket] = {}  # by address
        self._places: dict[int, int] = {}  # of parameters in a bucket that is shared: PyTorch's address of the gradient

    def __iter__(self) -> Iterator[Bucket]:
        return iter(self._all)

    def place(self, model: Any, lent: list[Any]) -> None:
        """The model is committed: its gradients have their places."""
        parts = [torch.from_dlpack(model.grad(index)).view(-1) for index in range(len(lent))]
        self.grads = [like(part, parameter) for part, parameter in zip(parts, lent)]
        for numbers in self.numbers:
            filled = next((index for index in numbers if parts[index].numel() and parts[index].is_cpu), None)
            self._all.append(Bucket(numbers, [parts[index] for index in numbers], None if filled is None else model.grad(filled)))

    def find(self, given: Any, buffer: torch.Tensor, position: Optional[int]) -> Bucket:
        """Which bucket a hook was given. `position`: where it is, if the bucket itself does not know its parameters."""
        found = self._found.get(buffer.data_ptr())
        if found is None:
            wanted = [] if position is not None else list(map(id, given.parameters()))
            found = self._all[position] if position is not None else next(
                (bucket for bucket in self._all if [id(self._parameters[index]) for index in bucket.numbers] == wanted), None)
            if found is None:
                raise InvalidStateError("PyTorch has put parameters into other buckets than when the module was wrapped, so they cannot be reduced: wrap "
                                        "the module again")
        return found

    def bring(self, bucket: Bucket, buffer: torch.Tensor) -> None:
        """This rank's gradients go to libddp's memory."""
        address = buffer.data_ptr()
        if bucket.bring(buffer):
            self._places.update((index, part.data_ptr()) for index, part in zip(bucket.numbers, bucket.split(buffer)))
        if buffer.numel():
            self._found.pop(address, None)
            self._found[buffer.data_ptr()] = bucket

    def has(self, index: int, grad: torch.Tensor) -> bool:
        """Is this tensor, the gradient of a parameter, libddp's memory?"""
        return grad.layout == torch.strided and self._places.get(index) == grad.data_ptr()

    def forget_places(self) -> None:
        """The Reducer has made its buckets anew: one may be where another was."""
        self._found.clear()

    def unshare(self) -> None:
        """Buckets have memory of their own again, and are shared anew in the next pass."""
        for bucket in self._all:
            bucket.unshare()
            bucket.can_share = True
        self._found.clear()
        self._places.clear()

    def close(self) -> None:
        """Let go of libddp's memory."""
        self.unshare()
        self.grads, self._all = [], []


def _map_private(storage: torch.UntypedStorage, content: bytes) -> None:
    place = storage.data_ptr()
    found = _libc.mmap(place, _pages(len(content)), mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED, -1, 0)
    if found != place:
        raise MemoryError("no memory for gradients that were shared with other ranks")
    ctypes.memmove(place, content, len(content))


def _pages(count: int) -> int:
    return -(-count // mmap.PAGESIZE) * mmap.PAGESIZE
