# SPDX-License-Identifier: Apache-2.0
"""Calls that wait for other ranks, and Ctrl-C.

Python runs signal handlers on the main thread only, and not while that thread is inside a call. So a call that waits is made on a helper
thread, and the main thread waits for it in a way that lets handlers run. If one raises (Ctrl-C does), the group is aborted: the other
ranks learn at once, the call returns, and the exception goes on. On any other thread the call is made directly.

Cost: two changes of thread; the helper is kept.
"""
from __future__ import annotations

import _thread
import os
import threading
from typing import Any, Callable, Optional


class _Helper:
    def __init__(self) -> None:
        self.pid = os.getpid()
        self.work: Any = None
        self.result: Any = None
        self.error: Optional[BaseException] = None
        self.start = _thread.allocate_lock()
        self.done = _thread.allocate_lock()
        self.start.acquire()
        self.done.acquire()
        threading.Thread(target=self._run, name="libddp", daemon=True).start()

    def _run(self) -> None:
        while True:
            self.start.acquire()
            function, arguments = self.work
            try:
                self.result = function(*arguments)
            except BaseException as error:  # it is the caller's
                self.error = error
            self.work = function = arguments = None
            self.done.release()

    def take(self) -> Any:
        result, error = self.result, self.error
        self.result = self.error = None
        if error is not None:
            try:
                raise error
            finally:
                error = None  # no cycle through this frame
        return result


_idle: Optional[_Helper] = None


def call(abort: Optional[Callable[[str], None]], function: Callable, *arguments: Any) -> Any:
    """`function(*arguments)`, interruptible. `abort` makes it return early; without one the helper is left to end by itself."""
    global _idle
    if threading.current_thread() is not threading.main_thread():
        return function(*arguments)
    helper, _idle = _idle, None
    if helper is None or helper.pid != os.getpid():  # a fork has no threads
        helper = _Helper()
    helper.work = (function, arguments)
    helper.start.release()
    try:
        helper.done.acquire()
    except BaseException as error:
        if abort is None:
            raise
        abort(f"{type(error).__name__} on a rank that was waiting")
        _wait_out(helper)
        _idle = helper
        helper.result = helper.error = None
        raise
    _idle = helper
    return helper.take()


def _wait_out(helper: _Helper) -> None:
    """The group is aborted, so the call returns soon; another Ctrl-C must not leave it running with our memory."""
    while True:
        try:
            helper.done.acquire()
            return
        except KeyboardInterrupt:
            continue
