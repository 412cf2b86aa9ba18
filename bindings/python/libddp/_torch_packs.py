# SPDX-License-Identifier: Apache-2.0
"""Gradients that autograd made anew, on their way into libddp's buckets: part of libddp.torch."""
from __future__ import annotations

import re
from typing import Any, Optional

import torch

from ._torch_norm import stream_of


class Packs:
    """After zero_grad(set_to_none=True) each gradient of a pass is a tensor that autograd made. On a GPU those of a bucket are copied
    together, by one kernel in the place of one for each parameter, when the bucket has all of its own. Until then ``p.grad`` is autograd's
    tensor, and the parameter is not marked."""

    def __init__(self, model: Any, parameters: list[torch.nn.Parameter], grads: list[torch.Tensor]) -> None:
        self._model, self._parameters, self._grads = model, parameters, grads
        self._buckets = buckets_of(model.plan(), model.names) if any(map(_is_packed, parameters)) else None
        self._left: list[int] = []  # parameters of each bucket whose gradients have not come in this pass
        self._waiting: list[tuple[int, torch.Tensor]] = []
        self._stream: Any = None  # on which those in _waiting were written

    def begin(self) -> None:
        """A pass begins."""
        self._waiting.clear()
        if self._buckets is not None:
            self._left = [0] * (1 + max((bucket for buckets in self._buckets for bucket in buckets), default=0))
            for bucket in (bucket for buckets in self._buckets for bucket in buckets):
                self._left[bucket] += 1

    def take(self, index: int) -> bool:
        """Let the gradient of this parameter wait for its bucket. False: it cannot, or need not."""
        given, mine = self._parameters[index].grad, self._grads[index]
        if self._buckets is None or not _is_packed(mine) or given is None or given.data_ptr() == mine.data_ptr():
            return False
        if given.layout != torch.strided or given.dtype != mine.dtype or not given.is_contiguous():
            return False
        stream = torch.cuda.current_stream(mine.device) if mine.is_cuda else None
        if stream != self._stream:
            self.flush()
            self._stream = stream
        self._waiting.append((index, given))
        return True

    def count(self, index: int) -> None:
        """The gradient of this parameter has come, in whatever way."""
        if self._buckets is None:
            return
        for bucket in self._buckets[index]:
            self._left[bucket] -= 1
        if any(self._left[bucket] == 0 for bucket in self._buckets[index]):
            self.flush()

    def flush(self) -> None:
        """Copy what waits, and mark it."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        with torch.cuda.stream(self._stream):
            torch._foreach_copy_([self._grads[index] for index, _ in waiting], [given.detach() for _, given in waiting])
            for index, given in waiting:
                if self._stream is not None:
                    given.record_stream(self._stream)  # its memory may belong to another stream, which could use it again too soon
                if self._parameters[index].grad is given:
                    self._parameters[index].grad = self._grads[index]
                self._model.mark_ready(index, stream=stream_of(self._grads[index]))

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


def _is_packed(tensor: torch.Tensor) -> bool:
    """In host memory a copy needs no kernel, and is best made while the gradient is in cache."""
    return tensor.is_cuda
