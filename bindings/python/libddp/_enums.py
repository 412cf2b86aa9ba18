# SPDX-License-Identifier: Apache-2.0
"""The header's enumerations. Where one is asked for, its name in lower case does as well: ``op="sum"``."""
from __future__ import annotations

import enum
from typing import TypeVar, Union

from . import low


class Status(enum.IntEnum):
    """Result of a call; see :class:`libddp.Error`."""

    OK = low.DDP_OK
    INVALID_ARGUMENT = low.DDP_ERROR_INVALID_ARGUMENT
    INVALID_STATE = low.DDP_ERROR_INVALID_STATE
    NOT_SUPPORTED = low.DDP_ERROR_NOT_SUPPORTED
    OUT_OF_MEMORY = low.DDP_ERROR_OUT_OF_MEMORY
    TIMED_OUT = low.DDP_ERROR_TIMED_OUT
    PEER_FAILED = low.DDP_ERROR_PEER_FAILED
    ABORTED = low.DDP_ERROR_ABORTED
    MISMATCH = low.DDP_ERROR_MISMATCH
    IO = low.DDP_ERROR_IO
    CALLBACK = low.DDP_ERROR_CALLBACK
    INTERNAL = low.DDP_ERROR_INTERNAL
    TOO_FEW_RANKS = low.DDP_ERROR_TOO_FEW_RANKS
    FENCED = low.DDP_ERROR_FENCED
    NO_CHECKPOINT = low.DDP_ERROR_NO_CHECKPOINT
    NO_MAJORITY = low.DDP_ERROR_NO_MAJORITY
    DIFFERENT_CALLS = low.DDP_ERROR_DIFFERENT_CALLS


class DType(enum.IntEnum):
    """Element type of a tensor."""

    F32 = low.DDP_F32
    F64 = low.DDP_F64
    F16 = low.DDP_F16
    BF16 = low.DDP_BF16
    I32 = low.DDP_I32
    I64 = low.DDP_I64
    U8 = low.DDP_U8
    C64 = low.DDP_C64
    C128 = low.DDP_C128


class Reduce(enum.IntEnum):
    """How the values of all ranks become one."""

    AVERAGE = low.DDP_AVERAGE
    SUM = low.DDP_SUM
    MIN = low.DDP_MIN
    MAX = low.DDP_MAX
    PRODUCT = low.DDP_PRODUCT


class Backend(enum.IntEnum):
    """How the bytes of a group travel."""

    AUTO = low.DDP_BACKEND_AUTO
    GLOO = low.DDP_BACKEND_GLOO
    NCCL = low.DDP_BACKEND_NCCL
    SHM = low.DDP_BACKEND_SHM
    LOCAL = low.DDP_BACKEND_LOCAL


class SumOrder(enum.IntEnum):
    """Which leaf of the balanced tree of a sum each rank is: BY_RANK gives bits that do not depend on which ranks share a host, BY_HOST less
    traffic between hosts whose ranks are not aligned blocks of a power of two."""

    BY_RANK = low.DDP_SUM_ORDER_BY_RANK
    BY_HOST = low.DDP_SUM_ORDER_BY_HOST


class Links(enum.IntEnum):
    """How data is sent between processes that share no memory: AUTO is ENCRYPTED if the group has a token, except for connections to a
    loopback address."""

    AUTO = low.DDP_LINKS_AUTO
    ENCRYPTED = low.DDP_LINKS_ENCRYPTED
    PLAIN = low.DDP_LINKS_PLAIN


class NonFinite(enum.IntEnum):
    """What a step does about gradients with infinite or NaN elements."""

    KEEP = low.DDP_NONFINITE_KEEP
    SKIP = low.DDP_NONFINITE_SKIP
    FAIL = low.DDP_NONFINITE_FAIL


class PassMode(enum.IntEnum):
    """What a pass does."""

    REDUCE = low.DDP_PASS_REDUCE
    ACCUMULATE = low.DDP_PASS_ACCUMULATE
    LOCAL = low.DDP_PASS_LOCAL
    PART = low.DDP_PASS_PART


class Unused(enum.IntEnum):
    """What a pass does with parameters that nobody marked."""

    ERROR = low.DDP_UNUSED_ERROR
    ALLOW = low.DDP_UNUSED_ALLOW


class Progress(enum.IntEnum):
    """Which thread does the work of reducing; the bits are the same."""

    AUTO = low.DDP_PROGRESS_AUTO
    CALLER = low.DDP_PROGRESS_CALLER
    THREAD = low.DDP_PROGRESS_THREAD


class Divisor(enum.IntEnum):
    """What an average divides the sum over the ranks by."""

    WORLD = low.DDP_DIVISOR_WORLD
    WEIGHTS = low.DDP_DIVISOR_WEIGHTS


class Drift(enum.IntEnum):
    """What a check that runs by itself (check_every) does when replicas differ."""

    REPORT = low.DDP_DRIFT_REPORT
    RESEND = low.DDP_DRIFT_RESEND


class LogLevel(enum.IntEnum):
    """Severity of a log message."""

    DEBUG = low.DDP_LOG_DEBUG
    INFO = low.DDP_LOG_INFO
    WARNING = low.DDP_LOG_WARNING
    ERROR = low.DDP_LOG_ERROR
    OFF = low.DDP_LOG_OFF


Kind = TypeVar("Kind", bound=enum.IntEnum)


def choose(kind: type[Kind], value: Union[Kind, str, int]) -> int:
    """The number of a choice that was given as itself, as a name or as a number."""
    if isinstance(value, str):
        try:
            return int(kind[value.upper()])
        except KeyError:
            names = ", ".join(member.name.lower() for member in kind)
            raise ValueError(f"{value!r} is none of {names}") from None
    return int(value)
