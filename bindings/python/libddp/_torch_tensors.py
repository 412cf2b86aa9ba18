# SPDX-License-Identifier: Apache-2.0
"""A module's tensors, looked up at each use, because PyTorch programs replace them: part of libddp.torch."""
from __future__ import annotations

import weakref
from typing import Any, Iterable

import torch

from ._errors import InvalidStateError, TensorError
from ._torch_strides import in_memory_order

WRAPPERS: weakref.WeakSet = weakref.WeakSet()  #: of modules, for optimizers that are given parameters


class Buffers:
    """The buffers of a module. They are sent as they are at that moment, whatever their number, shape and place. For commit,
    check and checkpoints libddp has copies of those that were there at the beginning, in memory that does not move."""

    def __init__(self, module: torch.nn.Module, ignored: Iterable[str] = ()) -> None:
        self.module = module
        self._ignored = set(ignored)
        self.followed = False  # does anybody else use the model?
        self.are_equal = False  # were they sent at the end of a pass, and has no training computation begun since? The same on all ranks
        self._stages: dict[str, torch.Tensor] = {}

    def stage(self, name: str, buffer: torch.Tensor) -> torch.Tensor:
        """Memory for a copy of a buffer, as bytes where libddp does not know its element type."""
        if buffer.layout != torch.strided:
            raise TensorError(f"buffer {name!r} has the layout {buffer.layout}; libddp reads dense tensors")
        copy = buffer.detach().clone(memory_format=torch.contiguous_format).resolve_conj().resolve_neg()
        self._stages[name] = copy
        return copy if copy.dtype in KNOWN_DTYPES else as_bytes(copy)

    def keep(self, name: str, frozen: torch.Tensor) -> torch.Tensor:
        """The memory of a frozen parameter, without a copy, as bytes where libddp does not know its element type. The program may put other
        data in its place, as with the second encoder of MoCo: libddp's memory is this one then, and a copy."""
        alias = self._stages[name] = frozen.detach()
        return as_bytes(alias) if alias.dtype not in KNOWN_DTYPES and alias.is_contiguous() else in_memory_order(alias)

    def take(self) -> None:
        """Copy the module's buffers to libddp's memory."""
        for _, buffer, stage in self._pairs():
            stage.copy_(buffer)

    def give(self) -> None:
        """Copy libddp's memory to the module's buffers."""
        self.are_equal = False
        for _, buffer, stage in self._pairs():
            target, source = once_in_memory(buffer.data, stage)
            target.copy_(source)

    def check_in_place(self) -> None:
        """The parameters are the module's own. Asked when an optimizer or averages are made."""
        self.followed = True

    def _pairs(self) -> Iterable[tuple]:
        now: dict[str, torch.Tensor] = dict(self.module.named_buffers(remove_duplicate=False))
        for name in (now.keys() - self._stages.keys() - self._ignored) & self.module.state_dict(keep_vars=True).keys():
            raise InvalidStateError(f"buffer {name!r} was registered after the module was wrapped, so checkpoints and check() lack it: "
                                    "wrap the module again")
        now.update(self.module.named_parameters(remove_duplicate=False))
        for name, stage in self._stages.items():
            buffer = now.get(name)
            if buffer is None or (buffer.data_ptr(), buffer.stride()) == (stage.data_ptr(), stage.stride()) and buffer.shape == stage.shape:
                continue  # it is gone, and its last value stays in checkpoints; or it is libddp's memory itself
            if (buffer.shape, buffer.dtype) != (stage.shape, stage.dtype):
                what = "parameter" if isinstance(buffer, torch.nn.Parameter) else "buffer"
                raise InvalidStateError(f"{what} {name!r} is {_about(buffer)} now and was {_about(stage)} when the module was wrapped: wrap "
                                        "the module again, or keep its shape and element type")
            yield name, buffer.detach(), stage


def look(module: torch.nn.Module) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The parameters and buffers that the module has now; the same order on every rank."""
    seen: set[Any] = set()
    waiting: list[Any] = [module]
    parameters: list[Any] = []
    buffers: list[Any] = []
    while waiting:
        part = waiting.pop()
        if part is None or part in seen:
            continue
        seen.add(part)
        if found := part._parameters:
            parameters.extend(found.values())
        if found := part._buffers:
            buffers.extend(found.values())
        if found := part._modules:
            waiting.extend(found.values())
    return [found for found in parameters if found is not None], [found for found in buffers if found is not None]


def name_of(module: torch.nn.Module, parameter: torch.Tensor) -> str:
    """The name of one of a module's parameters, for errors."""
    return next((name for name, found in module.named_parameters() if found is parameter), "?")


def once_in_memory(tensor: torch.Tensor, *others: torch.Tensor) -> list[torch.Tensor]:
    """These without the axes along which all elements of the first one are one in memory (expand)."""
    found = [tensor, *others]
    for axis, stride in enumerate(tensor.stride()):
        if stride == 0 and tensor.shape[axis] > 1:
            found = [each.narrow(axis, 0, 1) for each in found]
    return found


def to_send(tensor: torch.Tensor) -> torch.Tensor:
    """What is in its memory, each element once, also where it is conjugated or negated by a mark; as bytes where that is a view."""
    found, = once_in_memory(tensor.data)  # a change from outside is no change that autograd should count
    found = found.conj() if found.is_conj() else found
    found = torch._neg_view(found) if found.is_neg() else found
    return as_bytes(found) if found.is_contiguous() else found


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """A dense tensor of any element type."""
    return tensor.reshape(-1).view(torch.uint8)


def _about(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).rsplit('.', 1)[-1]} {list(tensor.shape)}"


KNOWN_DTYPES = {torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8, torch.complex64,
          torch.complex128}
