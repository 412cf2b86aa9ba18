# SPDX-License-Identifier: Apache-2.0
"""PyTorch: DistributedDataParallel with libddp's reducer.

::

    from libddp.torch import DistributedDataParallel
    model = DistributedDataParallel(model)

The rest of a script that used ``torch.nn.parallel.DistributedDataParallel`` stays; ``init_process_group`` is not needed, and the group is
``libddp.torch.group()``. Gradients lie in libddp's buckets: ``p.grad`` is a tensor of that memory, reduced without a copy.

The ranks are those of torch.distributed where it is initialised, else those of the launcher; alone it is a group of one.

Differences, all on purpose: state_dict() has the module's own names, without "module."; buffers are broadcast in training only, so that
one rank may evaluate alone; parameters that no rank used keep ``grad is None``.
"""
from __future__ import annotations

import contextlib
import copy
import itertools
import sys
import weakref
from typing import Any, Iterator, Mapping, Optional, Sequence, Sized

import torch

from ._enums import Drift, choose
from ._errors import Error, InvalidStateError, TensorError
from ._group import Group
from ._model import Model
from ._sampler import Sampler
from ._torch_arguments import bucket_options, check_devices, process_group_of, refuse, warn_of_old_words
from ._torch_comm_hook import adapted, BuiltinHook
from ._torch_comm_hook import check as check_comm_hook
from ._torch_group import group as group
from ._torch_group import is_alone_among_others
from ._torch_join import Join, Joinable, JoinedRank, reduces_somewhere, root_of
from ._torch_norm import SyncBatchNorm as SyncBatchNorm
from ._torch_norm import stream_of
from ._torch_optim import SGD as SGD
from ._torch_optim import Adam as Adam
from ._torch_optim import AdamW as AdamW
from ._torch_packs import Packs
from ._torch_sparse import SparseGradients
from ._torch_strides import in_memory_order, is_reordered, like
from ._torch_tensors import KNOWN_DTYPES, WRAPPERS, Buffers, has_buffers, look, name_of
from ._torch_unfinished import CHANGED, StaticGraph, Unfinished, about_change, about_unused, is_incomplete


