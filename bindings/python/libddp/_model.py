# SPDX-License-Identifier: Apache-2.0
"""Models: the parameters and buffers that a program lends, and the passes over their gradients."""
from __future__ import annotations

import weakref
from collections.abc import MutableMapping
from typing import Any, Callable, Iterator, Optional, Protocol, Sequence

from . import low
from ._enums import Divisor, Drift, DType, Progress, Reduce, Unused
from ._errors import InvalidStateError, NotSupportedError, TensorError
from ._group import Group
from ._handle import Closing, Handle
from ._hook import Pulling
from ._options import fill, read
from ._passes import Key, Passes
from ._tensor import Lent, Watched, lend
from ._view import View
from ._wait import call
from ._written import written


class Metadata(MutableMapping):
    """Texts that are saved and loaded with a model: ``model.metadata["note"] = "..."``."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def __getitem__(self, key: str) -> str:
        value = low.ddp_model_get_metadata(self._model._raw, key)
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: str, value: str) -> None:
        low.ddp_model_set_metadata(self._model._raw, key, value)

    def __delitem__(self, key: str) -> None:
        self[key]  # KeyError where there is none
        low.ddp_model_set_metadata(self._model._raw, key, None)

    def __iter__(self) -> Iterator[str]:
        raise TypeError("libddp does not list the texts of a model: ask for them by name")

    def __len__(self) -> int:
        raise TypeError("libddp does not count the texts of a model")

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and low.ddp_model_get_metadata(self._model._raw, key) is not None


class Mirror(Protocol):
    """Values that an adapter keeps elsewhere than in the memory that it lent."""

    def take(self) -> None:
        """Copy the program's values to the lent memory."""

    def give(self) -> None:
        """Copy the lent memory to the program's values."""

    def check_in_place(self) -> None:
        """Raise where the program's parameters are not the lent memory, so that changing it is of no use."""


