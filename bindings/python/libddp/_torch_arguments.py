# SPDX-License-Identifier: Apache-2.0
"""The keywords of PyTorch's DistributedDataParallel: what they mean here, or the sentence that refuses them. Part of libddp.torch."""
from __future__ import annotations

from typing import Any, Optional, Sequence

import torch

from ._errors import NotSupportedError

_MIB = 1024 * 1024


def given(options: dict[str, Any], **keywords: Any) -> dict[str, Any]:
    """Keywords for PyTorch's constructor, without those that are None: an older release does not know the newer ones."""
    return {name: value for name, value in {**options, **keywords}.items() if value is not None}


def refuse(delay_all_reduce_named_params: Any, param_to_hook_all_reduce: Any, mixed_precision: Any, lazy_bucket_allocation: bool) -> None:
    """Raise for what libddp cannot do."""
    if delay_all_reduce_named_params is not None and param_to_hook_all_reduce is not None:  # of one alone PyTorch's constructor complains
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
