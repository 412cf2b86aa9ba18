# SPDX-License-Identifier: Apache-2.0
"""libddp's optimizers as torch.optim.Optimizers: part of libddp.torch."""
from __future__ import annotations

import io
import json
import weakref
from typing import Any, Callable, Iterable, Optional

import torch

from ._errors import InvalidArgumentError, NotSupportedError
from ._optimizer import SGD as OwnSGD
from ._optimizer import Adam as OwnAdam
from ._state import State
from ._torch_strides import in_memory_order, like, order_of
from ._torch_tensors import WRAPPERS
from ._torch_together import together

_DTYPES = {"F32": torch.float32, "F64": torch.float64, "F16": torch.float16, "BF16": torch.bfloat16}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


class _OwnOptimizer(torch.optim.Optimizer):
    """Steps with libddp's kernels, over all ranks alike. `own` is the :class:`libddp.Optimizer` that makes them."""

    own: Any

    def __init__(self, params: Iterable[Any], defaults: dict, refused: Iterable[str], fixed: tuple[str, ...], make: Callable[[Any, dict], Any],
                 options: dict) -> None:
        self._fixed, self._refused = fixed, tuple(refused)
        self._applied: list = []
        super().__init__(params, defaults)
        self._wrapper = _wrapper_of([parameter for group in self.param_groups for parameter in _trained(group)])
        self._check_groups()
        self._in_backward, self._sharded = bool(options.get("in_backward")), bool(options.get("shard"))
        self._divides_in_step = bool(options.get("divide_in_step"))
        self.own = make(self._wrapper.model, options)
        self._wrapper._optimizers.append(weakref.ref(self))
        self._apply()

    def _index(self, parameter: torch.Tensor) -> int:
        for index, known in enumerate(self._wrapper._parameters_lent):
            if known is parameter:
                return index
        raise InvalidArgumentError("a parameter is not one of the wrapped module's: make the optimizer from net.parameters()")

    def _check_groups(self) -> None:
        for group in self.param_groups:
            for key in self._refused:
                if group.get(key):
                    raise NotSupportedError(f"{type(self).__name__}: {key} is not among what libddp's kernels do; use torch.optim's class")
            for key in self._fixed:
                if group[key] != self.param_groups[0][key]:
                    raise NotSupportedError(f"{type(self).__name__}: {key} is one for all parameter groups; lr and weight_decay may differ")
            for parameter in _trained(group):
                if self._index(parameter) in self._wrapper._sparse:
                    raise NotSupportedError(f"{type(self).__name__}: the gradient of a parameter is sparse (nn.Embedding(..., sparse=True)): give it to "
                                            "torch.optim.SparseAdam, and the others to this optimizer")
        now = [self.param_groups[0][key] for key in self._fixed]
        if now != getattr(self, "_first", now):
            raise NotSupportedError(f"{type(self).__name__}: of the options lr and weight_decay alone can change after the beginning")
        self._first = now

    def _apply(self) -> None:
        """Tell libddp the rates and decays that the groups have now; a parameter that is in no group keeps its value."""
        wanted = [(float(group["lr"]), float(group["weight_decay"]), len(group["params"])) for group in self.param_groups]
        if wanted == self._applied:
            return
        self._check_groups()
        top = max(rate for rate, _, _ in wanted)
        self.own.rate = top
        scales = dict.fromkeys(range(len(self._wrapper._parameters_lent)), (0.0, 0.0))
        for (rate, decay, _), group in zip(wanted, self.param_groups):
            for parameter in _trained(group):
                scales[self._index(parameter)] = (decay, rate / top if top else 1.0)
        for index, (decay, scale) in scales.items():
            self.own.set_group(index, weight_decay=decay, rate_scale=scale)
        self._applied = wanted

    def _before_pass(self) -> None:
        if self._in_backward or self._divides_in_step:  # the pass makes the step, or leaves sums, over which no group can change
            self._apply()

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:  # type: ignore[override]
        """Update every parameter that the last backward() used."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._wrapper.model.stats()["passes"] == 0:
            return loss  # there are no gradients
        if not self._in_backward:
            self._apply()
        self.own.step(stream=self._wrapper._stream())
        return loss

    def add_param_group(self, param_group: dict) -> None:
        """As PyTorch's; of the wrapped module's parameters."""
        super().add_param_group(param_group)
        if hasattr(self, "own"):
            self._check_groups()

    # ---- State. ----

    def _parts(self, call: str) -> tuple[dict, bytes]:
        """What libddp saves: what this rank has, or, where it is sharded, on all ranks what all have."""
        ranks, file = self._wrapper.group, io.BytesIO()
        if not self._sharded or ranks.size == 1:
            _Parts(self._wrapper.model, self.own).save(file, local=True)
            return _read(file.getvalue())
        with together(ranks, f"{type(self).__name__}.{call}()"):
            _Parts(self._wrapper.model, self.own).save(file if ranks.rank == 0 else None)
        size = ranks.broadcast(torch.tensor([file.getbuffer().nbytes]))
        data = torch.frombuffer(bytearray(file.getvalue() if ranks.rank == 0 else int(size)), dtype=torch.uint8)
        return _read(ranks.broadcast(data).numpy().tobytes())

    def state_dict(self) -> dict:  # type: ignore[override]
        """As that of torch.optim's class of this name, which can load it. Local, so that one rank may save alone; but with shard and several ranks it
        is collective: all ranks call it, one that waits for others says so after 10 s, and ends the group after 300 s."""
        header, data = self._parts("state_dict")
        numbers = header["__metadata__"]
        packed = super().state_dict()
        prefix, names = numbers["ddp.prefix"] + "optimizer/", self._wrapper.model.names
        flat = [parameter for group in self.param_groups for parameter in group["params"]]
        for position, parameter in enumerate(flat):
            if not parameter.requires_grad:
                continue
            name = names[self._index(parameter)]
            found = {}
            for key, entry in header.items():
                if key.startswith(prefix + name + ".") and "." not in key[len(prefix + name) + 1:]:
                    first, last = entry["data_offsets"]
                    value = torch.frombuffer(bytearray(data[first:last]) or bytearray(8), dtype=_DTYPES[entry["dtype"]])
                    found[key[len(prefix + name) + 1:]] = like(value[:parameter.numel()], parameter).to(parameter.device)
            steps = int(numbers.get(f"ddp.optimizer.steps.{name}", 0))
            if steps:
                packed["state"][position] = self._of_torch(found, steps)
        return packed

    def _of_torch(self, found: dict, steps: int) -> dict:
        return found

    def load_state_dict(self, state_dict: dict) -> None:  # type: ignore[override]
        """One of this class or of torch.optim's class of this name. Collective; rank 0's goes to all."""
        super().load_state_dict({"state": {}, "param_groups": state_dict["param_groups"]})
        header, _ = self._parts("load_state_dict")
        numbers = {key: value for key, value in header["__metadata__"].items() if key not in ("ddp.checksum", "ddp.tensor_hashes")}
        prefix, names = numbers["ddp.prefix"] + "optimizer/", self._wrapper.model.names
        tensors = {name: in_memory_order(p.detach()) for name, p in zip(names, self._wrapper._parameters_lent)}
        most = 0
        keys = [key for group in state_dict["param_groups"] for key in group["params"]]  # numbers, or names in distributed checkpoints
        flat = [parameter for group in self.param_groups for parameter in group["params"]]
        for position, parameter in enumerate(flat):
            if not parameter.requires_grad:
                continue
            name, state = names[self._index(parameter)], state_dict["state"].get(keys[position], {})
            for field, value in state.items():
                if field != "step" and value is not None:
                    kind = torch.float64 if parameter.dtype == torch.float64 else torch.float32
                    tensors[f"{prefix}{name}.{field}"] = value.detach().to(kind).permute(order_of(parameter))
            steps = int(state.get("step", 1 if state else 0))
            numbers[f"ddp.optimizer.steps.{name}"] = str(steps)
            most = max(most, steps)
        numbers["ddp.checksum"] = "none"
        numbers["ddp.optimizer.step_count"] = str(most)
        numbers["ddp.optimizer.rate"] = repr(max(float(group["lr"]) for group in self.param_groups))
        file = _file(tensors, numbers) if self._wrapper.group.rank == 0 else None
        with together(self._wrapper.group, f"{type(self).__name__}.load_state_dict()"):
            _Parts(self._wrapper.model, self.own).load(file, partial=True)
        self._applied = []
        self._apply()


class _SomeAdam(OwnAdam):
    """Of the parameters that are in a group."""

    _takes_all = False


class _SomeSGD(OwnSGD):
    """Of the parameters that are in a group."""

    _takes_all = False


class _Parts(State):
    """Tensors in the order of memory are what is wanted."""

    def _check_order(self) -> None:
        pass


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


def _trained(group: dict) -> list[torch.Tensor]:
    """The parameters of a group that are not frozen."""
    return [parameter for parameter in group["params"] if parameter.requires_grad]


def _wrapper_of(parameters: list[torch.Tensor]) -> Any:
    for wrapper in list(WRAPPERS):
        if parameters and id(parameters[0]) in wrapper._known and wrapper._hooks:
            return wrapper
    raise InvalidArgumentError("no libddp.torch.DistributedDataParallel has these parameters: wrap the module first, then make the optimizer "
                               "from net.parameters()")


_NONE = [torch.nn.Parameter(torch.zeros(1))]  # for the defaults of torch.optim's classes


class AdamW(_OwnOptimizer):
    """torch.optim.AdamW over libddp's kernels: one pass over memory, with the same bits on every rank::

        net = libddp.torch.DistributedDataParallel(net)
        optimizer = libddp.torch.AdamW(net.parameters(), lr=1e-3, shard=True)

    Parameter groups may have lr and weight_decay of their own, and schedulers change them. Keywords of libddp's optimizers: shard, in_backward,
    master_weights, nonfinite, max_norm, clip_value, undo, keep_copy, divide_in_step. With shard gradients are clipped by max_norm, not between backward and
    step. With in_backward the step is made within backward(), so neither a GradScaler nor clipping has a place between the two."""

    def __init__(self, params: Iterable[Any], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 1e-2, **options: Any) -> None:
        theirs = {key: options.pop(key) for key in ("amsgrad", "maximize", "foreach", "capturable", "differentiable", "fused") if key in options}
        defaults = torch.optim.AdamW(_NONE, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, **theirs).defaults
        super().__init__(params, defaults, ("amsgrad", "maximize", "capturable", "differentiable"), ("betas", "eps"),
                         lambda model, more: _SomeAdam(model, rate=float(lr), beta1=betas[0], beta2=betas[1], epsilon=eps, weight_decay=weight_decay,
                                                     **more), options)

    def _of_torch(self, found: dict, steps: int) -> dict:
        return {"step": torch.tensor(float(steps)), **found}


class SGD(_OwnOptimizer):
    """torch.optim.SGD over libddp's kernels; as :class:`libddp.torch.AdamW`."""

    def __init__(self, params: Iterable[Any], lr: float = 1e-3, momentum: float = 0, dampening: float = 0, weight_decay: float = 0,
                 nesterov: bool = False, **options: Any) -> None:
        theirs = {key: options.pop(key) for key in ("maximize", "foreach", "differentiable", "fused") if key in options}
        defaults = torch.optim.SGD(_NONE, lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay, nesterov=nesterov,
                                   **theirs).defaults
        super().__init__(params, defaults, ("maximize", "differentiable"), ("momentum", "dampening", "nesterov"),
                         lambda model, more: _SomeSGD(model, rate=float(lr), momentum=momentum, dampening=dampening, weight_decay=weight_decay,
                                                    nesterov=nesterov, **more), options)
