# SPDX-License-Identifier: Apache-2.0
"""PyTorch's communication hooks on libddp's buckets: part of libddp.torch."""
from __future__ import annotations

import inspect
from typing import Any, Callable

import torch
import torch.distributed as dist

from ._hook import Bucket
from ._torch_strides import like as strided


class GradBucket:
    """A bucket as PyTorch's hooks see it: a flat tensor of this rank's gradients, not divided. Between gradients there are up to 60 bytes of
    zeros, which PyTorch's buckets do not have."""

    def __init__(self, bucket: Bucket, parameters: list[torch.nn.Parameter]) -> None:
        self._bucket, self._all = bucket, parameters
        self._buffer = torch.from_dlpack(bucket.contents)

    def index(self) -> int:
        """Number of the bucket."""
        return self._bucket.index

    def is_last(self) -> bool:
        """Is it the last of the pass?"""
        return self._bucket.is_last

    def buffer(self) -> torch.Tensor:
        """All gradients, one behind the other."""
        return self._buffer

    def set_buffer(self, tensor: torch.Tensor) -> None:
        """Put other values into the buffer."""
        self._buffer = tensor

    def gradients(self) -> list[torch.Tensor]:
        """Views of the buffer, with the shapes of the parameters."""
        start = self._bucket.contents.address
        size = self._buffer.element_size()
        found = []
        for part in self._bucket.parameters:
            first, like = (part.grad.address - start) // size, self._all[part.index]
            found.append(strided(self._buffer[first:first + like.numel()], like))
        return found

    def parameters(self) -> list[torch.nn.Parameter]:
        """The parameters whose gradients these are."""
        return [self._all[part.index] for part in self._bucket.parameters]


def check(hook: Any) -> None:
    """As PyTorch's wrapper does, with its texts."""
    if not callable(hook):
        raise TypeError("Communication hook must be callable.")
    signature = inspect.signature(hook)
    bucket = signature.parameters.get("bucket")
    if bucket is not None and bucket.annotation not in (inspect.Parameter.empty, dist.GradBucket, "dist.GradBucket"):
        raise ValueError("Communication hook: bucket annotation should be dist.GradBucket.")
    if signature.return_annotation not in (inspect.Signature.empty, torch.futures.Future[torch.Tensor],
                                           "torch.futures.Future[torch.Tensor]"):
        raise ValueError("Communication hook: return annotation should be torch.futures.Future[torch.Tensor].")


def adapted(state: Any, hook: Callable[..., Any], parameters: list[torch.nn.Parameter]) -> Callable[[Bucket], None]:
    """The hook as libddp.Model.set_hook takes it. It runs on a thread of libddp, and waits there for its future."""
    def call(bucket: Bucket) -> None:
        seen = GradBucket(bucket, parameters)
        contents = torch.from_dlpack(bucket.contents)
        with torch.no_grad():
            result = hook(state, seen).wait()
            if isinstance(result, (list, tuple)):
                result, = result
            if result.data_ptr() != contents.data_ptr():
                contents.copy_(result)

    return call


class BuiltinHook:
    """A hook that PyTorch has built in, as one written in Python. It has no __qualname__, as PyTorch's have none."""

    def __init__(self, kind: Any) -> None:
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
        self._hook = {dist.BuiltinCommHookType.ALLREDUCE: default_hooks.allreduce_hook,
                      dist.BuiltinCommHookType.FP16_COMPRESS: default_hooks.fp16_compress_hook}[kind]

    def __call__(self, state, bucket):  # type: ignore[no-untyped-def]  # check() reads annotations
        return self._hook(None, bucket)
