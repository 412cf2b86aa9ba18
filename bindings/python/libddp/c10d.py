# SPDX-License-Identifier: Apache-2.0
"""libddp as a backend of torch.distributed::

    import torch.distributed as dist
    import libddp.c10d                      # registers the backend

    dist.init_process_group("libddp")       # in the place of "gloo"

From then on DistributedDataParallel and whatever else uses torch.distributed with tensors in host memory runs on libddp's transports, on
shared memory within a host. Sums have the same bits on every rank, and do not depend on how ranks are placed. A rank that dies, stays away or
calls something else is named in the exception that the others get.

`pg_options` may be a dictionary with keywords of :class:`libddp.Group`, such as ``{"dead_after_ms": 3000}``.
"""
from __future__ import annotations

import atexit
import contextlib
import time
import weakref
from collections import deque
from datetime import timedelta
from typing import Any, Callable, Mapping, Optional, Sequence

import torch
import torch.distributed as dist

from ._c10d_arguments import one, reducing, split_rows
from ._c10d_identity import Identity, keep_from_compiler
from ._c10d_meet import limits, meet
from ._c10d_messages import ANY, Messages, Transfer
from ._c10d_ops import Collectives, Written, dense, is_dense
from ._c10d_work import Several, Work, Worker
from ._errors import Error, InvalidArgumentError, NotSupportedError, PeerFailedError, TimedOutError
from ._group import Group, _tell_at_exit
from ._written import written

_OWN_TAGS = 1 << 40  # above those of programs: messages of all_to_all and monitored_barrier
_SMALL = 4096  # bytes
_SHUTDOWN_S = 2.0  # at exit, for an operation that nobody waits for
__all__ = ["ProcessGroup", "register"]


