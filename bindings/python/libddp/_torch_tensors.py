# SPDX-License-Identifier: Apache-2.0
"""A module's tensors, looked up at each use, because PyTorch programs replace them: part of libddp.torch."""
from __future__ import annotations

import operator
import weakref
from typing import Any, Iterable

import torch

from ._errors import InvalidStateError, TensorError
from ._group import Group
from ._torch_norm import stream_of

_SMALL = 256 * 1024  # bytes up to which buffers travel together, in one message


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
        self._sent: list[torch.Tensor] = []  # what was sent last, and what was made for it
        self._places: list[tuple] = []
        self._together: list[torch.Tensor] = []
        self._alone: list[torch.Tensor] = []
        self._odd: list[tuple] = []
        self._pack = torch.empty(0, dtype=torch.uint8)

    def stage(self, name: str, buffer: torch.Tensor) -> torch.Tensor:
        """Memory for a copy of a buffer, as bytes where libddp does not know its element type."""
        if buffer.layout != torch.strided:
            raise TensorError(f"buffer {name!r} has the layout {buffer.layout}; libddp reads dense tensors")
        copy = buffer.detach().clone(memory_format=torch.contiguous_format).resolve_conj().resolve_neg()
        self._stages[name] = copy
        return copy if copy.dtype in KNOWN_DTYPES else _bytes(copy)

    def take(self) -> None:
        """Copy the module's buffers to libddp's memory."""
        for name, buffer, stage in self._pairs():
            stage.copy_(buffer)

    def give(self) -> None:
        """Copy libddp's memory to the module's buffers."""
        self.are_equal = False
        for _, buffer, stage in self._pairs():
            _fill(buffer.data, stage)

    def check_in_place(self) -> None:
        """The parameters are the module's own. Asked when an optimizer or averages are made."""
        self.followed = True

    def _pairs(self) -> Iterable[tuple]:
        now = dict(self.module.named_buffers(remove_duplicate=False))
        for name in (now.keys() - self._stages.keys() - self._ignored) & self.module.state_dict(keep_vars=True).keys():
            raise InvalidStateError(f"buffer {name!r} was registered after the module was wrapped, so checkpoints and check() lack it: "
                                    "wrap the module again")
        for name, stage in self._stages.items():
            buffer = now.get(name)
            if buffer is None:
                continue  # it is gone: its last value stays in checkpoints
            if (buffer.shape, buffer.dtype) != (stage.shape, stage.dtype):
                raise InvalidStateError(f"buffer {name!r} is {_about(buffer)} now and was {_about(stage)} when the module was wrapped: wrap "
                                        "the module again, or keep its shape and element type")
            yield name, buffer.detach(), stage

    # ---- Before a forward computation. ----

    def send(self, group: Group, buffers: list[torch.Tensor], rank: int = 0) -> None:
        """A rank's values of these buffers go to every rank."""
        if len(buffers) != len(self._sent) or not all(map(operator.is_, buffers, self._sent)) or self._places != _places(buffers):
            self._look(buffers)
        stream = stream_of(buffers[0])
        root = group.rank == rank
        if self._together:
            for part, odd in self._odd if root else ():
                part.copy_(_bytes(odd.resolve_conj().resolve_neg().contiguous()))
            if root:
                torch.cat(self._together, out=self._pack)
            group.broadcast(self._pack, rank, stream=stream)
            if not root:
                torch._foreach_copy_(self._together, list(self._pack.split([part.numel() for part in self._together])))
                for part, odd in self._odd:
                    _fill(odd, part.view(odd.dtype).view(odd.shape))
        for part in self._alone:
            group.broadcast(part, rank, stream=stream_of(part))

    def _look(self, buffers: list[torch.Tensor]) -> None:
        """Views of the buffers as bytes; those with gaps travel through a copy."""
        self._together, self._alone, self._odd = [], [], []
        for buffer in buffers:
            if buffer.layout != torch.strided:
                raise TensorError(f"a buffer has the layout {buffer.layout}; libddp sends dense tensors")
            plain = buffer.data  # a change from outside is no change that autograd should count
            if not plain.is_contiguous() or plain.is_conj() or plain.is_neg():
                self._odd.append((torch.empty(plain.numel() * plain.element_size(), dtype=torch.uint8, device=plain.device), plain))
                self._together.append(self._odd[-1][0])
            elif plain.numel() * plain.element_size() > _SMALL or plain.device != buffers[0].device:
                self._alone.append(_bytes(plain))
            elif plain.numel():
                self._together.append(_bytes(plain))
        size = sum(part.numel() for part in self._together)
        if size != self._pack.numel() or self._pack.device != buffers[0].device:
            self._pack = torch.empty(size, dtype=torch.uint8, device=buffers[0].device)
        self._sent, self._places = list(buffers), _places(buffers)


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
    return [found for found in parameters if found is not None], _once(buffers)


def _once(tensors: list) -> list:
    """Without None and without repetitions."""
    return list({id(found): found for found in tensors if found is not None}.values())


def name_of(module: torch.nn.Module, parameter: torch.Tensor) -> str:
    """The name of one of a module's parameters, for errors."""
    return next((name for name, found in module.named_parameters() if found is parameter), "?")


def _places(tensors: list[torch.Tensor]) -> list[tuple]:
    return [(tensor.data_ptr(), tensor.shape, tensor.stride()) for tensor in tensors]


def _fill(target: torch.Tensor, source: torch.Tensor) -> None:
    """Copy; where many elements of an expanded target are one in memory, it is written once."""
    for axis, stride in enumerate(target.stride()):
        if stride == 0 and target.shape[axis] > 1:
            target, source = target.narrow(axis, 0, 1), source.narrow(axis, 0, 1)
    target.copy_(source)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1).view(torch.uint8)


def _about(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).rsplit('.', 1)[-1]} {list(tensor.shape)}"


KNOWN_DTYPES = {torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8, torch.complex64,
          torch.complex128}

