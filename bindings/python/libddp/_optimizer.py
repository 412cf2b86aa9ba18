"""Optimizers over the parameters of a model: one pass over memory, the same bits on every rank."""
from __future__ import annotations

from typing import Any, Callable, Optional

from . import low
from ._enums import NonFinite
from ._errors import CallbackError
from ._handle import Closing, Handle
from ._model import Key, Model
from ._options import fill
from ._view import View


_CHOICES = {"nonfinite": NonFinite}


class Optimizer(Closing):
    """What all optimizers have."""

    model: Model

    def _own(self, model: Model, raw: Any) -> None:
        self.model = model
        self._handle = Handle(raw, low.ddp_optimizer_destroy, model._handle)  # whatever comes, it has an owner
        model._check_in_place()

    @property
    def _raw(self) -> Any:
        return self._handle.get("optimizer")

    def step(self, *, stream: Optional[int] = None) -> None:
        """Update every parameter that was used in the last reducing pass."""
        self.model._collective(_step, self._raw, stream)

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

    def set_loss_scale(self, **options: Any) -> None:
        """Use a loss scale from the next step on. Keywords: initial, growth, backoff, minimum, maximum, interval (0: it stays as it is)."""
        struct = fill(low.ddp_loss_scale_options(), low.ddp_loss_scale_options_init, options)
        low.ddp_optimizer_set_loss_scale(self._raw, struct)

    def set_group(self, key: Key, *, weight_decay: float, rate_scale: float = 1.0) -> None:
        """Give one parameter its own weight decay and a factor on the learning rate."""
        low.ddp_optimizer_set_group(self._raw, self.model.index(key), weight_decay, rate_scale)


def _step(_: Any, raw: Any, stream: Optional[int]) -> None:
    low.ddp_optimizer_step(raw, stream)


class SGD(Optimizer):
    """Stochastic gradient descent. Keywords: rate, momentum, dampening, weight_decay, nesterov, and what all optimizers have: shard,
    in_backward, undo, master_weights, nonfinite ("keep", "skip" or "fail"), max_norm, clip_value."""

    def __init__(self, model: Model, **options: Any) -> None:
        struct = fill(low.ddp_sgd_options(), low.ddp_sgd_options_init, options, _CHOICES)
        model._sharded |= bool(struct.shard)
        self._own(model, low.ddp_optimizer_create_sgd(model._raw, struct))


class Adam(Optimizer):
    """AdamW, or Adam with ``decoupled=False``. Keywords: rate, beta1, beta2, epsilon, weight_decay, decoupled, and what all optimizers
    have: shard, in_backward, undo, master_weights, nonfinite ("keep", "skip" or "fail"), max_norm, clip_value."""

    def __init__(self, model: Model, **options: Any) -> None:
        struct = fill(low.ddp_adam_options(), low.ddp_adam_options_init, options, _CHOICES)
        model._sharded |= bool(struct.shard)
        self._own(model, low.ddp_optimizer_create_adam(model._raw, struct))


class CustomOptimizer(Optimizer):
    """Your own update: ``update(index, value, grad, rate)`` changes `value` in place; both are :class:`View` of the memory in use,
    valid during the call. It must do the same on every rank. An exception ends the step and comes out of step()."""

    def __init__(self, model: Model, update: Callable[[int, View, View, float], None], *, rate: float = 0.0) -> None:
        self._failed: list[BaseException] = []
        self._own(model, low.ddp_optimizer_create_custom(model._raw, _guarded(update, self._failed)))
        self.rate = rate

    def step(self, *, stream: Optional[int] = None) -> None:
        """Update every parameter that was used in the last reducing pass."""
        self._failed.clear()
        try:
            low.ddp_optimizer_step(self._raw, stream)  # here, so that the update runs on this thread
        except CallbackError as error:
            if self._failed:
                raise self._failed.pop() from error
            raise


def _guarded(update: Callable[..., None], failed: list) -> Callable[..., int]:
    def call(index: int, value: tuple, grad: tuple, rate: float, _stream: int) -> int:
        try:
            update(index, View(value, None), View(grad, None), rate)
            return 0
        except BaseException as error:
            failed.append(error)
            return 1

    return call
