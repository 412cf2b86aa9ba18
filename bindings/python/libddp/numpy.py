# SPDX-License-Identifier: Apache-2.0
"""NumPy: lend a dictionary of arrays, get their gradients as arrays of the library's own memory.

::

    weights = {"w": np.zeros((10, 64), np.float32), "b": np.zeros(10, np.float32)}
    model = libddp.Model(group)
    grads = libddp.numpy.lend(model, weights)     # also commits
    with model.backward():
        grads["b"][:] = ...
        model.mark_ready("b")
"""
from __future__ import annotations

from collections.abc import MutableMapping
from typing import Iterator, Mapping, Sequence, Union

import numpy as np

from ._enums import DType
from ._errors import TensorError
from ._group import Group
from ._model import Model
from ._view import View


def as_array(view: View) -> np.ndarray:
    """A view of the library's memory as an array, without a copy; bfloat16 needs the package ml_dtypes."""
    array = np.asarray(view)
    if view.dtype == DType.BF16:
        import ml_dtypes

        return array.view(ml_dtypes.bfloat16)
    return array


class Gradients(MutableMapping):
    """The gradients of a model by name, as arrays of the library's memory. An assignment copies: ``grads["w"] = value`` does what
    ``grads["w"][:] = value`` does. Names are neither added nor taken away."""

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        self._arrays = arrays

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[name]

    def __setitem__(self, name: str, value: np.ndarray) -> None:
        if name not in self._arrays:
            raise TensorError(f"the model has no parameter {name!r}, so it has no gradient of that name")
        mine = self._arrays[name]
        if value is mine:
            return  # as after grads["w"] += value
        given = np.asarray(value)
        if given.shape not in (mine.shape, ()) or not np.can_cast(given.dtype, mine.dtype, "same_kind"):
            raise TensorError(f"the gradient of {name!r} is {mine.dtype}{list(mine.shape)}, the value {given.dtype}{list(given.shape)}: "
                              "they must be alike")
        np.copyto(mine, given, casting="same_kind")

    def __delitem__(self, name: str) -> None:
        raise TensorError(f"the gradient of {name!r} is the model's; it cannot be taken away")

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        return f"Gradients({self._arrays!r})"


def lend(model: Model, arrays: Mapping[str, np.ndarray]) -> Gradients:
    """Lend arrays as parameters, in the order of the forward computation, and commit. Returns their gradients, which libddp keeps where
    they are reduced without a copy."""
    for name, array in arrays.items():
        model.add_parameter(name, array)
    model.commit()
    return Gradients({name: as_array(model.grad(name)) for name in arrays})


def alloc(group: Group, shape: Union[int, Sequence[int]], dtype: Union[DType, str, np.dtype, type] = DType.F32) -> np.ndarray:
    """A zeroed array within reach of the other ranks of this host."""
    if not isinstance(dtype, DType):
        dtype = _DTYPES[np.dtype(dtype).name]
    return as_array(group.alloc(shape, dtype))


_DTYPES = {"float32": DType.F32, "float64": DType.F64, "float16": DType.F16, "bfloat16": DType.BF16, "int32": DType.I32,
           "int64": DType.I64, "uint8": DType.U8, "complex64": DType.C64, "complex128": DType.C128}
