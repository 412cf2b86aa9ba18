# SPDX-License-Identifier: Apache-2.0
"""Owners of the library's objects: destroyed once, by close(), by the collector, or at exit, and in an order that is safe."""
from __future__ import annotations

import contextlib
import os
import threading
import weakref
from typing import Any, Callable, Iterator

from ._errors import InvalidStateError


class Handle:
    """One object of the library. Whoever needs it alive holds this."""

    __slots__ = ("__weakref__", "_finalizer", "_pid", "_raw", "kept")

    def __init__(self, raw: Any, destroy: Callable[[Any], None], *kept: object) -> None:
        self._raw = raw
        self._pid = os.getpid()
        self.kept: list = list(kept)  #: what must live until destroy has returned
        # Runs at exit too, newest first, before the interpreter goes: library threads must not call into what is gone.
        self._finalizer = weakref.finalize(self, _destroy, self._pid, destroy, raw, self.kept)

    def get(self, what: str) -> Any:
        if self._raw is None:
            raise InvalidStateError(f"the {what} is closed")
        return self._raw

    @property
    def closed(self) -> bool:
        return self._raw is None

    @property
    def is_here(self) -> bool:
        """Was the object made in this process? Not so in a fork of it."""
        return self._pid == os.getpid()

    def close(self) -> None:
        self._raw = None
        self._finalizer()


_callback = threading.local()


@contextlib.contextmanager
def inside_callback() -> Iterator[None]:
    """On a thread of the library: the collector may run here, too, but nothing may be destroyed from here."""
    _callback.running = True
    try:
        yield
    finally:
        _callback.running = False


def _destroy(pid: int, destroy: Callable[[Any], None], raw: Any, kept: list) -> None:
    if pid != os.getpid():  # a forked child leaves its parent's objects alone: the group is not the child's to leave
        return
    if getattr(_callback, "running", False):
        threading.Thread(target=_destroy, args=(pid, destroy, raw, kept), name="libddp-destroy").start()
        return
    destroy(raw)
    for item in kept:
        if isinstance(item, dict):  # tensors that were lent; whoever lent them holds the same dictionary
            item.clear()
    kept.clear()


class Closing:
    """What all objects of the package have: close() and the with statement."""

    _handle: Handle

    def close(self) -> None:
        """Destroy the object. Closing twice does nothing; what nobody closes goes with its last reference, or at exit."""
        self._handle.close()

    @property
    def closed(self) -> bool:
        """Was it closed?"""
        return self._handle.closed

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
