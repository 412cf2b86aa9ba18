# SPDX-License-Identifier: Apache-2.0
"""Any tensor, without a copy: where it lies, what it holds, and what must be kept so that it stays there.

Tried in this order: torch by its own attributes, ``__cuda_array_interface__``, ``__array_interface__``, the buffer protocol, DLPack.
torch comes first because its CUDA interface calls bfloat16 something else; only attributes are looked at, so nothing is imported.
"""
from __future__ import annotations

import sys
import weakref
from typing import Any, Callable, NamedTuple, Optional, Sequence

from . import low
from ._enums import DType
from ._errors import TensorError

CPU, CUDA = low.DDP_CPU, low.DDP_CUDA
#: (address, dtype, device, device index, shape), as the module ``low`` takes a tensor
Low = tuple

_BY_NAME = {"float32": DType.F32, "float64": DType.F64, "float16": DType.F16, "bfloat16": DType.BF16, "int32": DType.I32,
            "int64": DType.I64, "uint8": DType.U8, "complex64": DType.C64, "complex128": DType.C128}
_BY_TYPESTR = {"f4": DType.F32, "f8": DType.F64, "f2": DType.F16, "i4": DType.I32, "i8": DType.I64, "u1": DType.U8,
               "c8": DType.C64, "c16": DType.C128}
_BY_FORMAT = {"f": DType.F32, "d": DType.F64, "e": DType.F16, "B": DType.U8, "Zf": DType.C64, "Zd": DType.C128}
_BY_DLPACK = {(2, 32): DType.F32, (2, 64): DType.F64, (2, 16): DType.F16, (4, 16): DType.BF16, (0, 32): DType.I32,
              (0, 64): DType.I64, (1, 8): DType.U8, (5, 64): DType.C64, (5, 128): DType.C128}
TO_DLPACK = {dtype: key for key, dtype in _BY_DLPACK.items()}
TO_TYPESTR = {dtype: "<" + key for key, dtype in _BY_TYPESTR.items()}
TO_TYPESTR[DType.BF16] = "<V2"
TO_TYPESTR[DType.U8] = "|u1"
SIZES = {DType.F32: 4, DType.F64: 8, DType.F16: 2, DType.BF16: 2, DType.I32: 4, DType.I64: 8, DType.U8: 1, DType.C64: 8,
         DType.C128: 16}
DTYPE_NAMES = {dtype: name for name, dtype in _BY_NAME.items()}
_KNOWN = ", ".join(_BY_NAME)


class Lent(NamedTuple):
    """A tensor that was looked at."""

    tensor: Low
    value: Any  #: what was given
    owner: object = None  #: what else keeps the memory where it is
    place: Optional[Callable[[], int]] = None  #: for memory whose owner can move it: where is it now?

    def __str__(self) -> str:
        return f"{DTYPE_NAMES[DType(self.dtype)]} {list(self.shape)}"

    @property
    def dtype(self) -> int:
        return self.tensor[1]

    @property
    def shape(self) -> tuple:
        return self.tensor[4]


class Watched(dict):
    """Memory whose owner can move it: by key, how to find its place, the place when it was lent, and a name. A pass looks at all of it twice."""

    def put(self, key: object, place: Optional[Callable[[], int]], what: str) -> None:
        """Remember where it is now, in the place of what was under this key. None: nobody can move it."""
        self.pop(key, None)
        if place is not None:
            self[key] = (place, place(), what)

    def drop(self, what: str) -> None:
        """Forget all of this name."""
        for key in [key for key, known in self.items() if known[2] == what]:
            del self[key]

    def moved(self) -> Optional[str]:
        """The name of what is elsewhere now."""
        return next((what for place, former, what in self.values() if place() != former), None)


def lend(value: Any, what: str = "the tensor", write: bool = True) -> Lent:
    """Look at a tensor; `what` names it in errors. With `write`, memory that must not be written is refused."""
    kind = type(value)
    if kind.__module__.split(".")[0] in ("jax", "jaxlib"):
        raise TensorError(f"{what} is a JAX array, which is immutable: libddp.jax takes and gives such arrays")
    own = getattr(value, "__libddp_tensor__", None)
    if own is not None:
        return Lent(own, value)
    if callable(getattr(value, "data_ptr", None)) and callable(getattr(value, "is_contiguous", None)):
        return _torch(value, what)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic):
        raise TensorError(f"{what} is a NumPy scalar ({value.dtype}), which has no memory of its own to share: pass "
                          f"numpy.array(..., numpy.{value.dtype})")
    for attribute, device in (("__cuda_array_interface__", CUDA), ("__array_interface__", CPU)):
        interface = getattr(value, attribute, None)
        if isinstance(interface, dict):
            return _interface(value, interface, device, what, write)
    try:
        view = memoryview(value)
    except TypeError:
        view = None
    if view is not None:
        return _buffer(value, view, what, write)
    if callable(getattr(value, "__dlpack__", None)):
        return _dlpack(value, what, write)
    raise TensorError(f"{what} is {_article(kind.__name__)}, not a tensor: it speaks neither the buffer protocol nor an array interface "
                      "nor DLPack")


def _article(word: str) -> str:
    return ("an " if word[:1].lower() in "aeiou" else "a ") + word


def _refuse_dtype(what: str, name: object) -> TensorError:
    return TensorError(f"{what} has the element type {name}; libddp knows {_KNOWN}")