class Model(Passes, Pulling, Closing):
    """What is trained. Lend parameters in the order of the forward computation, then commit().

    Keywords are the fields of ``ddp_model_options``: first_bucket_bytes, bucket_bytes, reduce ("average" or "sum"), unused ("error" or
    "allow"), progress ("auto", "caller" or "thread"), check_every, drift ("report" or "resend"),
    divisor ("world" or "weights"), uneven_inputs, wire ("f16" or "bf16": gradients travel with 16 bits), own_values (libddp keeps the
    values from commit() on, where value() finds them, and lets go of the tensors that were lent).

    What is lent stays alive until the model is closed. Its memory must stay where it is; where a tensor can move under our hands (torch's
    ``.data = ...``), the next pass refuses it.
    """

    def __init__(self, group: Group, **options: Any) -> None:
        struct = fill(low.ddp_model_options(), low.ddp_model_options_init, options,
                      {"reduce": Reduce, "unused": Unused, "progress": Progress, "drift": Drift, "divisor": Divisor, "wire": DType})
        self.group = group
        self._handle = Handle(low.ddp_model_create(group._raw, struct), low.ddp_model_destroy, group._handle)
        self._names: dict[str, int] = {}
        self._lent: dict[tuple, Lent] = {}
        self._recoveries = 0
        self._watched = Watched()
        self._called: dict[tuple, str] = {}  # what is watched, for errors
        self._views: weakref.WeakSet[View] = weakref.WeakSet()
        self._failed: list[BaseException] = []
        self._mirror: Optional[Mirror] = None
        self._in_other_order = ""  # a tensor whose axes libddp sees in another order than the program
        self._sharded = False  # has it an optimizer with shard?
        self._left_out = ""  # a parameter of an adapter that libddp does not train, and why
        self._own_values = bool(options.get("own_values", False))
        self._copied: list[Lent] = []  # values that libddp has copied on a stream
        self.metadata = Metadata(self)  #: texts in checkpoints
        group._models.add(self)

    @property
    def _raw(self) -> Any:
        raw = self._handle._raw  # looked at here, because each mark asks
        return self._handle.get("model") if raw is None else raw

    def _collective(self, function: Callable, *arguments: Any) -> Any:
        raw = self._raw
        if self.group.closed or self.group.size == 1:
            return function(raw, *arguments)
        group = self.group._raw
        return call(lambda reason: low.ddp_group_abort(group, reason), function, raw, *arguments)

    def _perhaps_collective(self, function: Callable, *arguments: Any) -> Any:
        return self._collective(function, *arguments) if self._sharded else function(self._raw, *arguments)

    # ---- What is lent. ----

    def add_parameter(self, name: str, value: Any, grad: Any = None) -> int:
        """Lend a parameter, and its gradient if the program has one; without, libddp keeps it (see grad()). Returns its number."""
        lent = lend(value, f"parameter {name!r}")
        other = None if grad is None else lend(grad, f"the gradient of {name!r}")
        if other is not None and (other.dtype, other.shape) != (lent.dtype, lent.shape):
            raise TensorError(f"the gradient of {name!r} is {other}, its parameter {lent}: they must be alike")
        index = low.ddp_model_add_parameter(self._raw, name, lent.tensor, None if other is None else other.tensor)
        self._names[name] = index
        self._keep(("value", index), lent, f"parameter {name!r}")
        if other is not None:
            self._keep(("grad", index), other, f"the gradient of {name!r}")
        return index

    def add_parameter_without_grad(self, name: str, value: Any) -> int:
        """Lend a parameter whose gradient comes later: :meth:`set_grad` gives it in each pass, before its mark. Returns its number."""
        lent = lend(value, f"parameter {name!r}")
        index = low.ddp_model_add_parameter_without_grad(self._raw, name, lent.tensor)
        self._names[name] = index
        self._keep(("value", index), lent, f"parameter {name!r}")
        return index

    def add_buffer(self, name: str, value: Any) -> int:
        """Lend a tensor that belongs to the model but is not trained. Returns its number."""
        lent = lend(value, f"buffer {name!r}")
        index = low.ddp_model_add_buffer(self._raw, name, lent.tensor)
        self._keep(("buffer", index), lent, f"buffer {name!r}")
        return index

    def _keep(self, key: tuple, lent: Lent, what: str) -> None:
        former = self._lent.get(key)
        self._lent[key] = lent
        if not self._handle.kept or self._handle.kept[-1] is not self._lent:
            self._handle.kept.append(self._lent)  # until the model is destroyed
        if key in self._called or (former is None and lent.place is not None):
            self._watched.put(key, lent.place, what)
            self._called[key] = what

    def _forget(self, key: tuple) -> None:
        self._lent.pop(key, None)
        self._watched.pop(key, None)
        self._called.pop(key, None)

    def _watch(self, owner: Any, what: str) -> None:
        """The owner of memory that the model knows in another way: has it moved?"""
        self._watched.put((what,), owner.data_ptr, what)

    def set_buckets(self, buckets: Sequence[Sequence[Key]]) -> None:
        """Say which gradients share a bucket, and the order of buckets and of the gradients in each: every parameter once, by name or
        number. Before commit(), after the last parameter. In host memory the gradients that libddp owns then follow each other with no gap, and a
        bucket begins at a page. Experimental."""
        numbers: list[int] = []
        for bucket in buckets:
            numbers += [-1] if numbers else []
            numbers += [self.index(key) for key in bucket]
        low.ddp_model_set_buckets(self._raw, numbers)

    def commit(self, *, stream: Optional[int] = None) -> None:
        """Agree with all ranks on the model; rank 0's values go to every rank; buckets are planned."""
        self._check_moved()
        if not self.group.closed and self.group.size == 1:
            self.group._check_company()  # a framework may have brought the others meanwhile
        self._collective(low.ddp_model_commit, stream)
        if self._own_values:
            self._let_go_of_values(stream)
        self._give()
        self._values_written()

    def reopen(self, *, stream: Optional[int] = None) -> None:
        """Lead the committed model back to building, with what it has learnt: add and remove parameters and buffers, then commit() again.
        What stays keeps its number, its value and its gradient, the state of optimizers and averages. Experimental."""
        self._take()
        self._collective(low.ddp_model_reopen, stream)

    def remove_parameter(self, key: Key) -> None:
        """Take a parameter out of a model that is building, by name or number; the number is not used again. Experimental."""
        index = self.index(key)
        low.ddp_model_remove_parameter(self._raw, index)
        for name in [name for name, number in self._names.items() if number == index]:
            del self._names[name]
        for kind in ("value", "grad"):
            self._forget((kind, index))

    def remove_buffer(self, index: int) -> None:
        """Take a buffer out of a model that is building, by the number that add_buffer() gave. Experimental."""
        low.ddp_model_remove_buffer(self._raw, index)
        self._forget(("buffer", index))

    def _let_go_of_values(self, stream: Optional[int]) -> None:
        """libddp has them; they were copied on `stream`."""
        gone = []
        for key in [key for key in self._lent if key[0] == "value"]:
            lent = self._lent[key]
            gone.append(lent)
            what = self._called.pop(key, None)
            if what is not None:
                self._watched.drop(what)
            self._lent[key] = Lent(low.ddp_model_get_value(self._raw, key[1]), None)
        if stream is not None:
            self._copied = gone  # until the model is closed: nobody says when the stream has come so far

    def mirror(self, mirror: Optional[Mirror]) -> None:
        """For adapters: values are kept elsewhere, and copied whenever the model reads or writes them as a whole."""
        self._mirror = mirror

    def _check_all_here(self) -> None:
        """An optimizer or averages of all parameters are about to be made."""
        if self._left_out:
            raise NotSupportedError(f"libddp's optimizers and averages would leave out {self._left_out}")

    def _check_in_place(self) -> None:
        if self._mirror is not None:
            self._mirror.check_in_place()

    def _take(self) -> None:
        """Before all values are read: each is where and as it was lent, or copied there."""
        self._check_moved()
        for key, what in self._called.items():
            lent = self._lent[key]
            now = lend(lent.value, what)
            if now.tensor != lent.tensor:
                raise TensorError(f"{what} is {now} now and was {lent} when it was lent; keep its shape and element type, or make a new "
                                  "model")
        if self._mirror is not None:
            self._mirror.take()

    def _give(self) -> None:
        if self._mirror is not None:
            self._mirror.give()

    def _values_written(self, of_pass: bool = False) -> None:
        """libddp has changed the parameters, or those that were used in the last pass."""
        written(lent.value for key, lent in self._lent.items()
                if key[0] == "value" and not (of_pass and low.ddp_model_was_used(self._raw, key[1]) == 0))

    def _before_recovery(self) -> None:
        """The group is about to bring replicas to one state, in the memory that was lent."""
        self._failed.clear()
        if not self.closed and not self._is_elsewhere():
            self._take()

    def _after_recovery(self) -> None:
        self._recoveries += 1
        if not self.closed and not self._is_elsewhere():
            self._give()
            self._values_written()

    def _is_elsewhere(self) -> bool:
        """Are the program's parameters elsewhere (JAX)? Then the program sends them itself."""
        try:
            self._check_in_place()
        except InvalidStateError:
            return True
        return False

    def index(self, key: Key) -> int:
        """The number of a parameter, by name or number."""
        return key if isinstance(key, int) else self._names[key]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters, in the order of their numbers."""
        return tuple(self._names)

    def __len__(self) -> int:
        return low.ddp_model_get_parameter_count(self._raw)

    def value(self, key: Key) -> Any:
        """The value of a parameter: the program's own tensor as it was lent, or, with own_values, a :class:`View` of libddp's memory."""
        index = self.index(key)
        lent = self._lent[("value", index)]
        if lent.value is not None:
            return lent.value
        view = View(low.ddp_model_get_value(self._raw, index), self._handle)
        self._views.add(view)
        return view

    # ---- Gradients. ----

    def grad(self, key: Key) -> Any:
        """The gradient of a parameter: the program's own tensor as it was lent, or, where libddp keeps it, a :class:`View` of it."""
        index = self.index(key)
        lent = self._lent.get(("grad", index))
        if lent is not None:
            return lent.value
        view = View(low.ddp_model_get_grad(self._raw, index), self._handle)
        self._views.add(view)
        return view

    def set_grad(self, key: Key, grad: Optional[Any]) -> None:
        """Give this pass's gradient, for frameworks whose gradients move. It is kept until the next set_grad(); None, for a parameter that
        was added without a gradient: libddp uses its memory no more."""
        index = self.index(key)
        if grad is None:
            low.ddp_model_set_grad(self._raw, index, None)
            self._forget(("grad", index))
            return
        lent = lend(grad, f"the gradient of parameter {key!r}")
        value = self._lent[("value", index)]
        if (lent.dtype, lent.shape) != (value.dtype, value.shape):
            raise TensorError(f"the gradient of parameter {key!r} is {lent}, its parameter {value}: they must be alike")
        low.ddp_model_set_grad(self._raw, index, lent.tensor)
        self._keep(("grad", index), lent, f"the gradient of parameter {key!r}")

    def zero_grad(self, *, stream: Optional[int] = None) -> None:
        """Set all gradients to zero."""
        low.ddp_model_zero_grad(self._raw, stream)

    def mark_reduced(self) -> None:
        """The program has reduced all gradients over the ranks itself, for example with mpi4py, and not in a pass: they are good for one
        step of each optimizer, as those of a reducing pass. They must have the same bits on all ranks. Call it on all ranks, before each
        such step."""
        low.ddp_model_mark_reduced(self._raw)

    def grad_norm(self, p: float = 2.0, *, stream: Optional[int] = None) -> float:
        """Norm over all gradients as one vector; the same bits on every rank after a reducing pass. Collective with a sharded
        optimizer."""
        return self._perhaps_collective(low.ddp_model_get_grad_norm, p, stream)

    def scale_grad(self, factor: float, *, stream: Optional[int] = None) -> None:
        """Multiply all gradients by `factor`."""
        low.ddp_model_scale_grad(self._raw, factor, stream)

    def clip_grad_norm(self, max_norm: float, p: float = 2.0, *, stream: Optional[int] = None) -> float:
        """Scale all gradients down together so that their norm is at most `max_norm`. Returns the norm before. Collective with a sharded
        optimizer; the optimizers can clip too (option max_norm)."""
        return self._perhaps_collective(low.ddp_model_clip_grad_norm, max_norm, p, stream)

    def clip_grad_value(self, limit: float, *, stream: Optional[int] = None) -> None:
        """Limit every element of the gradients to a magnitude of `limit`."""
        low.ddp_model_clip_grad_value(self._raw, limit, stream)

    # ---- Values that come after their step (late_values). ----

    def wait_value(self, key: Key, *, stream: Optional[int] = None) -> None:
        """Until a parameter has its value of the last step. Other ranks may give it."""
        self._perhaps_collective(low.ddp_model_wait_value, self.index(key), stream)

    def wait_values(self) -> None:
        """Until all parameters have their values of the last steps."""
        self._perhaps_collective(low.ddp_model_wait_values)

    def value_ready(self, key: Key) -> bool:
        """Has a parameter its value of the last step? Never waits."""
        return low.ddp_model_value_ready(self._raw, self.index(key)) == 1

    # ---- Being equal. ----

    def sync_buffers(self, root: int = 0, *, stream: Optional[int] = None) -> None:
        """Copy all buffers from one rank to the others."""
        self._take()
        self._collective(low.ddp_model_sync_buffers, root, stream)
        self._give()

    def check_replicas(self, *, stream: Optional[int] = None) -> None:
        """Raise MismatchError unless parameters and buffers are bitwise equal on all ranks."""
        self._take()
        self._collective(low.ddp_model_check_replicas, stream)

    def hash(self) -> int:
        """One 64-bit number over the names and contents of all parameters of this rank."""
        self._take()
        return low.ddp_model_get_hash(self._raw) & 0xFFFFFFFFFFFFFFFF

    def stats(self) -> dict[str, int]:
        """Numbers of the last and of all passes: the fields of ``ddp_model_stats``."""
        return read(low.ddp_model_get_stats(self._raw))

    def plan(self) -> str:
        """The bucket plan as text, one line per bucket."""
        needed = low.ddp_model_describe_plan(self._raw, None)
        buffer = bytearray(needed)
        low.ddp_model_describe_plan(self._raw, buffer)
        return buffer[:-1].decode()

    def close(self) -> None:
        """Destroy the model. Refused while somebody looks at gradients that libddp keeps."""
        if len(self._views):
            raise InvalidStateError("gradients of this model are still in use: drop what was made from grad() first")
        self._handle.close()
        self._watched.clear()  # it keeps what was lent alive

    def __exit__(self, *_: object) -> None:
        if not len(self._views):  # otherwise the last view takes the model along
            self.close()
