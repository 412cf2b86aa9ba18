# SPDX-License-Identifier: Apache-2.0
"""Messages from one rank to one other, and collectives in which ranks give or get different parts: part of libddp.Group."""
from __future__ import annotations

import array
from typing import Any, Callable, Optional, Sequence, Union

from . import low
from ._enums import Reduce, choose
from ._tensor import lend


class Messages:
    """What a group has beside the collectives in which all ranks do the same. `stream`: of tensors on a GPU, whose bytes go through host memory."""

    rank: int
    size: int
    _collective: Callable

    def send(self, tensor: Any, peer: int, tag: int = 0, *, stream: Optional[int] = None) -> None:
        """Send a tensor to one other rank, which receives it with the same tag. Up to 64 KiB are copied; a larger tensor waits for its receive.
        Any thread: one may send while another receives."""
        self._collective(low.ddp_group_send, lend(tensor, write=False).tensor, peer, tag, stream)

    def receive(self, tensor: Any, source: Optional[int] = None, tag: int = 0, *, stream: Optional[int] = None) -> int:
        """Receive into a tensor of the same type and size from one other rank; None: from any, and which one that is may differ from run to run.
        Returns the rank that sent. Any thread."""
        return self._collective(low.ddp_group_receive, lend(tensor).tensor, low.DDP_ANY_SOURCE if source is None else source, tag, stream)

    def reduce(self, tensor: Any, op: Union[Reduce, str] = Reduce.AVERAGE, root: int = 0, *, stream: Optional[int] = None) -> Any:
        """Reduce a tensor over all ranks to rank `root`, in place, with the bits of all_reduce. What the others have then is undefined."""
        self._collective(low.ddp_group_reduce, lend(tensor).tensor, choose(Reduce, op), root, stream)
        return tensor

    def gather(self, value: Any, output: Any = None, root: int = 0, *, stream: Optional[int] = None) -> Any:
        """Collect the tensors of all ranks on rank `root`, whose `output` holds size times the elements of `value`. Returns `output`."""
        taken = lend(output, "output").tensor if self.rank == root else None
        self._collective(low.ddp_group_gather, lend(value, "value", write=False).tensor, taken, root, stream)
        return output

    def scatter(self, value: Any, output: Any, root: int = 0, *, stream: Optional[int] = None) -> Any:
        """Give each rank its part of rank `root`'s `value`, which holds size times the elements of `output`. Returns `output`."""
        given = lend(value, "value", write=False).tensor if self.rank == root else None
        self._collective(low.ddp_group_scatter, given, lend(output, "output").tensor, root, stream)
        return output

    def all_to_all(self, value: Any, output: Any, value_counts: Optional[Sequence[int]] = None, output_counts: Optional[Sequence[int]] = None, *,
                   stream: Optional[int] = None) -> Any:
        """Give each rank a part of `value` and get one of each, by rank one behind the other. The counts say how many elements each rank gets,
        and how many come from each; None: equal parts. Returns `output`."""
        sent, received = self._counts(value_counts), self._counts(output_counts)
        self._collective(low.ddp_group_all_to_all, lend(value, "value", write=False).tensor, lend(output, "output").tensor,
                         None if sent is None else sent.buffer_info()[0], None if received is None else received.buffer_info()[0], stream)
        return output

    def all_gather_counts(self, value: Any, output: Any, counts: Sequence[int], *, stream: Optional[int] = None) -> Any:
        """Collect the tensors of all ranks, of which rank r gives counts[r] elements. Returns `output`."""
        each = self._counts(counts)
        self._collective(low.ddp_group_all_gather_counts, lend(value, "value", write=False).tensor, lend(output, "output").tensor,
                         each.buffer_info()[0], stream)  # type: ignore[union-attr]
        return output

    def _counts(self, counts: Optional[Sequence[int]]) -> Optional[array.array]:
        if counts is not None and len(counts) != self.size:
            raise ValueError(f"{len(counts)} counts are given; {self.size} ranks need one each")
        return None if counts is None else array.array("q", counts)