def _check_dense(what: str, shape: Sequence[int], strides: Optional[Sequence[int]], size: int) -> None:
    """`strides` and `size` in one unit. Axes of length 1 and tensors without elements have no stride that matters."""
    if strides is None or 0 in shape:
        return
    wanted = size
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent != 1 and stride != wanted:
            fortran = " (it is in Fortran order)" if len(shape) > 1 and strides[0] == size else ""
            raise TensorError(f"{what} is not dense and row-major{fortran}: shape {tuple(shape)}, strides {tuple(strides)}; "
                              "pass a contiguous copy")
        wanted *= extent


def _check_writable(what: str, read_only: bool, write: bool) -> None:
    if read_only and write:
        raise TensorError(f"{what} is read-only, and libddp writes to it")


def _torch(value: Any, what: str) -> Lent:
    layout = str(getattr(value, "layout", "torch.strided"))
    if layout != "torch.strided":
        raise TensorError(f"{what} has the layout {layout}; libddp reads dense tensors")
    if not value.is_contiguous():
        _check_dense(what, tuple(value.shape), tuple(value.stride()), 1)
        raise TensorError(f"{what} is not contiguous; pass a contiguous copy")
    name = str(value.dtype).rsplit(".", 1)[-1]
    dtype = _BY_NAME.get(name)
    if dtype is None:
        raise _refuse_dtype(what, name)
    if getattr(value, "is_conj", bool)() or getattr(value, "is_neg", bool)():
        raise TensorError(f"{what} is conjugated or negated only by a mark, not in memory; pass tensor.resolve_conj().resolve_neg()")
    device = getattr(value.device, "type", str(value.device))
    if device not in ("cpu", "cuda"):
        raise TensorError(f"{what} is on the device {device}; libddp reads cpu and cuda")
    address = value.data_ptr()
    lent = (address, int(dtype), CUDA if device == "cuda" else CPU, int(value.device.index or 0) if device == "cuda" else 0,
            tuple(value.shape))
    return Lent(lent, value, place=value.data_ptr)


def _interface(value: Any, interface: dict, device: int, what: str, write: bool) -> Lent:
    typestr = interface["typestr"]
    shape = tuple(interface["shape"])
    name = getattr(getattr(value, "dtype", None), "name", "")
    dtype = _BY_NAME.get(name) if name == "bfloat16" else _BY_TYPESTR.get(typestr[1:])
    if dtype is None:
        raise _refuse_dtype(what, name or typestr)
    swapped = ">" if sys.byteorder == "little" else "<"
    if typestr[0] == swapped:
        raise TensorError(f"{what} has the byte order of another machine ({typestr}); pass a copy in native order")
    if not isinstance(interface.get("data"), tuple):
        raise TensorError(f"{what} has no address in its array interface")
    address, read_only = interface["data"]
    _check_dense(what, shape, interface.get("strides"), SIZES[dtype])
    _check_writable(what, read_only, write)
    index = 0
    if device == CUDA:
        index = int(getattr(getattr(value, "device", None), "id", 0) or 0)
        return Lent((address, int(dtype), device, index, shape), value)
    _check_aligned(what, address, dtype, shape)
    return Lent((address, int(dtype), device, index, shape), value, _pin(value))


def _pin(value: Any) -> object:
    """NumPy's resize(..., refcheck=False) would move the memory under our hands. It refuses while there is a weak reference to the
    array that owns the memory."""
    owner = value
    while hasattr(getattr(owner, "base", None), "__array_interface__"):
        owner = owner.base
    try:
        return weakref.ref(owner)
    except TypeError:
        return None  # no array of NumPy's


def _check_aligned(what: str, address: int, dtype: DType, shape: Sequence[int]) -> None:
    size = SIZES[dtype] // (2 if dtype in (DType.C64, DType.C128) else 1)
    if address % size and 0 not in shape:
        raise TensorError(f"{what} begins at {address:#x}, which is no multiple of {size} bytes; pass a copy")


def _buffer(value: Any, view: memoryview, what: str, write: bool) -> Lent:
    code = view.format.lstrip("@=") if view.format else "B"
    swapped = (">", "!") if sys.byteorder == "little" else ("<",)
    if code.startswith(swapped):
        raise TensorError(f"{what} has the byte order of another machine ({view.format}); pass a copy in native order")
    code = code.lstrip("<>")
    dtype = _BY_FORMAT.get(code)
    if dtype is None and code in ("i", "l", "q"):
        dtype = {4: DType.I32, 8: DType.I64}.get(view.itemsize)
    if dtype is None:
        raise _refuse_dtype(what, f"with the buffer format {view.format!r}")
    shape = tuple(view.shape or ())
    _check_dense(what, shape, view.strides, view.itemsize)
    _check_writable(what, view.readonly, write)
    _check_aligned(what, low.buffer_address(view), dtype, shape)
    return Lent((low.buffer_address(view), int(dtype), CPU, 0, shape), value, view)  # a held view forbids resizing


def _dlpack(value: Any, what: str, write: bool) -> Lent:
    try:
        capsule = value.__dlpack__(max_version=(1, 0))
    except TypeError:
        capsule = value.__dlpack__()
    address, code, bits, lanes, device, index, shape, strides, read_only = low.read_dlpack(capsule)
    dtype = _BY_DLPACK.get((code, bits)) if lanes == 1 else None
    if dtype is None:
        raise _refuse_dtype(what, f"with the DLPack code {code}, {bits} bits, {lanes} lanes")
    if device not in (CPU, CUDA):
        raise TensorError(f"{what} is on the DLPack device {device}; libddp reads 1 (CPU) and 2 (CUDA)")
    _check_dense(what, shape, strides, 1)
    _check_writable(what, bool(read_only), write)
    if device == CPU:
        _check_aligned(what, address, dtype, shape)
    return Lent((address, int(dtype), device, index if device == CUDA else 0, shape), value, capsule)
