# SPDX-License-Identifier: Apache-2.0
"""Memory of the library as a tensor of Python: no copy, and it keeps its owner alive."""
from __future__ import annotations

import ctypes
from typing import Any, Optional

from . import low
from ._enums import DType
from ._tensor import CPU, SIZES, TO_DLPACK, TO_TYPESTR

_FORMATS = {DType.F32: "f", DType.F64: "d", DType.F16: "e", DType.I32: "i", DType.I64: "q", DType.U8: "B"}


class View:
    """Memory that libddp owns. ``numpy.asarray(view)``, ``torch.from_dlpack(view)`` and ``view.buffer()`` see it without a copy; what
    they make of it keeps the view, and the view keeps the object that it came from."""

    __slots__ = ("__weakref__", "_owner", "_tensor")

    def __init__(self, tensor: tuple, owner: object) -> None:
        self._tensor = tensor
        self._owner = owner

    @property
    def address(self) -> int:
        """Where the first element lies."""
        return self._tensor[0]

    @property
    def dtype(self) -> DType:
        """Element type."""
        return DType(self._tensor[1])

    @property
    def shape(self) -> tuple:
        """Elements per dimension."""
        return self._tensor[4]

    @property
    def nbytes(self) -> int:
        """Length in bytes."""
        count = SIZES[self.dtype]
        for extent in self.shape:
            count *= extent
        return count

    @property
    def __libddp_tensor__(self) -> tuple:
        return self._tensor

    @property
    def __array_interface__(self) -> dict:
        if self._tensor[2] != CPU:
            raise AttributeError("__array_interface__")
        return {"version": 3, "data": (self.address, False), "typestr": TO_TYPESTR[self.dtype], "shape": self.shape}

    @property
    def __cuda_array_interface__(self) -> dict:
        if self._tensor[2] == CPU:
            raise AttributeError("__cuda_array_interface__")
        return {"version": 3, "data": (self.address, False), "typestr": TO_TYPESTR[self.dtype], "shape": self.shape, "strides": None}

    def __dlpack__(self, *, stream: Optional[Any] = None, max_version: Optional[tuple] = None, dl_device: Optional[tuple] = None,
                   copy: Optional[bool] = None) -> Any:
        if copy:
            raise BufferError("libddp lends its memory without a copy")
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"this memory is on the device {self.__dlpack_device__()}")
        code, bits = TO_DLPACK[self.dtype]
        return low.make_dlpack(self, self._tensor, code, bits)

    def __dlpack_device__(self) -> tuple:
        return (self._tensor[2], self._tensor[3])

    def buffer(self) -> memoryview:
        """The same memory as a memoryview, for programs without NumPy."""
        code = _FORMATS.get(self.dtype)
        if code is None:
            raise TypeError(f"a memoryview has no format for {self.dtype.name}")
        raw = (ctypes.c_ubyte * self.nbytes).from_address(self.address)
        setattr(raw, "owner", self)
        return memoryview(raw).cast("B").cast(code, self.shape)  # type: ignore[call-overload]

    def __buffer__(self, _flags: int) -> memoryview:  # Python 3.12 calls it
        return self.buffer()

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"libddp.View({self.dtype.name}, {list(self.shape)} at {self.address:#x})"
