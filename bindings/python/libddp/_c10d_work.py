# SPDX-License-Identifier: Apache-2.0
"""What an operation of torch.distributed is while it runs, and the thread on which a process group runs them: part of libddp.c10d."""
from __future__ import annotations

import _thread
import os
import queue
import threading
import time
from datetime import timedelta
from typing import Any, Callable, Optional

import torch
import torch.distributed as dist

from ._enums import Status
from ._errors import AbortedError, Error, InvalidStateError, TimedOutError

_inference: Any = getattr(torch._C, "_InferenceMode", torch.inference_mode)  # the first is what the second is made of, and takes less time


class Work(dist.Work):
    """One operation. It ends once, with tensors or with an exception, which every way of waiting for it raises."""

    deadline: Optional[float] = None  #: when it has taken too long, where the group's own limit is longer
    kept: Any = None  #: memory that is read or written meanwhile
    source = -1  #: of a receive: the rank that sent
    _error: Optional[BaseException] = None
    _ended = False
    _recorded: Any = None
    _future: Optional[torch.futures.Future] = None
    _told: Optional[torch.futures.Future] = None  # what _future is made of
    _running: Any = None  # held until it has ended; made by the first thread that waits for it
    _mutex = _thread.allocate_lock()  # of all operations: what it guards takes no time

    def __init__(self, what: str, tensors: list, abort: Callable[[str], None],
                 explain: Callable[[BaseException], BaseException] = lambda error: error) -> None:
        super().__init__()
        self.what = what  #: for error texts
        self.tensors = tensors  #: those that hold the result; they live as long as the operation runs
        self._abort = abort
        self._explain = explain  # makes an error of the library one of the process group

    def record(self, title: str, inputs: list) -> None:
        """A profiler runs: it sees the operation from now until its end."""
        self._recorded = torch._C._profiler._RecordFunctionFast(title, inputs, {})
        self._recorded.__enter__()

    def end(self, error: Optional[BaseException] = None) -> None:
        """The operation has ended. Called once, by who runs it."""
        if error is not None:
            self._error = self._explain(error)
        if self._recorded is not None:
            self._recorded.__exit__(None, None, None)
            self._recorded = None
        with self._mutex:
            self._ended = True
            told, running = self._told, self._running
        if running is not None:
            running.release()
        if told is not None:
            told.set_result(None)

    def wait(self, timeout: Optional[timedelta] = None) -> bool:
        """Return when the operation has ended; with a timeout the operation goes on when the time is over."""
        if not self._ended:
            seconds = timeout.total_seconds() if timeout else 0
            try:
                in_time = self._wait(time.monotonic() + seconds if seconds > 0 else None)
            except BaseException as error:  # Ctrl-C: the other ranks learn why
                self._abort(f"{type(error).__name__} on a rank that was waiting for {self.what}")
                raise
            if not in_time:
                raise Error(f"{self.what} has not ended within the {seconds:g} s of wait(timeout=...); it goes on", Status.TIMED_OUT)
        if self._error is not None:
            raise self._error.with_traceback(None)
        return True

    def _wait(self, until: Optional[float]) -> bool:
        with self._mutex:
            if self._ended:
                return True
            if self._running is None:
                self._running = _thread.allocate_lock()
                self._running.acquire()
        in_time = self._running.acquire(timeout=-1 if until is None else max(0.0, until - time.monotonic()))
        if in_time:
            self._running.release()
        return in_time

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return self._ended

    def is_success(self) -> bool:
        return self._ended and self._error is None

    def exception(self) -> Optional[BaseException]:
        return self._error

    def result(self) -> list:
        return self.tensors

    def source_rank(self) -> int:
        return self.source

    _source_rank = source_rank

    def get_future(self) -> torch.futures.Future:
        """The same as a future, whose value is the list of tensors."""
        with self._mutex:
            if self._future is None:
                self._told = torch.futures.Future()
                self._future = self._told.then(self._value)  # an exception in a callback is one for C++, too
                if self._ended:
                    self._told.set_result(None)
            return self._future

    def _value(self, _told: torch.futures.Future) -> list:
        if self._error is not None:
            raise self._error.with_traceback(None)
        return self.tensors


