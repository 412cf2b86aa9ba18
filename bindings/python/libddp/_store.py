# SPDX-License-Identifier: Apache-2.0
"""Stores: how ranks find rank 0 when they meet at ``store://``."""
from __future__ import annotations

import time
from typing import Callable, NamedTuple, Optional, Union

from ._errors import AbortedError


class Store(NamedTuple):
    """Your own rendezvous: two callables with which ranks find rank 0. Used with ``Group("store://", store=...)``."""

    set: Callable[[str, bytes], None]  #: store a value under a key
    get: Callable[[str, float], Optional[bytes]]  #: fetch one, waiting up to so many seconds; None when the time is over


class Notes:
    """A framework's store, where many groups meet under one key. Rank 0 writes over its note for each group; the others pass over the
    notes that have led them into a group already, so no rank counts groups and none reads an old note."""

    def __init__(self, put: Callable[[str, bytes], None], look: Callable[[str], Optional[bytes]]) -> None:
        self.set = put
        self._look = look  # what is under a key now
        self._last: Optional[bytes] = None
        self._given_up = False

    def get(self, key: str, timeout: float) -> Optional[bytes]:
        end, pause = time.monotonic() + timeout, 0.002
        while True:
            if self._given_up:
                raise AbortedError("nobody waits for this group any more")
            note = self._look(key)
            if note is not None and note not in _used:
                self._last = note
                return note
            left = end - time.monotonic()
            if left <= 0:
                return None
            time.sleep(min(pause, left))
            pause = min(2 * pause, 0.1)

    def joined(self) -> None:
        """The group is made: its note has done its work."""
        if self._last is not None:
            _used.add(self._last)

    def give_up(self) -> None:
        """End the waiting of a thread that nobody listens to any more."""
        self._given_up = True


_used: set[bytes] = set()  # every note has a random word in it


class StoreCalls:
    """The store's callables as the library calls them; keeps the first exception."""

    def __init__(self, store: Union[Store, Notes]) -> None:
        self.store = store
        self.error: Optional[BaseException] = None

    def set(self, key: str, value: bytes) -> int:
        def put() -> int:
            self.store.set(key, value)
            return 0

        return self._guard(put)

    def get(self, key: str, memory: memoryview, timeout_ms: int) -> int:
        def fetch() -> int:
            value = self.store.get(key, timeout_ms / 1000)
            if value is None:
                return -2
            memory[: len(value)] = value
            return len(value)

        return self._guard(fetch)

    def _guard(self, function: Callable[[], int]) -> int:
        try:
            return function()
        except BaseException as error:
            self.error = self.error or error
            return -1
