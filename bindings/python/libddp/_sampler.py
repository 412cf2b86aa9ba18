# SPDX-License-Identifier: Apache-2.0
"""Which samples are mine: the partition of a data set over the ranks."""
from __future__ import annotations

from array import array
from typing import Any, Iterator, Optional

from . import low
from ._group import Group
from ._options import fill


class Sampler:
    """A data set's partition: a permutation made from seed and epoch (or the identity), of which this rank takes every size-th index. All
    ranks get the same number. ``Sampler(60000, group)`` takes rank and size from a group; with `part` it is the share of that part of the
    global batch.

    Keywords are the fields of ``ddp_sampler``: seed, rank, size, shuffle, drop_last, seen. The sequence is frozen for ever.
    """

    def __init__(self, dataset_size: int, group: Optional[Group] = None, *, part: Optional[int] = None, **options: Any) -> None:
        if part is not None:
            if group is None:
                raise TypeError("a part is one of a group's: give the group too")
            options = {"rank": part, "size": group.total_parts, **options}
        elif group is not None:
            options = {"rank": group.rank, "size": group.size, **options}
        self._struct = fill(low.ddp_sampler(), low.ddp_sampler_init, {"dataset_size": dataset_size, **options})
        self._count = low.ddp_sampler_get_count(self._struct)

    def __len__(self) -> int:
        return self._count

    @property
    def seen(self) -> int:
        """How many samples of the epoch all ranks together have seen before the number of ranks changed."""
        return self._struct.seen

    def resumed(self, group: Group, done: int) -> Sampler:
        """The rest of an epoch for another number of ranks: all ranks have used the first `done` positions of their shares. What is left is
        dealt out over the ranks of the group as it is now, from position 0 on; no sample is repeated or left out. Keep a sampler without
        `seen` for the next epoch."""
        old = self._struct
        return Sampler(old.dataset_size, group, seed=old.seed, shuffle=old.shuffle, drop_last=old.drop_last,
                       seen=min(old.seen + done * old.size, old.dataset_size))

    def indices(self, epoch: int, first: int = 0, count: Optional[int] = None) -> array:
        """This rank's indices of an epoch, from position `first`: an array of 64-bit integers, which ``numpy.asarray`` takes without a
        copy. Resuming in the middle of an epoch is passing `first`."""
        wanted = self._count - first if count is None else count
        taken = array("q", bytes(8 * max(wanted, 0)))
        low.ddp_sampler_fill(self._struct, epoch, first, wanted, low.buffer_address(memoryview(taken)))
        return taken

    def batches(self, epoch: int, batch: int, first: int = 0) -> Iterator[array]:
        """The same in batches; the last may be shorter."""
        for start in range(first, self._count, batch):
            yield self.indices(epoch, start, min(batch, self._count - start))
