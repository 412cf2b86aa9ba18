# SPDX-License-Identifier: Apache-2.0
"""Optimizers over the parameters of a model: one pass over memory, the same bits on every rank."""
from __future__ import annotations

import array
from typing import Any, Callable, Optional, Sequence

from . import low
from ._enums import DType, NonFinite
from ._errors import CallbackError
from ._handle import Closing, Handle
from ._model import Key, Model
from ._options import fill, fill_two
from ._tensor import lend
from ._view import View


_CHOICES = {"nonfinite": NonFinite}


class Optimizer(Closing):
    """What all optimizers have."""

    model: Model
    _takes_all = True  # or does somebody say which parameters it changes?

    def _own(self, model: Model, raw: Any) -> None:
        self.model = model
        self._handle = Handle(raw, low.ddp_optimizer_destroy, model._handle)  # whatever comes, it has an owner
        model._check_in_place()
        if self._takes_all:
            model._check_all_here()

    @property
    def _raw(self) -> Any:
        return self._handle.get("optimizer")

    def step(self, *, stream: Optional[int] = None) -> None:
        """Update every parameter that was used in the last reducing pass."""
        self.model._collective(_step, self._raw, stream)
        if self._takes_all:
            self.model._values_written(of_pass=True)

    @property
    def rate(self) -> float:
        """The learning rate. Schedules are the program's; every rank sets the same."""
        return low.ddp_optimizer_get_rate(self._raw)

    @rate.setter
    def rate(self, value: float) -> None:
        low.ddp_optimizer_set_rate(self._raw, value)

    @property
    def step_count(self) -> int:
        """Steps taken so far, those before a load included."""
        return low.ddp_optimizer_get_step_count(self._raw)

    @property
    def grad_norm(self) -> Optional[float]:
        """Norm of the gradients at the last step, before clipping; None unless max_norm, nonfinite or a dynamic loss scale made the step
        look at it."""
        norm = low.ddp_optimizer_get_grad_norm(self._raw)
        return None if norm < 0 else norm

    @property
    def skipped_count(self) -> int:
        """Steps left out because of gradients that were not finite."""
        return low.ddp_optimizer_get_skipped_count(self._raw)

    @property
    def loss_scale(self) -> float:
        """What to multiply the next loss with; 1 without a loss scale."""
        return low.ddp_optimizer_get_loss_scale(self._raw)

    def copy_loss_scale(self, to: Any, *, stream: Optional[int] = None) -> Any:
        """Write what to multiply the next loss with into a tensor of one element (F32 or F64), on a GPU in the order of the stream and
        without waiting for it: captured into a CUDA graph, each launch writes the scale of its time. Returns the tensor."""
        low.ddp_optimizer_copy_loss_scale(self._raw, lend(to).tensor, stream)
        return to

    def set_loss_scale(self, **options: Any) -> None:
        """Use a loss scale from the next step on. Keywords: initial, growth, backoff, minimum, maximum, interval (0: it stays as it is)."""
        struct = fill(low.ddp_loss_scale_options(), low.ddp_loss_scale_options_init, options)
        low.ddp_optimizer_set_loss_scale(self._raw, struct)

    def set_parameter_options(self, key: Key, *, weight_decay: float, rate_scale: float = 1.0) -> None:
        """Give one parameter its own weight decay and a factor on the learning rate."""
        low.ddp_optimizer_set_parameter_options(self._raw, self.model.index(key), weight_decay, rate_scale)


def _list(model: Model, shared: Any, keys: Optional[Sequence[Key]]) -> Any:
    """Which parameters the optimizer is for; what it returns lives until the optimizer is made."""
    if keys is None:
        return None
    numbers = array.array("i", [model.index(key) for key in keys])
    if not numbers:
        raise ValueError("parameters is empty; leave it out for all parameters that have no optimizer")
    shared.parameters, shared.parameter_count = low.buffer_address(memoryview(numbers)), len(numbers)
    return numbers


def _step(_: Any, raw: Any, stream: Optional[int]) -> None:
    low.ddp_optimizer_step(raw, stream)


