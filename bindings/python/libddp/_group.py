# SPDX-License-Identifier: Apache-2.0
"""Groups: who acts together, and collectives on any tensor."""
from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import weakref
from typing import Any, Callable, Iterable, Iterator, Mapping, NamedTuple, Optional, Sequence, Union

from . import _world, low
from ._enums import Backend, DType, Links, Reduce, SumOrder, choose
from ._errors import Error, InvalidStateError, TensorError
from ._handle import Closing, Handle
from ._messages import Messages
from ._metrics import agreed_order
from ._options import fill
from ._request import Requests
from ._recover import RankProgress, Recovery, progress_of, recovery_of
from ._store import Notes, Store, StoreCalls
from ._tensor import CPU, SIZES, Lent, lend
from ._view import View
from ._wait import call


class Rows(NamedTuple):
    """Rows of a table, reduced over all ranks."""

    indices: View  #: I64, rising
    rows: View  #: one for each index


class Group(Messages, Requests, Closing):
    """Ranks that act together.

    ``Group()`` takes rank, size and meeting place from the environment of ddprun, torchrun, Open MPI, MPICH, Slurm or Kubernetes; alone
    it is a group of one, in which every collective is a local no-op. Where torch.distributed or jax.distributed is initialised in this
    process, it has their ranks and meets over their store. Other places: ``tcp://host:port``, ``file:///path``,
    ``local://name`` (ranks are threads of this process), ``store://`` with `store`. A ``#name`` at the end tells apart several groups
    that meet at one place.

    Keywords are the fields of ``ddp_group_options``: rank, world_size, backend, device_index, timeout_ms, heartbeat_ms, dead_after_ms,
    rendezvous_timeout_ms, sum_order, reproducible (sums on GPUs have the bits of sums in host memory), nccl_max_ctas (most blocks of a GPU
    that NCCL takes), nccl_comm (the address of an ncclComm_t of the same ranks, which is lent to the group and never ended by it),
    first_port and last_port (where to listen, for a firewall between hosts), links (whether data between hosts is encrypted),
    requests (1: the first collective may be posted while a pass is open), virtual_ranks (parts of the global batch, see parts: training has
    the same bits at any number of ranks up to that),
    recoverable (when a rank dies the others may go on, see recover()), join (join a recoverable group that stands, as one more rank; so does
    DDP_JOIN=1 in the environment).
    """

    def __init__(self, rendezvous: Optional[str] = None, *, store: Union[Store, Notes, None] = None, **options: Any) -> None:
        place, hash_sign, name = (rendezvous or "env://").partition("#")
        joins = options.get("join") or os.environ.get("DDP_JOIN") == "1"  # then the group says who the ranks are
        self._found = place == "env://" and not joins and not options.keys() & {"rank", "world_size"}  # did nobody say that?
        world = _world.find() if self._found else None
        if world is not None:
            options = {"rank": world.rank, "world_size": world.size, **options}
            if world.device_index is not None:
                options.setdefault("device_index", world.device_index)
            if world.notes is not None and world.size > 1:
                rendezvous, store = "store://" + hash_sign + name, world.notes
        struct = fill(low.ddp_group_options(), low.ddp_group_options_init, options,
                      {"backend": Backend, "links": Links, "sum_order": SumOrder})
        self._recovers = bool(struct.recoverable or joins)
        self._own(_meet(rendezvous, struct, store))
        self._check_company()

    def _own(self, raw: Any) -> None:
        self._handle = Handle(raw, low.ddp_group_destroy)
        self._rank, self._size = low.ddp_group_get_rank(raw), low.ddp_group_get_size(raw)  # for forked children too, which the library refuses
        self._memory: weakref.WeakSet[View] = weakref.WeakSet()
        self._shared: dict[int, Lent] = {}  # memory of share(), by its address
        self._handle.kept.append(self._shared)
        self._models: weakref.WeakSet[Any] = weakref.WeakSet()
        self._recovering = threading.RLock()  # abort() stays out of a recovery
        _open.add(self)
        atexit.unregister(_tell_at_exit)
        atexit.register(_tell_at_exit)  # after the handle's own: what is registered last runs first

    def _check_company(self) -> None:
        """Are there others that this group has not?"""
        if not self._found:
            return
        try:
            _world.check(self.rank, self.size)
        except Error:
            if self.size > 1:
                self._handle.close()
            raise

    @property
    def _raw(self) -> Any:
        return self._handle.get("group")

    def _collective(self, function: Callable, *arguments: Any) -> Any:
        raw = self._raw
        if low.ddp_group_get_size(raw) == 1:
            return function(raw, *arguments)
        return call(lambda reason: low.ddp_group_abort(raw, reason), function, raw, *arguments)

    @property
    def rank(self) -> int:
        """This rank's number, 0 to size - 1."""
        self._handle.get("group")
        return self._rank

    @property
    def number(self) -> int:
        """Number of this group in this process, from 1, as in :class:`libddp.LogMessage`."""
        return low.ddp_group_get_number(self._handle.get("group"))

    @property
    def size(self) -> int:
        """Number of ranks."""
        self._handle.get("group")
        return self._size

    @property
    def parts(self) -> range:
        """Which parts of the global batch are this rank's, with virtual_ranks; without it one, whose number is the rank. They change when
        recover() has returned. Part `p` takes the samples of ``Sampler(n, group, part=p)`` and random numbers from part_key()."""
        known = low.ddp_group_get_virtual_ranks(self._raw)
        return range(known.first, known.first + known.count)

    @property
    def total_parts(self) -> int:
        """Parts of the global batch: virtual_ranks, or the number of ranks."""
        return low.ddp_group_get_virtual_ranks(self._raw).total

    @property
    def backend(self) -> Backend:
        """What the group really uses."""
        return Backend(low.ddp_group_get_backend(self._raw))

    @property
    def waits(self) -> tuple[float, ...]:
        """By rank: seconds that this rank's program stood still because that one, or its data, came late, since the group was made or
        recovered. What computation hides is not counted. Summed over the ranks it tells who holds up the others."""
        return low.ddp_group_get_waits(self._raw)

    def log_metric(self, name: str, value: float) -> None:
        """Show a number of the program, such as a loss, to those who watch the job: ddprun has the last value of each rank in its
        progress line, in --report and in --metrics. Any thread, also while the group recovers."""
        low.ddp_group_log_metric(self._raw, name, value)

    def check(self) -> None:
        """Raise the first cause if the group is broken."""
        low.ddp_group_status(self._raw)

    def abort(self, reason: Optional[str] = None) -> None:
        """Break the group on purpose, on all ranks. Any thread, at any time; during a recovery it waits for its end."""
        with self._recovering:
            low.ddp_group_abort(self._raw, reason)

    @property
    def failed(self) -> tuple[int, ...]:
        """Ranks that broke the group, numbered as in the broken group; empty while the group is whole."""
        return low.ddp_group_get_failed(self._raw)

    def progress(self, rank: int) -> RankProgress:
        """Where a rank was when it was last heard."""
        return progress_of(low.ddp_group_get_progress(self._raw, rank))

    @property
    def joined(self) -> tuple[int, ...]:
        """Ranks that the last recovery took in, numbered as now. A rank that has joined is among them, until the next recovery."""
        return low.ddp_group_get_joined(self._raw)

    def recover(self, **options: Any) -> Recovery:
        """Go on with the ranks that are left, after a call on this group or on what was made from it raised BrokenGroupError. All ranks that
        are left call; then repeat the call or step that failed. Needs a group that was made with recoverable=True.

        Ranks are numbered anew, so rank and size change: make samplers again. Models, optimizers, averages and memory stay, and every rank has
        the parameters, buffers and optimizers of the last step that all have made; gradients are void. What the program keeps itself it sends
        from the rank `source` of the result.

        Keywords are the fields of ``ddp_recover_options``, equal on all ranks: wait_ms, min_ranks, allow_half, cool_down_ms. Raises
        TooFewRanksError where fewer than min_ranks are left, NoMajorityError where others may go on without this rank, and FencedError where
        they have. Ctrl-C is answered when the call ends."""
        struct = fill(low.ddp_recover_options(), low.ddp_recover_options_init, options)
        raw = self._raw
        kept = list(self._models)
        for model in kept:
            model._before_recovery()
        self._found = False  # a launcher counts those that are dead too
        with self._recovering:
            try:
                report = low.ddp_group_recover(raw, struct)
            finally:
                self._rank, self._size = low.ddp_group_get_rank(raw), low.ddp_group_get_size(raw)
        for model in kept:
            model._after_recovery()
        return recovery_of(report, raw)

    def split(self, color: Optional[int], key: int = 0, **options: Any) -> Optional[Group]:
        """Divide the group: ranks of one color (0 or more) become a group of their own, numbered by key, then by rank; None: no group for this
        rank. Collective. Keywords as for a new group, without rank and world_size; without any the new group has this group's."""
        struct = fill(low.ddp_group_options(), low.ddp_group_options_init, options, {"backend": Backend}) if options else None
        raw = self._collective(low.ddp_group_split, low.DDP_NO_COLOR if color is None else color, key, struct)
        if raw is None:
            return None
        made = Group.__new__(Group)
        made._found = False
        made._recovers = self._recovers if struct is None else bool(struct.recoverable)
        made._own(raw)
        return made

    def start_trace(self, path: Union[str, os.PathLike[str], None] = None, **options: Any) -> None:
        """Record what all ranks do and when, from here on. `path`: the file that :meth:`stop_trace` writes, which Perfetto opens; rank 0's
        counts. Keyword: capacity, the events that this rank keeps (default 65,536, the newest). Collective."""
        struct = fill(low.ddp_trace_options(), low.ddp_trace_options_init, options)
        self._collective(low.ddp_group_start_trace, None if path is None else os.fspath(path), struct)

    def stop_trace(self) -> None:
        """End the trace; the file is there on return. Collective."""
        self._collective(low.ddp_group_stop_trace)

    @contextlib.contextmanager
    def trace(self, path: Union[str, os.PathLike[str], None] = None, **options: Any) -> Iterator[None]:
        """As :meth:`start_trace`, until the end of the block. After an exception nothing is stopped: other ranks may be elsewhere. Then closing
        the group writes what lies on this host."""
        self.start_trace(path, **options)
        yield
        self.stop_trace()

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
        """Reduce a few numbers in one message: a sequence gives a list, a dict a dict, in which each key has the numbers of that key; then one
        more message compares the keys (MismatchError). Sum first and divide afterwards: with unequal counts an average of averages is wrong."""
        if not isinstance(values, Mapping):
            return self._reduce_numbers(list(values), op)
        reduced = dict(zip(order := self._agreed_order(values), self._reduce_numbers([values[key] for key in order], op)))
        return {key: reduced[key] for key in values}

    def _reduce_numbers(self, numbers: list, op: Union[Reduce, str]) -> list:
        return self._collective(low.ddp_group_reduce_metrics, numbers, choose(Reduce, op))

    def _agreed_order(self, keys: Iterable[str]) -> list:
        return agreed_order(self, keys, lambda numbers: self._reduce_numbers(numbers, Reduce.MAX)) if self.size > 1 else list(keys)

    def reduce_part_metrics(self, values: Sequence[Union[Mapping[str, float], Sequence[float]]], op: Union[Reduce, str] = Reduce.SUM) -> Any:
        """As reduce_metrics(), with a dict or a sequence for each of this rank's parts: summed in the tree over all parts, so the result has
        the same bits at any number of ranks."""
        first = values[0] if values else None
        if isinstance(first, Mapping) and any(not isinstance(each, Mapping) or each.keys() != first.keys() for each in values):
            raise ValueError("the parts of this rank have metrics of other names; give the same keys for each of them")
        order = self._agreed_order(first) if isinstance(first, Mapping) else None
        parts = [list(each) if order is None else [each[key] for key in order] for each in values]  # type: ignore[index]
        if len(parts) != len(self.parts) or any(len(each) != len(parts[0]) for each in parts):
            raise ValueError(f"this rank has {len(self.parts)} parts; give as many numbers for each of them")
        reduced = self._collective(low.ddp_group_reduce_part_metrics, [number for each in parts for number in each], choose(Reduce, op))
        return reduced if order is None else {key: dict(zip(order, reduced))[key] for key in first}  # type: ignore[union-attr]

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

    def share(self, tensor: Any) -> None:
        """Let the other ranks of this host reach the memory of a tensor, an array or a buffer where it is: what lies in it is reduced in place, as
        in memory of alloc(). The group keeps it until unshare(), or until it ends. Where it stays private, which is no harm, this raises
        NotSupportedError with the reason, for example for memory below 1 MiB."""
        lent = lend(tensor, "the memory to share")
        count = SIZES[DType(lent.dtype)]
        for extent in lent.shape:
            count *= extent
        low.ddp_group_share(self._raw, lent.tensor[0], count)
        self._shared[lent.tensor[0]] = lent

    def unshare(self, tensor: Any) -> None:
        """Make memory that was given to share() private again, with its contents. Close the models that use it before."""
        address = lend(tensor, "the memory to share").tensor[0]
        low.ddp_group_unshare(self._raw, address)
        self._shared.pop(address, None)

    def close(self) -> None:
        """Leave the group. Refused while memory of alloc() is in use."""
        if len(self._memory):
            raise InvalidStateError("memory of this group is still in use: drop the arrays made from alloc() first")
        self._handle.close()

    def _tell(self, error: object) -> None:
        """This rank ends with an error of its own: the others learn its text in the place of "left"."""
        if self.closed or self.size == 1 or not self._handle.is_here:
            return
        with contextlib.suppress(Error):
            low.ddp_group_abort(self._raw, f"{type(error).__name__}: {error}"[:400])

    def __exit__(self, *raised: object) -> None:
        error = raised[1] if len(raised) > 1 else None
        if error is not None and not (isinstance(error, SystemExit) and not error.code):
            self._tell(error)
        if not len(self._memory):  # otherwise the last of it takes the group along
            self._handle.close()

    def __repr__(self) -> str:
        return "libddp.Group(closed)" if self.closed else f"libddp.Group(rank {self.rank} of {self.size}, {self.backend.name})"


