# SPDX-License-Identifier: Apache-2.0
"""What torch.distributed asks a process group about itself: part of libddp.c10d."""
from __future__ import annotations

import contextlib
from typing import Any

import torch
import torch.distributed as dist

from ._errors import NotSupportedError


class _Part(torch._C._distributed_c10d.Backend):
    """What torch's own code finds when it asks a process group for its backend. All operations are the group's."""

    def getBackendName(self) -> str:  # noqa: N802
        return "libddp"


class Identity(dist.ProcessGroup):
    """Names, the device, and what is supported. Torch's own process group looks for these at a backend in C++."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(rank, size)
        self._sequence = 0  # of operations
        self._called, self._described = "", "undefined"
        with contextlib.suppress(TypeError):  # an older torch, which needs none, has no such class
            self._part = _Part(rank, size)
            self._set_default_backend(self.BackendType.CUSTOM)
            self._register_backend(torch.device("cpu"), self.BackendType.CUSTOM, self._part)

    def getBackendName(self) -> str:  # noqa: N802  torch's own name
        return "libddp"

    def name(self) -> str:
        return "libddp"

    _get_backend_name = name

    def setGroupName(self, name: str) -> None:  # noqa: N802
        self._called = name

    def getGroupName(self) -> str:  # noqa: N802
        return self._called

    def setGroupDesc(self, text: str) -> None:  # noqa: N802
        self._described = text

    def getGroupDesc(self) -> str:  # noqa: N802
        return self._described

    @property
    def _device_types(self) -> list:
        return [torch.device("cpu")]

    def _get_backend(self, device: Any) -> Identity:
        if torch.device(device).type != "cpu":
            raise NotSupportedError(f"the backend libddp has no part for {device}: it takes tensors in host memory")
        return self

    get_backend = _get_backend
    supports_splitting = True
    supports_coalescing = False

    def _set_sequence_number_for_group(self) -> None:
        pass

    def _get_sequence_number_for_group(self) -> int:
        return self._sequence


def keep_from_compiler(*kinds: type) -> None:
    """torch.compile leaves their methods, and what these call, as they are. Where torch has no such switch it needs none."""
    with contextlib.suppress(ImportError, AttributeError):
        from torch._C._dynamo import eval_frame

        skip = eval_frame._FrameExecStrategy(eval_frame._FrameAction.SKIP, eval_frame._FrameAction.SKIP)
        for kind in kinds:
            for function in vars(kind).values():
                if hasattr(function, "__code__"):
                    eval_frame.set_code_exec_strategy(function.__code__, skip)
