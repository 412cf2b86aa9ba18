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

from typing import Mapping, Sequence, Union

import numpy as np

from ._enums import DType
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


def lend(model: Model, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Lend arrays as parameters, in the order of the forward computation, and commit. Returns their gradients, which libddp keeps where
    they are reduced without a copy."""
    for name, array in arrays.items():
        model.add_parameter(name, array)
    model.commit()
    return {name: as_array(model.grad(name)) for name in arrays}


def alloc(group: Group, shape: Union[int, Sequence[int]], dtype: Union[DType, str, np.dtype, type] = DType.F32) -> np.ndarray:
    """A zeroed array within reach of the other ranks of this host."""
    if not isinstance(dtype, DType):
        dtype = _DTYPES[np.dtype(dtype).name]
    return as_array(group.alloc(shape, dtype))


_DTYPES = {"float32": DType.F32, "float64": DType.F64, "float16": DType.F16, "bfloat16": DType.BF16, "int32": DType.I32,
           "int64": DType.I64, "uint8": DType.U8, "complex64": DType.C64, "complex128": DType.C128}
