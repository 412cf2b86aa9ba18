# SPDX-License-Identifier: Apache-2.0
"""The state of libddp's optimizers as torch.optim's classes have it, and back, by way of a checkpoint: part of libddp.torch."""
from __future__ import annotations

import io
import json
from typing import Any

import torch

from ._state import State
from ._torch_tensors import in_memory_order, like, order_of, parameters_of

_DTYPES = {"F32": torch.float32, "F64": torch.float64, "F16": torch.float16, "BF16": torch.bfloat16}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def read_state(kernels: Any, optimizer: Any) -> dict:
    """By parameter, of those that have made a step. What this rank has; where it is sharded what all have, collective."""
    header, data = _parts(kernels, f"{type(optimizer).__name__}.state_dict()")
    numbers, names = header["__metadata__"], kernels.wrapper.model.names
    prefix = numbers["ddp.prefix"] + "optimizer/"
    fields: dict[str, dict] = {}
    for key, entry in header.items():
        if key.startswith(prefix):
            name, _, field = key[len(prefix):].rpartition(".")
            fields.setdefault(name, {})[field] = entry
    state = {}
    for parameter in parameters_of(optimizer):
        name = names[kernels.index(parameter)] if parameter.requires_grad else ""
        steps = int(numbers.get(f"ddp.optimizer.0.steps.{name}", 0))
        if not steps:
            continue
        found = {} if isinstance(optimizer, torch.optim.SGD) else {"step": torch.tensor(float(steps))}
        for field, entry in fields.get(name, {}).items():
            first, last = entry["data_offsets"]
            value = torch.frombuffer(bytearray(data[first:last]) or bytearray(8), dtype=_DTYPES[entry["dtype"]])
            found[field] = like(value[:parameter.numel()], parameter).to(parameter.device)
        state[parameter] = found
    return state


def load_state(kernels: Any, optimizer: Any, state_dict: dict) -> None:
    """Rank 0's goes to all. Collective. The groups have been loaded."""
    wrapper, what = kernels.wrapper, f"{type(optimizer).__name__}.load_state_dict()"
    header, _ = _parts(kernels, what)
    numbers = {key: value for key, value in header["__metadata__"].items() if key not in ("ddp.checksum", "ddp.tensor_hashes")}
    prefix, names = numbers["ddp.prefix"] + "optimizer/", wrapper.model.names
    tensors = {name: in_memory_order(p.detach()) for name, p in zip(names, wrapper._parameters_lent)}
    most = 0
    keys = [key for group in state_dict["param_groups"] for key in group["params"]]  # numbers, or names in distributed checkpoints
    for key, parameter in zip(keys, parameters_of(optimizer)):
        if not parameter.requires_grad:
            continue
        name, state = names[kernels.index(parameter)], state_dict["state"].get(key, {})
        for field, value in state.items():
            if field != "step" and value is not None:
                kind = torch.float64 if parameter.dtype == torch.float64 else torch.float32
                tensors[f"{prefix}{name}.{field}"] = value.detach().to(kind).permute(order_of(parameter))
        steps = int(state.get("step", 1 if state else 0))
        numbers[f"ddp.optimizer.0.steps.{name}"] = str(steps)
        most = max(most, steps)
    numbers["ddp.checksum"] = "none"
    numbers["ddp.optimizer.0.step_count"] = str(most)
    numbers["ddp.optimizer.0.rate"] = repr(max(float(group["lr"]) for group in optimizer.param_groups))
    file = _file(tensors, numbers) if wrapper.group.rank == 0 else None
    _Parts(what, kernels).load(file, partial=True)
    kernels._apply_anew(optimizer)


class _Parts(State):
    """Tensors in the order of memory are what is wanted."""

    def __init__(self, what: str, kernels: Any) -> None:
        super().__init__(kernels.wrapper.model, kernels.own)
        self._call = what

    def _check_order(self) -> None:
        pass


def _parts(kernels: Any, what: str) -> tuple[dict, bytes]:
    """What libddp saves: what this rank has, or, where it is sharded, on all ranks what all have."""
    ranks, file = kernels.wrapper.group, io.BytesIO()
    if not kernels.sharded or ranks.size == 1:
        _Parts(what, kernels).save(file, local=True)
        return _read(file.getvalue())
    _Parts(what, kernels).save(file if ranks.rank == 0 else None)
    size = ranks.broadcast(torch.tensor([file.getbuffer().nbytes]))
    data = torch.frombuffer(bytearray(file.getvalue() if ranks.rank == 0 else int(size)), dtype=torch.uint8)
    return _read(ranks.broadcast(data).numpy().tobytes())


def _read(raw: bytes) -> tuple[dict, bytes]:
    """The header of a checkpoint, and its data."""
    length = int.from_bytes(raw[:8], "little")
    return json.loads(raw[8:8 + length]), raw[8 + length:]


def _file(tensors: dict[str, torch.Tensor], numbers: dict[str, str]) -> io.BytesIO:
    """A checkpoint without checksums."""
    header: dict[str, Any] = {"__metadata__": numbers}
    data = bytearray()
    for name, tensor in tensors.items():
        raw = tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        header[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 64)
    return io.BytesIO(len(text).to_bytes(8, "little") + text + data)
