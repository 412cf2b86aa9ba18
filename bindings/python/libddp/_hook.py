# SPDX-License-Identifier: Apache-2.0
"""Buckets inside a hook: what stands in the place of a bucket's plain reduction."""
from __future__ import annotations

import dataclasses
from typing import Any, Callable, Iterator, Optional, Union

from . import low
from ._enums import Reduce, Status, choose
from ._errors import Error, make
from ._handle import Handle, inside_callback
from ._options import fill
from ._tensor import lend
from ._view import View


@dataclasses.dataclass(frozen=True)
class BucketParameter:
    """One gradient of a bucket."""

    index: int  #: the parameter's number in the model
    grad: View  #: its part of the contents
    used: bool  #: did any rank contribute to it? Otherwise what the hook makes of it is dropped


class PowerSGD:
    """Built-in hook: `rank` vectors travel in the place of a matrix. Keywords: seed, start_pass, min_compression_rate, rank, warm_start,
    error_feedback. Give it to set_hook()."""

    def __init__(self, **options: Any) -> None:
        self._struct = fill(low.ddp_powersgd_options(), low.ddp_powersgd_options_init, options)


class Bucket:
    """A bucket inside a hook: a flat copy of this rank's gradients, not divided. The hook leaves in it what they become, the same on every
    rank. Usable until the hook returns; its collectives may be used as straight-line code."""

    def __init__(self, raw: Any, owner: Optional[Handle], collective: Callable[..., Any]) -> None:
        self._raw, self._owner, self._collective = raw, owner, collective

    @property
    def index(self) -> int:
        """Number of the bucket in plan order."""
        return low.ddp_bucket_get_index(self._raw)

    @property
    def is_last(self) -> bool:
        """Is it the last of the pass?"""
        return low.ddp_bucket_is_last(self._raw) == 1

    @property
    def contents(self) -> View:
        """All gradients as one flat array; each starts on a 64-byte boundary, with zeros between them."""
        return View(low.ddp_bucket_get_contents(self._raw), self._owner)

    @property
    def parameters(self) -> list[BucketParameter]:
        """The gradients one by one."""
        found = []
        for position in range(low.ddp_bucket_get_parameter_count(self._raw)):
            index, grad = low.ddp_bucket_get_parameter(self._raw, position)
            found.append(BucketParameter(index, View(grad, self._owner), low.ddp_bucket_is_used(self._raw, position) == 1))
        return found

    def all_reduce(self, tensor: Any = None, op: Union[Reduce, str] = Reduce.AVERAGE) -> Any:
        """As Group.all_reduce(); without a tensor the contents."""
        tensor = self.contents if tensor is None else tensor
        self._in_group(low.ddp_group_all_reduce, lend(tensor).tensor, choose(Reduce, op))
        return tensor

    def all_gather(self, value: Any, output: Any) -> Any:
        """As Group.all_gather()."""
        self._in_group(low.ddp_group_all_gather, lend(value, "value", write=False).tensor, lend(output, "output").tensor)
        return output

    def reduce_scatter(self, value: Any, output: Any, op: Union[Reduce, str] = Reduce.AVERAGE) -> Any:
        """As Group.reduce_scatter()."""
        self._in_group(low.ddp_group_reduce_scatter, lend(value, "value", write=False).tensor, lend(output, "output").tensor,
                       choose(Reduce, op))
        return output

    def broadcast(self, tensor: Any = None, root: int = 0) -> Any:
        """As Group.broadcast(); without a tensor the contents."""
        tensor = self.contents if tensor is None else tensor
        self._in_group(low.ddp_group_broadcast, lend(tensor).tensor, root)
        return tensor

    def _in_group(self, function: Callable[..., Any], *arguments: Any) -> None:
        """A collective of the model's group, inside the hook."""
        self._collective(function, low.ddp_bucket_get_group(self._raw), *arguments, None)

    def reduce_as(self, kind: PowerSGD) -> None:
        """Reduce the contents with a built-in hook."""
        answer = self._collective(low.ddp_hook_powersgd, kind._struct, self._raw)
        if answer != 0:
            raise make(answer if answer in list(Status) else int(Status.CALLBACK), low.ddp_last_error())


Hook = Callable[[Bucket], None]


def _direct(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def guarded(hook: Hook, failed: list) -> Callable[[Any], int]:
    """The hook as the library calls it; the first exception is kept for the end of the pass, its text goes to all ranks."""
    def call(raw: Any) -> int:
        try:
            with inside_callback():
                hook(Bucket(raw, None, _direct))
            return 0
        except BaseException as error:
            if not isinstance(error, Error):
                low.ddp_bucket_set_error(raw, f"{type(error).__name__}: {error}"[:400])
            failed.append(error)
            return 1

    return call


class Pulling:
    """What a :class:`libddp.Model` offers to programs that reduce the buckets themselves."""

    _raw: Any
    _handle: Handle
    _collective: Callable[..., Any]
    _failed: list

    def set_hook(self, hook: Union[Hook, PowerSGD, None]) -> None:
        """Give the model a hook, before commit(): PowerSGD(), or a callable that reduces one :class:`Bucket`. A callable runs on a library thread; what it raises comes out of the pass on this rank, and every rank's pass
        fails with its text. None: the plain reduction."""
        self._failed = []
        if isinstance(hook, PowerSGD):
            low.ddp_model_set_hook(self._raw, hook._struct)
        else:
            low.ddp_model_set_hook(self._raw, guarded(hook, self._failed) if callable(hook) else hook)

    def set_pulled_hook(self) -> None:
        """The program reduces the buckets on its own thread, with buckets(). Before commit()."""
        low.ddp_model_set_pulled_hook(self._raw)

    def next_bucket(self, rest: bool = True) -> Optional[Bucket]:
        """The next bucket of the open pass, or None; give it back with finish_bucket(). With `rest` nothing more will be marked."""
        raw = self._collective(low.ddp_model_next_bucket, int(rest))
        return None if raw is None else Bucket(raw, self._handle, self._on_bucket)

    def finish_bucket(self, error: Optional[str] = None) -> None:
        """Done with the bucket; a text says that it failed here, and fails the pass on all ranks."""
        self._collective(low.ddp_model_finish_bucket, 0 if error is None else 1, error)

    def buckets(self, rest: bool = True) -> Iterator[Bucket]:
        """Pull buckets, inside a pass, after the marks (or with ``rest=False`` between them)::

            for bucket in model.buckets():
                bucket.all_reduce()

        Leaving the loop early fails the pass on all ranks."""
        while (bucket := self.next_bucket(rest)) is not None:
            try:
                yield bucket
            except GeneratorExit:
                self.finish_bucket("the loop over the buckets was left early")
                raise
            self.finish_bucket()

    def _on_bucket(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self._collective(lambda _: function(*arguments))
