# SPDX-License-Identifier: Apache-2.0
"""The keywords of PyTorch's DistributedDataParallel: what they mean here, or the sentence that refuses them. Part of libddp.torch."""
from __future__ import annotations

import warnings
from typing import Any, Optional, Sequence

import torch

from ._errors import NotSupportedError

_MIB = 1024 * 1024


def process_group_of(process_group: Any, device_mesh: Any) -> Any:
    """The process group that is meant."""
    if device_mesh is None:
        return process_group
    if process_group is not None:
        raise RuntimeError("Cannot specify both process_group and device_mesh arguments.")
    if device_mesh.ndim != 1:
        raise RuntimeError(f"Only 1D device mesh is supported, but got {device_mesh}.")
    return device_mesh.get_group(mesh_dim=0)


def refuse(delay_all_reduce_named_params: Any, param_to_hook_all_reduce: Any, mixed_precision: Any) -> None:
    """Raise for what libddp cannot do."""
    if bool(delay_all_reduce_named_params is not None) != bool(param_to_hook_all_reduce is not None):
        raise ValueError("delay_all_reduce_named_params and param_to_hook_all_reduce need to be set at the same time.")
    if delay_all_reduce_named_params is not None:
        raise NotSupportedError("delay_all_reduce_named_params: libddp reduces a gradient when its bucket is complete, not at a hook of another "
                                "parameter; leave these parameters out (_set_params_and_buffers_to_ignore_for_model) and reduce them yourself")
    if mixed_precision is not None:
        raise NotSupportedError("mixed_precision: libddp keeps no second copy of the parameters for forward; use torch.autocast, or 16-bit "
                                "parameters with libddp.torch.AdamW(master_weights=True)")


def warn_of_old_words(broadcast_buffers: Optional[bool], check_reduction: bool) -> None:
    """Two keywords that PyTorch means to drop."""
    if broadcast_buffers is not None:
        warnings.warn("`broadcast_buffers` is an old word of PyTorch, and counts only where `forward_sync_buffers` is not given. Use that one; "
                      "with forward_sync_buffers=False rank 0's buffers still go to all ranks at the beginning", FutureWarning, stacklevel=3)
    if check_reduction:
        warnings.warn("`check_reduction` is an old word of PyTorch and does nothing", FutureWarning, stacklevel=3)


def check_devices(module: torch.nn.Module, ignored: set[str], device_ids: Optional[Sequence[Any]], output_device: Any) -> None:
    """As PyTorch's wrapper does, with its texts."""
    parameters = [p for name, p in module.named_parameters() if name not in ignored]
    if not any(p.requires_grad for p in parameters):
        raise RuntimeError("DistributedDataParallel is not needed when a module doesn't have any parameter that requires a gradient.")
    if device_ids is not None and len(device_ids) > 1:
        raise ValueError("device_ids can only be None or contain a single element.")
    kinds = {p.device.type for p in parameters}
    if len(kinds) != 1:
        raise ValueError(f"DistributedDataParallel's input module must be on the same type of devices, but input module parameters locate in "
                         f"{kinds}.")
    if kinds == {"cpu"} and (device_ids or output_device):
        raise ValueError("DistributedDataParallel device_ids and output_device arguments only work with single-device/multiple-device GPU "
                         f"modules or CPU modules, but got device_ids {device_ids}, output_device {output_device}, and module parameters "
                         f"{ {p.device for p in parameters} }.")


def bucket_options(options: dict, bucket_cap_mb: Optional[float], bucket_cap_mb_list: Optional[Sequence[float]]) -> list[int]:
    """Sizes of buckets as options of libddp.Model; the bits do not depend on them. libddp knows two sizes: the first bucket's, and one for the
    others, for which the last of a list is taken."""
    caps = [int(size * _MIB) for size in bucket_cap_mb_list or ()]
    if bucket_cap_mb is not None:
        options.setdefault("bucket_bytes", int(bucket_cap_mb * _MIB))
    if caps:
        options.setdefault("first_bucket_bytes", caps[0])
        options.setdefault("bucket_bytes", caps[-1])
    return caps
