"""Groups: who acts together, and collectives on any tensor."""
from __future__ import annotations

import weakref
from typing import Any, Callable, Mapping, NamedTuple, Optional, Sequence, Union

from . import low
from ._enums import Backend, DType, Reduce, choose
from ._errors import Error, InvalidStateError, TensorError
from ._handle import Closing, Handle
from ._options import fill
from ._tensor import CPU, SIZES, lend
from ._view import View
from ._wait import call


class Store(NamedTuple):
    """Your own rendezvous: two callables with which ranks find rank 0. Used with ``Group("store://", store=...)``."""

    set: Callable[[str, bytes], None]  #: store a value under a key
    get: Callable[[str, float], Optional[bytes]]  #: fetch one, waiting up to so many seconds; None when the time is over


class Rows(NamedTuple):
    """Rows of a table, reduced over all ranks."""

    indices: View  #: I64, rising
    rows: View  #: one for each index


class _StoreCalls:
    """The store's callables as the library calls them; keeps the first exception."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.error: Optional[BaseException] = None

    def set(self, key: str, value: bytes) -> int:
        def put() -> int:
            self.store.set(key, value)
            return 0

        return self._guard(put)

    def get(self, key: str, memory: memoryview, timeout_ms: int) -> int:
        def fetch() -> int:
            value = self.store.get(key, timeout_ms / 1000)
            if value is None:
                return -2
            memory[: len(value)] = value
            return len(value)

        return self._guard(fetch)

    def _guard(self, function: Callable[[], int]) -> int:
        try:
            return function()
        except BaseException as error:
            self.error = self.error or error
            return -1


class Group(Closing):
    """Ranks that act together.

    ``Group()`` takes rank, size and meeting place from the environment of ddprun, torchrun, Open MPI, MPICH, Slurm or Kubernetes; alone
    it is a group of one, in which every collective is a local no-op. Other places: ``tcp://host:port``, ``file:///path``,
    ``local://name`` (ranks are threads of this process), ``store://`` with `store`. A ``#name`` at the end tells apart several groups
    that meet at one place.

    Keywords are the fields of ``ddp_group_options``: rank, world_size, backend, device_index, timeout_ms, heartbeat_ms, dead_after_ms,
    rendezvous_timeout_ms.
    """

    def __init__(self, rendezvous: Optional[str] = None, *, store: Optional[Store] = None, **options: Any) -> None:
        struct = fill(low.ddp_group_options(), low.ddp_group_options_init, options, {"backend": Backend})
        calls = None if store is None else _StoreCalls(store)
        pair = None if calls is None else (calls.set, calls.get)
        native = None if pair is None else low.ddp_store(pair)
        struct.store = native
        meeting = _Meeting(rendezvous, struct, (pair, native))
        try:
            raw = call(None, meeting.run)
        except Error as error:
            if calls is not None and calls.error is not None:
                raise calls.error from error
            raise
        except BaseException:
            meeting.abandoned = True
            raise
        self._handle = Handle(raw, low.ddp_group_destroy)
        self._memory: weakref.WeakSet[View] = weakref.WeakSet()

    @property
    def _raw(self) -> Any:
        return self._handle.get("group")

    def _collective(self, function: Callable, *arguments: Any) -> Any:
        raw = self._raw
        if low.ddp_group_size(raw) == 1:
            return function(raw, *arguments)
        return call(lambda reason: low.ddp_group_abort(raw, reason), function, raw, *arguments)

    @property
    def rank(self) -> int:
        """This rank's number, 0 to size - 1."""
        return low.ddp_group_rank(self._raw)

    @property
    def size(self) -> int:
        """Number of ranks."""
        return low.ddp_group_size(self._raw)

    @property
    def backend(self) -> Backend:
        """What the group really uses."""
        return Backend(low.ddp_group_backend(self._raw))

    def check(self) -> None:
        """Raise the first cause if the group is broken."""
        low.ddp_group_status(self._raw)

    def abort(self, reason: Optional[str] = None) -> None:
        """Break the group on purpose, on all ranks. Any thread, at any time."""
        low.ddp_group_abort(self._raw, reason)

    def barrier(self) -> None:
        """Return when all ranks have called."""
        self._collective(low.ddp_group_barrier)

    def all_reduce(self, tensor: Any, op: Union[Reduce, str] = Reduce.AVERAGE, *, stream: Optional[int] = None) -> Any:
        """Reduce a tensor over all ranks, in place; the same bits on every rank. Returns the tensor."""
        lent = lend(tensor)
        self._collective(low.ddp_group_all_reduce, lent.tensor, choose(Reduce, op), stream)
        return tensor

    def all_gather(self, value: Any, output: Any, *, stream: Optional[int] = None) -> Any:
        """Collect the tensors of all ranks: `output` holds size times the elements of `value`. Returns `output`."""
        given, taken = lend(value, "value", write=False), lend(output, "output")
        self._collective(low.ddp_group_all_gather, given.tensor, taken.tensor, stream)
        return output

    def reduce_scatter(self, value: Any, output: Any, op: Union[Reduce, str] = Reduce.AVERAGE, *, stream: Optional[int] = None) -> Any:
        """Reduce over all ranks and keep this rank's part in `output`. Returns `output`."""
        given, taken = lend(value, "value", write=False), lend(output, "output")
        self._collective(low.ddp_group_reduce_scatter, given.tensor, taken.tensor, choose(Reduce, op), stream)
        return output

    def all_reduce_rows(self, indices: Any, rows: Any, op: Union[Reduce, str] = Reduce.AVERAGE, *, stream: Optional[int] = None) -> Rows:
        """Reduce rows of a table, of which every rank has some: `indices` is I64 [k], `rows` is [k, ...]; k may differ from rank to rank.
        Returns the union of the indices, rising, and for each the sum or mean over all ranks."""
        given, taken = lend(indices, "indices", write=False), lend(rows, "rows", write=False)
        count = self._collective(low.ddp_group_all_reduce_rows, given.tensor, taken.tensor, choose(Reduce, op), stream)
        found = Rows(_memory((count,), DType.I64), _memory((count, *taken.shape[1:]), DType(taken.dtype)))
        low.ddp_group_get_rows(self._raw, found.indices._tensor, found.rows._tensor)
        return found

    def broadcast(self, tensor: Any, root: int = 0, *, stream: Optional[int] = None) -> Any:
        """Copy rank `root`'s tensor to all ranks, in place. Returns the tensor."""
        self._collective(low.ddp_group_broadcast, lend(tensor).tensor, root, stream)
        return tensor

    def reduce_metrics(self, values: Union[Mapping[str, float], Sequence[float]], op: Union[Reduce, str] = Reduce.SUM) -> Any:
        """Reduce a few numbers in one message: a dict gives a dict, a sequence a list. Sum first and divide afterwards: with unequal
        counts an average of averages is wrong."""
        numbers = list(values.values()) if isinstance(values, Mapping) else list(values)
        reduced = self._collective(low.ddp_group_reduce_metrics, numbers, choose(Reduce, op))
        return dict(zip(values, reduced)) if isinstance(values, Mapping) else reduced

    def alloc(self, shape: Union[int, Sequence[int]], dtype: Union[DType, str] = DType.F32) -> View:
        """Zeroed memory within reach of the other ranks of this host: tensors in it are reduced in place, without a copy. It is freed
        with the last reference to the view and to what was made of it."""
        extents = (shape,) if isinstance(shape, int) else tuple(shape)
        kind = DType(choose(DType, dtype))
        count = SIZES[kind]
        for extent in extents:
            if extent < 1:
                raise TensorError(f"memory of the shape {extents} has no byte")
            count *= extent
        raw = self._raw
        owner = Handle(low.ddp_group_alloc(raw, count), lambda address: low.ddp_group_free(raw, address), self._handle)
        view = View((owner.get("memory"), int(kind), CPU, 0, extents), owner)
        self._memory.add(view)
        return view

    def close(self) -> None:
        """Leave the group. Refused while memory of alloc() is in use."""
        if len(self._memory):
            raise InvalidStateError("memory of this group is still in use: drop the arrays made from alloc() first")
        self._handle.close()

    def __exit__(self, *_: object) -> None:
        if not len(self._memory):  # otherwise the last of it takes the group along
            self._handle.close()

    def __repr__(self) -> str:
        return "libddp.Group(closed)" if self.closed else f"libddp.Group(rank {self.rank} of {self.size}, {self.backend.name})"


def _memory(shape: tuple, dtype: DType) -> View:
    """Memory of Python's as a view."""
    size = SIZES[dtype]
    for extent in shape:
        size *= extent
    held = memoryview(bytearray(max(size, 1)))
    return View((low.buffer_address(held), int(dtype), CPU, 0, shape), held)


class _Meeting:
    """ddp_group_create; where nobody waits for it any more (Ctrl-C), the group is given back."""

    def __init__(self, rendezvous: Optional[str], options: Any, kept: object) -> None:
        self.arguments = (rendezvous, options)
        self.kept = kept
        self.abandoned = False

    def run(self) -> Any:
        raw = low.ddp_group_create(*self.arguments)
        if self.abandoned:
            low.ddp_group_destroy(raw)
        return raw

