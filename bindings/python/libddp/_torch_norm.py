# SPDX-License-Identifier: Apache-2.0
"""PyTorch's batch normalisation over the samples of all ranks; part of libddp.torch."""
from __future__ import annotations

import copy
from typing import Any, Optional

import torch

from ._batch_norm import BatchNorm, batch_norm_backward, batch_norm_forward
from ._group import Group
from ._torch_group import batch_norm_group, check_company
from ._torch_tensors import stream_of
from ._written import written


class _Normalise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: Optional[torch.Tensor], bias: Optional[torch.Tensor], running: tuple, epsilon: float,
                share: float, ranks: Group) -> torch.Tensor:
        y = torch.empty_like(x)
        mean, invstd = (torch.empty(x.shape[1], dtype=torch.float64, device=x.device) for _ in range(2))
        found = batch_norm_forward(ranks, x, y, weight=weight, bias=bias, running_mean=running[0], running_var=running[1],
                                   saved_mean=mean, saved_invstd=invstd, epsilon=epsilon, momentum=share, stream=stream_of(x))
        written(tensor for tensor in running if tensor is not None)
        ctx.ranks, ctx.count, ctx.options = ranks, found.count, found.options
        ctx.save_for_backward(x, weight, mean, invstd)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        x, weight, mean, invstd = ctx.saved_tensors
        dy = gradients[0]
        if torch.is_grad_enabled():  # create_graph: what follows is differentiated again
            return (*_differentiable(ctx, x, weight, dy), None, None, None, None)
        dy, dx = dy.contiguous(), torch.empty_like(x)
        dweight = None if weight is None else torch.empty_like(weight)
        dbias = torch.empty_like(mean, dtype=dy.dtype if weight is None else weight.dtype) if ctx.needs_input_grad[2] else None
        saved = BatchNorm(x, weight, mean, invstd, ctx.count, ctx.options)
        batch_norm_backward(ctx.ranks, saved, dy, dx=dx, dweight=dweight, dbias=dbias, stream=stream_of(dy))
        return dx, dweight, dbias, None, None, None, None


def _differentiable(ctx: Any, x: torch.Tensor, weight: Optional[torch.Tensor], dy: torch.Tensor) -> tuple:
    """The same gradients by operations of autograd, in F64. The ranks make the same sums in the same order here and in the derivatives of this."""
    axes, count = [axis for axis in range(x.dim()) if axis != 1], max(ctx.count, 1)

    def mean(tensor: torch.Tensor) -> torch.Tensor:
        return _Sum.apply(tensor.sum(axes, keepdim=True), ctx.ranks) / count

    wide, given = x.double(), dy.double()
    centred = wide - mean(wide)
    invstd = (mean(centred * centred) + ctx.options["epsilon"]).rsqrt()
    normal = centred * invstd
    dbias, dweight = given.sum(axes, keepdim=True), (given * normal).sum(axes, keepdim=True)
    mean_given, mean_along = (_Sum.apply(torch.stack((dbias, dweight)), ctx.ranks) / count).unbind()
    dx = (given - mean_given - normal * mean_along) * invstd * (1 if weight is None else weight.double().view_as(invstd))
    kind = dy.dtype if weight is None else weight.dtype
    return (dx.to(x.dtype), None if weight is None else dweight.flatten().to(kind), dbias.flatten().to(kind) if ctx.needs_input_grad[2] else None)


class _Sum(torch.autograd.Function):
    """The sum over all ranks; its derivative is the sum of the derivatives of all ranks."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, ranks: Group) -> torch.Tensor:
        ctx.ranks = ranks
        total = tensor.detach().clone(memory_format=torch.contiguous_format)
        return ranks.all_reduce(total, "sum", stream=stream_of(total))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return _Sum.apply(gradients[0], ctx.ranks), None


class SyncBatchNorm(torch.nn.modules.batchnorm._BatchNorm):
    """Batch normalisation over the samples of all ranks, in the place of BatchNorm1d, 2d and 3d, on CPUs and GPUs; arguments are those of
    PyTorch's class::

        module = SyncBatchNorm.convert_sync_batchnorm(module)

    It communicates inside forward and backward of training, so it has a group of its own (`ranks`); all such layers of one process group share
    one. process_group may be a libddp.Group too, which nothing else uses while a pass is open. In eval() nothing is sent."""

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: Optional[float] = 0.1, affine: bool = True, track_running_stats: bool = True,
                 process_group: Any = None, device: Any = None, dtype: Any = None, *, bias: bool = True) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device=device, dtype=dtype)
        if not bias:
            self.register_parameter("bias", None)
        self.process_group = process_group
        self.ranks  # all ranks make their layers in the same order, and the group with the first one

    @property
    def ranks(self) -> Group:
        """The group over whose samples it normalises."""
        return batch_norm_group(self.process_group)

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"batch normalisation takes [N, C, ...], not {input.dim()} dimensions")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        self._check_input_dim(input)
        if not self.training:
            return super().forward(input)
        ranks = self.ranks
        check_company(ranks)
        tracks = self.track_running_stats and self.running_mean is not None
        if tracks and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        running = (self.running_mean, self.running_var) if tracks else (None, None)
        share = self.momentum if self.momentum is not None else 1 / max(1, int(self.num_batches_tracked or 1))  # None: the plain average
        return _Normalise.apply(input.contiguous(), self.weight, self.bias, running, self.eps, float(share), ranks)

    def __deepcopy__(self, memo: dict) -> SyncBatchNorm:
        """The copy has the same ranks."""
        memo[id(self.process_group)] = self.process_group
        other = memo[id(self)] = type(self).__new__(type(self))
        other.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return other

    def __getstate__(self) -> dict:
        """Where it is loaded its ranks are all of them."""
        return {**self.__dict__, "process_group": None}

    @classmethod
    def convert_sync_batchnorm(cls, module: torch.nn.Module, process_group: Any = None) -> torch.nn.Module:
        """The module with all its batch normalisations replaced; parameters and buffers are the same tensors."""
        converted = module
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm) and not isinstance(module, cls):
            converted = cls(module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats, process_group)
            for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked", "training"):
                setattr(converted, name, getattr(module, name))
            if hasattr(module, "qconfig"):
                converted.qconfig = module.qconfig
        for name, child in list(module.named_children()):
            setattr(converted, name, cls.convert_sync_batchnorm(child, process_group))
        return converted
