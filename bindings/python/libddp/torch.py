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
import weakref
from typing import Any, Iterator, Mapping, Optional, Sized

import torch

from ._enums import Drift, choose
from ._errors import Error, TensorError
from ._group import Group
from ._model import Model
from ._sampler import Sampler
from ._torch_group import group as group
from ._torch_group import is_alone_among_others
from ._torch_norm import SyncBatchNorm as SyncBatchNorm
from ._torch_norm import stream_of
from ._torch_packs import Packs
from ._torch_tensors import Buffers, look, name_of


class DistributedDataParallel(torch.nn.Module):
    """Wrap a module: after backward() every rank has the mean of all ranks' gradients.

    The first argument is the module. Of PyTorch's other arguments these count: broadcast_buffers, bucket_cap_mb, find_unused_parameters
    and process_group (PyTorch's, or a :class:`libddp.Group`); gradients are always views of the buckets, and one module has one device, so
    the rest is accepted and needs nothing. A module on a GPU is reduced by NCCL, in the order of PyTorch's current streams. `hook` is what
    ``libddp.Model.set_hook`` takes; `options` go to :class:`libddp.Model`, such as wire="bf16". Sparse gradients are reduced, and
    left in ``p.grad``, as dense ones.
    """

    def __init__(self, module: torch.nn.Module, device_ids: Any = None, output_device: Any = None, dim: int = 0,
                 broadcast_buffers: bool = True, process_group: Any = None, bucket_cap_mb: Optional[float] = None,
                 find_unused_parameters: bool = False, check_reduction: bool = False, gradient_as_bucket_view: bool = True,
                 static_graph: bool = False, hook: Any = None, **options: Any) -> None:
        super().__init__()
        self.module = module
        self.broadcast_buffers = broadcast_buffers
        self.find_unused_parameters = find_unused_parameters
        self.require_backward_grad_sync = True
        self.group: Group = group(process_group, device_index=next((p.device.index for p in module.parameters() if p.is_cuda), None))
        if bucket_cap_mb is not None:
            options.setdefault("bucket_bytes", int(bucket_cap_mb * 1024 * 1024))
        if find_unused_parameters:
            options.setdefault("unused", "allow")
        self.model = Model(self.group, **options)  #: for stats(), plan(), check() and checkpoints of libddp.State
        if hook is not None:
            self.model.set_hook(hook)
        self._parameters_lent = [p for p in module.parameters() if p.requires_grad]
        self._known = set(map(id, self._parameters_lent))
        self._replicated = Buffers(module)
        self._lend()
        self._grads = [torch.from_dlpack(self.model.grad(index)) for index in range(len(self._parameters_lent))]
        self._open: Optional[bool] = None  # is a pass open, and does it reduce?
        self._end: Any = None  # a reference to what autograd calls when the backward pass ends
        self._marked = [False] * len(self._grads)
        self._packs = Packs(self.model, self._parameters_lent, self._grads)
        self._uneven = bool(options.get("uneven_inputs"))
        resends = choose(Drift, options.get("drift", "report")) == Drift.RESEND
        self._repairs: Optional[int] = 0 if resends else None  # passes that made replicas equal again
        self._hooks = [p.register_post_accumulate_grad_hook(_hook(self, index)) for index, p in enumerate(self._parameters_lent)]

    def _lend(self) -> None:
        for name, parameter in self.module.named_parameters():
            if parameter.requires_grad:
                self.model.add_parameter(name, parameter)
            else:
                self._lend_frozen(name, parameter)
        for name, buffer in self.module.named_buffers():
            self.model.add_buffer(name, self._replicated.stage(name, buffer))
        self.model.mirror(self._replicated)
        self.model.commit(stream=self._stream())

    def _stream(self) -> Optional[int]:
        return stream_of(self._parameters_lent[0]) if self._parameters_lent else None

    def _lend_frozen(self, name: str, parameter: torch.Tensor) -> None:
        if parameter.dtype in _OTHER_DTYPES and parameter.is_contiguous():
            parameter = parameter.detach().reshape(-1).view(torch.uint8)  # bytes that only travel
        self.model.add_buffer(name, parameter)

    # ---- Forward. ----

    def forward(self, *inputs: Any, **keywords: Any) -> Any:
        if self._open is not None:
            self._give_up()
        if not torch.is_grad_enabled():
            return self.module(*inputs, **keywords)
        if self.require_backward_grad_sync:
            self._look()
        outputs = self.module(*inputs, **keywords)
        for output in [outputs] if isinstance(outputs, torch.Tensor) else torch.utils._pytree.tree_flatten(outputs)[0]:
            if isinstance(output, torch.Tensor) and output.grad_fn is not None:
                output.register_hook(_begin(self))
        return outputs

    def _look(self) -> None:
        """Before a forward computation whose gradients will be reduced: what does the module hold now?"""
        if is_alone_among_others(self.group):
            self.group._check_company()
        parameters, buffers = look(self.module)
        for parameter in parameters:
            if parameter.requires_grad and id(parameter) not in self._known:
                raise TensorError(f"parameter {name_of(self.module, parameter)!r} was frozen, absent or another one when the module was "
                                  "wrapped, so its gradient would stay on this rank: wrap the module again after such a change")
        if not buffers or not self.broadcast_buffers or not self.training or self.group.size == 1:
            return
        if self._uneven:  # ranks that are out of data answer this call of the model alone
            self.model.sync_buffers(0, stream=self._stream())
        else:
            self._replicated.send(self.group, buffers)

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
            self._open = self.require_backward_grad_sync
            self.model.begin_backward("reduce" if self._open else "accumulate")
            self._marked = [False] * len(self._grads)
            self._packs.begin()
            self._on_begin()
        if self._marked[index]:
            self._packs.flush()  # so that the model can say that it is marked twice
        if self._marked[index] or not self._packs.take(index):
            self._attach(index, parameter)
            self.model.mark_ready(index, stream=stream_of(self._grads[index]))
        self._marked[index] = True
        self._packs.count(index)

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
        reduces, self._open = self._open, None
        if reduces and self.find_unused_parameters:
            for index, marked in enumerate(self._marked):
                if not marked:
                    if self._parameters_lent[index].grad is None:
                        self._grads[index].zero_()
                    else:
                        self._attach(index, self._parameters_lent[index])
                    self.model.mark_unused(index)
        if self._repairs is None:
            self.model.end_backward(stream=self._stream())
        else:
            self._end_with_repairs()
        if reduces and self.find_unused_parameters:
            for index, parameter in enumerate(self._parameters_lent):
                if parameter.grad is None and self.model.was_used(index):
                    parameter.grad = self._grads[index]

    def _end_with_repairs(self) -> None:
        """The end of the pass may send the majority's parameters and buffers."""
        self._replicated.take()
        self.model.end_backward(stream=self._stream())
        repairs = self.model.stats()["repairs"]
        if repairs != self._repairs:
            self._repairs = repairs
            self._replicated.give()

    def _give_up(self) -> None:
        """The last backward() ended with an exception: its pass is still open, and the other ranks wait."""
        self._open = None
        self._packs.drop()
        with contextlib.suppress(Error):
            self.model.abandon_backward("an exception ended its backward pass", stream=self._stream())

    @contextlib.contextmanager
    def join(self) -> Iterator[None]:
        """Train inside on unequal data: a rank that leaves answers the others' passes until all have left. Then all ranks go on with the
        same parameters. Needs uneven_inputs=True."""
        yield
        self._replicated.take()
        self.model.join(stream=self._stream())
        self._replicated.give()

    # ---- State. ----

    def state_dict(self, *arguments: Any, **keywords: Any) -> Any:
        """The module's own, with plain names."""
        return self.module.state_dict(*arguments, **keywords)

    def load_state_dict(self, state_dict: Mapping[str, Any], *arguments: Any, **keywords: Any) -> Any:
        """The module's own; names that begin with "module." (saved by PyTorch's wrapper) are understood too."""
        if state_dict and all(name.startswith("module.") for name in state_dict):
            state_dict = {name[len("module."):]: value for name, value in state_dict.items()}
        return self.module.load_state_dict(state_dict, *arguments, **keywords)

    def close(self) -> None:
        """Let go of the module: its parameters and gradients stay, with memory of their own."""
        for hook in self._hooks:
            hook.remove()
        for index, parameter in enumerate(self._parameters_lent):
            if parameter.grad is self._grads[index]:
                parameter.grad = self._grads[index].clone()
        self._hooks, self._grads = [], []
        self._packs = Packs(self.model, [], [])
        self.model.close()


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


_OTHER_DTYPES = {torch.bool, torch.int8, torch.int16}


class DistributedSampler(torch.utils.data.Sampler):
    """This rank's share of a data set, for a DataLoader: the arguments of PyTorch's class of this name, the order of
    :class:`libddp.Sampler`. Call set_epoch() before each epoch. `start` is where the next iteration begins, for resuming."""

    def __init__(self, dataset: Sized, num_replicas: Optional[int] = None, rank: Optional[int] = None, shuffle: bool = True, seed: int = 0,
                 drop_last: bool = False) -> None:
        self.epoch = self.start = 0
        self._sampler = Sampler(len(dataset), rank=group().rank if rank is None else rank, shuffle=shuffle, seed=seed,
                                size=group().size if num_replicas is None else num_replicas, drop_last=drop_last)

    def set_epoch(self, epoch: int, start: int = 0) -> None:
        """Choose the order of the next iteration."""
        self.epoch, self.start = epoch, start

    def __iter__(self) -> Iterator[int]:
        return iter(self._sampler.indices(self.epoch, self.start))

    def __len__(self) -> int:
        return len(self._sampler) - self.start
