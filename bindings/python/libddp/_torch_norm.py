# SPDX-License-Identifier: Apache-2.0
"""PyTorch's batch normalisation over the samples of all ranks; part of libddp.torch."""
from __future__ import annotations

from typing import Any, Optional

import torch

from ._batch_norm import batch_norm_backward, batch_norm_forward
from ._group import Group
from ._torch_group import batch_norm_group, is_alone_among_others


class _Normalise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: Optional[torch.Tensor], bias: Optional[torch.Tensor], layer: SyncBatchNorm) -> torch.Tensor:
        x, y = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
        mean, invstd = (torch.empty(x.shape[1], dtype=torch.float64, device=x.device) for _ in range(2))
        running = (None, None) if layer.running_mean is None else (layer.running_mean, layer.running_var)
        ctx.saved = batch_norm_forward(layer.ranks, x.detach(), y, weight=_plain(weight), bias=_plain(bias), running_mean=running[0],
                                       running_var=running[1], saved_mean=mean, saved_invstd=invstd, epsilon=layer.eps,
                                       momentum=layer._share(), stream=stream_of(x))
        ctx.ranks = layer.ranks
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        dy = gradients[0].contiguous()
        dx = torch.empty_like(dy)
        weight = ctx.saved.weight
        dweight, dbias = (None, None) if weight is None else (torch.empty_like(weight), torch.empty_like(weight))
        batch_norm_backward(ctx.ranks, ctx.saved, dy, dx=dx, dweight=dweight, dbias=dbias, stream=stream_of(dy))
        return dx, dweight, dbias, None


def stream_of(tensor: torch.Tensor) -> Optional[int]:
    """The stream on which PyTorch works on this tensor now."""
    if not tensor.is_cuda:
        return None
    if _raw_stream is None:
        return torch.cuda.current_stream(tensor.device).cuda_stream
    return _raw_stream(tensor.get_device())


# The number alone, as code that torch.compile makes asks for it: making an object of a stream takes microseconds, at each gradient.
_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)


def _plain(tensor: Optional[torch.Tensor]) -> Optional[torch.Tensor]:
    return None if tensor is None else tensor.detach()


class SyncBatchNorm(torch.nn.modules.batchnorm._BatchNorm):
    """Batch normalisation over the samples of all ranks, in the place of BatchNorm1d, 2d and 3d::

        module = SyncBatchNorm.convert_sync_batchnorm(module)

    It communicates inside forward and backward, so it has a group of its own (`ranks`); all such layers of a process share one."""

    def __init__(self, *arguments: Any, ranks: Optional[Group] = None, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.ranks = ranks or batch_norm_group()

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"batch normalisation takes [N, C, ...], not {input.dim()} dimensions")

    def _share(self) -> float:
        """Share of this batch in the running statistics; momentum None is the plain average."""
        return float(self.momentum) if self.momentum is not None else 1.0 / max(1, int(self.num_batches_tracked or 1))

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if not self.training and self.running_mean is not None:
            return super().forward(input)
        self._check_input_dim(input)
        if is_alone_among_others(self.ranks):
            self.ranks._check_company()
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        return _Normalise.apply(input, self.weight, self.bias, self)

    @classmethod
    def convert_sync_batchnorm(cls, module: torch.nn.Module, ranks: Optional[Group] = None) -> torch.nn.Module:
        """The module with all its batch normalisations replaced; parameters and buffers are the same tensors."""
        converted = module
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm) and not isinstance(module, cls):
            converted = cls(module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats, ranks=ranks)
            converted.weight, converted.bias = module.weight, module.bias
            for name in ("running_mean", "running_var", "num_batches_tracked"):
                setattr(converted, name, getattr(module, name))
            converted.training = module.training
        for name, child in list(module.named_children()):
            setattr(converted, name, cls.convert_sync_batchnorm(child, ranks))
        return converted