def part_key(seed: int, step: int, part: int) -> int:
    """A key for the random numbers (dropout, augmentation) of one part in one step, the same wherever the part runs: an integer of 64 bits,
    with a sign. The sequence is frozen."""
    return low.ddp_virtual_rank_key(seed, step, part)


def _memory(shape: tuple, dtype: DType) -> View:
    """Memory of Python's as a view."""
    size = SIZES[dtype]
    for extent in shape:
        size *= extent
    held = memoryview(bytearray(max(size, 1)))
    return View((low.buffer_address(held), int(dtype), CPU, 0, shape), held)


def _meet(rendezvous: Optional[str], options: Any, store: Union[Store, Notes, None]) -> Any:
    """ddp_group_create, with a store of Python's."""
    calls = None if store is None else StoreCalls(store)
    pair = None if calls is None else (calls.set, calls.get)
    native = None if pair is None else low.ddp_store(pair)
    options.store = native
    meeting = _Meeting(rendezvous, options, (pair, native))
    try:
        raw = call(None, meeting.run)
    except Error as error:
        if calls is not None and calls.error is not None:
            raise calls.error from error
        raise
    except BaseException:
        meeting.abandoned = True
        if isinstance(store, Notes):
            store.give_up()
        raise
    if isinstance(store, Notes):
        store.joined()
    return raw


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



_open: weakref.WeakSet[Group] = weakref.WeakSet()


def _tell_at_exit() -> None:
    """The program ended with an exception that nobody caught: Python has printed it and kept it."""
    error = getattr(sys, "last_value", None)
    if error is not None and not hasattr(sys, "ps1"):  # an interactive session goes on after an exception
        for group in list(_open):
            group._tell(error)
