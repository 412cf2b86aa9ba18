# SPDX-License-Identifier: Apache-2.0
"""torch.optim's SGD, Adam and AdamW, which can also make their steps with libddp's kernels: part of libddp.torch."""
from __future__ import annotations

import warnings
import weakref
from collections import defaultdict
from typing import Any, Callable, Optional

import torch

from ._errors import InvalidArgumentError, InvalidStateError, NotSupportedError
from ._torch_kernels import OPTIONS, Kernels
from ._torch_state import load_state, read_state
from ._torch_tensors import WRAPPERS, parameters_of
from ._written import written


class _Steps(torch.optim.Optimizer):
    """One of PyTorch's optimizers. Its steps are PyTorch's own, until an option asks for libddp's kernels, the group can recover, or the
    program asks for `own`."""

    _kernels: Optional[Kernels] = None  # a copy has none
    _wrapper: Any = None  # a reference to the wrapper of the parameters
    _recovers: Optional[bool] = None  # does its group?

    def __init__(self, params: Any, *arguments: Any, **keywords: Any) -> None:
        options = {key: keywords.pop(key) for key in OPTIONS if key in keywords}
        super().__init__(params, *arguments, **keywords)
        asks = any(value and value != "keep" for key, value in options.items() if key != "undo")
        if asks:
            self._use_kernels(self._find_wrapper(), options)
        else:
            self._recover_if_the_group_does()

    def _recover_if_the_group_does(self) -> Any:
        """Group.recover() brings along what libddp's kernels keep. Returns the wrapper, if there is one."""
        wrapper = self._find_wrapper() if WRAPPERS else None
        if self._recovers is None and wrapper is not None:
            self._recovers = wrapper.group._recovers
            if self._recovers and not self.state:
                try:
                    self._use_kernels(wrapper, {})
                except NotSupportedError as error:
                    warnings.warn(f"the group can recover, but Group.recover() will not bring along the state of this optimizer: {error}",
                                  RuntimeWarning, stacklevel=3)
        return wrapper

    def _find_wrapper(self) -> Any:
        found = None if self._wrapper is None else self._wrapper()
        if found is None or not found._listens:
            parameters = set(map(id, parameters_of(self)))
            found = next((each for each in list(WRAPPERS) if each._listens and not parameters.isdisjoint(each._index_of)), None)
            self._wrapper = None if found is None else weakref.ref(found)
        return found

    def _use_kernels(self, wrapper: Any, options: dict) -> None:
        if wrapper is None:
            raise InvalidArgumentError("no libddp.torch.DistributedDataParallel has these parameters: wrap the module first, then make the "
                                       "optimizer from net.parameters()")
        self._kernels = Kernels(self, wrapper, options)
        self.state = _StateOfKernels(self)  # type: ignore[assignment]

    @property
    def own(self) -> Any:
        """The :class:`libddp.Optimizer` that makes the steps, for libddp.State and counts. Where no option asked for it, it makes all steps from
        the first question on, which must come before the first step."""
        if self._kernels is None:
            if self.state:
                raise InvalidStateError("this optimizer has made steps of PyTorch's already: ask for `own` before the first one")
            self._use_kernels(self._find_wrapper(), {})
        return self._kernels.own  # type: ignore[union-attr]

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:  # type: ignore[override]
        """As PyTorch's. With libddp's kernels: update every parameter that the last backward() used."""
        wrapper = self._recover_if_the_group_does() if self._kernels is None else None
        if self._kernels is None:
            return self._step_of_torch(wrapper, closure)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.state.forget()  # type: ignore[attr-defined]
        self._kernels.step(self)
        return loss

    def _step_of_torch(self, wrapper: Any, closure: Optional[Callable[[], Any]]) -> Any:
        if wrapper is not None and wrapper.model._sharded and wrapper.group.size > 1:
            raise InvalidStateError("each rank has the mean in its own slice only, because of an optimizer with shard; this optimizer needs the "
                                    "whole gradients: give it shard=True, or none of the module's optimizers")
        plain = super(_Steps, type(self)).step
        while getattr(plain, "hooked", False):  # hooks are called around the step of this class
            plain = plain.__wrapped__  # type: ignore[attr-defined]
        if closure is not None or not self._can_be_fused():
            return plain(self, closure)
        groups = [group for group in self.param_groups if group.get("fused") is None and group.get("foreach") is None]
        for group in groups:
            group["fused"] = True
        try:
            return plain(self)
        finally:
            for group in groups:
                group["fused"] = None
                written(p for p in group["params"] if p.grad is not None)  # PyTorch's fused kernels do not say so

    def _can_be_fused(self) -> bool:
        """In host memory PyTorch's fused kernels read and write each number once, its other ones several times, and it does not choose them by
        itself."""
        if self.defaults.get("differentiable") or torch.get_default_dtype() != torch.float32:
            return False
        for group in self.param_groups:
            kinds = {(type(p), type(grad), p.dtype, grad.dtype, p.is_cpu, grad.layout) for p in group["params"] if (grad := p.grad) is not None}
            if not all(kind in _PLAIN and of_grad in _PLAIN and dtype.is_floating_point and dtype == dtype_of_grad and is_cpu and layout == torch.strided
                       for kind, of_grad, dtype, dtype_of_grad, is_cpu, layout in kinds):
                return False
            if group.get("momentum"):
                begun = {self.state.get(p, {}).get("momentum_buffer") is None for p in group["params"] if p.grad is not None}
                if len(begun) > 1:
                    return False  # PyTorch's fused SGD begins all buffers at once
        return True

    # ---- State. ----

    def state_dict(self) -> dict:  # type: ignore[override]
        """As PyTorch's. Local, so that one rank may save alone; but with shard and several ranks it is collective: all ranks call it, one that waits for
        others says so after 10 s, and ends the group after 300 s."""
        if self._kernels is None:
            return super().state_dict()
        self.state = defaultdict(dict, read_state(self._kernels, self))
        try:
            return super().state_dict()
        finally:
            self.state = _StateOfKernels(self)  # type: ignore[assignment]

    def load_state_dict(self, state_dict: dict) -> None:  # type: ignore[override]
        """One of this class or of torch.optim's class of this name. With libddp's kernels it is collective; rank 0's goes to all."""
        if self._kernels is None:
            super().load_state_dict(state_dict)
            return
        super().load_state_dict({"state": {}, "param_groups": state_dict["param_groups"]})
        load_state(self._kernels, self, state_dict)
        self.state = _StateOfKernels(self)  # type: ignore[assignment]

    def __getstate__(self) -> dict:
        """Of a copy PyTorch's kernels make the steps. With shard it is collective, as state_dict()."""
        kept = super().__getstate__()
        return kept if self._kernels is None else {**kept, "state": defaultdict(dict, read_state(self._kernels, self))}