class ProcessGroup(Identity):
    """A process group of the backend "libddp". Programs get theirs from torch.distributed; the methods are those that it calls."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta, options: Optional[Mapping[str, Any]] = None,
                 world: Sequence[int] = (), *, group: Optional[Group] = None) -> None:
        super().__init__(rank, size)
        self._store, self._rank, self._size = store, rank, size
        self._limit = self._longest = timeout.total_seconds()
        self._options = dict(options or {})
        self._world = list(world)
        self._libddp = meet(store, rank, size, timeout, self._options, self._world) if group is None else group
        self._collectives = Collectives(self._libddp)
        self._worker = Worker("libddp-c10d", self._abort)
        self._messages = Messages(self._libddp)
        self._splits = 0
        self._coalescing: Optional[list] = None
        self._recent: deque = deque(maxlen=64)  # small works that C++ may hold without the part of them that is Python's
        _open.add(self)
        atexit.unregister(_at_exit)
        atexit.register(_at_exit)  # before the groups of libddp go: what is registered last runs first

    def get_group_store(self) -> Any:
        return self._store

    def set_timeout(self, timeout: timedelta) -> None:
        if timeout.total_seconds() > self._longest:
            raise InvalidArgumentError(f"a process group of libddp waits no longer than it was made for, {self._longest:g} s: give "
                                       "init_process_group or new_group the longer timeout")
        self._limit = timeout.total_seconds()

    _set_default_timeout = set_timeout

    def check(self) -> None:
        """Raise the first cause if the group is broken: a rank died, or left."""
        self._libddp.check()

    # ---- Running operations. ----

    def _begin(self, what: str, inputs: list, outputs: list, timeout: Optional[timedelta] = None) -> Work:
        return self._enter(Work(what, outputs, self._abort, self._explain), what, inputs, timeout)

    def _enter(self, work: Any, title: str, inputs: Sequence, timeout: Optional[timedelta] = None) -> Any:
        """An operation begins."""
        small = 0
        for tensor in work.tensors:
            small += tensor.numel() * tensor.element_size()
            if not tensor.is_cpu:
                self._refuse(work, tensor)
        for tensor in inputs:
            if not tensor.is_cpu:
                self._refuse(work, tensor)
        self._sequence += 1
        if small <= _SMALL:
            self._recent.append(work)
        if torch.autograd._profiler_enabled():
            work.record(f"{self.name()}:{title}", list(inputs) or work.tensors)
        if timeout is not None and self._seconds(timeout) < self._longest or self._limit < self._longest:
            work.deadline = time.monotonic() + self._seconds(timeout)
        if self._coalescing is not None:
            self._coalescing.append(work)
        return work

    def _refuse(self, work: Work, tensor: torch.Tensor) -> None:
        raise NotSupportedError(f"{work.what}: a tensor on {tensor.device}; the backend libddp takes tensors in host memory")

    def _seconds(self, timeout: Optional[timedelta]) -> float:
        seconds = timeout.total_seconds() if timeout is not None else -1
        return min(seconds, self._longest) if seconds > 0 else self._limit

    def _run(self, what: str, inputs: list, outputs: list, options: Any, function: Callable, *arguments: Any) -> Work:
        work = self._begin(what, inputs, outputs, getattr(options, "timeout", None))
        if what != "broadcast" or options.rootRank != self._rank:
            written(outputs)
        return self._worker.submit(work, function, arguments)

    def _explain(self, error: BaseException) -> BaseException:
        """The library counts the ranks of this group; the program those of the world."""
        if not isinstance(error, Error) or not self._world or self._world == list(range(self._size)):
            return error
        ranks = ", ".join(f"{rank} is {of_world}" for rank, of_world in enumerate(self._world))
        return type(error)(f"{error} (ranks of this process group in the world: {ranks})", error.status)

    def _abort(self, reason: str) -> None:
        with contextlib.suppress(Error):
            self._libddp.abort(reason)

    # ---- Collectives. ----

    def broadcast(self, tensors: list, opts: Any = None) -> Work:
        tensor = one(tensors)
        if isinstance(opts, int):
            opts, root = dist.BroadcastOptions(), opts
            opts.rootRank = root
        opts = opts or dist.BroadcastOptions()
        return self._run("broadcast", [tensor], [tensor], opts, self._collectives.broadcast, tensor, opts.rootRank)

    def allreduce(self, tensors: list, opts: Any = None) -> Work:
        opts, tensor = reducing(opts, dist.AllreduceOptions), one(tensors)
        if tensor.layout != torch.strided:
            return self._all_reduce_sparse(tensor, opts)
        return self._run("all_reduce", [tensor], [tensor], opts, self._collectives.all_reduce, tensor, opts.reduceOp)

    def _all_reduce_sparse(self, tensor: torch.Tensor, opts: Any) -> Work:
        results = [tensor]

        def reduce() -> None:
            with torch.inference_mode(False), torch.no_grad():  # the result is a new tensor
                results[0] = self._collectives.all_reduce_sparse(tensor, opts.reduceOp)
                tensor.copy_(results[0])

        return self._run("all_reduce of a sparse tensor", [tensor], results, opts, reduce)

    def allreduce_coalesced(self, tensors: list, opts: Any = None) -> Work:
        opts = reducing(opts, dist.AllreduceCoalescedOptions)
        tensors = list(tensors)
        return self._run("all_reduce", tensors, tensors, opts, self._collectives.all_reduce_coalesced, tensors, opts.reduceOp)

    def reduce(self, tensors: list, opts: Any = None) -> Work:
        opts, tensor = reducing(opts, dist.ReduceOptions), one(tensors)
        return self._run("reduce", [tensor], [tensor], opts, self._collectives.reduce, tensor, opts.reduceOp, opts.rootRank)

    def allgather(self, output_tensors: list, input_tensors: list, opts: Any = None) -> Work:
        outputs, value = list(one(output_tensors)), one(input_tensors)
        return self._run("all_gather", [value], outputs, opts, self._collectives.all_gather, outputs, value)

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Work:
        return self._run("all_gather_into_tensor", [input], [output], opts, self._collectives.all_gather_into, output, input)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs: list, inputs: list, opts: Any = None) -> Work:
        def gather() -> None:
            for output, value in zip(outputs, inputs):
                self._collectives.all_gather_into(output, value)

        outputs, inputs = list(outputs), list(inputs)
        return self._run("all_gather_into_tensor", inputs, outputs, opts, gather)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def allgather_coalesced(self, output_lists: list, input_list: list, opts: Any = None) -> Work:
        def gather() -> None:
            for index, value in enumerate(inputs):
                self._collectives.all_gather([outputs[index] for outputs in lists], value)

        lists, inputs = [list(outputs) for outputs in output_lists], list(input_list)
        if len(lists) != self._size or any(len(outputs) != len(inputs) for outputs in lists):
            raise InvalidArgumentError(f"all_gather_coalesced: {self._size} lists of {len(inputs)} outputs are needed")
        return self._run("all_gather", inputs, [output for outputs in lists for output in outputs], opts, gather)

    def gather(self, output_tensors: list, input_tensors: list, opts: Any = None) -> Work:
        opts, value = opts or dist.GatherOptions(), one(input_tensors)
        outputs = list(output_tensors[0]) if output_tensors else []
        return self._run("gather", [value], outputs, opts, self._collectives.gather, outputs, value, opts.rootRank)

    def gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Work:
        opts = opts or dist.GatherOptions()
        outputs = list(output.chunk(self._size)) if self._rank == opts.rootRank else []
        return self._run("gather", [input], outputs, opts, self._collectives.gather, outputs, input, opts.rootRank)

    gather_into_tensor = gather_single

    def scatter(self, output_tensors: list, input_tensors: list, opts: Any = None) -> Work:
        opts, output = opts or dist.ScatterOptions(), one(output_tensors)
        values = list(input_tensors[0]) if input_tensors else []
        return self._run("scatter", values, [output], opts, self._collectives.scatter, output, values, opts.rootRank)

    def reduce_scatter(self, output_tensors: list, input_tensors: list, opts: Any = None) -> Work:
        opts, output, values = reducing(opts, dist.ReduceScatterOptions), one(output_tensors), list(one(input_tensors))
        return self._run("reduce_scatter", values, [output], opts, self._collectives.reduce_scatter, output, values, opts.reduceOp)

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Work:
        opts = reducing(opts, dist.ReduceScatterOptions)
        return self._run("reduce_scatter_tensor", [input], [output], opts, self._collectives.reduce_scatter_into, output, input, opts.reduceOp)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs: list, inputs: list, opts: Any = None) -> Work:
        def reduce() -> None:
            for output, value in zip(outputs, inputs):
                self._collectives.reduce_scatter_into(output, value, opts.reduceOp)

        opts, outputs, inputs = reducing(opts, dist.ReduceScatterOptions), list(outputs), list(inputs)
        return self._run("reduce_scatter_tensor", inputs, outputs, opts, reduce)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def barrier(self, opts: Any = None) -> Work:
        return self._run("barrier", [], [], opts, self._collectives.barrier)

    # ---- From each rank to each. ----

    def alltoall(self, output_tensors: list, input_tensors: list, opts: Any = None) -> Work:
        outputs, values = list(output_tensors), list(input_tensors)
        if len(outputs) != self._size or len(values) != self._size:
            raise InvalidArgumentError(f"all_to_all: {self._size} tensors are given and {self._size} taken, not {len(values)} and {len(outputs)}")
        return self._run("all_to_all", values, outputs, opts, self._all_to_all, outputs, values, opts)

    def all_to_all_single(self, output: torch.Tensor, input: torch.Tensor, output_split_sizes: Sequence[int], input_split_sizes: Sequence[int],
                          opts: Any = None) -> Work:
        if not output_split_sizes and not input_split_sizes and self._collectives.are_halves(output, input):
            return self._run("all_to_all", [input], [output], opts, self._collectives.swap_halves, output, input)
        outputs = split_rows(output, output_split_sizes, self._size, "output")
        values = split_rows(input, input_split_sizes, self._size, "input")
        return self._run("all_to_all", [input], [output], opts, self._all_to_all, outputs, values, opts)

    alltoall_base = all_to_all_single

    def _all_to_all(self, outputs: list, values: list, opts: Any) -> None:
        limit = self._seconds(getattr(opts, "timeout", None))

        def exchange(sources: list, targets: list) -> None:
            works = [self._receive(tensor, peer, _OWN_TAGS, limit) for peer, tensor in sources]
            works += [self._send(tensor, peer, _OWN_TAGS, limit) for peer, tensor in targets]
            for work in works:
                work.wait()

        self._collectives.all_to_all(outputs, values, exchange)

    # ---- From one rank to one. ----

    def send(self, tensors: list, dst: int, tag: int) -> Work:
        return self._send(one(tensors), dst, tag, self._limit)

    def recv(self, tensors: list, src: int, tag: int) -> Work:
        return self._receive(one(tensors), src, tag, self._limit)

    def recv_anysource(self, tensors: list, tag: int) -> Work:
        return self._receive(one(tensors), ANY, tag, self._limit)

    recvAnysource = recv_anysource  # noqa: N815  torch's own name

    def _send(self, tensor: torch.Tensor, peer: int, tag: int, limit: float) -> Transfer:
        return self._messages.post(self._transfer(tensor, True, peer, tag, limit), dense(tensor))

    def _receive(self, tensor: torch.Tensor, peer: int, tag: int, limit: float) -> Transfer:
        transfer = self._transfer(tensor, False, peer, tag, limit)
        written([tensor])
        if not is_dense(tensor):
            copied = Written(tensor)
            transfer.then, tensor = copied.done, copied.tensor
        return self._messages.post(transfer, tensor)

    def _transfer(self, tensor: torch.Tensor, sends: bool, peer: int, tag: int, limit: float) -> Transfer:
        if peer == self._rank or not ANY <= peer < self._size or sends and peer == ANY:
            self._refuse_peer(sends, peer)
        transfer = Transfer([tensor], self._abort, self._explain, sends, peer, tag, limit)
        return self._enter(transfer, "send" if sends else "recvAnySource" if peer == ANY else "recv", ())

    def _refuse_peer(self, sends: bool, peer: int) -> None:
        what = f"{'send to' if sends else 'receive from'} rank {peer}"
        if peer == self._rank:
            raise InvalidArgumentError(f"{what}: that is this rank itself")
        raise InvalidArgumentError(f"{what}: the ranks are 0 to {self._size - 1}")

    def monitored_barrier(self, timeout: Optional[timedelta] = None, wait_all_ranks: bool = False) -> None:
        """A barrier that leaves the group whole where ranks do not come, and names them."""
        limit = self._seconds(timeout) if timeout is None or timeout else 0.0
        token = torch.zeros(1, dtype=torch.uint8)
        if self._size == 1:
            return
        if self._rank > 0:
            self._send(token, 0, _OWN_TAGS + 1, limit).wait()
            try:
                self._receive(token, 0, _OWN_TAGS + 2, limit + 1).wait()
            except TimedOutError as error:
                raise TimedOutError(f"rank {self._rank} reached monitored_barrier, but rank 0 did not answer within {limit:g} s: it is not there, "
                                    "or waits for another rank") from error
            return
        missing, works = [], [(rank, self._receive(torch.zeros_like(token), rank, _OWN_TAGS + 1, limit)) for rank in range(1, self._size)]
        for rank, work in works:
            try:
                work.wait()
            except (TimedOutError, PeerFailedError) as error:
                missing.append((rank, error))
                if not wait_all_ranks:
                    break
        if missing:
            names = ", ".join(str(rank) for rank, _ in missing)
            raise TimedOutError(f"Rank 0 timed out in monitoredBarrier: {'Ranks' if len(missing) > 1 else 'Rank'} {names} failed to pass "
                                f"monitoredBarrier in {limit * 1000:g} ms ({missing[0][1]})") from missing[0][1]
        for rank in range(1, self._size):
            self._send(token, rank, _OWN_TAGS + 2, limit).wait()

    # ---- Several as one. ----

    def start_coalescing(self, _device: Any = None) -> None:
        if self._coalescing is not None:
            raise InvalidArgumentError("operations are being coalesced already")
        self._coalescing = []

    def end_coalescing(self, _device: Any = None) -> Work:
        works, self._coalescing = self._coalescing or [], None
        return Several(works, self._abort)

    _start_coalescing = start_coalescing
    _end_coalescing = end_coalescing

    # ---- Parts, and the end. ----

    def split_group(self, new_ranks: Sequence[int], timeout: Optional[timedelta] = None, opts: Any = None, group_name: Optional[str] = None,
                    group_desc: Optional[str] = None, device_types: Any = None) -> Optional[ProcessGroup]:
        """A process group of some of the ranks; all ranks of this one call. None on a rank that is in none."""
        ranks, self._splits = list(new_ranks), self._splits + 1
        mine = self._rank in ranks
        limit = timedelta(seconds=self._longest) if timeout is None else timeout
        options = {**self._options, **limits(limit)}
        made: list = []
        self._run("split_group", [], [], None, lambda: made.append(self._libddp.split(
            min(ranks) if mine else None, ranks.index(self._rank) if mine else 0, **options))).wait()
        if made[0] is None:
            return None
        store = dist.PrefixStore(f"{group_name or self._splits}/", self._store)
        world = [self._world[rank] if self._world else rank for rank in ranks]
        part = ProcessGroup(store, ranks.index(self._rank), len(ranks), limit, self._options, world, group=made[0])
        if group_name is not None:
            part._set_group_name(group_name)
        part._set_group_desc(group_desc or "undefined")
        return part

    def abort(self) -> None:
        """End what is pending, here and on the other ranks, and the group."""
        if self._worker.is_here:
            self._abort("the process group was aborted")
            self._close(_SHUTDOWN_S)

    def shutdown(self) -> None:
        """End the group when what was called has ended."""
        if self._worker.is_here:
            try:
                self._close(None)
            except BaseException as error:  # Ctrl-C
                self._abort(f"{type(error).__name__} on a rank that was ending its process group")
                raise

    def _close(self, limit: Optional[float]) -> None:
        _open.discard(self)
        if not self._worker.close(limit):
            return  # the thread still is inside the library, which lets go of the group when the program ends
        self._messages.stop()
        self._libddp.close()
        self._messages.end()


keep_from_compiler(ProcessGroup, Identity, Work, Transfer)
_open: weakref.WeakSet[ProcessGroup] = weakref.WeakSet()


def _at_exit() -> None:
    """Before the interpreter goes: no thread may be inside the library then."""
    _tell_at_exit()
    for group in list(_open):
        if group._worker.is_here and not group._worker.close(_SHUTDOWN_S):
            group._abort("its program ended")
            group._worker.close(_SHUTDOWN_S)
        group._messages.stop()


def _create(given: Any, options: Any) -> ProcessGroup:
    known = options if isinstance(options, Mapping) else {}
    return ProcessGroup(given.store, given.group_rank, given.group_size, given.timeout, known, given.global_ranks_in_group)


def register() -> None:
    """Make "libddp" a backend of torch.distributed. Importing this module does so; where the package is installed, PyTorch calls this when a
    program asks for the backend without the import."""
    dist.Backend.register_backend("libddp", _create, extended_api=True, devices=["cpu"])


register()
