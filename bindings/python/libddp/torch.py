# SPDX-License-Identifier: Apache-2.0
"""PyTorch: DistributedDataParallel whose gradients libddp reduces.

::

    from libddp.torch import DistributedDataParallel
    model = DistributedDataParallel(model)

The rest of a script that used ``torch.nn.parallel.DistributedDataParallel`` stays. The class is a subclass of PyTorch's: PyTorch's Reducer decides
what a pass is and when a bucket is ready, and libddp reduces the buckets. The ranks are those of :func:`group`: of torch.distributed where it is
initialised, else of the launcher; alone it is a group of one.

Differences, all on purpose: state_dict() has the module's own names, without "module."; buffers are broadcast in training only, so that
one rank may evaluate alone.
"""
from __future__ import annotations

import contextlib
import copy
import inspect
import itertools
import re
import warnings
import weakref
from typing import Any, Callable, Iterator, Mapping, Optional, Sized

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ._enums import Drift, PassMode, choose
from ._errors import Error, InvalidStateError, NotSupportedError, TensorError
from ._group import Group
from ._model import Model
from ._sampler import Sampler
from ._torch_buckets import Buckets as ReducerBuckets
from ._torch_group import check_company, group
from ._torch_kernels import Given
from ._torch_late import LateValues
from ._torch_norm import SyncBatchNorm
from ._torch_optim import SGD, Adam, AdamW
from ._torch_ranks import Ranks, Sending
from ._torch_sparse import SparseGradients
from ._torch_tensors import WRAPPERS, Buffers, Call, in_memory_order, like, look, parameters_of, stream_of, to_send

__all__ = ["SGD", "Adam", "AdamW", "DistributedDataParallel", "DistributedSampler", "SyncBatchNorm", "group"]

_Theirs = torch.nn.parallel.DistributedDataParallel

# Keywords that raise, with the reason.
_REFUSED = {
    "mixed_precision": "libddp keeps no second copy of the parameters for forward; use torch.autocast, or 16-bit parameters with "
                       "libddp.torch.AdamW(master_weights=True)",
    "param_to_hook_all_reduce": "libddp reduces a gradient when its bucket is complete, not at a hook of another parameter; leave those of "
                                "delay_all_reduce_named_params out (_set_params_and_buffers_to_ignore_for_model) and reduce them yourself",
    "lazy_bucket_allocation": "libddp shares the memory of buckets between the ranks of a host, so it stays allocated; leave it out",
    "bucket_bytes": "with PyTorch's wrapper it is bucket_cap_mb",
    "first_bucket_bytes": "with PyTorch's wrapper it is bucket_cap_mb_list",
}


