# SPDX-License-Identifier: Apache-2.0
"""How the ranks of a process group meet, over the store that torch.distributed gives: part of libddp.c10d."""
from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any, Callable, Collection, Mapping, Optional

import torch.distributed as dist

from ._errors import Error, PeerFailedError
from ._group import Group
from ._store import Notes


def limits(timeout: timedelta) -> dict:
    milliseconds = max(1, int(timeout.total_seconds() * 1000))
    return {"timeout_ms": milliseconds, "rendezvous_timeout_ms": milliseconds}


def meet(store: Any, rank: int, size: int, timeout: timedelta, options: Mapping[str, Any], members: Collection[int]) -> Group:
    """The group of libddp under a process group. `members` are its ranks as the group of all numbers them."""
    options = {**limits(timeout), **options, "rank": rank, "world_size": size}
    if size == 1:
        return Group(None, **options)
    ours = dist.PrefixStore("libddp", store)
    notes = Notes(ours.set, lambda key: bytes(ours.get(key)) if ours.check([key]) else None)
    whole = getattr(dist.group.WORLD, "_libddp", None)  # where that is of this backend
    check = None if whole is None else whole.check
    try:
        if check is not None:
            check()
    except Error as error:
        if isinstance(error, PeerFailedError) and any(lost in members for lost in error.details.ranks):
            raise  # nobody will come
        check = None  # it is broken already; this may be the attempt to go on
    if check is None:
        return Group("store://", store=notes, **options)
    return _meet_while(check, lambda: Group("store://", store=notes, **options), notes)


def _meet_while(check: Callable[[], None], create: Callable[[], Group], notes: Notes) -> Group:
    """Make a group, and give up if `check` says that the group of all ranks is broken: then somebody may not come any more."""
    made: list = []
    lock = threading.Lock()
    given_up = False

    def run() -> None:
        try:
            found: Any = create()
        except BaseException as error:
            found = error
        with lock:
            if not given_up:
                made.append(found)
            elif isinstance(found, Group):
                found.close()

    thread = threading.Thread(target=run, name="libddp-meeting", daemon=True)
    thread.start()
    try:
        while not made:
            thread.join(0.1)
            if not made:
                check()
    except BaseException:
        with lock:
            given_up = True
        notes.give_up()
        raise
    if isinstance(made[0], BaseException):
        raise made[0]
    return made[0]
