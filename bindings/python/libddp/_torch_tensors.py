# SPDX-License-Identifier: Apache-2.0
"""A module's tensors, looked up at each use, because PyTorch programs replace them; and dense ones whose axes lie in another order in memory, as
channels_last, which libddp sees in the order of memory: part of libddp.torch."""
from __future__ import annotations

import weakref
from typing import Any, Iterable, Optional

import torch

from ._errors import InvalidStateError
from ._tensor import DTYPE_NAMES

WRAPPERS: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  #: of modules, in the order in which they were made


class Call:
    """A method of an object, with its first arguments, for PyTorch to call. It does not keep the object. Where that has gone, and in a copy, it does
    nothing."""

    def __init__(self, owner: Any, name: str, *arguments: Any) -> None:
        self._owner: Any = (lambda: None) if owner is None else weakref.ref(owner)
        self._name, self._arguments = name, arguments

    def __reduce__(self) -> Any:
        return Call, (None, "")

    def __call__(self, *arguments: Any) -> Any:
        alive = self._owner()
        return None if alive is None else getattr(alive, self._name)(*self._arguments, *arguments)


class Buffers:
    """The buffers of a module. They are sent as they are at that moment, whatever their number, shape and place. For commit,
    check and checkpoints libddp has copies of those that were there at the beginning, in memory that does not move."""

    def __init__(self, module: torch.nn.Module, ignored: Iterable[str] = ()) -> None:
        self.module = module
        self._ignored = set(ignored)
        self.followed = False  # does anybody else use the model?
        self.are_equal = False  # were they sent at the end of a pass, and has no training computation begun since? The same on all ranks
        self._stages: dict[str, torch.Tensor] = {}

    def stage(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """Memory for a copy of a buffer; of a frozen parameter its own, though the program may put other data in its place, as with the second encoder
        of MoCo: it is a copy then. As bytes where libddp does not know the element type."""
        stage = tensor.detach()
        if not isinstance(tensor, torch.nn.Parameter) and tensor.layout == torch.strided:
            stage = stage.clone(memory_format=torch.contiguous_format).resolve_conj().resolve_neg()
        self._stages[name] = stage
        return as_bytes(stage) if stage.dtype not in _KNOWN_DTYPES and stage.is_contiguous() else in_memory_order(stage)

    def take(self) -> None:
        """Copy the module's buffers to libddp's memory."""
        for buffer, stage in self._pairs():
            stage.copy_(buffer)

    def give(self) -> None:
        """Copy libddp's memory to the module's buffers."""
        self.are_equal = False
        for buffer, stage in self._pairs():
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
            yield buffer.detach(), stage


def look(module: torch.nn.Module) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The parameters and buffers that the module has now; the same order on every rank."""
    seen: set[Any] = {None}
    waiting: list[Any] = [module]
    parameters: list[Any] = []
    buffers: list[Any] = []
    while waiting:
        part = waiting.pop()
        if part not in seen:
            seen.add(part)
            parameters += part._parameters.values()
            buffers += part._buffers.values()
            waiting += part._modules.values()
    return [found for found in parameters if found is not None], [found for found in buffers if found is not None]


def parameters_of(optimizer: torch.optim.Optimizer) -> list[torch.nn.Parameter]:
    """Those of all its groups, in order."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


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


def stream_of(tensor: torch.Tensor) -> Optional[int]:
    """The stream on which PyTorch works on this tensor now. As code that torch.compile makes asks for it: an object of a stream takes microseconds."""
    return torch._C._cuda_getCurrentRawStream(tensor.get_device()) if tensor.is_cuda else None


def _about(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).rsplit('.', 1)[-1]} {list(tensor.shape)}"


_KNOWN_DTYPES = {getattr(torch, name) for name in DTYPE_NAMES.values()}


def order_of(tensor: torch.Tensor) -> tuple[int, ...]:
    """The axes as they lie in memory, if the tensor is dense in some order; otherwise as they are."""
    plain = tuple(range(tensor.dim()))
    if tensor.layout != torch.strided or tensor.is_contiguous():
        return plain
    order = tuple(sorted(plain, key=lambda axis: -tensor.stride(axis)))
    return order if tensor.permute(order).is_contiguous() else plain


def in_memory_order(tensor: torch.Tensor) -> torch.Tensor:
    """A view in the order of memory; the tensor itself where nothing is gained."""
    order = order_of(tensor)
    return tensor if order == tuple(range(len(order))) else tensor.detach().permute(order)


def like(tensor: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """What libddp has for a parameter, with the axes of the parameter."""
    order = order_of(parameter)
    back = sorted(range(len(order)), key=order.__getitem__)
    return tensor.view([parameter.shape[axis] for axis in order]).permute(back) if back else tensor.view(parameter.shape)