class _StateOfKernels(defaultdict):
    """What libddp's kernels keep, for a program that looks at it: copies, made when one is asked for."""

    def __init__(self, optimizer: _Steps) -> None:
        super().__init__(dict)
        self._optimizer = weakref.ref(optimizer)

    def __missing__(self, parameter: torch.Tensor) -> dict:
        optimizer = self._optimizer()
        if optimizer._kernels.sharded and optimizer._kernels.wrapper.group.size > 1:
            raise NotSupportedError("with shard each rank has a part of the state; state_dict(), which all ranks call, has it all")
        self.update(read_state(optimizer._kernels, optimizer))
        return self.get(parameter, {})

    def forget(self) -> None:
        """A step follows."""
        changed = any(value._version for fields in self.values() for value in fields.values())
        self.clear()
        if changed:
            raise InvalidStateError("the state of an optimizer was changed in place, but with libddp's kernels it is a copy of what these keep: "
                                    "change a state_dict() and load it, or leave out the options that ask for the kernels")


_PLAIN = (torch.Tensor, torch.nn.Parameter)

_DOC = """torch.optim.{name}, with its arguments, and keywords with which libddp's kernels make the steps, with the same bits on every rank::

        net = libddp.torch.DistributedDataParallel(net)
        optimizer = libddp.torch.{name}(net.parameters(), lr=1e-3, shard=True)

    Keywords: shard, in_backward, master_weights, nonfinite, max_norm, clip_value, undo, divide_in_step, late_values, as of
    :class:`libddp.{own}`. With shard gradients are clipped by max_norm, not between backward and step. With in_backward the step is made within
    backward(), so neither a GradScaler nor clipping has a place between the two. Without any of them it is PyTorch's class in everything."""


class SGD(_Steps, torch.optim.SGD):
    __doc__ = _DOC.format(name="SGD", own="SGD")


class Adam(_Steps, torch.optim.Adam):
    __doc__ = _DOC.format(name="Adam", own="Adam")


class AdamW(_Steps, torch.optim.AdamW):
    __doc__ = _DOC.format(name="AdamW", own="Adam")
