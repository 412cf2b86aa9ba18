# SPDX-License-Identifier: Apache-2.0
"""Gradients that autograd made anew, on their way into libddp's buckets: part of libddp.torch."""
from __future__ import annotations

import contextlib
import re
from typing import Any, ContextManager, Optional

import torch

from ._torch_norm import stream_of


class Packs:
    """After zero_grad(set_to_none=True) each gradient of a pass is a tensor that autograd made. On a GPU those of a bucket are copied
    together, by one kernel in the place of one for each parameter, when the bucket has all of its own. Until then ``p.grad`` is autograd's
    tensor, and the parameter is not marked."""

    def __init__(self, model: Any, parameters: list[torch.nn.Parameter], grads: list[torch.Tensor]) -> None:
        self._model, self._parameters, self._grads = model, parameters, grads
        self._buckets = buckets_of(model.plan(), model.names) if any(map(_is_packed, parameters)) else None
        self._sizes = _sizes_of(self._buckets or [])
        self._left: list[int] = []  # parameters of each bucket whose gradients have not come in this pass
        self._waiting: list[tuple[int, torch.Tensor]] = []
        self._place: Optional[tuple] = None  # the device and the stream, as numbers, on which those in _waiting were written
        self._stream: Any = None  # the same stream as PyTorch's object, which takes long to make

    def begin(self) -> None:
        """A pass begins."""
        self._waiting.clear()
        self._left = list(self._sizes)

    def take(self, index: int) -> bool:
        """Let the gradient of this parameter wait for its bucket. False: it cannot, or need not."""
        if self._buckets is None:
            return False
        given, mine = self._parameters[index].grad, self._grads[index]
        if not _is_packed(mine) or given is None or given.data_ptr() == mine.data_ptr():
            return False
        if given.layout != torch.strided or given.dtype != mine.dtype or not given.is_contiguous():
            return False
        place = (mine.get_device(), stream_of(mine))
        if place != self._place:
            self.flush()
            self._place, self._stream = place, torch.cuda.current_stream(mine.device) if mine.is_cuda else None
        self._waiting.append((index, given))
        return True

    def count(self, index: int) -> None:
        """The gradient of this parameter has come, in whatever way."""
        if self._buckets is None:
            return
        left, completes = self._left, False
        for bucket in self._buckets[index]:
            left[bucket] -= 1
            completes = completes or left[bucket] == 0
        if completes:
            self.flush()

    def flush(self) -> None:
        """Copy what waits, and mark it."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        grads = [self._grads[index] for index, _ in waiting]
        with self._on_stream(grads[0]), torch.no_grad():
            torch._foreach_copy_(grads, [given for _, given in waiting])
            stream = stream_of(grads[0])
        for (index, given), mine in zip(waiting, grads):
            if self._stream is not None:
                given.record_stream(self._stream)  # its memory may belong to another stream, which could use it again too soon
            if self._parameters[index].grad is given:
                self._parameters[index].grad = mine
            self._model.mark_ready(index, stream=stream)

    def _on_stream(self, mine: torch.Tensor) -> ContextManager:
        """On the stream of those in _waiting; mostly PyTorch is there already."""
        if self._stream is None or stream_of(mine) == self._stream.cuda_stream:
            return contextlib.nullcontext()
        return torch.cuda.stream(self._stream)

    def drop(self) -> None:
        """The pass will not end: what waits stays autograd's."""
        self._waiting.clear()


def buckets_of(plan: str, names: tuple[str, ...]) -> Optional[list[list[int]]]:
    """The buckets of each parameter, from ``Model.plan()``. None: that text is none that is known here."""
    index_of = {name: index for index, name in enumerate(names)}
    found: list[list[int]] = [[] for _ in names]
    for bucket, line in enumerate(plan.splitlines()[1:]):
        match = re.fullmatch(r"bucket (\d+): \d+ bytes of \w+, [^:]*:(.*)", line)
        if match is None or int(match.group(1)) != bucket:
            return None
        word = None
        for part in match.group(2).split(" ")[1:]:
            word = part if word is None else word + " " + part  # a name may have spaces in it
            index = index_of.get(word, index_of.get(re.sub(r"\[\d+:\d+\]$", "", word)))
            if index is not None:
                found[index].append(bucket)
                word = None
        if word is not None:
            return None
    return found if all(found) else None


def _sizes_of(buckets: list[list[int]]) -> list[int]:
    """How many parameters each bucket has."""
    flat = [bucket for of_one in buckets for bucket in of_one]
    return [flat.count(bucket) for bucket in range(max(flat, default=-1) + 1)]


def _is_packed(tensor: torch.Tensor) -> bool:
    """In host memory a copy needs no kernel, and is best made while the gradient is in cache."""
    return tensor.is_cuda
