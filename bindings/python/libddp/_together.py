# SPDX-License-Identifier: Apache-2.0
"""Collective calls that programs like to make on rank 0 alone, such as State.save()."""
from __future__ import annotations

import contextlib
import sys
import threading
from typing import Any, Iterator

from ._errors import AbortedError, DifferentCallsError, Error, TimedOutError

WARN_AFTER = 10.0  #: seconds until a rank that waits says so
GIVE_UP_AFTER = 300.0  #: seconds until it ends the group


@contextlib.contextmanager
def together(group: Any, what: str, *, gives_up: bool = False) -> Iterator[None]:
    """Inside, this rank waits for the others. If some do not come, it writes so to standard error, and with `gives_up` it ends the group later."""
    advice = f"{what} is collective: all ranks call it, also where one alone writes the file"
    ended, gave_up = threading.Event(), threading.Event()

    def watch() -> None:
        if not ended.wait(WARN_AFTER) and (absent := _absent(group)):
            print(f"libddp: rank {group.rank} has waited {WARN_AFTER:g} s in {what} for {absent}. {advice}", file=sys.stderr, flush=True)
        if gives_up and not ended.wait(max(0.0, GIVE_UP_AFTER - WARN_AFTER)) and (absent := _absent(group)):
            gave_up.set()
            with contextlib.suppress(Error):
                group.abort(f"rank {group.rank} waited {GIVE_UP_AFTER:g} s in {what} for {absent}; {advice}")

    if not group.closed and group.size > 1:
        threading.Thread(target=watch, name="libddp together", daemon=True).start()
    try:
        yield
    except DifferentCallsError as error:
        error.args = (f"{error}; {advice}",)
        raise
    except AbortedError as error:
        if gave_up.is_set():
            raise TimedOutError(str(error)) from None
        raise
    finally:
        ended.set()


def _absent(group: Any) -> str:
    """The ranks that are not in the call, and where they were last."""
    own = group.progress(group.rank).call
    found = []
    for rank in range(group.size):
        there = group.progress(rank)
        if rank != group.rank and not (there.in_call and there.call == own):
            found.append(f"rank {rank}" + (f" ({'in' if there.in_call else 'last in'} {there.call})" if there.call else ""))
    return ", ".join(found[:8]) + (f" and {len(found) - 8} more" if len(found) > 8 else "")
