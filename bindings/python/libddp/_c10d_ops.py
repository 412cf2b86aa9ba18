# SPDX-License-Identifier: Apache-2.0
"""The collectives of torch.distributed on tensors in host memory, made of libddp's: part of libddp.c10d.

Tensors are used where they lie if they are dense, and through a copy otherwise. What goes through memory of ours goes in pieces of a few
MiB, so that the memory stays in the processor's cache and does not grow with the tensors.
"""
from __future__ import annotations

import struct
from ctypes import memmove, string_at
from typing import Any, Callable, Optional, Sequence

import torch
import torch.distributed as dist

from . import low
from ._enums import Backend, DType, Reduce
from ._errors import MismatchError, NotSupportedError, TensorError
from ._group import Group
from ._tensor import CPU

RedOp = dist.ReduceOp.RedOpType
_DTYPES = {torch.float32: DType.F32, torch.float64: DType.F64, torch.float16: DType.F16, torch.bfloat16: DType.BF16, torch.int32: DType.I32,
           torch.int64: DType.I64, torch.uint8: DType.U8}
_NUMBERS = {dtype: int(code) for dtype, code in _DTYPES.items()}
_BYTES = int(DType.U8)
_REDUCES = {RedOp.SUM: int(Reduce.SUM), RedOp.AVG: int(Reduce.AVERAGE), RedOp.MIN: int(Reduce.MIN), RedOp.MAX: int(Reduce.MAX)}
_WIDER = {torch.int8: torch.int32, torch.int16: torch.int32, torch.uint16: torch.int32, torch.uint32: torch.int64}
_OF_BOOLS = {RedOp.SUM: RedOp.MAX, RedOp.PRODUCT: RedOp.MIN, RedOp.MIN: RedOp.MIN, RedOp.MAX: RedOp.MAX, RedOp.BAND: RedOp.MIN,
             RedOp.BOR: RedOp.MAX, RedOp.BXOR: RedOp.BXOR}
_FOLDS: dict[Any, Callable] = {RedOp.PRODUCT: torch.mul, RedOp.BAND: torch.bitwise_and, RedOp.BOR: torch.bitwise_or,
                               RedOp.BXOR: torch.bitwise_xor}
_TOGETHER = 256 << 10  # bytes of all ranks, up to which pieces travel together
_AT_ONCE = 64 << 10  # bytes up to which two ranks swap in one operation
_INLINE = 16 << 10  # bytes that all_to_all sends along with the sizes; between hosts a sixteenth of it
_SCRATCH = 8 << 20  # bytes of a piece, of all ranks together


def is_dense(tensor: torch.Tensor) -> bool:
    """Can it be used where it lies?"""
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """The same values, dense and row by row; itself if it is so."""
    return tensor if is_dense(tensor) else tensor.resolve_conj().resolve_neg().contiguous()


def _low(tensor: torch.Tensor) -> tuple:
    """A dense tensor as the library takes it; of an element type that it does not know, its bytes."""
    code = _NUMBERS.get(tensor.dtype)
    if code is not None:
        return (tensor.data_ptr(), code, CPU, 0, (tensor.numel(),))
    return (tensor.data_ptr(), _BYTES, CPU, 0, (tensor.numel() * tensor.element_size(),))


class Written:
    """A dense tensor in the place of one that will be written."""

    def __init__(self, tensor: torch.Tensor, read: bool = False) -> None:
        self._target = None if is_dense(tensor) else tensor
        if self._target is None:
            self.tensor = tensor
        else:
            self.tensor = dense(tensor) if read else torch.empty(tensor.shape, dtype=tensor.dtype)

    def done(self) -> None:
        if self._target is not None:
            self._target.copy_(self.tensor)


