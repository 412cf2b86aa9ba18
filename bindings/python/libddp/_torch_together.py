# SPDX-License-Identifier: Apache-2.0
"""Collective calls that programs like to make on rank 0 alone, as state_dict(): part of libddp.torch."""
from __future__ import annotations

import contextlib
import sys
import threading
from typing import Any, Iterator

from ._errors import AbortedError, Error, TimedOutError

WARN_AFTER = 10.0  #: seconds until a rank that waits says so
GIVE_UP_AFTER = 300.0  #: seconds until it ends the group


@contextlib.contextmanager
def together(group: Any, what: str) -> Iterator[None]:
    """Inside, this rank waits for the others. If they do not come, the program gets to know why it stands still, and then an error."""
    advice = f"{what} is collective: all ranks call it, also where one alone writes the file"
    ended, gave_up = threading.Event(), threading.Event()

    def watch() -> None:
        if ended.wait(WARN_AFTER):
            return
        print(f"libddp: rank {group.rank} has waited {WARN_AFTER:g} s in {what} for {_absent(group)}. {advice}", file=sys.stderr, flush=True)
        if not ended.wait(max(0.0, GIVE_UP_AFTER - WARN_AFTER)):
            gave_up.set()
            with contextlib.suppress(Error):
                group.abort(f"rank {group.rank} waited {GIVE_UP_AFTER:g} s in {what} for {_absent(group)}; {advice}")

    watcher = threading.Thread(target=watch, name="libddp state", daemon=True)
    if group.size > 1:
        watcher.start()
    try:
        yield
    except Error as error:
        kind = TimedOutError if gave_up.is_set() and isinstance(error, AbortedError) else type(error)
        raise kind(str(error) if advice in str(error) else f"{error}; {advice}", error.status if kind is type(error) else None) from None
    finally:
        ended.set()


def _absent(group: Any) -> str:
    """The ranks that are not in the call, and where they were last."""
    own = group.progress(group.rank).call
    found = []
    for rank in range(group.size):
        there = group.progress(rank)
        if rank != group.rank and not (there.in_call and there.call == own):
            found.append(f"rank {rank} ({'in' if there.in_call else 'last in'} {there.call})")
    return ", ".join(found[:8]) + (f" and {len(found) - 8} more" if len(found) > 8 else "") or "the others"
