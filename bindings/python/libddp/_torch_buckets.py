# SPDX-License-Identifier: Apache-2.0
"""The buckets of PyTorch's Reducer, and libddp's memory for them: part of libddp.torch."""
from __future__ import annotations

import array
from typing import Any, Optional

import torch

from ._errors import InvalidStateError
from ._torch_norm import stream_of
from ._torch_shared import Shared, flat, share
from ._torch_strides import like


class Buckets:
    """Each bucket of a Reducer has the memory of libddp's gradients where that can be (host memory in the reach of the other ranks), else it is copied
    there and back. It is known by its address."""

    def __init__(self, parameters: list[torch.nn.Parameter]) -> None:
        self._parameters = parameters
        self.numbers: list[array.array] = []  #: of the parameters of each bucket, in order
        self.grads: list[torch.Tensor] = []  #: of each parameter, in libddp's memory
        self._found: dict[int, int] = {}  # number of a bucket by address
        self._parts: list[torch.Tensor] = []  # the same as vectors, in the order of memory
        self._flat: list[Optional[torch.Tensor]] = []  # libddp's memory of a bucket, where it has no gaps
        self._places: dict[int, int] = {}  # of parameters in such a bucket: PyTorch's address of the gradient
        self._shared: list[Any] = []  # of each bucket: None, not tried; False, not possible; or what holds it

    def read(self, reducer: Any, index_of: dict[int, int]) -> None:
        """The assignment, which is final. `index_of`: of a parameter by id()."""
        self.numbers = [array.array("i", [index_of[id(each)] for each in bucket.parameters()]) for bucket in reducer._get_zeros_like_grad_buckets()]

    def place(self, model: Any, lent: list[Any]) -> None:
        """The model is committed: its gradients have their places."""
        self._parts = [torch.from_dlpack(model.grad(index)).view(-1) for index in range(len(lent))]
        self.grads = [like(part, parameter) for part, parameter in zip(self._parts, lent)]
        self._flat, self._shared = [], [None] * len(self.numbers)
        for numbers in self.numbers:
            views = [model.grad(index) for index in numbers if lent[index].numel()]
            ends = [view.address + view.nbytes for view in views]
            gaps = any(view.address != end for view, end in zip(views[1:], ends))
            first = next((self.grads[index] for index in numbers if lent[index].numel()), None)
            fits = first is not None and first.is_cpu and not gaps
            self._flat.append(flat(views[0], first.dtype, sum(view.nbytes for view in views) // first.element_size()) if fits else None)

    def number_of(self, bucket: Any, buffer: torch.Tensor, number: Optional[int]) -> int:
        """Which bucket it is. `number`: what it is, where the bucket itself does not know its parameters."""
        found = self._found.get(buffer.data_ptr())
        if found is None:
            given = bucket.parameters()
            found = number if number is not None else next((n for n, numbers in enumerate(self.numbers) if self._parameters[numbers[0]] is given[0]), -1)
            if number is None and (found < 0 or [id(self._parameters[index]) for index in self.numbers[found]] != list(map(id, given))):
                raise InvalidStateError("PyTorch has put parameters into other buckets than when the module was wrapped, so they cannot be reduced: wrap the "
                                        "module again")
            if buffer.numel():
                self._found[buffer.data_ptr()] = found
        return found

    def bring(self, number: int, buffer: torch.Tensor) -> None:
        """This rank's gradients go to libddp's memory."""
        target = self._flat[number]
        if target is None:
            torch._foreach_copy_(*self._both(number, buffer))
        elif not self._is_shared(number, buffer):
            target.copy_(buffer)
            if self._shared[number] is not False:
                self._share(number, buffer, target)

    def _is_shared(self, number: int, buffer: torch.Tensor) -> bool:
        """PyTorch may have put a new tensor in the place of the one that was shared."""
        shared = self._shared[number]
        return bool(shared) and shared.address == buffer.data_ptr()

    def _share(self, number: int, buffer: torch.Tensor, target: torch.Tensor) -> None:
        self._found.pop(buffer.data_ptr(), None)
        if self._shared[number]:
            self._shared[number].close()
        self._shared[number] = share(buffer, target.data_ptr(), target) or False
        self._found[buffer.data_ptr()] = number
        if self._shared[number]:
            for index, part in zip(self.numbers[number], self._both(number, buffer)[1]):
                self._places[index] = part.data_ptr()

    def has(self, index: int, grad: torch.Tensor) -> bool:
        """Is this tensor, the gradient of a parameter, libddp's memory?"""
        return grad.layout == torch.strided and self._places.get(index) == grad.data_ptr()

    def result(self, number: int, buffer: torch.Tensor) -> torch.Tensor:
        """What the bucket is now that the pass has ended."""
        target = self._flat[number]
        if target is None:
            torch._foreach_copy_(*reversed(self._both(number, buffer)))
            return buffer
        return buffer if self._is_shared(number, buffer) else target

    def _both(self, number: int, buffer: torch.Tensor) -> tuple[list, list]:
        parts = [self._parts[index] for index in self.numbers[number]]
        return parts, list(buffer.split([part.numel() for part in parts]))

    def unshare(self) -> None:
        """Buckets have memory of their own again, and are shared anew in the next pass."""
        for shared in self._shared:
            if isinstance(shared, Shared):
                shared.close()
        self._shared = [None] * len(self.numbers)
        self._found.clear()
        self._places.clear()

    def forget_places(self) -> None:
        """The Reducer has made its buckets anew: one may be where another was."""
        self._found.clear()

    def close(self) -> None:
        """Let go of libddp's memory."""
        self.unshare()
        self.grads, self._parts, self._flat = [], [], []

    def stream(self, number: int) -> Optional[int]:
        """The stream on which PyTorch works on the bucket now."""
        return stream_of(self.grads[self.numbers[number][0]])
