# SPDX-License-Identifier: Apache-2.0
"""The average as an operation in compiled programs of JAX: XLA's own where the package has the module for it, else a callback."""
from __future__ import annotations

import ctypes
import functools
import os
import warnings
import weakref
from typing import Any, Callable, Optional

import jax
import numpy as np
from jax.experimental import io_callback

from ._model import Model

_TARGET = "libddp_average"
_MODULE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_xla.so")


@functools.lru_cache(maxsize=None)
def module() -> Optional[Any]:
    """xla/average.cpp, which is built where the headers of jaxlib are; known to XLA from here on. None: it was not, or JAX is too
    old, or older than those headers."""
    if not os.path.exists(_MODULE) or not hasattr(jax, "ffi"):
        return None
    found = ctypes.CDLL(_MODULE)
    found.ddp_xla_open.argtypes, found.ddp_xla_open.restype = [ctypes.c_void_p, ctypes.c_int32], ctypes.c_int64
    found.ddp_xla_close.argtypes = [ctypes.c_int64]
    jax.default_backend()  # JAX would refuse all of a backend that is made after an operation that does not fit
    try:
        jax.ffi.register_ffi_target(_TARGET, jax.ffi.pycapsule(found.ddp_xla_average), platform="cpu")
        jax.ffi.register_ffi_target(_TARGET, jax.ffi.pycapsule(found.ddp_xla_average_cuda), platform="CUDA")
    except Exception as error:  # of several kinds, by JAX's version
        warnings.warn(f"libddp.jax: averages in jit call back into Python: {error}", RuntimeWarning, stacklevel=2)
        return None
    return found


def operation(model: Model, results: list, called: Callable[..., list], on_gpu: bool) -> Callable[..., list]:
    """What a traced average becomes: an operation of XLA that needs no interpreter, on the CPU, and on the GPU if the model's gradients are
    there; elsewhere, and without the module, a call of `called` with arrays in host memory."""
    found = module() if on_gpu or jax.default_backend() == "cpu" else None
    if found is None:
        return lambda *leaves: io_callback(called, results, *leaves, ordered=True)
    number = found.ddp_xla_open(int(model._raw), int(on_gpu))
    weakref.finalize(model, found.ddp_xla_close, number)
    in_place = {index: index for index in range(len(results))}  # a mean takes the place of its gradient where nobody else wants that
    return lambda *leaves: jax.ffi.ffi_call(_TARGET, results, has_side_effect=True, input_output_aliases=in_place)(
        *leaves, number=np.int64(number))