class SGD(Optimizer):
    """Stochastic gradient descent. Keywords: rate, momentum, dampening, weight_decay, nesterov, and what all optimizers have: shard,
    in_backward, undo, master_weights, nonfinite ("keep", "skip" or "fail"), max_norm, clip_value,
    divide_in_step, late_values. `parameters` (names or numbers) are those that it changes; otherwise all that have no optimizer."""

    def __init__(self, model: Model, *, parameters: Optional[Sequence[Key]] = None, **options: Any) -> None:
        rule, shared = fill_two(low.ddp_sgd_options(), low.ddp_sgd_options_init, low.ddp_optimizer_options(),
                                low.ddp_optimizer_options_init, options, _CHOICES)
        listed = _list(model, shared, parameters)
        self._own(model, low.ddp_optimizer_create_sgd(model._raw, rule, shared))
        model._sharded |= bool(shared.shard)
        del listed


class Adam(Optimizer):
    """AdamW, or Adam with ``decoupled=False``. Keywords: rate, beta1, beta2, epsilon, weight_decay, decoupled, and what all optimizers
    have: shard, in_backward, undo, master_weights, nonfinite ("keep", "skip" or "fail"), max_norm, clip_value,
    divide_in_step, late_values. `parameters` (names or numbers) are those that it changes; otherwise all that have no optimizer."""

    def __init__(self, model: Model, *, parameters: Optional[Sequence[Key]] = None, **options: Any) -> None:
        rule, shared = fill_two(low.ddp_adam_options(), low.ddp_adam_options_init, low.ddp_optimizer_options(),
                                low.ddp_optimizer_options_init, options, _CHOICES)
        listed = _list(model, shared, parameters)
        self._own(model, low.ddp_optimizer_create_adam(model._raw, rule, shared))
        model._sharded |= bool(shared.shard)
        del listed


class Slice:
    """A stretch of a parameter that a rule changes. Its views are flat and valid during the call."""

    __slots__ = ("index", "value", "grad", "state", "first", "count", "step", "rate", "weight_decay", "stream")

    def __init__(self, raw: tuple) -> None:
        index, dtype, value, grad, state, device, device_index, first, count, step, rate, weight_decay, stream = raw
        of_state = DType.F64 if dtype == DType.F64 else DType.F32

        def view(address: int, kind: int) -> View:
            return View((address, int(kind), device, device_index, (count,)), None)

        self.index: int = index
        self.value: View = view(value, dtype)
        self.grad: View = view(grad, dtype)
        self.state: list[View] = [view(address, of_state) for address in state]
        self.first: int = first
        self.count: int = count
        self.step: int = step
        self.rate: float = rate
        self.weight_decay: float = weight_decay
        self.stream: int = stream


class CustomOptimizer(Optimizer):
    """Your own rule: ``update(slice)`` changes ``slice.value`` in place from ``slice.grad`` and ``slice.state``, which is as many arrays as `states`
    has names; libddp keeps, shards and saves them. Slices begin and end anywhere, unless `whole_tensors`. It must do the same on every rank.
    Keywords: rate, weight_decay, whole_tensors, and what all optimizers have: shard, in_backward, undo, master_weights, nonfinite,
    max_norm, clip_value, late_values, divide_in_step (which does nothing for a rule of the program). With shard or in_backward the rule may be called
    on another thread. An exception takes the step back and comes out of step(), or of the end of the pass."""

    def __init__(self, model: Model, update: Callable[[Slice], None], *, states: Sequence[str] = (), parameters: Optional[Sequence[Key]] = None,
                 **options: Any) -> None:
        rule, shared = fill_two(low.ddp_custom_options(), low.ddp_custom_options_init, low.ddp_optimizer_options(),
                                low.ddp_optimizer_options_init, options, _CHOICES)
        listed = _list(model, shared, parameters)
        self._failed: list[BaseException] = []
        keep = model._failed if shared.in_backward else self._failed
        self._own(model, low.ddp_optimizer_create_custom(model._raw, rule, shared, ",".join(states) or None, _guarded(update, keep)))
        model._sharded |= bool(shared.shard)
        del listed

    def step(self, *, stream: Optional[int] = None) -> None:
        """Update every parameter that was used in the last reducing pass."""
        self._failed.clear()
        try:
            if self.model._sharded:
                self.model._collective(_step, self._raw, stream)
            else:
                low.ddp_optimizer_step(self._raw, stream)  # here, so that the rule runs on this thread
            self.model._values_written(of_pass=True)
        except CallbackError as error:
            failed = self._failed or self.model._failed
            if failed:
                raise failed.pop() from error
            raise


def _guarded(update: Callable[..., None], failed: list) -> Callable[..., int]:
    def call(raw: tuple) -> int:
        try:
            update(Slice(raw))
            return 0
        except BaseException as error:
            failed.append(error)
            return 1

    return call