class Several(Work):
    """Operations that end as one."""

    def __init__(self, works: list, abort: Callable[[str], None]) -> None:
        super().__init__("a coalesced operation", [tensor for work in works for tensor in work.tensors], abort)
        self._left = len(works)
        self._first: Optional[BaseException] = None
        self._counting = _thread.allocate_lock()
        for work in works:
            work.get_future().add_done_callback(lambda _future, work=work: self._count(work))
        if not works:
            self.end()

    def _count(self, work: Work) -> None:
        with self._counting:
            self._left -= 1
            self._first = self._first or work.exception()
            last = self._left == 0
        if last:
            self.end(self._first)


class Worker:
    """The thread that runs a group's collectives, in the order in which they were called. One that is called on this thread itself, by what
    waits for an earlier one (`future.then`), runs there and then: on every rank right after that one."""

    def __init__(self, name: str, abort: Callable[[str], None]) -> None:
        self._name = name
        self._abort = abort
        self._pid = os.getpid()
        self._queue: queue.SimpleQueue = queue.SimpleQueue()
        self._thread: Optional[threading.Thread] = None
        self._starting = _thread.allocate_lock()
        self._open = True
        self._current: Optional[Work] = None
        self._ident = -1  # of the thread
        self._watch = Watch(self._expire)

    def submit(self, work: Work, function: Callable[..., None], arguments: tuple) -> Work:
        if self._pid != os.getpid():
            raise InvalidStateError("this process group was made by the process of which this one is a fork: make one of your own")
        if _thread.get_ident() == self._ident and self._open:
            self._run(work, function, arguments)
            return work
        with self._starting:
            if not self._open:
                raise InvalidStateError("the process group was destroyed")
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()
            self._queue.put((work, function, arguments))
        return work

    def _work(self) -> None:
        self._ident = _thread.get_ident()
        while True:
            job = self._queue.get()
            if job is None:
                return
            self._run(*job)
            del job

    def _run(self, work: Work, function: Callable[..., None], arguments: tuple) -> None:
        outer, self._current = self._current, work
        error: Optional[BaseException] = None
        try:
            with _inference(True):  # in which tensors of both kinds may be written
                if work.deadline is None:
                    function(*arguments)
                else:
                    with self._watch.over(work.deadline):
                        function(*arguments)
        except BaseException as raised:
            error = raised
            if isinstance(error, AbortedError) and self._watch.expired(work):
                error = TimedOutError(f"{work.what} did not end within its timeout: {raised}")
        self._current = outer
        work.end(error)

    def _expire(self) -> None:
        current = self._current
        if current is not None:
            self._watch.late = current
            self._abort(f"{current.what} did not end within the timeout that its caller gave")

    @property
    def is_here(self) -> bool:
        return self._pid == os.getpid()

    def close(self, limit: Optional[float] = None) -> bool:
        """Run what was submitted, then end. False: it did not end within the limit, in seconds."""
        with self._starting:
            if self._open:
                self._open = False
                self._queue.put(None)
                self._watch.close()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(limit)
            return not self._thread.is_alive()
        return True


class Watch:
    """The thread that ends an operation whose own timeout is shorter than the group's. It starts with the first of these."""

    def __init__(self, expire: Callable[[], None]) -> None:
        self._expire = expire
        self._changed = threading.Condition()
        self._deadline: Optional[float] = None
        self._open = True
        self._thread: Optional[threading.Thread] = None
        self.late: Optional[Work] = None  #: the operation that took too long

    def expired(self, work: Work) -> bool:
        return self.late is work

    def over(self, deadline: float) -> Watch:
        with self._changed:
            self._deadline = deadline
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="libddp-timeout", daemon=True)
                self._thread.start()
            self._changed.notify()
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._deadline = None
            self._changed.notify()

    def _run(self) -> None:
        with self._changed:
            while self._open:
                left = None if self._deadline is None else self._deadline - time.monotonic()
                if left is not None and left <= 0:
                    self._deadline = None
                    self._expire()
                else:
                    self._changed.wait(left)

    def close(self) -> None:
        with self._changed:
            self._open = False
            self._changed.notify()
