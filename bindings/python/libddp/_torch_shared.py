# SPDX-License-Identifier: Apache-2.0
"""Memory of a PyTorch storage that other ranks of the host reach: part of libddp.torch.

A storage is moved once, with all its views, to pages of its own (`_share_fd_cpu_` of PyTorch). Then the pages of libddp's shared memory are
mapped over these, so that the tensor and libddp's gradients are the same memory at two addresses."""
from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any, Optional

import torch

_MAYMOVE, _FIXED, _MAP_FIXED = 1, 2, 0x10
_FAILED = ctypes.c_void_p(-1).value
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mremap.restype = _libc.mmap.restype = ctypes.c_void_p
_libc.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class Shared:
    """A storage that has the pages of libddp's memory at `address`. It gets pages of its own again, with what it holds, when this object is closed
    or goes. `owner` keeps libddp's memory until then."""

    def __init__(self, storage: torch.UntypedStorage, address: int, owner: Any) -> None:
        self._storage: Optional[torch.UntypedStorage] = storage
        self._owner, self._pid = owner, os.getpid()

    @property
    def address(self) -> int:
        """Where PyTorch has it."""
        return 0 if self._storage is None else self._storage.data_ptr()

    def close(self) -> None:
        """The storage is this process's alone from now on."""
        storage, self._storage = self._storage, None
        if storage is None or self._pid != os.getpid():
            return
        content = ctypes.string_at(storage.data_ptr(), storage.nbytes())
        _map_private(storage, content)
        self._owner = None

    def __del__(self) -> None:
        self.close()


def share(tensor: torch.Tensor, address: int, owner: Any) -> Optional[Shared]:
    """Give the storage of `tensor`, which is all of it, the pages at `address`, which hold the same. None: that is not possible here (the memory is
    not shared, no room in /dev/shm, no support by the system), and the storage is as it was."""
    storage = tensor.untyped_storage()
    if not tensor.is_cpu or not tensor.numel() or storage.nbytes() != tensor.nbytes or address % mmap.PAGESIZE:
        return None
    length = _pages(storage.nbytes())
    found = _libc.mremap(address, 0, length, _MAYMOVE, None)  # old length 0: the same pages once more; only of shared memory
    if found == _FAILED:
        return None
    try:
        file, _ = storage._share_fd_cpu_()
    except RuntimeError:
        _libc.munmap(found, length)
        return None
    place = storage.data_ptr()
    if place % mmap.PAGESIZE:
        _libc.munmap(found, length)
        return None
    if _libc.mremap(found, length, length, _MAYMOVE | _FIXED, place) == _FAILED:
        content = ctypes.string_at(found, storage.nbytes())
        _libc.munmap(found, length)
        _map_private(storage, content)
        return None
    os.ftruncate(file, 0)  # PyTorch's pages, which nothing maps any more
    return Shared(storage, address, owner)


def _map_private(storage: torch.UntypedStorage, content: bytes) -> None:
    place = storage.data_ptr()
    found = _libc.mmap(place, _pages(len(content)), mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED, -1, 0)
    if found != place:
        raise MemoryError("no memory for gradients that were shared with other ranks")
    ctypes.memmove(place, content, len(content))


def _pages(count: int) -> int:
    return -(-count // mmap.PAGESIZE) * mmap.PAGESIZE


def flat(view: Any, dtype: torch.dtype, count: int) -> torch.Tensor:
    """`count` elements from where a view of libddp's memory begins; the tensor keeps the view."""
    raw = (ctypes.c_ubyte * (count * dtype.itemsize)).from_address(view.address)
    setattr(raw, "owner", view)
    return torch.frombuffer(raw, dtype=dtype, count=count)
