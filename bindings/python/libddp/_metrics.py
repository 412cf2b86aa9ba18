# SPDX-License-Identifier: Apache-2.0
"""Numbers with names: the ranks agree on the names before they reduce the numbers."""
from __future__ import annotations

import hashlib
from typing import Any, Callable, Iterable, List

from ._errors import MismatchError

Reduced = Callable[[List[float]], List[float]]  # the largest of each number over all ranks


def agreed_order(group: Any, keys: Iterable[Any], largest: Reduced) -> list:
    """The keys in an order that is the same on all ranks, whatever the order in which the dictionary was filled. Collective: one short
    message, so that numbers of one name are never added to those of another. Raises MismatchError, on all ranks, where the names differ."""
    ordered = sorted(keys, key=str)
    text = "\0".join(map(str, ordered)).encode()
    word = float(int.from_bytes(hashlib.blake2b(text, digest_size=6).digest(), "little"))  # 48 bits, which a double holds exactly
    most, least = largest([word, -word])
    if most != -least:
        raise MismatchError(f"the ranks reduce metrics of other names: {_differences(group, text, largest)}. Give the same keys on all ranks")
    return ordered


def _differences(group: Any, own: bytes, largest: Reduced) -> str:
    """Which names a rank has that another rank has not. Collective."""
    size = int(largest([float(len(own))])[0]) + 1
    all_texts = bytearray(size * group.size)
    group.all_gather(bytearray(own.ljust(size, b"\n")), all_texts)
    names = [bytes(all_texts[size * rank:size * (rank + 1)]).rstrip(b"\n").decode().split("\0") for rank in range(group.size)]
    other = next(rank for rank in range(group.size) if names[rank] != names[0])
    extra, missing = ([name for name in names[one] if name not in names[two]] for one, two in ((other, 0), (0, other)))
    found = [f"rank {one} has {', '.join(map(repr, some[:8]))} and rank {two} has not" for one, two, some in ((0, other, missing), (other, 0, extra)) if some]
    return "; ".join(found)
