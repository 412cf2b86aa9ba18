# SPDX-License-Identifier: Apache-2.0
"""The keywords of PyTorch's DistributedDataParallel: what they mean here, or the sentence that refuses them. Part of libddp.torch."""
from __future__ import annotations

from typing import Any, Optional, Sequence

import torch
import torch.distributed as dist

from ._errors import NotSupportedError

_MIB = 1024 * 1024


def process_group_of(process_group: Any, device_mesh: Any, module: torch.nn.Module) -> Any:
    """The process group that is meant."""
    if device_mesh is None:
        return process_group
    if process_group is not None:
        raise RuntimeError("Cannot specify both process_group and device_mesh arguments.")
    if device_mesh.ndim != 1:
        raise RuntimeError(f"Only 1D device mesh is supported, but got {device_mesh}.")
    if getattr(device_mesh, "_get_root_mesh", lambda: device_mesh)() != device_mesh:  # a part of a mesh: as PyTorch's constructor
        from torch.distributed.tensor.parallel.ddp import _pre_dp_module_transform
        _pre_dp_module_transform(module)
    return device_mesh.get_group(mesh_dim=0)


def refuse(delay_all_reduce_named_params: Any, param_to_hook_all_reduce: Any, mixed_precision: Any, lazy_bucket_allocation: bool) -> None:
    """Raise for what libddp cannot do."""
    if bool(delay_all_reduce_named_params is not None) != bool(param_to_hook_all_reduce is not None):
        raise ValueError("delay_all_reduce_named_params and param_to_hook_all_reduce need to be set at the same time.")
    if delay_all_reduce_named_params is not None:
        raise NotSupportedError("delay_all_reduce_named_params: libddp reduces a gradient when its bucket is complete, not at a hook of another "
                                "parameter; leave these parameters out (_set_params_and_buffers_to_ignore_for_model) and reduce them yourself")
    if mixed_precision is not None:
        raise NotSupportedError("mixed_precision: libddp keeps no second copy of the parameters for forward; use torch.autocast, or 16-bit "
                                "parameters with libddp.torch.AdamW(master_weights=True)")
    if lazy_bucket_allocation:
        raise NotSupportedError("lazy_bucket_allocation: libddp shares the memory of buckets between the ranks of a host, so it stays allocated; leave "
                                "it out")
    if getattr(torch._dynamo.config, "optimize_ddp", None) == "python_reducer":
        raise NotSupportedError("torch._dynamo.config.optimize_ddp is \"python_reducer\", which has no buckets; set it to True")


def bucket_options(options: dict, bucket_cap_mb: Optional[float], bucket_cap_mb_list: Optional[Sequence[float]]) -> dict[str, Any]:
    """Keywords of PyTorch's class that say how large buckets are; the bits do not depend on them. libddp.Model's own options for that are taken
    out."""
    first, others = options.pop("first_bucket_bytes", None), options.pop("bucket_bytes", None)
    if bucket_cap_mb is None and others is not None:
        bucket_cap_mb = others / _MIB
    if bucket_cap_mb_list is None and first is not None:
        bucket_cap_mb_list = [first / _MIB, 25 if bucket_cap_mb is None else bucket_cap_mb]
    return {"bucket_cap_mb": bucket_cap_mb, "bucket_cap_mb_list": bucket_cap_mb_list}


class BuiltinHook:
    """A hook that PyTorch has built in, as one written in Python."""

    def __init__(self, kind: Any) -> None:
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
        self._hook = {dist.BuiltinCommHookType.ALLREDUCE: default_hooks.allreduce_hook,
                      dist.BuiltinCommHookType.FP16_COMPRESS: default_hooks.fp16_compress_hook}[kind]

    def __call__(self, state: Any, bucket: Any) -> Any:  # noqa: ARG002  PyTorch's signature
        return self._hook(None, bucket)