class DistributedDataParallel(Joinable, torch.nn.Module):  # type: ignore[misc]
    """Wrap a module: after backward() every rank has the mean of all ranks' gradients.

    Arguments are those of PyTorch's class, in its order. process_group is PyTorch's, or a :class:`libddp.Group`. Gradients are always views
    of the buckets, and one module has one kind of device, so gradient_as_bucket_view, device_ids and the like are checked and need nothing
    more; mixed_precision and delay_all_reduce_named_params are refused. A module on a GPU is reduced by NCCL, in the order of PyTorch's
    current streams. `hook` is what ``libddp.Model.set_hook`` takes; `options` go to :class:`libddp.Model`, such as wire="bf16". With
    own_values=True parameters are moved to libddp's memory, where a sharded optimizer writes those of all ranks of a host in place. Gradients
    of nn.Embedding(sparse=True) and nn.EmbeddingBag(sparse=True) stay sparse: the rows that ranks have are exchanged when the pass has ended.
    """

    def __init__(self, module: torch.nn.Module, device_ids: Any = None, output_device: Any = None, dim: int = 0,
                 broadcast_buffers: Optional[bool] = None, init_sync: bool = True, process_group: Any = None,
                 bucket_cap_mb: Optional[float] = None, find_unused_parameters: bool = False, check_reduction: bool = False,
                 gradient_as_bucket_view: bool = True, static_graph: bool = False, delay_all_reduce_named_params: Any = None,
                 param_to_hook_all_reduce: Any = None, mixed_precision: Any = None, device_mesh: Any = None,
                 skip_all_reduce_unused_params: bool = False, bucket_cap_mb_list: Optional[Sequence[float]] = None,
                 batched_grad_copy: bool = False, forward_sync_buffers: Optional[bool] = None, lazy_bucket_allocation: bool = False, *,
                 hook: Any = None, **options: Any) -> None:
        torch.nn.Module.__init__(self)
        if Joinable is not object:
            Joinable.__init__(self)
        refuse(delay_all_reduce_named_params, param_to_hook_all_reduce, mixed_precision)
        warn_of_old_words(broadcast_buffers, check_reduction)
        self.parameters_to_ignore = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ())) | _of_wrappers_within(module)
        check_devices(module, self.parameters_to_ignore, device_ids, output_device)
        process_group = process_group_of(process_group, device_mesh)
        self.module = module
        self.device_mesh = device_mesh
        self.device_ids, self.output_device, self.dim = None if device_ids is None else list(device_ids), output_device, dim
        self.device = next(module.parameters()).device
        self.find_unused_parameters, self.static_graph = find_unused_parameters, static_graph
        self.forward_sync_buffers = (broadcast_buffers in (None, True)) if forward_sync_buffers is None else forward_sync_buffers
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        self.bucket_bytes_cap_list = bucket_options(options, bucket_cap_mb, bucket_cap_mb_list)
        self.broadcast_bucket_size = 250 * 1024 * 1024
        self._options = options
        self._divides_by_world = True
        self._process_group = process_group
        self._hook = hook
        self._comm_hooks: list = []
        self._on_buffers: Any = None
        self._error = ""  # the last one, for _get_ddp_logging_data()
        self._joined = False
        self.group: Group = group(process_group, device_index=next((p.device.index for p in module.parameters() if p.is_cuda), None))
        self._wrap(send_values=init_sync, send_buffers=init_sync and (self.forward_sync_buffers or forward_sync_buffers is not None))

    @property
    def broadcast_buffers(self) -> bool:
        """As forward_sync_buffers."""
        return self.forward_sync_buffers

    @broadcast_buffers.setter
    def broadcast_buffers(self, value: bool) -> None:
        self.forward_sync_buffers = value

    @property
    def process_group(self) -> Any:
        """PyTorch's process group of these ranks; None where torch.distributed is not initialised, or a libddp.Group was given."""
        if self._process_group is None and torch.distributed.is_available() and torch.distributed.is_initialized():
            return torch.distributed.group.WORLD
        return None if isinstance(self._process_group, Group) else self._process_group

    def _wrap(self, send_values: bool = True, send_buffers: bool = True) -> None:
        """Lend the module's tensors to a new model, and listen to their gradients."""
        options = dict(self._options)
        self._allows_unused = self.find_unused_parameters or self.static_graph
        if self._allows_unused:
            options.setdefault("unused", "allow")
        self._parameters_lent = [p for name, p in self._named_parameters() if p.requires_grad]
        self._sparse = SparseGradients(self.module, self._parameters_lent, options)
        self.model = Model(self.group, **options)  #: for stats(), plan(), check() and checkpoints of libddp.State
        if self._comm_hooks:
            (hook, state), = self._comm_hooks
            self.model.set_hook(adapted(state, hook, self._sparse.instead_of(self._parameters_lent)))
        elif self._hook is not None:
            self.model.set_hook(self._hook)
        self._known = set(map(id, self._parameters_lent))
        self._replicated = Buffers(self.module, self.parameters_to_ignore)
        before = None if send_values else [p.detach().clone() for p in self.module.parameters()]
        self._lend(send_buffers)
        if before is not None:
            with torch.no_grad():
                for parameter, value in zip(self.module.parameters(), before):
                    parameter.copy_(value)
        lent = self._sparse.instead_of(self._parameters_lent)
        self._lent = lent
        self._grads = [self._bucket_of(index) for index in range(len(lent))]
        self._places = [grad.data_ptr() for grad in self._grads]
        self._reduced = 0  # passes that reduced and ended well
        self._open: Optional[bool] = None  # is a pass open, and does it reduce?
        self._end: Any = None  # a reference to what autograd calls when the backward pass ends
        self._optimizers: list = []  # references to the kernels of libddp.torch's, which are told when a pass begins and ends
        self._unsettled: Optional[float] = None  # a pass has ended, and the ranks have something to exchange: the factor of its gradients
        self._number = next(_numbers)
        WRAPPERS.add(self)
        self._futures: list = []  # what a hook on buffers has begun
        self._unfinished = Unfinished()
        self._static = StaticGraph(len(self._grads)) if self.static_graph else None
        self._marked = [False] * len(self._grads)
        self._packs = Packs(self.model, lent, self._grads)
        self._uneven = bool(options.get("uneven_inputs"))
        resends = choose(Drift, options.get("drift", "report")) == Drift.RESEND
        self._repairs: Optional[int] = 0 if resends else None  # passes that made replicas equal again
        self._hooks = [p.register_post_accumulate_grad_hook(_hook(self, index)) for index, p in enumerate(self._parameters_lent)]

    def _rewrap(self, why: str, **how: bool) -> None:
        """Make the model anew; on all ranks."""
        if self._replicated.followed:
            raise InvalidStateError(f"{why} makes a new libddp.Model, but an optimizer or averages of libddp belong to the old one: make them "
                                    "afterwards")
        self._let_go()
        self._wrap(**how)

    def _named_parameters(self) -> list[tuple[str, torch.nn.Parameter]]:
        return [(name, p) for name, p in self.module.named_parameters() if name not in self.parameters_to_ignore]

    def _lend(self, send_buffers: bool) -> None:
        trained = 0
        for name, parameter in self._named_parameters():
            if parameter.requires_grad and trained in self._sparse:
                self._sparse.lend(self.model, trained, name, in_memory_order(parameter))
            elif parameter.requires_grad:
                self.model.add_parameter(name, in_memory_order(parameter))
            else:
                self._lend_frozen(name, in_memory_order(parameter))
            trained += parameter.requires_grad
            if is_reordered(parameter):
                self.model._watch_view(parameter, f"parameter {name!r}")
        for name, buffer in self.module.named_buffers():
            if name not in self.parameters_to_ignore:
                self.model.add_buffer(name, self._replicated.stage(name, buffer))
        if send_buffers:
            self.model.mirror(self._replicated)
        self.model.commit(stream=self._stream())
        self.model.mirror(self._replicated)
        if self._options.get("own_values"):
            self._use_own_values()

    def _use_own_values(self) -> None:
        """The parameters are libddp's memory from now on, where ranks of a host reach each other's."""
        for index, parameter in enumerate(self._parameters_lent):
            parameter.data = like(torch.from_dlpack(self.model.value(index)), parameter)
            self.model._watch(parameter, f"parameter {self.model.names[index]!r}")

    def _stream(self) -> Optional[int]:
        return stream_of(self._parameters_lent[0]) if self._parameters_lent else None

    def _lend_frozen(self, name: str, parameter: torch.Tensor) -> None:
        if parameter.dtype not in KNOWN_DTYPES and parameter.is_contiguous():
            parameter = parameter.detach().reshape(-1).view(torch.uint8)  # bytes that are only sent
        self.model.add_buffer(name, parameter)

    # ---- Forward. ----

    def forward(self, *inputs: Any, **keywords: Any) -> Any:
        if self._open is not None:
            self._give_up()
        if not torch.is_grad_enabled() or not self._hooks:
            return self.module(*inputs, **keywords)
        if self._unsettled is not None:
            self._settle()  # another wrapper's pass, for whose end it waited, has failed
        with self._remembering():
            self._unfinished.check()
        joins = self._is_joining()
        if joins:
            Join.notify_join_context(self)
            if self._sends_buffers():
                self._send_buffers(root_of(self, True))
            reduces_somewhere(self, self.require_backward_grad_sync)
        if self.require_backward_grad_sync:
            if not self._replicated.followed and self.model._has_moved():
                self._rewrap("a change of the parameters")  # p.data = ..., double(): on all ranks; rank 0's values go to everybody
            self._look(sends=not joins)
        outputs = self.module(*inputs, **keywords)
        if self.training:
            self._replicated.are_equal = False  # a rank may evaluate alone, but not train
        if self._on_buffers is not None and self._on_buffers[2] and self._sends_buffers():
            self._send_buffers(0)
        self.require_forward_param_sync = self.require_backward_grad_sync
        for output in [outputs] if isinstance(outputs, torch.Tensor) else torch.utils._pytree.tree_flatten(outputs)[0]:
            if isinstance(output, torch.Tensor) and output.grad_fn is not None:
                output.register_hook(_begin(self))
        return outputs

    def _is_joining(self) -> bool:
        return getattr(self, "_join_config", None) is not None and self._join_config.enable

    def _look(self, sends: bool) -> None:
        """Before a forward computation whose gradients will be reduced: what does the module hold now?"""
        if is_alone_among_others(self.group):
            self.group._check_company()
        parameters, buffers = look(self.module)
        if self.parameters_to_ignore:
            parameters = [p for _, p in self._named_parameters()]
        known = self._known
        for parameter in [p for p in parameters if id(p) not in known]:
            if not isinstance(parameter, torch.nn.Parameter):
                continue  # lent for one call by torch.func.functional_call: its gradient is the caller's
            if parameter.requires_grad:
                raise TensorError(f"parameter {name_of(self.module, parameter)!r} was frozen, absent or another one when the module was "
                                  "wrapped, so its gradient would stay on this rank: wrap the module again after such a change")
        if sends and buffers and not self._replicated.are_equal and self._sends_buffers() and not (self._on_buffers and self._on_buffers[2]):
            self._send_buffers(0, None if self.parameters_to_ignore else buffers)

    def _sends_buffers(self) -> bool:
        return self.forward_sync_buffers and self.training and self.require_forward_param_sync and has_buffers(self.module)

    def _send_buffers(self, root: int, found: Optional[list] = None) -> None:
        """The buffers of one rank go to all, or what a hook on buffers makes of them. `found`: the module's, already looked up."""
        if found is not None and self._on_buffers is None and not self._uneven:
            self._default_broadcast_coalesced(found, None, root)
            return
        named = {name: buffer for name, buffer in self.module.named_buffers() if name not in self.parameters_to_ignore}
        if self._on_buffers is not None:
            state, hook, _ = self._on_buffers
            self._futures += hook(state, named) or []
        elif self.group.size == 1 or not named:
            return
        elif self._uneven:  # ranks that are out of data answer this call of the model alone
            self.model.sync_buffers(root, stream=self._stream())
        else:
            self._default_broadcast_coalesced(named.values(), None, root)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Passes inside only add to the gradients; the first backward() after it sends the whole."""
        former, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = former

    # ---- Backward. ----

    def _on_gradient(self, index: int, parameter: torch.Tensor) -> None:
        if self._open is None:
            self._open_pass()
        if self._static is None or self._is_last(self._static, index):
            self._mark(index, parameter)

    def _open_pass(self) -> None:
        for optimizer in self._optimizers:
            if (alive := optimizer()) is not None:
                alive.before_pass()
        self._open = self.require_backward_grad_sync
        self.model.begin_backward("reduce" if self._open else "accumulate")
        self._marked = [False] * len(self._grads)
        self._packs.begin()
        self._on_begin()
        self._begin_static()

    def _mark(self, index: int, parameter: torch.Tensor) -> None:
        """Python's time here is the wrapper's cost, once for each parameter: what a gradient in its place does not need is elsewhere."""
        marked, grad = self._marked, parameter.grad
        if marked[index]:
            self._refuse_second(index)
        if (grad is self._grads[index] and grad.data_ptr() == self._places[index]) or not self._waits(index, parameter):
            self.model.mark_ready(index, stream=stream_of(self._grads[index]))
        marked[index] = True
        self._packs.count(index)

    def _refuse_second(self, index: int) -> None:
        text = (f"the gradient of {self.model.names[index]!r} came twice in one pass, as of a module that two reentrant checkpoints use: "
                "give them use_reentrant=False, or DistributedDataParallel static_graph=True")
        self._give_up(text)
        raise InvalidStateError(text)

    def _waits(self, index: int, parameter: torch.Tensor) -> bool:
        """Bring a gradient that autograd made to the bucket. Or does it wait for the others of that, to be marked with them?"""
        self._part_with(index)
        if self._packs.take(index):
            return True
        if index not in self._sparse:
            self._attach(index, parameter)
        return False

    def _part_with(self, index: int) -> None:
        """Another gradient comes into the bucket. A tensor that the program has kept, as in a list of the gradients of several losses, keeps its
        values, with memory of its own; one whose data the program has replaced is no view of the bucket any more."""
        mine = self._grads[index]
        replaced = mine.data_ptr() != self._places[index]
        if replaced or (sys.getrefcount(mine) > _KNOWN_REFERENCES and self._parameters_lent[index].grad is not mine):
            self._grads[index] = self._bucket_of(index)
            if not replaced:
                mine.data = mine.data.clone()

    def _bucket_of(self, index: int) -> torch.Tensor:
        """A tensor of the place in the bucket where this gradient is reduced."""
        return like(torch.from_dlpack(self.model.grad(index)), self._lent[index])

    def _begin_static(self) -> None:
        if self._static is None:
            return
        self._static.begin()
        for index in self._static.unused() if self._open else ():
            self._mark_unused(index)
            self._marked[index] = True
            self._packs.count(index)

    def _is_last(self, static: StaticGraph, index: int) -> bool:
        is_last = static.is_last(index, bool(self._open))
        if self._open and static.exceeds(index):
            with self._remembering():
                self._unfinished.put(about_change(self.group.rank, static.missing(), self.model.names), self._parameters_lent)
                self._give_up("its training graph has changed, although static_graph is set")
                raise InvalidStateError(CHANGED.format(name=self.model.names[index]))
        return is_last

    def _on_begin(self) -> None:
        """Have autograd call when this backward pass ends. Asked for at its beginning, by the outputs' hooks, it is the whole pass;
        inside a checkpoint that runs autograd anew (use_reentrant=True) it would be that checkpoint's alone."""
        if self._end is None or self._end() is None:  # one that failed has let go of it
            end = _End(self)
            self._end = weakref.ref(end)
            torch.autograd.Variable._execution_engine.queue_callback(end)

    def _attach(self, index: int, parameter: torch.Tensor) -> None:
        """Make p.grad the bucket's memory. After zero_grad(set_to_none=True) autograd made a tensor of its own, which is copied; on a GPU
        together with those of its bucket (Packs)."""
        self._part_with(index)
        mine = self._grads[index]
        given = parameter.grad
        if given is mine or given is None:
            return
        if given.layout != torch.strided:
            mine.copy_(given.detach().to_dense())
        elif given.data_ptr() != mine.data_ptr():
            mine.copy_(given.detach())
            if given.is_cuda:
                given.record_stream(torch.cuda.current_stream(given.device))  # its memory may belong to another stream
        parameter.grad = mine

    def _finish(self) -> None:
        self._end = None
        if self._open is None:
            return  # no gradient came
        self._packs.flush()
        if not self._end_static():
            return
        reduces, self._open = self._open, None
        if reduces and self._allows_unused:
            for index, marked in enumerate(self._marked):
                if not marked:
                    self._mark_unused(index)
        try:
            self._end_pass()
        except InvalidStateError as error:
            if not reduces or not is_incomplete(error):
                raise
            missing = [index for index, marked in enumerate(self._marked) if not marked]
            self._unfinished.put(about_unused(error, self.group.rank, missing, self.model.names), self._parameters_lent)
            return
        if reduces and self._static is not None:
            self._static.learn()
        if reduces and self._allows_unused:
            for index, parameter in enumerate(self._parameters_lent):
                if parameter.grad is None and index not in self._sparse and self.model.was_used(index):
                    parameter.grad = self._grads[index]
        factor = self._scale() if reduces else 1.0
        self._reduced += bool(reduces)
        for optimizer in self._optimizers if reduces else ():
            if (alive := optimizer()) is not None:
                alive.after_pass()
        futures, self._futures = self._futures, []
        for future in futures:
            future.wait()
        if reduces:
            self._unsettled = factor
            self._settle()

    def _scale(self) -> float:
        """Where ranks without data do not count, gradients are more than the mean over the world. Returns how much more."""
        contributors = 0 if self._divides_by_world else self.model.pass_report().contributors
        if contributors in (0, self.group.size):
            return 1.0
        self.model.scale_grad(self.group.size / contributors, stream=self._stream())
        return self.group.size / contributors

    def _settle(self) -> None:
        """What the ranks exchange after their passes. While a pass of another wrapper is open, as in one backward() through two of them, that
        waits for its end. The same order on all ranks."""
        alike = [wrapper for wrapper in WRAPPERS if wrapper.group is self.group]
        if all(wrapper._open is None for wrapper in alike):
            for wrapper in sorted(alike, key=lambda wrapper: wrapper._number):
                wrapper._exchange()

    def _exchange(self) -> None:
        factor, self._unsettled = self._unsettled, None
        if factor is None:
            return
        self._sparse.reduce(self.model, self._parameters_lent, factor=factor)
        if self._on_buffers is None and not self._is_joining() and self._sends_buffers():
            self._send_buffers(0)  # so that an evaluation or a file of any rank has the same
            self._replicated.are_equal = True

    def _end_static(self) -> bool:
        """Mark what waited for the end. False: the graph is another one than in the first pass, and this pass is left."""
        if self._static is None:
            return True
        missing = self._static.missing() if self._open else []
        if missing:
            self._unfinished.put(about_change(self.group.rank, missing, self.model.names), self._parameters_lent)
            self._give_up("its training graph has changed, although static_graph is set")
            return False
        for index, seen in enumerate(self._static.seen):
            if seen and not self._marked[index]:
                self._mark(index, self._parameters_lent[index])
        self._packs.flush()
        return True

    def _mark_unused(self, index: int) -> None:
        if index in self._sparse:
            pass
        elif self._parameters_lent[index].grad is None:
            self._part_with(index)
            self._grads[index].zero_()
        else:
            self._attach(index, self._parameters_lent[index])
        self.model.mark_unused(index)

    def _end_pass(self) -> None:
        """Where replicas are made equal, the end of the pass may send the majority's parameters and buffers."""
        if self._repairs is None:
            self.model.end_backward(stream=self._stream())
            return
        self._replicated.take()
        self.model.end_backward(stream=self._stream())
        repairs = self.model.stats()["repairs"]
        if repairs != self._repairs:
            self._repairs = repairs
            self._replicated.give()

    def _give_up(self, why: str = "an exception ended its backward pass") -> None:
        """The last backward() ended with an exception: its pass is still open, and the other ranks wait."""
        self._open = None
        self._packs.drop()
        with contextlib.suppress(Error):
            self.model.abandon_backward(why, stream=self._stream())

    def join(self, divide_by_initial_world_size: bool = True, enable: bool = True, throw_on_early_termination: bool = False) -> Any:
        """Train inside on unequal data: a rank that leaves answers the others' passes until all have left. Then all ranks go on with the same
        parameters and buffers. It is PyTorch's context manager, and works over its process group; with the option uneven_inputs=True it is
        libddp's, which also brings libddp's optimizers and averages to one state and needs no torch.distributed."""
        if self._uneven:
            return self._join_own()
        if self.process_group is None:
            raise InvalidStateError("join() needs torch.distributed to be initialised, or DistributedDataParallel(..., uneven_inputs=True)")
        return Join([self], enable, throw_on_early_termination, divide_by_initial_world_size=divide_by_initial_world_size)

    @contextlib.contextmanager
    def _join_own(self) -> Iterator[None]:
        yield
        self._replicated.take()
        self.model.join(stream=self._stream())
        self._replicated.give()

    def join_hook(self, **keywords: Any) -> Any:
        """For PyTorch's Join([...])."""
        return JoinedRank(self, keywords.get("divide_by_initial_world_size", True))

    @property
    def join_device(self) -> torch.device:
        """For PyTorch's Join([...])."""
        return self.device

    @property
    def join_process_group(self) -> Any:
        """For PyTorch's Join([...])."""
        return self.process_group

    # ---- Settings. ----

    def register_comm_hook(self, state: object, hook: Any) -> None:
        """What stands in the place of the reduction: a hook of PyTorch, such as those of torch.distributed.algorithms.ddp_comm_hooks. All
        ranks give it, once, before the first backward(). It runs on a thread of libddp."""
        with self._remembering():
            check_comm_hook(hook)
            if self._comm_hooks or self._hook is not None:
                raise RuntimeError("register_comm_hook or register_builtin_comm_hook can only be called once.")
        self._comm_hooks.append((hook, state))
        self._rewrap("register_comm_hook")

    def _register_builtin_comm_hook(self, comm_hook_type: Any) -> None:
        """One of the hooks that PyTorch has built in: the plain reduction, or 16 bits on the wire."""
        self.register_comm_hook(comm_hook_type, BuiltinHook(comm_hook_type))

    def _get_ddp_logging_data(self) -> dict[str, Any]:
        """What PyTorch's class says here, as far as libddp knows it."""
        stats = self.model.stats()
        hook = self._comm_hooks[0] if self._comm_hooks else None
        return {"world_size": self.group.size, "rank": self.group.rank, "module_name": type(self.module).__name__, "backend_name": "libddp",
                "iteration": stats["passes"], "num_parameter_tensors": stats["parameters"],
                "total_parameter_size_bytes": stats["gradient_bytes"], "find_unused_parameters": int(self.find_unused_parameters),
                "broadcast_buffers": int(self.forward_sync_buffers), "static_graph": int(self.static_graph), "gradient_as_bucket_view": 1,
                **({} if hook is None else {"comm_hook": getattr(hook[0], "__qualname__", str(hook[1]))}), "join_uneven_inputs": int(self._joined),
                "has_error": int(bool(self._error)), "error": self._error, "avg_backward_comm_time": stats["total_comm_ns"]}

    @contextlib.contextmanager
    def _remembering(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._error = str(error)
            raise

    def _register_buffer_comm_hook(self, state: Any, hook: Any, comm_hook_location: Any = None) -> None:
        """`hook(state, buffers by name)` stands in the place of sending rank 0's buffers; the futures that it gives are waited for at the end
        of backward."""
        self._on_buffers = (state, hook, comm_hook_location is None or comm_hook_location.name == "POST_FORWARD")

    def _default_broadcast_coalesced(self, bufs: Any = None, bucket_size: Any = None, authoritative_rank: int = 0) -> None:
        """For hooks on buffers: send these, or all."""
        buffers = [buffer for name, buffer in self.module.named_buffers() if name not in self.parameters_to_ignore] if bufs is None else bufs
        if self.group.size > 1 and buffers:
            self._replicated.send(self.group, list(buffers), authoritative_rank)

    def _set_static_graph(self) -> None:
        """As the argument static_graph."""
        if self.static_graph:
            return
        with self._remembering():
            self._check_untrained()
        self.static_graph = True
        self._rewrap("_set_static_graph")

    def _check_untrained(self) -> None:
        if self._open is not None or self.model.stats()["passes"]:
            raise RuntimeError("self.static_graph should be called before training loop starts: _set_static_graph() makes a new model.")

    @staticmethod
    def _set_params_and_buffers_to_ignore_for_model(module: torch.nn.Module, params_and_buffers_to_ignore: Any) -> None:
        """Leave these out, by name; before the module is wrapped. Marks are those of PyTorch's class."""
        torch.nn.parallel.distributed.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(
            module, params_and_buffers_to_ignore)

    def _set_ddp_sink_clone(self, value: bool) -> None:
        """Nothing is cloned anyway."""

    def _remove_autograd_hooks(self) -> None:
        """Listen to gradients no more; for good."""
        if self._open is not None:
            self._give_up()
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    # ---- Copies. ----

    def __getstate__(self) -> dict:
        if self._process_group is not None and self._process_group is not torch.distributed.group.WORLD:
            raise RuntimeError("DDP Pickling/Unpickling are only supported when using DDP with the default process group. That is, when you have "
                               "called init_process_group and have not passed process_group argument to DDP constructor")
        return {name: value for name, value in self.__dict__.items() if name not in _NOT_COPIED}

    def __setstate__(self, state: dict) -> None:
        torch.nn.Module.__setstate__(self, state)
        self._process_group = None
        self.group = group(device_index=self.device.index if self.device.type == "cuda" else None)
        self._wrap(send_values=False, send_buffers=False)

    def __deepcopy__(self, memo: dict) -> DistributedDataParallel:
        """On all ranks: the copy is a model of its own, with the values that each rank has."""
        other = type(self).__new__(type(self))
        memo[id(self)] = other
        torch.nn.Module.__setstate__(other, {name: copy.deepcopy(value, memo) for name, value in self.__dict__.items()
                                             if name not in _NOT_COPIED})
        other._process_group, other.group = self._process_group, self.group
        other._wrap(send_values=False, send_buffers=False)
        return other

    # ---- State. ----

    def state_dict(self, *arguments: Any, **keywords: Any) -> Any:
        """The module's own, with plain names. Local: one rank may call it alone."""
        return self.module.state_dict(*arguments, **keywords)

    def named_parameters(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """The module's own, with the names that state_dict() has."""
        return self.module.named_parameters(prefix, recurse, remove_duplicate) if recurse else iter(())

    def _fqn_modifiers(self) -> dict[str, str]:
        """For torch.distributed.checkpoint: which names of state_dict() lie within an attribute that they do not name."""
        return dict.fromkeys((*self.module._modules, *self.module._parameters, *self.module._buffers), "module")

    def load_state_dict(self, state_dict: Mapping[str, Any], *arguments: Any, **keywords: Any) -> Any:
        """The module's own; names that begin with "module." (saved by PyTorch's wrapper) are understood too."""
        if state_dict and all(name.startswith("module.") for name in state_dict):
            state_dict = {name[len("module."):]: value for name, value in state_dict.items()}
        return self.module.load_state_dict(state_dict, *arguments, **keywords)

    def _let_go(self) -> None:
        for hook in self._hooks:
            hook.remove()
        for index, parameter in enumerate(self._parameters_lent):
            if parameter.grad is not None and parameter.grad is self._grads[index]:
                parameter.grad = self._grads[index].clone()
            if self._options.get("own_values"):
                parameter.data = parameter.data.clone()
        self._hooks, self._grads, self._lent = [], [], []
        self._packs = Packs(self.model, [], [])
        self.model.__exit__()  # what is left of its gradients takes it along

    def close(self) -> None:
        """Let go of the module: its parameters and gradients stay, with memory of their own."""
        self._let_go()
        self.model.close()


# What a copy makes anew.
_NOT_COPIED = {"group", "model", "_process_group", "_parameters_lent", "_known", "_replicated", "_grads", "_lent", "_places", "_reduced", "_open", "_end", "_optimizers", "_futures", "_marked",
               "_packs", "_repairs", "_hooks", "_join_config", "_unfinished", "_static", "_sparse", "_unsettled", "_number"}
_KNOWN_REFERENCES = 3  # to a gradient: the wrapper's list, a local name, and the question for their number
_numbers = itertools.count()  # of wrappers, in the order in which all ranks make them


def _of_wrappers_within(module: torch.nn.Module) -> set[str]:
    """Names of the parameters and buffers that an inner wrapper takes care of."""
    return {f"{prefix}.module.{name}" for prefix, part in module.named_modules() if isinstance(part, DistributedDataParallel)
            for found in (part.module.named_parameters(), part.module.named_buffers()) for name, _ in found}


class _End:
    """The end of a backward pass; lives as long as autograd means to call it."""

    def __init__(self, wrapper: DistributedDataParallel) -> None:
        self.wrapper = weakref.ref(wrapper)

    def __call__(self) -> None:
        alive = self.wrapper()
        if alive is not None:
            alive._finish()


def _begin(wrapper: DistributedDataParallel) -> Any:
    """An output may outlive the wrapper, so it must not hold it."""
    reference = weakref.ref(wrapper)

    def on_begin(gradient: torch.Tensor) -> None:
        alive = reference()
        if alive is not None and alive._hooks:
            alive._on_begin()

    return on_begin


def _hook(wrapper: DistributedDataParallel, index: int) -> Any:
    """The parameters outlive the wrapper, so they must not hold it."""
    reference = weakref.ref(wrapper)

    def on_gradient(parameter: torch.Tensor) -> None:
        alive = reference()
        if alive is not None:
            alive._on_gradient(index, parameter)

    return on_gradient


class DistributedSampler(torch.utils.data.distributed.DistributedSampler):
    """This rank's share of a data set, for a DataLoader: PyTorch's class with its order, whose ranks are those of :func:`group`, so that
    torch.distributed need not be initialised. Call set_epoch() before each epoch; its `start` is where the next iteration begins, for resuming.
    With `frozen` the order is that of :class:`libddp.Sampler`, which no version of PyTorch or libddp changes."""

    def __init__(self, dataset: Sized, num_replicas: Optional[int] = None, rank: Optional[int] = None, shuffle: bool = True, seed: int = 0,
                 drop_last: bool = False, *, frozen: bool = False) -> None:
        super().__init__(dataset, group().size if num_replicas is None else num_replicas,  # type: ignore[arg-type]
                         group().rank if rank is None else rank, shuffle, seed, drop_last)
        self.frozen, self.start = frozen, 0

    def set_epoch(self, epoch: int, start: int = 0) -> None:
        """Choose the order of the next iteration."""
        super().set_epoch(epoch)
        self.start = start

    def __iter__(self) -> Iterator[int]:
        if not self.frozen:
            return itertools.islice(super().__iter__(), self.start, None)
        sampler = Sampler(len(self.dataset), rank=self.rank, shuffle=self.shuffle, seed=self.seed, size=self.num_replicas, drop_last=self.drop_last)
        return iter(sampler.indices(self.epoch, self.start))

    def __len__(self) -> int:
        return super().__len__() - self.start