class DistributedDataParallel(_Theirs):
    """Wrap a module: after backward() every rank has the mean of all ranks' gradients.

    Arguments are those of PyTorch's class of the installed release, in its order. process_group is PyTorch's, or a :class:`libddp.Group`.
    mixed_precision, delay_all_reduce_named_params and lazy_bucket_allocation raise NotSupportedError. A module on a GPU is reduced by NCCL, in the
    order of PyTorch's current streams. `hook` is what ``libddp.Model.set_hook`` takes; other keywords go to :class:`libddp.Model`, such as
    wire="bf16". With own_values=True parameters are moved to libddp's memory, where a sharded optimizer writes those of all ranks of a host in place.
    Gradients of nn.Embedding(sparse=True) and nn.EmbeddingBag(sparse=True) stay sparse: the rows that ranks have are exchanged when the pass has
    ended.
    """

    def __init__(self, module: torch.nn.Module, *arguments: Any, hook: Any = None, **keywords: Any) -> None:
        if getattr(torch._dynamo.config, "optimize_ddp", None) == "python_reducer":
            raise NotSupportedError('torch._dynamo.config.optimize_ddp is "python_reducer", which has no buckets; set it to True')
        known = inspect.signature(_Theirs.__init__)
        options = {name: keywords.pop(name) for name in tuple(keywords) if name not in known.parameters}
        theirs = known.bind(self, module, *arguments, **keywords).arguments
        for name, value in (*theirs.items(), *options.items()):
            if name in _REFUSED and value is not None and value is not False:
                raise NotSupportedError(f"{name}: {_REFUSED[name]}")
        group_given, sends_values = theirs.get("process_group"), theirs.get("init_sync", True)
        own = isinstance(group_given, Group) or (group_given is None and theirs.get("device_mesh") is None)
        # Before PyTorch's constructor, which calls methods of this class.
        self.__dict__.update(_options=options, _hook=hook, _own_group=group_given if own else None,
                             _rebuilds=bool(theirs.get("static_graph")) or not theirs.get("find_unused_parameters"))
        if own:
            theirs["process_group"] = Ranks()
        _Theirs.__init__(**{**theirs, "init_sync": False})
        sends_buffers = theirs.get("forward_sync_buffers") is not None or theirs.get("broadcast_buffers") in (None, True)
        self._wrap(send_values=sends_values, send_buffers=sends_values and sends_buffers)

    @property
    def process_group(self) -> Any:
        """PyTorch's process group of these ranks; None where torch.distributed is not initialised, or a libddp.Group was given."""
        if self._process_group is None and self.group._found and dist.is_initialized():
            return dist.group.WORLD
        return self._process_group

    @process_group.setter
    def process_group(self, value: Any) -> None:
        self._process_group = value

    # ---- The Reducer, and the model behind it. ----

    def _build_params_for_reducer(self) -> tuple[list, list]:
        """All that are trained, in the order of the model. PyTorch's constructor has looked at its process group by now."""
        if "group" not in self.__dict__:
            own, self._own_group = self._own_group, None
            if isinstance(self._process_group, Ranks):
                self._process_group = None
            self.group = group(own or self._process_group, device_index=self.device.index if self.device.type == "cuda" else None)
        names = set(self.parameters_to_ignore) | _of_wrappers_within(self.module)
        self.parameters_to_ignore = names | {"." + name for name in names if "." not in name}  # as PyTorch calls those of the outermost module
        self._parameters_lent = [p for _, p in self._named_parameters() if p.requires_grad]
        self._sparse = SparseGradients(self.module, self._parameters_lent, self._options)
        self._assign_modules_buffers()
        return list(self._parameters_lent), [False] * len(self._parameters_lent)

    def _ddp_init_helper(self, parameters: list, expect_sparse_gradient: list, names: dict[int, str], static_graph: bool) -> None:
        """The Reducer has those with dense gradients, in the order in which backward is expected to reach them where buckets are built anew from
        that; at least one. Its ranks are libddp's."""
        order = [index for index in range(len(parameters)) if index not in self._sparse]
        self._order = order[::-1] if self._rebuilds else order
        dense = [parameters[index] for index in self._order] or [torch.nn.Parameter(torch.zeros(1, device=self.device))]
        names = {position: names[index] for position, index in enumerate(self._order)} or {0: "none"}
        kept = self._process_group
        self._process_group = self._ranks = Ranks(self.group.rank, self.group.size, Call(self, "_fill"))
        try:
            super()._ddp_init_helper(dense, [False] * len(dense), names, static_graph)
        finally:
            self._process_group = kept

    def _fill(self, used: torch.Tensor) -> None:
        """Of this rank's map of used parameters make that of all ranks."""
        if self._comm_hooks:  # libddp has seen no pass
            self.group.all_reduce(used, "sum", stream=self._stream())
        elif self._order:
            for position in (used == 0).nonzero().flatten().tolist():
                used[position] = int(self.model.was_used(self._order[position]))

    def _make_reducer(self) -> None:
        """Another Reducer, as the parameters are now."""
        parameters, sparse = self._build_params_for_reducer()
        self._ddp_init_helper(parameters, sparse, self._build_debug_param_to_name_mapping(parameters), self.static_graph)
        if self.static_graph:
            self._static_graph_delay_allreduce_enqueued = False
            self.reducer._set_static_graph()
            self.logger._set_static_graph()
        for given, state in self._comm_hooks:
            dist._register_comm_hook(self.reducer, state, given)
        self._lazy_init_ran = bool(self._comm_hooks)

    def _wrap(self, send_values: bool = True, send_buffers: bool = True) -> None:
        """Lend the module's tensors to a new model, whose buckets are those of the Reducer."""
        self._rebuild_buckets()
        options = dict(self._options)
        if self.find_unused_parameters or self.static_graph:
            options.setdefault("unused", "allow")
        self._allows_unused = options.get("unused") in ("allow", 1)
        self.model = Model(self.group, **options)  #: for stats(), plan(), check() and checkpoints of libddp.State
        self.model.set_hook(self._hook) if self._hook is not None else None
        self._index_of = {id(p): index for index, p in enumerate(self._parameters_lent)}
        self._replicated, self._sending = Buffers(self.module, self.parameters_to_ignore), Sending(self.group)
        self._buckets = ReducerBuckets(self._parameters_lent, self.reducer._get_zeros_like_grad_buckets() if self._order else [])
        kept = [] if send_values else [(p, p.detach().clone()) for p in self.module.parameters()]
        self._lend(send_buffers)
        with torch.no_grad():
            for parameter, value in kept:
                parameter.copy_(value)
        self._buckets.place(self.model, [self._sparse.get(index, parameter) for index, parameter in enumerate(self._parameters_lent)])
        self._seen: set[int] = set()  # parameters that have got a gradient since the last pass, where that is asked
        self._noted = set(range(len(self._parameters_lent))) if self._allows_unused else set(self._sparse)
        self._handles = [self._parameters_lent[index].register_post_accumulate_grad_hook(_note(self._seen, index)) for index in self._noted]
        self._reset()

    def _reset(self) -> None:
        """No pass has begun."""
        self._reduced = 0  # passes that reduced and ended well
        self._expects = self._begun = self._open = False  # a forward computation waits for its backward; that has begun; libddp's pass is open
        self._must_learn_anew = False  # gradients came to the Reducer of a static graph before its first pass
        self._must_reset = False  # the Reducer has not finished a pass
        self._pending: list = []  # the buckets that have come in this pass, with their futures
        self._end: Callable[[], Any] = lambda: None  # a reference to what autograd calls when the backward pass ends
        self._after: Any = None
        self._given: list = []  # gradients as they were when a pass had ended before its backward pass
        self._used: Optional[set[int]] = None  # in a static graph, from the first pass on
        self._optimizers: weakref.WeakSet = weakref.WeakSet()  # kernels of libddp.torch's optimizers, which are told when a pass begins and ends
        self._unsettled: Optional[float] = None  # a pass has ended, and the ranks have something to exchange: the factor of its gradients
        self._late: Any = None  # waits for values that come after their step
        self._listens = True
        WRAPPERS[self] = None
        self._unreduced: Optional[str] = None  # why the last pass did not reduce; a forward() or a step raises it
        self._before_steps: Any = None  # the hook that looks at that before a step
        self._recoveries = self.model._recoveries
        resends = choose(Drift, self._options.get("drift", "report")) == Drift.RESEND
        self._repairs: Optional[int] = 0 if resends else None  # passes that made replicas equal again

    def _learn_anew(self) -> None:
        """Another Reducer with the same buckets, in a static graph before the first pass."""
        self._must_learn_anew = False
        self._buckets.unshare()
        self._make_reducer()
        self._rebuild_buckets()

    def _rebuild_buckets(self) -> None:
        """In the order of the Reducer's parameters; PyTorch would do so after the next pass, in the order of its gradients."""
        if self._rebuilds:
            self.reducer._push_all_rebuilt_params()
            self._has_rebuilt_buckets = bool(self.reducer._rebuild_buckets())

    def _rewrap(self, why: str, **how: bool) -> None:
        """Make Reducer and model anew; on all ranks."""
        if self._replicated.followed:
            raise InvalidStateError(f"{why} makes a new libddp.Model, but an optimizer or averages of libddp belong to the old one: make them "
                                    "afterwards")
        self._let_go()
        self._make_reducer()
        self._wrap(**how)

    def _named_parameters(self) -> list[tuple[str, torch.nn.Parameter]]:
        return [(name, p) for name, p in self.module.named_parameters() if name not in self.parameters_to_ignore]

    def _lend(self, send_buffers: bool) -> None:
        for name, parameter in self._named_parameters():
            value, index = in_memory_order(parameter), self._index_of.get(id(parameter))
            if index is None:
                self.model.add_buffer(name, self._replicated.stage(name, parameter))
            elif index in self._sparse:
                self._sparse.lend(self.model, index, name, value)
            else:
                self.model.add_parameter(name, value)
            if value is not parameter:
                self.model._in_other_order = f"parameter {name!r}"
                if index is not None:
                    self.model._watch(parameter, f"parameter {name!r}")
        for name, buffer in self.module.named_buffers():
            if name not in self.parameters_to_ignore:
                self.model.add_buffer(name, self._replicated.stage(name, buffer))
        if send_buffers:
            self.model.mirror(self._replicated)
        self.model.set_buckets([*self._buckets.numbers, *([list(self._sparse)] if self._sparse else ())])
        self.model.commit(stream=self._stream())
        self.model.mirror(self._replicated)
        for index, parameter in enumerate(self._parameters_lent) if self._options.get("own_values") else ():
            parameter.data = like(torch.from_dlpack(self.model.value(index)), parameter)  # where the ranks of a host reach each other's
            self.model._watch(parameter, f"parameter {self.model.names[index]!r}")
        self._memory = [p.detach() for p in self._parameters_lent]  # stays until they are lent again, also where their data are replaced

    def _stream(self) -> Optional[int]:
        return stream_of(self._parameters_lent[0]) if self._parameters_lent else None

    # ---- Forward. ----

    def forward(self, *inputs: Any, **keywords: Any) -> Any:
        if not torch.is_grad_enabled() or not self._listens:
            return self.module(*inputs, **keywords)
        if self._recoveries != self.model._recoveries:
            self._recoveries = self.model._recoveries
            self._buckets.unshare()  # libddp's memory has other pages
            self._must_reset = self._must_reset or self._open or self._begun
            self._open = self._begun = False  # the recovery has ended the pass for all
        if self._open or self._begun or self._must_reset:
            self._give_up()
        if self._unsettled is not None:
            self._settle()  # another wrapper's pass, for whose end it waited, has failed
        self._check_reduced()
        if self.require_backward_grad_sync:
            if not self._replicated.followed and self.model._watched.moved():
                self._rewrap("a change of the parameters")  # p.data = ..., double(): on all ranks; rank 0's values go to everybody
            if self._are_lent():
                return self.module(*inputs, **keywords)  # the gradients are the caller's
        if self.static_graph and self._used is None:
            if not self.require_backward_grad_sync:  # PyTorch would take its gradients for those of the first pass
                self._must_learn_anew = True
                return self.module(*inputs, **keywords)
            if self._must_learn_anew:
                self._learn_anew()
        outputs = super().forward(*inputs, **keywords)
        if self.training:
            self._replicated.are_equal = False  # a rank may evaluate alone, but not train
        if self.require_backward_grad_sync:
            self._expects = True
            for output in [outputs] if isinstance(outputs, torch.Tensor) else torch.utils._pytree.tree_flatten(outputs)[0]:
                if isinstance(output, torch.Tensor) and output.grad_fn is not None:
                    output.register_hook(Call(self, "_on_begin"))
        return outputs

    def _lazy_init(self) -> None:
        """libddp's hook is the Reducer's from the first forward on, unless the program has registered one."""
        super()._lazy_init()
        if self._comm_hooks:
            return
        for index, parameter in enumerate(self._parameters_lent):
            if len(getattr(parameter, "_post_accumulate_grad_hooks", None) or ()) > (index in self._noted):
                warnings.warn(f"parameter {self.model.names[index]!r} has a hook of register_post_accumulate_grad_hook, which runs before gradients are "
                              "reduced: what it does with them it does with those of this rank alone", RuntimeWarning, stacklevel=2)
                break
        dist._register_comm_hook(self.reducer, None, Call(self, "_take"))  # it may outlive the wrapper, where autograd holds it

    def _are_lent(self) -> bool:
        """Before a forward computation whose gradients will be reduced. Does the module have other parameters for one call
        (torch.func.functional_call)?"""
        check_company(self.group)
        parameters, self.modules_buffers = look(self.module)
        if self.parameters_to_ignore:
            parameters = [p for _, p in self._named_parameters()]
        if self._index_of.keys() >= set(map(id, parameters)):
            return False
        strange = [p for p in parameters if id(p) not in self._index_of]
        for parameter in strange:
            if isinstance(parameter, torch.nn.Parameter) and parameter.requires_grad:
                name = next((name for name, found in self.module.named_parameters() if found is parameter), "?")
                raise TensorError(f"parameter {name!r} was frozen, absent or another one when the module was wrapped, so its gradient would stay on "
                                  "this rank: wrap the module again after such a change")
        return any(not isinstance(parameter, torch.nn.Parameter) for parameter in strange)

    # ---- Buffers. ----

    def will_sync_module_buffers(self) -> bool:
        """In training only, so that one rank may evaluate alone."""
        return self.training and super().will_sync_module_buffers()

    def _check_sync_bufs_pre_fwd(self) -> bool:
        """Not where the last pass has sent them, and nothing was computed since."""
        return super()._check_sync_bufs_pre_fwd() and (self._join_config.enable or not self._replicated.are_equal)

    def _distributed_broadcast_coalesced(self, tensors: Any, buffer_size: int, authoritative_rank: int = 0) -> None:
        """All whose elements follow each other in one message."""
        if self.group.size == 1 or not tensors:
            return
        if self._options.get("uneven_inputs"):  # ranks that are out of data answer this call of the model alone
            self.model.sync_buffers(authoritative_rank, stream=self._stream())
            return
        dist._broadcast_coalesced(self._sending, [to_send(tensor) for tensor in tensors], buffer_size, authoritative_rank)

    # ---- Backward. ----

    def _take(self, state: None, bucket: Any) -> torch.futures.Future:  # noqa: ARG002  as PyTorch calls a hook
        """The Reducer has a bucket of this rank's gradients. Nothing waits here for other ranks."""
        buffer = bucket.buffer()
        learns = self.static_graph and self._used is None  # PyTorch gives all buckets, in order, when backward has ended, and waits at once
        found = self._buckets.find(bucket, buffer, len(self._pending) if learns else None)
        future = torch.futures.Future(devices=[buffer.device]) if buffer.is_cuda else torch.futures.Future()
        self._open_pass()
        self._expects = True  # also where the program has prepared the Reducer itself, as Lightning does for a backward() within forward()
        self._pending.append((future, found, buffer))
        self._buckets.bring(found, buffer)
        used = None if not self._allows_unused else self._seen if self._used is None else self._used
        self.model._mark_all(found.numbers, used, stream_of(buffer))
        if len(self._pending) == len(self._buckets.numbers):
            self._end_pass() if learns else self._call_at_end("_finish")  # before PyTorch does, which then waits
        return future

    def _open_pass(self) -> None:
        if self._open:
            return
        for kernels in self._optimizers:
            kernels.before_pass()
        self._begun, self._must_reset = False, True  # until it ends well
        # A forward() may put other data into parameters (a largest norm): they are lent again at the next one.
        self.model._open(PassMode.REDUCE, may_have_moved=not (self._replicated.followed or self._options.get("check_every")))
        self._open = True

    def _on_begin(self, gradient: torch.Tensor) -> None:  # noqa: ARG002
        """A backward pass has reached an output of a forward computation."""
        if not self._listens:
            return
        if self._expects:
            self._begun = True
            if self._end() is None:  # one that failed has let go of it
                self._end = weakref.ref(self._call_at_end("_finish_whole"))
        elif self._end() is None:
            warnings.warn("the gradients of this backward() are not reduced: those of its forward() were reduced already, as with a second "
                          "backward() through one graph; call forward() again", RuntimeWarning, stacklevel=2)

    def _call_at_end(self, name: str) -> Call:
        """Have autograd call a method when the backward pass ends. Asked for at its beginning, by the outputs' hooks, it is the whole pass;
        inside a checkpoint that runs autograd anew (use_reentrant=True) it is that checkpoint's alone."""
        end = Call(self, name)
        torch.autograd.Variable._execution_engine.queue_callback(end)
        return end

    def _finish(self) -> None:
        """All buckets have come, or none will any more."""
        if not self._expects or self._comm_hooks or (self.static_graph and self._used is None):
            return  # it has ended already, or will behind this
        if self._open or (self._sparse and self._seen) or self._without_gradient()[0]:
            self._end_pass()  # else no gradient came, as in torch.autograd.grad() of inputs

    def _finish_whole(self) -> None:
        self._end, self._begun = lambda: None, False
        given, self._given = self._given, []
        for index, (parameter, grad) in enumerate(zip(self._parameters_lent, given)):
            if grad is not None and (parameter.grad is None or not grad.is_in_place(parameter.grad) or parameter.grad._version != grad.version):
                raise InvalidStateError(f"the gradient of {self.model.names[index]!r} came twice in one pass, as of a module that two reentrant "
                                        "checkpoints use: give them use_reentrant=False, or DistributedDataParallel static_graph=True")
        self._finish()

    def _end_pass(self) -> None:
        """All ranks come here. PyTorch takes the results when this has returned."""
        self._open_pass()
        missing, why = self._mark_rest()
        if missing and self._allows_unused:
            self._put_off(why)
            self._give_up("its training graph has changed, although static_graph is set")
            return
        self._open = self._expects = self._begun = False
        pending, self._pending = self._pending, []
        try:
            self._end_model()
        except InvalidStateError as error:
            if " did not mark " not in str(error) or " abandoned the pass: " in str(error):  # not for lack of gradients alone
                raise
            self._put_off(f"{why}\n{error}; here that is find_unused_parameters=True".strip())
            self._must_reset = bool(missing)
            self._seen.clear()
            for future, _, buffer in pending:
                future.set_result(buffer)
            return
        self._must_reset = False
        if self.static_graph and self._used is None:
            self._used = set(self._seen)
        self._seen.clear()
        factor = self._scale()
        for future, bucket, buffer in pending:
            future.set_result(bucket.result(buffer))
        self._reduced += 1
        self._unsettled = factor
        self._after = Call(self, "_go_on")
        try:
            torch.autograd.Variable._execution_engine.queue_callback(self._after)  # behind PyTorch's
        except RuntimeError:  # the program has ended the first pass of a static graph itself, when backward() had returned, as Lightning does
            self._handles.append(register_optimizer_step_pre_hook(Call(self, "_go_on")))

    def _mark_rest(self) -> tuple[set[int], str]:
        """What comes at no hook of a bucket. Returns the parameters that have no gradient and should, and what PyTorch says of them."""
        missing = set()
        for index in self._sparse:
            if index in self._seen:
                self.model.mark_ready(index)
            elif self._allows_unused:
                self.model.mark_unused(index)
            else:
                missing.add(index)
        came = {bucket for _, bucket, _ in self._pending}
        rest = {index for bucket in self._buckets if bucket not in came for index in bucket.numbers}
        lacking, why = self._without_gradient() if rest else (set(), "")
        lacking = lacking & rest or rest
        for index in rest - lacking:
            self.model.mark_ready(index)
        return missing | lacking, why

    def _without_gradient(self) -> tuple[set[int], str]:
        """The parameters for which the Reducer waits; it tells of them in a sentence, which is the other result, with the numbers of the model."""
        found: set[int] = set()

        def in_model(text: re.Match) -> str:
            found.update(self._order[int(position)] for position in text[2].split() if self._order)
            return f"{text[1]} {' '.join(map(str, sorted(found)))}"

        try:
            self.reducer._check_reducer_finalized()
        except RuntimeError as error:
            return found, re.sub(r"(did not receive grad for rank \d+:)((?: \d+)+)", in_model, str(error))
        return found, ""

    def _put_off(self, why: str) -> None:
        """A parameter got no gradient. As with PyTorch's wrapper backward() itself returns, with a warning. The error comes at the next forward(), or
        before an optimizer would make a step with the gradients that were not reduced."""
        self.logger.set_error_and_log(why)
        self._unreduced = why
        if self._before_steps is None:
            self._before_steps = register_optimizer_step_pre_hook(Call(self, "_before_step"))
        warnings.warn(f"this backward() did not reduce gradients, so a step of an optimizer and the next forward() will fail: {why}", RuntimeWarning,
                      stacklevel=2)

    def _before_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if any(id(p) in self._index_of for p in parameters_of(optimizer)):
            self._check_reduced()

    def _check_reduced(self) -> None:
        """Raise the error of the last pass, once."""
        if self._unreduced is not None:
            self._before_steps.remove()
            why, self._unreduced, self._before_steps = self._unreduced, None, None
            raise InvalidStateError(why)

    def _end_model(self) -> None:
        """Where replicas are made equal, the end of the pass may send the majority's parameters and buffers."""
        if self._repairs is not None:
            self._replicated.take()
        self.model.end_backward(stream=self._stream())
        if self._repairs is not None and self._repairs != (repairs := self.model.stats()["repairs"]):
            self._repairs = repairs
            self._replicated.give()

    def _scale(self) -> float:
        """Where ranks without data do not count, gradients are more than the mean over the world. Returns how much more."""
        if not self._join_config.enable or self._divide_by_initial_world_size:
            return 1.0
        factor = self.group.size / (self.model.pass_report().contributors or self.group.size)
        if factor != 1.0:
            self.model.scale_grad(factor, stream=self._stream())
        return factor

    def _go_on(self, *_: Any) -> None:
        """PyTorch has written p.grad."""
        if self._after is None:
            return
        self._after = None
        if self._end() is not None:  # within a reentrant checkpoint: no gradient may come any more
            self._given = [None if p.grad is None else Given(p.grad) for p in self._parameters_lent]
        for kernels in self._optimizers:
            kernels.after_pass()
        self._settle()

    def _settle(self) -> None:
        """What the ranks exchange after their passes. While a pass of another wrapper is open, as in one backward() through two of them, that
        waits for its end. In the order in which all ranks have made them."""
        alike = [wrapper for wrapper in WRAPPERS if wrapper.group is self.group]
        if not any(wrapper._open for wrapper in alike):
            for wrapper in alike:
                wrapper._exchange()

    def _exchange(self) -> None:
        factor, self._unsettled = self._unsettled, None
        if factor is None:
            return
        self._sparse.reduce(self.model, self._parameters_lent, factor=factor)
        if not hasattr(self, "buffer_hook") and not self._join_config.enable and self.will_sync_module_buffers():
            self._sync_buffers()  # so that an evaluation or a file of any rank has the same
            self._replicated.are_equal = True

    def _give_up(self, why: str = "an exception ended its backward pass") -> None:
        """The last backward() has not ended: its pass is still open here or on the other ranks, which wait."""
        if not self._comm_hooks and (self._open or self._begun):
            with contextlib.suppress(Error):
                if not self._open:
                    self.model.begin_backward()
                self.model.abandon_backward(why, stream=self._stream())
        self._open = self._begun = self._expects = self._must_reset = False
        self._pending.clear()
        self._seen.clear()
        self.reducer._reset_state()
        self._rebuild_buckets()
        self._buckets.forget_places()

    # ---- Unequal data. ----

    def join(self, divide_by_initial_world_size: bool = True, enable: bool = True, throw_on_early_termination: bool = False) -> Any:
        """Train inside on unequal data: a rank that leaves answers the others' passes until all have left. Then all ranks go on with the same
        parameters and buffers. It is PyTorch's context manager, and works over its process group; with the option uneven_inputs=True it is
        libddp's, which also brings libddp's optimizers and averages to one state and needs no torch.distributed."""
        if self._options.get("uneven_inputs"):
            return self._join_own()
        if self.process_group is None:
            raise InvalidStateError("join() needs torch.distributed to be initialised, or DistributedDataParallel(..., uneven_inputs=True)")
        return super().join(divide_by_initial_world_size, enable, throw_on_early_termination)

    @contextlib.contextmanager
    def _join_own(self) -> Iterator[None]:
        yield
        self._replicated.take()
        self.model.join(stream=self._stream())
        self._replicated.give()

    def _match_all_reduce_for_bwd_pass(self) -> None:
        """Of a rank that has joined: answer one pass of the others."""
        if self._comm_hooks:
            super()._match_all_reduce_for_bwd_pass()
            return
        self.model.skip_backward(stream=self._stream())
        self._sparse.reduce(self.model, self._parameters_lent, has_data=False)

    def _match_unused_params_allreduce(self) -> None:
        if self._comm_hooks:
            self._fill(self.reducer._get_local_used_map())

    def _sync_final_model(self, is_last_joiner: bool) -> None:
        """All have joined."""
        self.model.wait_values()
        super()._sync_final_model(is_last_joiner)

    # ---- Settings. ----

    def register_comm_hook(self, state: object, hook: Any) -> None:
        """As PyTorch's, with its hooks or your own: it reduces in the place of libddp, over torch.distributed. All ranks give it, once."""
        self._check_comm_hook(hook)
        if self._comm_hooks or self._hook is not None:
            raise RuntimeError("register_comm_hook or register_builtin_comm_hook can only be called once.")
        if self._replicated.followed:
            raise InvalidStateError("with a hook of the program libddp reduces nothing, but an optimizer or averages of libddp wait for its passes: "
                                    "make them without register_comm_hook, or afterwards in the class of torch.optim")
        if self._lazy_init_ran:  # the Reducer has libddp's
            self._rewrap("register_comm_hook")
        super().register_comm_hook(state, hook)

    def _register_builtin_comm_hook(self, comm_hook_type: Any) -> None:
        """One of the hooks that PyTorch has built in: the plain reduction, or 16 bits on the wire."""
        self.register_comm_hook(None, {dist.BuiltinCommHookType.ALLREDUCE: default_hooks.allreduce_hook,
                                       dist.BuiltinCommHookType.FP16_COMPRESS: default_hooks.fp16_compress_hook}[comm_hook_type])
        self.logger._set_comm_hook_name(str(comm_hook_type))

    def _set_static_graph(self) -> None:
        """As the argument static_graph."""
        if "model" not in self.__dict__:  # PyTorch's constructor
            super()._set_static_graph()
        elif not self.static_graph:
            if self._open or self.model.stats()["passes"]:
                self._log_and_throw(RuntimeError, "self.static_graph should be called before training loop starts: it makes a new model.")
            self.static_graph = self._rebuilds = True
            self._rewrap("_set_static_graph")

    def _remove_autograd_hooks(self) -> None:
        """Listen to gradients no more; for good."""
        if self._open:
            self._give_up()
        super()._remove_autograd_hooks()
        self._listens = False

    # ---- Copies. ----

    def __getstate__(self) -> dict:
        self.model.wait_values()
        self._check_default_group()
        return {name: value for name, value in self.__dict__.items() if name not in _NOT_COPIED}

    def __setstate__(self, state: dict) -> None:
        torch.nn.Module.__setstate__(self, {"_process_group": None, **state})
        self._make_reducer()
        self._wrap(send_values=False, send_buffers=False)

    def __deepcopy__(self, memo: dict) -> DistributedDataParallel:
        """On all ranks: the copy is a model of its own, with the values that each rank has."""
        self.model.wait_values()
        other = memo[id(self)] = type(self).__new__(type(self))
        state = {name: copy.deepcopy(value, memo) for name, value in self.__dict__.items() if name not in _NOT_COPIED}
        other.__setstate__({**state, "_process_group": self._process_group, "group": self.group})
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

    def _wait_for_late_values(self) -> LateValues:
        if self._late is None:
            self._late = LateValues(self.model, self.module, self._parameters_lent)
        return self._late

    def _let_go(self) -> None:
        if self._late is not None:
            self._late.close()
        if self.reducer is not None:
            super()._remove_autograd_hooks()
        self.reducer = self.logger = None  # they hold what the last pass gave
        self._listens = False
        for handle in self._handles:
            handle.remove()
        self._buckets.close()
        self._memory.clear()
        for parameter in self._parameters_lent if self._options.get("own_values") else ():
            parameter.data = parameter.data.clone()
        self.model.__exit__()  # what is left of its gradients takes it along

    def close(self) -> None:
        """Let go of the module: its parameters and gradients stay, with memory of their own."""
        self._let_go()
        self.model.close()


# What a copy makes anew.
_NOT_COPIED = {"group", "_process_group", "_ranks", "_sending", "reducer", "logger", "model", "_parameters_lent", "_order", "_index_of", "_memory",
               "_replicated", "_sparse", "_buckets", "_pending", "_end", "_after", "_optimizers", "_used", "_seen", "_noted", "_handles", "_given",
               "_before_steps", "_unsettled", "_late"}


def _of_wrappers_within(module: torch.nn.Module) -> set[str]:
    """Names of the parameters and buffers that an inner wrapper takes care of."""
    return {f"{prefix}.module.{name}" for prefix, part in module.named_modules() if isinstance(part, DistributedDataParallel)
            for found in (part.module.named_parameters(), part.module.named_buffers()) for name, _ in found}


def _note(seen: set[int], index: int) -> Callable[[torch.Tensor], None]:
    return lambda parameter: seen.add(index)


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
