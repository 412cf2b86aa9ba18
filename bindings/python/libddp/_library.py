# SPDX-License-Identifier: Apache-2.0
"""The library itself: its version and its log."""
from __future__ import annotations

import atexit
import sys
from typing import Callable, NamedTuple, Optional, Union

from . import low
from ._enums import LogLevel, choose
from ._handle import inside_callback
from ._nccl import announce


def version() -> str:
    """Version of the loaded library."""
    return low.ddp_version_string()


def build_info() -> str:
    """One line: version, compiler, instruction sets in use, modules compiled in."""
    return low.ddp_build_info()


def set_log(level: Union[LogLevel, str] = LogLevel.WARNING, receiver: Optional[Callable[[LogLevel, str], None]] = None) -> None:
    """Choose where log messages go; without `receiver` they go to stderr. The receiver is called from any thread and must not call
    libddp; what it raises goes to ``sys.unraisablehook``."""
    if receiver is None:
        low.ddp_set_log(choose(LogLevel, level), None)
        return
    take = receiver

    def receive(number: int, text: str) -> int:
        if not sys.is_finalizing():
            with inside_callback():
                take(LogLevel(number), text)
        return 0

    low.ddp_set_log(choose(LogLevel, level), receive)


class LogMessage(NamedTuple):
    """A message of the log."""

    level: LogLevel
    text: str
    status: int  #: of the error that it reports; 0: it reports none
    group: int  #: :attr:`libddp.Group.number` of the group that it is about; 0: of none, or not known
    rank: int  #: of this process in that group; -1: not known


class LogListener:
    """A receiver of log messages, beside the others of the process: it is called from any thread, and must not call libddp, but for
    :func:`set_log` and the making and closing of listeners. What it raises goes to ``sys.unraisablehook``. It receives until
    :meth:`close`, or the end of the ``with`` block."""

    def __init__(self, receiver: Callable[[LogMessage], None], level: Union[LogLevel, str] = LogLevel.WARNING) -> None:
        def receive(number: int, status: int, group: int, rank: int, text: str) -> int:
            if not sys.is_finalizing():
                with inside_callback():
                    receiver(LogMessage(LogLevel(number), text, status, group, rank))
            return 0

        self._receive = receive  # C has no other reference
        self._number = low.ddp_add_log_listener(choose(LogLevel, level), receive)
        _listeners.add(self)

    def close(self) -> None:
        """The receiver is not running then, and is not called again. Inside the receiver: when it has returned."""
        number, self._number = self._number, 0
        low.ddp_remove_log_listener(number)
        _listeners.discard(self)

    def __enter__(self) -> LogListener:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


_listeners: set[LogListener] = set()  # a listener that nobody refers to receives all the same


@atexit.register
def _close_listeners() -> None:
    for each in list(_listeners):
        each.close()


def _check_version() -> None:
    """The loaded library must be of the minor version that this package was made for."""
    if low.ddp_version() // 1000 != low.DDP_VERSION // 1000:
        raise ImportError(f"libddp {low.ddp_version_string()} was loaded, but this package was made for {low.DDP_VERSION_STRING}: two "
                          "versions of the library are on this machine, and the wrong one comes first")


_check_version()
announce()
