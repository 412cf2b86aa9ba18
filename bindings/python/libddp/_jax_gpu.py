# SPDX-License-Identifier: Apache-2.0
"""Gradients of JAX on a GPU, reduced where XLA has them (xla/average.cpp)."""
from __future__ import annotations

import warnings
from typing import Any, Mapping, Optional, Sequence

import jax

from . import _xla_average as _xla
from . import low
from ._errors import Error, InvalidStateError, NotSupportedError
from ._group import Group
from ._model import Model
from ._tensor import _BY_NAME, CUDA


class Memory:
    """An array of JAX on a GPU as memory that libddp may write: nobody else uses it."""

    def __init__(self, like: Any) -> None:
        self._array = jax.block_until_ready(jax.numpy.array(like, copy=True))
        device, = self._array.devices()
        address = self._array.unsafe_buffer_pointer() if self._array.size else 0
        self.__libddp_tensor__ = (address, int(_BY_NAME[self._array.dtype.name]), CUDA, device.local_hardware_id, self._array.shape)


class OnGpu(Model):
    """A model whose gradients are XLA's, and only while a pass is open. Its values stand for nothing but shape and place. Between passes all
    gradients point to one array as large as the largest of them, so that libddp never writes into memory that JAX uses for something else."""

    def __init__(self, group: Group, leaves: Mapping[str, Any], options: Mapping[str, Any]) -> None:
        super().__init__(group, **options)
        for name, leaf in leaves.items():
            self.add_parameter(name, Memory(leaf), Memory(leaf))
        spare = Memory(max(leaves.values(), key=lambda leaf: jax.numpy.asarray(leaf).nbytes)) if leaves else None
        self._spare = spare.__libddp_tensor__[0] if spare else 0
        self._handle.kept.append(spare)  # until the model is destroyed

    def commit(self, *, stream: Optional[int] = None) -> None:
        """As :meth:`Model.commit`; the memory of the first gradients goes."""
        super().commit(stream=stream)
        for index in range(len(self)):
            _, *like = self._lent.pop(("grad", index)).tensor
            low.ddp_model_set_grad(self._raw, index, (self._spare, *like))

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise InvalidStateError("the gradients are JAX arrays on a GPU, which this model has only while they are averaged: give them to "
                                "libddp.jax.DataParallel.average, and use what it returns")

    grad = set_grad = zero_grad = grad_norm = scale_grad = clip_grad_norm = clip_grad_value = _refuse
    backward = accumulate = local_backward = begin_backward = end_backward = mark_ready = mark_range_ready = mark_unused = _refuse


def is_on_gpu(leaves: Sequence[Any]) -> bool:
    """Has JAX, or would it have, all of these on one GPU?"""
    places = {device for leaf in leaves for device in jax.numpy.asarray(leaf).devices()}
    return len(places) == 1 and all(place.platform in ("gpu", "cuda") for place in places)


def make(group: Group, leaves: Mapping[str, Any], options: Mapping[str, Any], through_host: bool) -> Optional[OnGpu]:
    """The model that averages, for parameters on a GPU. None, on all ranks: gradients go through the host. Collective."""
    made: Optional[OnGpu] = None
    why = "" if through_host else "another rank must"
    try:
        if not through_host and _xla.module() is None:
            raise NotSupportedError("the package was built without XLA's headers, or JAX has no jax.ffi")
        if not through_host:
            made = OnGpu(group, leaves, options)
    except (Error, RuntimeError) as error:  # no module for GPUs, a GPU that is not this rank's, no memory
        why = str(error)
    able = group.reduce_metrics([float(made is not None)])[0]
    if made is not None and able == group.size:
        try:
            made.commit()
            return made
        except NotSupportedError as error:  # by the options, so on all ranks
            group.check()
            why = str(error)
    if made is not None:
        made.close()
    if why:
        warnings.warn(f"libddp.jax: gradients go from the GPU through host memory: {why}", RuntimeWarning, stacklevel=4)
    return None