class Collectives:
    """The collectives of one group, for one thread at a time."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self.rank, self.size = group.rank, group.size
        self._memory: Optional[torch.Tensor] = None
        self._told: Optional[torch.Tensor] = None
        self._inline = _INLINE if group.backend in (Backend.SHM, Backend.LOCAL) else _INLINE // 16

    @property
    def _raw(self) -> Any:
        return self._group._raw

    def _pieces(self, count: int, dtype: torch.dtype) -> tuple:
        """Memory of [size, at most this many elements], and that number."""
        if self._memory is None:
            self._memory = torch.empty(_SCRATCH, dtype=torch.uint8)
        whole = self._memory.view(dtype)
        step = max(1, min(count, whole.numel() // self.size))
        return whole, step

    # ---- Copies. ----

    def barrier(self) -> None:
        low.ddp_group_barrier(self._raw)

    def broadcast(self, tensor: torch.Tensor, root: int) -> None:
        written = Written(tensor, read=self.rank == root)
        if tensor.numel():
            low.ddp_group_broadcast(self._raw, _low(written.tensor), root, None)
        if self.rank != root:
            written.done()

    def all_gather_into(self, output: torch.Tensor, value: torch.Tensor) -> None:
        if output.numel() != self.size * value.numel():
            raise TensorError(f"all_gather: the output has {output.numel()} elements; {self.size} times the {value.numel()} of the input are needed")
        if output.dtype != value.dtype:
            raise TensorError(f"all_gather: the output is {output.dtype}, the input {value.dtype}")
        written = Written(output)
        if value.numel():
            low.ddp_group_all_gather(self._raw, _low(dense(value)), _low(written.tensor), None)
        written.done()

    def all_gather(self, outputs: Sequence[torch.Tensor], value: torch.Tensor) -> None:
        """Outputs of different sizes are those of different inputs."""
        if len(outputs) != self.size:
            raise TensorError(f"all_gather: {len(outputs)} outputs, but there are {self.size} ranks")
        if outputs[self.rank].numel() != value.numel() or any(output.dtype != value.dtype for output in outputs):
            raise TensorError(f"all_gather: output {self.rank} is {_shape(outputs[self.rank])}, and what this rank gives {_shape(value)}")
        if any(output.numel() != value.numel() for output in outputs) or self._is_large(value):
            outputs[self.rank].copy_(value)
            for root, output in enumerate(outputs):
                self.broadcast(output, root)
        else:
            self._gather(value, outputs)

    def gather(self, outputs: Sequence[torch.Tensor], value: torch.Tensor, root: int) -> None:
        """Outputs are the root's."""
        if self.rank == root and len(outputs) != self.size:
            raise TensorError(f"gather: {len(outputs)} outputs, but there are {self.size} ranks")
        if any(output.numel() != value.numel() or output.dtype != value.dtype for output in outputs):
            raise TensorError(f"gather: every output must be as this rank's input, {_shape(value)}")
        if self._is_large(value):
            for source in range(self.size):
                self._move(value, outputs[source] if outputs else None, source, root)
        else:
            self._gather(value, outputs)

    def _is_large(self, tensor: torch.Tensor) -> bool:
        """Is it better sent by itself than together with those of the other ranks?"""
        return tensor.numel() * tensor.element_size() * self.size > _TOGETHER

    def _move(self, value: torch.Tensor, output: Optional[torch.Tensor], source: int, target: int) -> None:
        """A tensor from one rank to one other; the others, who take part, need not keep it."""
        if source == target:
            if self.rank == source and output is not None:
                output.copy_(value.view(output.shape))
        elif self.rank == source:
            self.broadcast(value, source)
        elif self.rank == target and output is not None:
            self.broadcast(output, source)
        else:
            self.broadcast(torch.empty(value.shape, dtype=value.dtype), source)

    def _gather(self, value: torch.Tensor, outputs: Sequence[torch.Tensor]) -> None:
        """Small tensors of the same size. Copies by address, because a copy of torch's takes longer than the bytes."""
        value, length = dense(value), _bytes(value)
        if not length:
            return
        base, joined = self._joined(value)
        low.ddp_group_all_gather(self._raw, _low(value), joined, None)
        for output in outputs:
            _put(base, output, length)
            base += length

    def _joined(self, tensor: torch.Tensor) -> tuple:
        """The address of memory for small tensors of all ranks, and that memory as the library takes it."""
        memory, _ = self._pieces(1, torch.uint8)
        _, code, device, index, (count,) = _low(tensor)
        return memory.data_ptr(), (memory.data_ptr(), code, device, index, (count * self.size,))

    def _gathered(self, flat: torch.Tensor) -> Any:
        """The pieces of all ranks: (first element, last, [size, elements])."""
        memory, step = self._pieces(flat.numel(), flat.dtype)
        for start in range(0, flat.numel(), step):
            stop = min(start + step, flat.numel())
            found = memory[: self.size * (stop - start)]
            low.ddp_group_all_gather(self._raw, _low(flat[start:stop]), _low(found), None)
            yield start, stop, found.view(self.size, stop - start)

    def scatter(self, output: torch.Tensor, values: Sequence[torch.Tensor], root: int) -> None:
        """Values are the root's."""
        if self.rank == root:
            if len(values) != self.size:
                raise TensorError(f"scatter: {len(values)} inputs, but there are {self.size} ranks")
            if any(value.numel() != output.numel() or value.dtype != output.dtype for value in values):
                raise TensorError(f"scatter: every input must be as the output, {_shape(output)}")
        if self._is_large(output):
            for target in range(self.size):
                self._move(values[target] if values else output, output, root, target)
            return
        length = _bytes(output)
        if not length:
            return
        base, joined = self._joined(output)
        at = base
        for value in values:
            value = dense(value)
            memmove(at, value.data_ptr(), length)
            at += length
        low.ddp_group_broadcast(self._raw, joined, root, None)
        _put(base + self.rank * length, output, length)

    def all_to_all(self, outputs: Sequence[torch.Tensor], values: Sequence[torch.Tensor], exchange: Callable[[list, list], None]) -> None:
        """From each rank to each. Of three ranks or more, few bytes travel along with the sizes; `exchange` moves more."""
        given, written = [dense(value) for value in values], [Written(output) for output in outputs]
        if _bytes(given[self.rank]) != _bytes(outputs[self.rank]):
            raise TensorError(f"all_to_all: rank {self.rank} gives itself {_bytes(given[self.rank])} bytes and expects {_bytes(outputs[self.rank])}")
        memmove(written[self.rank].tensor.data_ptr(), given[self.rank].data_ptr(), _bytes(given[self.rank]))
        other = 1 - self.rank
        if self.size == 2 and _bytes(given[other]) == _bytes(outputs[other]) <= _AT_ONCE:
            self._swap(given[other].data_ptr(), written[other].tensor.data_ptr(), _bytes(given[other]))
        elif self.size == 2:  # what one gives is for all others
            for source in (0, 1):
                self.broadcast(given[1 - source] if source == self.rank else written[source].tensor, source)
        elif self.size > 2:
            self._all_to_all(written, given, exchange)
        for one in written:
            one.done()

    def are_halves(self, output: torch.Tensor, value: torch.Tensor) -> bool:
        """May swap_halves do it?"""
        return (self.size == 2 and value.shape == output.shape and value.dim() > 0 and value.shape[0] % 2 == 0
                and is_dense(value) and is_dense(output) and _bytes(value) == _bytes(output) <= 2 * _AT_ONCE)

    def swap_halves(self, output: torch.Tensor, value: torch.Tensor) -> None:
        """Of two ranks each gives half of a tensor to the other one."""
        half = _bytes(value) // 2
        mine, other = self.rank * half, (1 - self.rank) * half
        given, taken = value.data_ptr(), output.data_ptr()
        memmove(taken + mine, given + mine, half)
        self._swap(given + other, taken + other, half)

    def _swap(self, given: int, taken: int, length: int) -> None:
        """Of two ranks each takes what the other one gives: at these addresses, as many bytes on both."""
        if length:
            base = self._pieces(1, torch.uint8)[0].data_ptr()
            low.ddp_group_all_gather(self._raw, (given, _BYTES, CPU, 0, (length,)), (base, _BYTES, CPU, 0, (2 * length,)), None)
            memmove(taken, base + (1 - self.rank) * length, length)

    def _all_to_all(self, written: list, given: list, exchange: Callable[[list, list], None]) -> None:
        sizes = 16 * self.size
        record, records = self._records()
        memmove(record[0], struct.pack(f"{2 * self.size}q", *map(_bytes, given), *(_bytes(one.tensor) for one in written)), sizes)
        if sum(map(_bytes, given)) <= self._inline:
            start = record[0] + sizes
            for value in given:
                memmove(start, value.data_ptr(), _bytes(value))
                start += _bytes(value)
        low.ddp_group_all_gather(self._raw, record, records, None)
        table = [struct.unpack(f"{2 * self.size}q", string_at(records[0] + rank * (sizes + self._inline), sizes)) for rank in range(self.size)]
        self._check_sizes(table)
        sent = [sum(row[: self.size]) <= self._inline for row in table]
        for source, row in enumerate(table):
            if sent[source] and source != self.rank:
                start = records[0] + source * (sizes + self._inline) + sizes + sum(row[: self.rank])
                memmove(written[source].tensor.data_ptr(), start, row[self.rank])
        if not all(sent):
            others = [rank for rank in range(self.size) if rank != self.rank]
            exchange([(rank, written[rank].tensor) for rank in others if not sent[rank] and table[rank][self.rank]],
                     [(rank, given[rank]) for rank in others if not sent[self.rank] and table[self.rank][rank]])

    def _records(self) -> tuple:
        """What each rank tells in all_to_all, and what all tell, as the library takes them."""
        length = 16 * self.size + self._inline
        if self._told is None:
            self._told = torch.zeros((self.size + 1) * length, dtype=torch.uint8)
        start = self._told.data_ptr()
        return (start, _BYTES, CPU, 0, (length,)), (start + length, _BYTES, CPU, 0, (length * self.size,))

    def _check_sizes(self, table: list) -> None:
        """Does every rank give each other one as many bytes as that one wants?"""
        for source in range(self.size):
            for target in range(self.size):
                given, wanted = table[source][target], table[target][self.size + source]
                if given != wanted:
                    raise MismatchError(f"all_to_all: rank {source} gives rank {target} {given} bytes, but rank {target} expects {wanted} from it")

    # ---- Sums and the like. ----

    def all_reduce(self, tensor: torch.Tensor, op: dist.ReduceOp) -> None:
        kind, factor = _kind(op)
        written = Written(tensor, read=True)
        flat = written.tensor.view(-1)
        if factor is not None:
            flat.mul_(factor)
        if flat.numel():
            self._all_reduce(flat, kind)
        written.done()

    def _all_reduce(self, flat: torch.Tensor, kind: Any) -> None:
        dtype = flat.dtype
        if dtype == torch.bool:
            if kind not in _OF_BOOLS:
                raise NotSupportedError(f"all_reduce: there is no {kind.name} of bool")
            self._all_reduce(flat.view(torch.uint8), _OF_BOOLS[kind])
        elif dtype.is_complex:
            if kind not in (RedOp.SUM, RedOp.AVG):
                raise NotSupportedError(f"all_reduce: there is no {kind.name} of complex numbers")
            self._all_reduce(torch.view_as_real(flat).view(-1), kind)
        elif kind in _FOLDS:
            self._fold(flat, kind)
        elif dtype in _NUMBERS:
            low.ddp_group_all_reduce(self._raw, _low(flat), _REDUCES[kind], None)
        elif dtype in _WIDER:
            wide = flat.to(_WIDER[dtype])
            low.ddp_group_all_reduce(self._raw, _low(wide), _REDUCES[kind], None)
            flat.copy_(wide)
        else:
            raise NotSupportedError(f"all_reduce: libddp has no {kind.name} of {dtype}")

    def _fold(self, flat: torch.Tensor, kind: Any) -> None:
        """What libddp does not reduce: all values come to all ranks, which combine them in the order of the ranks."""
        combine = _FOLDS[kind]
        if combine is not torch.mul and (flat.dtype.is_floating_point or flat.dtype.is_complex):
            raise NotSupportedError(f"all_reduce: there is no {kind.name} of {flat.dtype}, whose bits are no number")
        wide = torch.float32 if flat.dtype in (torch.float16, torch.bfloat16) else None  # rounded once
        for start, stop, found in self._gathered(flat):
            total = found[0] if wide is None else found[0].to(wide)
            for part in found[1:]:
                combine(total, part, out=total)
            flat[start:stop].copy_(total)

    def all_reduce_coalesced(self, tensors: Sequence[torch.Tensor], op: dist.ReduceOp) -> None:
        """Small ones travel together."""
        sizes = [tensor.numel() for tensor in tensors]
        if len(tensors) > 1 and sum(sizes) * tensors[0].element_size() <= 32768 * len(tensors):
            joined = torch.cat([tensor.reshape(-1) for tensor in tensors])
            self.all_reduce(joined, op)
            for tensor, part in zip(tensors, joined.split(sizes)):
                tensor.copy_(part.view(tensor.shape))
        else:
            for tensor in tensors:
                self.all_reduce(tensor, op)

    def all_reduce_sparse(self, tensor: torch.Tensor, op: dist.ReduceOp) -> torch.Tensor:
        """The sum of sparse tensors, each with elements of its own; a new tensor."""
        kind, _ = _kind(op)
        if tensor.layout != torch.sparse_coo or kind not in (RedOp.SUM, RedOp.AVG):
            raise NotSupportedError(f"all_reduce: of sparse tensors there are SUM and AVG of COO tensors, not {kind.name} of {tensor.layout}")
        mine = tensor.coalesce()
        counts = torch.zeros(self.size, dtype=torch.int64)
        self.all_gather_into(counts, torch.tensor([mine._nnz()]))
        indices = [torch.empty((mine.sparse_dim(), count), dtype=torch.int64) for count in counts.tolist()]
        values = [torch.empty((count, *mine.values().shape[1:]), dtype=mine.dtype) for count in counts.tolist()]
        self.all_gather(indices, mine.indices())
        self.all_gather(values, mine.values())
        total = torch.sparse_coo_tensor(torch.cat(indices, 1), torch.cat(values), tensor.shape).coalesce()
        return total / self.size if kind == RedOp.AVG else total

    def reduce(self, tensor: torch.Tensor, op: dist.ReduceOp, root: int) -> None:
        """The tensors of the other ranks stay as they are."""
        if self.rank == root:
            self._in_pieces(tensor, op)
        else:
            kind, factor = _kind(op)
            flat = dense(tensor).reshape(-1)
            memory, step = self._pieces(flat.numel(), flat.dtype)
            if kind in _FOLDS or flat.dtype in _WIDER:  # these use that memory
                memory = torch.empty(step, dtype=flat.dtype)
            for start in range(0, flat.numel(), step):
                piece = memory[: min(step, flat.numel() - start)]
                piece.copy_(flat[start:start + step])
                if factor is not None:
                    piece.mul_(factor)
                self._all_reduce(piece, kind)

    def _in_pieces(self, tensor: torch.Tensor, op: dist.ReduceOp) -> None:
        kind, factor = _kind(op)
        written = Written(tensor, read=True)
        flat = written.tensor.view(-1)
        if factor is not None:
            flat.mul_(factor)
        _, step = self._pieces(flat.numel(), flat.dtype)
        for start in range(0, flat.numel(), step):
            self._all_reduce(flat[start:start + step], kind)
        written.done()

    def reduce_scatter_into(self, output: torch.Tensor, value: torch.Tensor, op: dist.ReduceOp) -> None:
        if value.numel() != self.size * output.numel():
            raise TensorError(f"reduce_scatter: the input has {value.numel()} elements; {self.size} times the {output.numel()} of the output are "
                              "needed")
        if output.dtype != value.dtype:
            raise TensorError(f"reduce_scatter: the output is {output.dtype}, the input {value.dtype}")
        kind, factor = _kind(op)
        written, flat = Written(output), dense(value).reshape(-1)
        self._reduce_scatter(written.tensor.view(-1), flat, kind, factor)
        written.done()

    def _reduce_scatter(self, output: torch.Tensor, flat: torch.Tensor, kind: Any, factor: Any) -> None:
        if not output.numel():
            return
        if factor is not None:
            flat = flat * factor
        if output.dtype.is_complex and kind in (RedOp.SUM, RedOp.AVG):
            output, flat = torch.view_as_real(output).view(-1), torch.view_as_real(flat).view(-1)
        if output.dtype in _NUMBERS and kind in _REDUCES:
            low.ddp_group_reduce_scatter(self._raw, _low(flat), _low(output), _REDUCES[kind], None)
            return
        whole = flat.clone()
        self._all_reduce(whole, kind)
        output.copy_(whole.view(self.size, -1)[self.rank])

    def reduce_scatter(self, output: torch.Tensor, values: Sequence[torch.Tensor], op: dist.ReduceOp) -> None:
        """Values of different sizes are for outputs of different sizes."""
        if len(values) != self.size:
            raise TensorError(f"reduce_scatter: {len(values)} inputs, but there are {self.size} ranks")
        if values[self.rank].numel() != output.numel() or any(value.dtype != output.dtype for value in values):
            raise TensorError(f"reduce_scatter: input {self.rank} is {_shape(values[self.rank])}, and the output {_shape(output)}")
        if any(value.numel() != output.numel() for value in values):
            for root, value in enumerate(values):
                if root == self.rank:
                    output.copy_(value.view(output.shape))
                    self.reduce(output, op, root)
                else:
                    self.reduce(value, op, root)
            return
        kind, factor = _kind(op)
        written, flats = Written(output), [dense(value).reshape(-1) for value in values]
        target = written.tensor.view(-1)
        memory, step = self._pieces(output.numel(), output.dtype)
        for start in range(0, output.numel(), step):
            stop = min(start + step, output.numel())
            piece = memory[: self.size * (stop - start)]
            for part, flat in zip(piece.view(self.size, stop - start), flats):
                part.copy_(flat[start:stop])
            if kind in _FOLDS or output.dtype in _WIDER:  # these use that memory
                piece = piece.clone()
            self._reduce_scatter(target[start:stop], piece, kind, factor)
        written.done()


def _put(start: int, output: torch.Tensor, length: int) -> None:
    """Fill a tensor from this address."""
    if is_dense(output):
        memmove(output.data_ptr(), start, length)
    else:
        written = Written(output)
        memmove(written.tensor.data_ptr(), start, length)
        written.done()


def _kind(op: Any) -> tuple:
    """The kind of an operation, and the factor of PREMUL_SUM."""
    kind = getattr(op, "op", op)
    if kind == RedOp.PREMUL_SUM:
        factor = op.__getstate__()[1]
        return RedOp.SUM, factor
    return kind, None


def _shape(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).rsplit('.', 1)[-1]} {list(tensor.shape)}"


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
