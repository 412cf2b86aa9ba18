# SPDX-License-Identifier: Apache-2.0
"""Steps of a PyTorch optimizer by libddp's kernels, over all ranks alike: part of libddp.torch."""
from __future__ import annotations

import types
import warnings
import weakref
from typing import Any, Iterable, Optional

import torch

from ._errors import InvalidArgumentError, InvalidStateError, NotSupportedError
from ._optimizer import SGD as OwnSGD
from ._optimizer import Adam as OwnAdam
from ._torch_tensors import parameters_of
from ._written import written

OPTIONS = ("shard", "in_backward", "master_weights", "nonfinite", "max_norm", "clip_value", "undo", "divide_in_step", "late_values")
_REFUSED = ("amsgrad", "maximize", "capturable", "differentiable")
_FIXED = ("betas", "eps", "momentum", "dampening", "nesterov")
_UNMOVED = 5e-324  # a factor on the rate: a step that moves nothing; 0 would leave out the step


class Kernels:
    """libddp's optimizer for one of PyTorch's, whose groups say what it does. `own` is the :class:`libddp.Optimizer`."""

    def __init__(self, optimizer: torch.optim.Optimizer, wrapper: Any, options: dict) -> None:
        self.wrapper = wrapper
        self._in_backward = bool(options.get("in_backward"))
        self.sharded = bool(options.get("shard"))
        self._is_given_late = self._in_backward or (self.sharded and wrapper.group.size > 1)  # changes of p.grad come too late
        self._applies_early = self._in_backward or bool(options.get("divide_in_step"))  # a pass makes the step, or leaves sums
        self._optimizer = weakref.ref(optimizer)
        self._options = options
        self._fixed: dict = {}  # what must stay as it is
        self._check_groups(optimizer)
        self._listed: Optional[set] = None  # the parameters that it has; None: all
        for other in tuple(wrapper._optimizers):
            other._keep_its_own()
            self._listed = self._in_groups(optimizer)
        self._make_own(optimizer)
        self._stepped = 0  # passes of the wrapper that had reduced at the last step
        self._given: list = []  # the gradients as they were when the last pass had ended
        self._is_scaled = self._is_unscaled = False  # has a GradScaler been at the gradients, once? Has it divided them?
        wrapper._optimizers.add(self)
        if self._is_given_late:
            # GradScaler lets such an optimizer look for overflows itself, which it does for all ranks.
            warnings.filterwarnings("ignore", "GradScaler is going to stop passing itself", FutureWarning)
            optimizer._step_supports_amp_scaling = True  # type: ignore[attr-defined]
            optimizer.step = types.MethodType(_step_with_scaler, optimizer)  # type: ignore[method-assign]
        self._late = wrapper._wait_for_late_values() if options.get("late_values") and wrapper.group.size > 1 else None

    def _make_own(self, optimizer: Any) -> None:
        first = optimizer.param_groups[0]
        shared = {"rate": float(first["lr"]), "weight_decay": float(first["weight_decay"]), **self._options}
        if self._listed is not None:
            shared["parameters"] = sorted(self._listed)
        if isinstance(optimizer, torch.optim.SGD):
            self.own = _SGD(self.wrapper.model, momentum=first["momentum"], dampening=first["dampening"], nesterov=first["nesterov"], **shared)
        else:
            self.own = _Adam(self.wrapper.model, beta1=float(first["betas"][0]), beta2=float(first["betas"][1]), epsilon=first["eps"],
                             decoupled=isinstance(optimizer, torch.optim.AdamW), **shared)
        self._apply_anew(optimizer)

    def _apply_anew(self, optimizer: Any) -> None:
        """libddp has forgotten what the groups said."""
        self._said: Any = None  # what the groups said when libddp was told
        self._sent: list = [None] * len(self.wrapper._parameters_lent)  # decay and factor of each parameter, as libddp has them
        self._scale = self.own.loss_scale  # as libddp has it
        self._apply(optimizer)

    def _in_groups(self, optimizer: Any) -> set:
        return {self.wrapper._index_of[id(p)] for p in parameters_of(optimizer) if id(p) in self.wrapper._index_of}

    def _keep_its_own(self) -> None:
        """Another optimizer is made: leave it the parameters that are in no group of this one. Not once this one has made a step."""
        optimizer = self._optimizer()
        if self._listed is not None or optimizer is None or self.own.step_count:
            return
        self._listed = self._in_groups(optimizer)
        self.own.close()
        self._make_own(optimizer)

    def index(self, parameter: torch.Tensor) -> int:
        """The parameter's number in the model."""
        found = self.wrapper._index_of.get(id(parameter))
        if found is None:
            raise InvalidArgumentError("a parameter is not one of the wrapped module's: make the optimizer from net.parameters()")
        return found

    # ---- What the groups say. ----

    def _check_groups(self, optimizer: Any) -> None:
        """Raise for what the kernels cannot do."""
        name = type(optimizer).__name__
        for group in optimizer.param_groups:
            for key in _REFUSED:
                if group.get(key):
                    raise NotSupportedError(f"{name}: {key} is not among what libddp's kernels do; leave out {', '.join(OPTIONS)}, and PyTorch's make "
                                            "the steps")
            for key in _FIXED:
                now = tuple(map(float, group["betas"])) if key == "betas" and key in group else float(group.get(key, 0))
                if self._fixed.setdefault(key, now) != now:
                    raise NotSupportedError(f"{name}: with libddp's kernels {key} is one for all parameter groups and stays as it was at the beginning; "
                                            "lr and weight_decay may differ and change (schedulers like OneCycleLR: cycle_momentum=False)")
            for parameter in group["params"] if self.wrapper._sparse else ():
                if parameter.requires_grad and self.index(parameter) in self.wrapper._sparse:
                    raise NotSupportedError(f"{name}: the gradient of a parameter is sparse (nn.Embedding(..., sparse=True)): give it to "
                                            "torch.optim.SparseAdam, and the others to this optimizer")

    def _apply(self, optimizer: Any, left_out: Iterable[int] = ()) -> None:
        """Give libddp the rates and decays that the groups have now; a parameter that is frozen, in no group or left out keeps its value."""
        self._check_groups(optimizer)
        groups = [(float(group["lr"]), float(group["weight_decay"]), group["params"]) for group in optimizer.param_groups]
        says = [(rate, decay, [parameter.requires_grad for parameter in parameters]) for rate, decay, parameters in groups], list(left_out)
        if says == self._said:
            return
        top = max(rate for rate, _, _ in groups)
        wanted: list = [(0.0, 0.0)] * len(self._sent)
        for rate, decay, parameters in groups:
            entry = (decay, rate / top if rate else _UNMOVED if top else 1.0)
            for index in [self.index(parameter) for parameter in parameters if parameter.requires_grad]:
                if self._listed is not None and index not in self._listed:
                    raise InvalidStateError("the module has several optimizers, so a parameter cannot be added to one; make it with all of its "
                                            "parameters")
                wanted[index] = entry
        for index in left_out:
            wanted[index] = (wanted[index][0], 0.0)
        if top != self.own.rate:
            self.own.rate = top
        if wanted != self._sent:
            for index, (former, entry) in enumerate(zip(self._sent, wanted)):
                if former != entry and (self._listed is None or index in self._listed):
                    self.own.set_parameter_options(index, weight_decay=entry[0], rate_scale=entry[1])
            self._sent = wanted
        self._said = says

    # ---- Passes and steps. ----

    def before_pass(self) -> None:
        """The wrapper is about to open a pass."""
        optimizer = self._optimizer()
        if self._applies_early and optimizer is not None:
            self._apply(optimizer)

    def after_pass(self) -> None:
        """A pass that reduced has ended."""
        if self._is_given_late:
            self._given = [None if p.grad is None else Given(p.grad) for p in self.wrapper._parameters_lent]
        if self._in_backward:
            self._tell_autograd()

    def _tell_autograd(self) -> None:
        written(p for p, (_, factor) in zip(self.wrapper._parameters_lent, self._sent) if factor and p.grad is not None)

    def step(self, optimizer: Any) -> None:
        """Update every parameter that the last pass used."""
        flat = parameters_of(optimizer)
        if self.wrapper._reduced == self._stepped:
            if all(parameter.grad is None for parameter in flat):
                return
            raise InvalidStateError(f"{type(optimizer).__name__}.step(): no backward() has reduced gradients since the last step, and libddp's kernels "
                                    "make one step with each; call zero_grad() where a batch is skipped, or leave out "
                                    f"{', '.join(OPTIONS)}: PyTorch's kernels step again with the same gradients")
        if self._is_given_late:
            self._check_untouched(optimizer)
        left_out = self._bring(flat) if self._is_unscaled or not self._is_given_late else []
        if not self._in_backward:
            self._apply(optimizer, left_out)
        self.own.step(stream=self.wrapper._stream())
        if self._late is not None:
            self._late.begin()
        self._stepped = self.wrapper._reduced
        self._tell_autograd()

    def _check_untouched(self, optimizer: Any) -> None:
        """What changes p.grad between backward() and step() is not what the step is made with."""
        for index, (parameter, given) in enumerate(zip(self.wrapper._parameters_lent, self._given)):
            grad = parameter.grad
            if given is None and grad is None or index in self.wrapper._sparse:
                continue
            if grad is None or given is None or not given.is_in_place(grad):
                what = "was replaced or taken away"
            elif not given.version <= grad._version <= given.version + self._is_scaled:
                what = "was changed"
            else:
                continue
            why = ("with in_backward the step was made within backward()" if self._in_backward else
                   "with shard this rank has the mean in its own slices only")
            raise InvalidStateError(f"the gradient of {self.wrapper.model.names[index]!r} {what} between backward() and step(), but {why}: clip with "
                                    f"{type(optimizer).__name__}(..., max_norm=...), skip with nonfinite=\"skip\", scale the loss with "
                                    "own.set_loss_scale(), or leave out shard and in_backward")

    def _bring(self, flat: list) -> list[int]:
        """p.grad as it is now counts: another tensor is copied to where the kernels read. Returns which parameters have none."""
        left_out, wrapper = [], self.wrapper
        for parameter in flat:
            index = wrapper._index_of.get(id(parameter))
            if index is None:
                continue
            grad = parameter.grad
            if grad is None:
                left_out.append(index)
            elif not wrapper._buckets.has(index, grad):
                if not wrapper.model.was_used(index):
                    raise NotSupportedError(f"the program gave {wrapper.model.names[index]!r} a gradient, but no rank used this parameter in the last "
                                            "backward(), so libddp's kernels leave it out; set its grad to None, or leave it to an optimizer without "
                                            f"{', '.join(OPTIONS)}")
                with torch.no_grad():
                    wrapper._buckets.grads[index].copy_(grad.to_dense() if grad.layout != torch.strided else grad)
        return left_out

    def step_with(self, optimizer: Any, scaler: Any) -> Any:
        """A step that GradScaler asks for: all ranks make it, or all leave it out and lower the scale."""
        if self._in_backward:
            raise NotSupportedError("with in_backward the step was made within backward(), before a GradScaler could look: leave the scaler out and "
                                    "use own.set_loss_scale() and own.loss_scale, or leave out in_backward")
        state = scaler._per_optimizer_states[id(optimizer)]
        unscaled = state["stage"].name == "UNSCALED"
        if not unscaled:
            scaler._check_inf_per_device(optimizer)
        found = list(state["found_inf_per_device"].values())
        for each in found:
            self.wrapper.group.all_reduce(each, "max", stream=self.wrapper._stream())
        if sum(each.item() for each in found):
            self._stepped = self.wrapper._reduced
            return None
        scale = 1.0 if unscaled else scaler.get_scale()
        if scale != self._scale:
            self.own.set_loss_scale(initial=scale, interval=0, minimum=min(scale, 1.0), maximum=max(scale, 1.0))
            self._scale = scale
        self._is_scaled, self._is_unscaled = True, unscaled
        try:
            return type(optimizer).step(optimizer)
        finally:
            self._is_scaled = self._is_unscaled = False


class Given:
    """A gradient when the pass had ended. It does not keep the tensor."""

    def __init__(self, grad: torch.Tensor) -> None:
        self._tensor, self._address, self.version = weakref.ref(grad), grad.data_ptr() if grad.layout == torch.strided else 0, grad._version

    def is_in_place(self, grad: torch.Tensor) -> bool:
        """Is it this tensor, with the same memory?"""
        return self._tensor() is grad and (grad.layout != torch.strided or grad.data_ptr() == self._address)


class _Adam(OwnAdam):
    _takes_all = False  # but the parameters that are in a group


class _SGD(OwnSGD):
    _takes_all = False


def _step_with_scaler(self: Any, closure: Any = None, *, grad_scaler: Any = None) -> Any:
    """step() of an optimizer that looks for overflows itself."""
    return type(self).step(self, closure) if grad_scaler is None else self._kernels.step_with(self, grad_scaler)
