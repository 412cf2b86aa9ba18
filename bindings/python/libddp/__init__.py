# SPDX-License-Identifier: Apache-2.0
"""Distributed data parallel training for whatever holds tensors.

Lend parameters and gradients, mark each gradient when it is ready, and every rank ends up with the same mean::

    import libddp, numpy as np

    with libddp.Group() as group:                       # rank and size come from ddprun (torchrun, mpirun, srun)
        model = libddp.Model(group)
        w = np.zeros(1000, np.float32)
        model.add_parameter("w", w)
        model.commit()                                  # rank 0's values go to everybody
        sgd = libddp.SGD(model, rate=0.1)
        grad = np.asarray(model.grad("w"))              # the library's own memory, no copy
        with model.backward():
            grad[:] = ...
            model.mark_ready("w")                       # from here on it travels
        sgd.step()

A tensor is anything that speaks the buffer protocol, an array interface or DLPack, or that is torch's. It is used where it lies.
``libddp.torch`` and ``libddp.jax`` are adapters for these frameworks; they import them, this package does not.
"""
from . import low as low
from ._library import LogListener, LogMessage, build_info, set_log, version  # first: it checks that the right library was loaded
from ._batch_norm import BatchNorm, batch_norm_backward, batch_norm_forward
from ._ema import Ema
from ._outer import Outer
from ._enums import Backend, Divisor, Drift, DType, Links, LogLevel, NonFinite, PassMode, Progress, Reduce, Status, SumOrder, Unused
from ._errors import (AbortedError, BrokenGroupError, CallbackError, DifferentCallsError, Error, ErrorDetails, FencedError, FileError, InternalError, InvalidArgumentError,
                      InvalidStateError, MismatchError, NoCheckpointError, NoMajorityError, NotSupportedError, OutOfMemoryError, PeerFailedError, TensorError, TimedOutError,
                      TooFewRanksError)
from ._group import Group, Rows, part_key
from ._hook import Bucket, BucketParameter, PowerSGD
from ._model import Metadata, Model
from ._optimizer import SGD, Adam, CustomOptimizer, Optimizer, Slice
from ._passes import PassReport
from ._recover import RankProgress, Recovery
from ._request import Request, wait_any
from ._sampler import Sampler
from ._state import Loaded, State, keep
from ._store import Store
from ._view import View

__version__ = low.DDP_VERSION_STRING
__all__ = [
    "AbortedError", "Adam", "Backend", "BatchNorm", "BrokenGroupError", "Bucket", "BucketParameter", "CallbackError", "CustomOptimizer", "DType", "DifferentCallsError", "Divisor", "Drift", "Ema", "Error", "ErrorDetails",
    "FencedError", "FileError", "Group", "InternalError", "InvalidArgumentError", "InvalidStateError", "Links", "Loaded", "LogLevel", "LogListener", "LogMessage", "Metadata",
    "MismatchError", "Model", "NoCheckpointError", "NoMajorityError", "NonFinite", "NotSupportedError", "Optimizer", "OutOfMemoryError", "Outer",
    "PassMode", "PassReport", "PeerFailedError", "PowerSGD", "Progress", "RankProgress", "Recovery", "Reduce", "Request", "Rows", "SGD", "Sampler",
    "Slice", "State", "Status", "Store", "SumOrder", "TensorError", "TimedOutError", "TooFewRanksError", "Unused", "View", "batch_norm_backward",
    "batch_norm_forward", "build_info", "keep", "part_key", "set_log", "version", "wait_any",
]
