# SPDX-License-Identifier: Apache-2.0
"""The library itself: its version and its log."""
from __future__ import annotations

import sys
from typing import Callable, Optional, Union

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


def _check_version() -> None:
    """The loaded library must be of the minor version that this package was made for."""
    if low.ddp_version() // 1000 != low.DDP_VERSION // 1000:
        raise ImportError(f"libddp {low.ddp_version_string()} was loaded, but this package was made for {low.DDP_VERSION_STRING}: two "
                          "versions of the library are on this machine, and the wrong one comes first")


_check_version()
announce()
