# SPDX-License-Identifier: Apache-2.0
"""The process groups that PyTorch's Reducer and its functions are given: part of libddp.torch. They are registered nowhere."""
from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import Any, Callable, Optional

import torch
import torch.distributed as dist

from ._group import Group
from ._torch_tensors import as_bytes, stream_of


class _Done(dist.Work):
    """An operation that is made when somebody waits for it."""

    def __init__(self, function: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._function = function

    def wait(self, timeout: Optional[timedelta] = None) -> bool:  # noqa: ARG002  PyTorch's signature
        self._function()
        return True


class _Part(torch._C._distributed_c10d.Backend):
    def getBackendName(self) -> str:  # noqa: N802  PyTorch's own name
        return "libddp"


class Ranks(dist.ProcessGroup):
    """For the Reducer, which asks for nothing besides its buckets that is not known here without a message. `fill(tensor)` makes of this rank's map of
    used parameters that of all ranks; it is called when the pass has ended."""

    def __init__(self, rank: int = 0, size: int = 1, fill: Callable[[torch.Tensor], None] = lambda used: None) -> None:
        super().__init__(rank, size)
        self._fill = fill
        self._works: list = []  # C++ holds a work without the part of it that is Python's
        with contextlib.suppress(TypeError):  # PyTorch 2.7, which needs none
            self._part = _Part(rank, size)
            self._set_default_backend(self.BackendType.CUSTOM)
            for device in ("cpu", "cuda"):
                self._register_backend(torch.device(device), self.BackendType.CUSTOM, self._part)

    def getBackendName(self) -> str:  # noqa: N802
        return "libddp"

    def name(self) -> str:
        return "libddp"

    def allreduce(self, tensors: list, opts: Any = None) -> _Done:  # noqa: ARG002
        """Of the map of used parameters."""
        tensor, = tensors
        return self._keep(_Done(lambda: self._fill(tensor)))

    def broadcast(self, tensors: list, opts: Any = None) -> _Done:  # noqa: ARG002
        """Of the assignment of parameters to buckets, which all ranks compute alike; commit() compares it."""
        return self._keep(_Done())

    def _keep(self, work: _Done) -> _Done:
        self._works = [*self._works[-3:], work]
        return work


class Sending(Ranks):
    """For PyTorch's function that sends buffers: the ranks of a libddp.Group."""

    def __init__(self, group: Group) -> None:
        super().__init__(group.rank, group.size)
        self._group = group

    def broadcast(self, tensors: list, opts: Any = None) -> _Done:
        for tensor in tensors:
            self._group.broadcast(as_bytes(tensor), opts.rootRank, stream=stream_of(tensor))
        return self._keep(_Done())
