# SPDX-License-Identifier: Apache-2.0
"""JAX: gradients as a pytree in, averaged out.

::

    sync = libddp.jax.DataParallel(params)
    params = sync.broadcast(params)                 # rank 0's values
    grads = sync.average(jax.grad(loss)(params, batch))
    sync.save("model.safetensors", params)          # and params = sync.load("model.safetensors").params

JAX arrays are immutable and their memory is JAX's own, so one copy goes in and one comes out. Leaves are taken in reverse order as they
become ready: while the first layers are still being computed, the last layers' gradients travel.

``sync.average`` may also stand inside ``jax.jit``, so that a whole step is one program. XLA then calls libddp when all gradients are there:
nothing travels while they are computed.

On a GPU ``average`` is an operation of XLA in both cases: libddp reduces the gradients through NCCL where XLA has them, in the order of XLA's
stream. The host waits for the hosts of the other ranks, and outside ``jit`` also for the means. Parameters that are saved, loaded, compared or
broadcast go through host memory.
"""
from __future__ import annotations

import contextlib
import os
from typing import Any, BinaryIO, Iterator, NamedTuple, Optional, Union

import jax
import numpy as np

from . import _jax_gpu
from . import _xla_average as _xla
from ._errors import InvalidStateError, TensorError
from ._group import Group
from ._model import Model
from ._state import State
from ._tensor import lend
from .numpy import as_array


class Loaded(NamedTuple):
    """What a checkpoint held."""

    params: Any
    state: Any  #: the second pytree, where the wrapper was made with one
    epoch: int
    step: int
    missing: list[str]  #: as in :class:`libddp.Loaded`; these keep the values that were given last
    unexpected: list[str]


class _Elsewhere:
    """The mirror of a model whose values libddp cannot look at."""

    def take(self) -> None:
        raise InvalidStateError("the parameters are JAX arrays, of which this model has an old copy: use the methods of "
                                "libddp.jax.DataParallel, which are given the current ones (save, load, check, broadcast)")

    give = check_in_place = take


class DataParallel:
    """The ranks' agreement on a pytree of parameters: names, shapes and dtypes of its leaves. `state` is a second pytree, of what belongs to
    checkpoints but has no gradient: an optimizer's moments, running statistics. `options` go to :class:`libddp.Model`.

    Where the parameters are on a GPU, gradients are reduced there. That takes memory of JAX's on the GPU as large as the parameters, and twice
    that while the wrapper is made. `through_host`, on all ranks: gradients go through host memory. So they do, with a RuntimeWarning, where some
    rank cannot do otherwise, and without one where the group is recoverable."""

    def __init__(self, params: Any, group: Optional[Group] = None, *, state: Any = None, through_host: bool = False, **options: Any) -> None:
        leaves, self._tree = jax.tree_util.tree_flatten_with_path(params)
        others, self._state_tree = jax.tree_util.tree_flatten_with_path(state)
        self.group = group or Group()
        self._kept = Model(self.group, **options)  # values and state in host memory: what checkpoints hold
        self._values = []
        for path, leaf in leaves:
            value = _copy(_array(leaf, jax.tree_util.keystr(path) or "params"))
            self._kept.add_parameter(jax.tree_util.keystr(path) or "params", value)
            self._values.append(value)
        self._state, self._key_kinds = [], [jax.random.key_impl(leaf) if _is_key(leaf) else None for _, leaf in others]
        for path, leaf in others:
            value = _copy(leaf)
            self._kept.add_buffer("state" + jax.tree_util.keystr(path), _known(value))
            self._state.append(value)
        self._kept.commit()
        self._elsewhere = _Elsewhere()
        self._kept.mirror(self._elsewhere)
        self._shapes = [jax.ShapeDtypeStruct(value.shape, value.dtype) for value in self._values]
        self._operation: Any = None  # made when average is first traced
        self._average_on_gpu([leaf for _, leaf in leaves], options, through_host)

    def _average_on_gpu(self, leaves: list, options: dict, through_host: bool) -> None:
        """Where that is possible; otherwise in host memory."""
        made = None
        if not self.group._recovers and _jax_gpu.is_on_gpu(leaves):
            made = _jax_gpu.make(self.group, dict(zip(self._kept.names, leaves)), options, through_host)
        self._grads: list = []
        if made is None:
            self._grads = [as_array(self._kept.grad(index)) for index in range(len(leaves))]
        else:
            made.mirror(self._elsewhere)
            made.metadata = self._kept.metadata
        self.model: Model = self._kept if made is None else made  #: for stats(), plan() and metadata
        self._at_once: Any = None if made is None else jax.jit(self._made())

    def _leaves(self, tree: Any) -> list:
        return _leaves(tree, self._tree, "the parameters")

    def _tree_of(self, arrays: list) -> Any:
        return jax.tree_util.tree_unflatten(self._tree, [jax.numpy.array(array, copy=True) for array in arrays])

    def broadcast(self, params: Any, root: int = 0) -> Any:
        """The parameters of one rank, on every rank."""
        self._take(params)
        for value in self._values:
            self.group.broadcast(value, root)
        return self._tree_of(self._values)

    def average(self, grads: Any, after: Any = None) -> Any:
        """The mean of all ranks' gradients; the same bits on every rank. Inside ``jit`` too. Of two averages in one program let the second
        come `after` the first (`after` is what that one returned), or ranks may make them in different orders."""
        leaves = self._leaves(grads)
        self._check_alike("a gradient", leaves)
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return self._traced(leaves, after)
        if self._at_once is not None:
            return self._now(leaves)
        self._reduce(leaves)
        return self._tree_of(self._grads)

    def _reduce(self, leaves: list) -> None:
        with self.model.backward():
            for index in reversed(range(len(leaves))):
                np.copyto(self._grads[index], np.asarray(leaves[index]), casting="no")
                self.model.mark_ready(index)

    def _now(self, leaves: list) -> Any:
        """On the GPU, outside of a program. A break of the group is libddp's error and not JAX's."""
        given = [jax.numpy.asarray(leaf) for leaf in leaves]
        try:
            return jax.tree_util.tree_unflatten(self._tree, jax.block_until_ready(self._at_once(*given)))
        except RuntimeError:
            self.group.check()
            raise

    def _traced(self, leaves: list, after: Any) -> Any:
        order = jax.tree_util.tree_leaves(after)[:1]
        return jax.tree_util.tree_unflatten(self._tree, self._made()(*leaves, *order))

    def _made(self) -> Any:
        if self._operation is None:
            self._operation = _xla.operation(self.model, self._shapes, self._called, self.model is not self._kept)
        return self._operation

    def _check_alike(self, what: str, leaves: list) -> None:
        for name, leaf, known in zip(self._kept.names, leaves, self._shapes):
            leaf = _array(leaf, f"{what} of {name}")
            if (leaf.shape, leaf.dtype) != (known.shape, known.dtype):
                raise TypeError(f"{what} of {name} is {leaf.dtype}{list(leaf.shape)}, the parameter {known.dtype}{list(known.shape)}")

    def _called(self, *leaves: Any) -> list:
        """What a compiled program calls where it has no operation of ours."""
        self._reduce(list(leaves[:len(self._grads)]))
        return [grad.copy() for grad in self._grads]

    def check(self, params: Any) -> None:
        """Raise MismatchError unless the parameters are bitwise equal on all ranks."""
        self._take(params)
        with self._at_hand():
            self._kept.check_replicas()

    def save(self, place: Union[str, os.PathLike, BinaryIO, None], params: Any, state: Any = None, *, epoch: int = 0,
             step: int = 0) -> None:
        """Save these parameters (and this state, where the wrapper was made with one) as :meth:`libddp.State.save` does."""
        self._take(params, state)
        with self._at_hand():
            State(self._kept, epoch=epoch, step=step).save(place)

    def load(self, place: Union[str, os.PathLike, BinaryIO, None], *, partial: bool = False) -> Loaded:
        """Load as :meth:`libddp.State.load` does; every rank gets the same parameters and state."""
        loader = State(self._kept)
        with self._at_hand():
            found = loader.load(place, partial=partial)
        return Loaded(self._tree_of(self._values), self._loaded_state(), loader.epoch, loader.step, *found)

    def _loaded_state(self) -> Any:
        arrays = [jax.numpy.array(array, copy=True) for array in self._state]
        return jax.tree_util.tree_unflatten(self._state_tree, [array if kind is None else jax.random.wrap_key_data(array, impl=kind)
                                                               for array, kind in zip(arrays, self._key_kinds)])

    @contextlib.contextmanager
    def _at_hand(self) -> Iterator[None]:
        """Inside, the model's memory holds what the program gave."""
        self._kept.mirror(None)
        try:
            yield
        finally:
            self._kept.mirror(self._elsewhere)

    def _take(self, params: Any, state: Any = None) -> None:
        leaves = self._leaves(params)
        self._check_alike("the value", leaves)
        for value, leaf in zip(self._values, leaves):
            np.copyto(value, np.asarray(leaf), casting="no")
        if state is not None:
            for value, leaf in zip(self._state, _leaves(state, self._state_tree, "the state")):
                given = _copy(leaf)
                if given.shape != value.shape:
                    raise TypeError(f"a leaf of the state is {given.dtype}{list(given.shape)} and was {value.dtype}{list(value.shape)} when the "
                                    "wrapper was made")
                np.copyto(value, given, casting="no")


def _array(leaf: Any, what: str) -> Any:
    """A leaf that has a gradient: a Python number has no element type that stays."""
    if not hasattr(leaf, "dtype") or not hasattr(leaf, "shape"):
        raise TypeError(f"{what} is {leaf!r}, a {type(leaf).__name__} of Python: make it an array, jax.numpy.asarray({leaf!r})")
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        raise TypeError(f"{what} is a random key, which has no gradient: give it as a part of `state`")
    return leaf


def _is_key(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _copy(leaf: Any) -> np.ndarray:
    """A copy that libddp may write, of the type that JAX gives the value; of typed random keys, the numbers in them."""
    return np.array(jax.random.key_data(leaf) if _is_key(leaf) else jax.numpy.asarray(leaf), order="C")


def _known(value: np.ndarray) -> np.ndarray:
    """As bytes, where libddp does not know the element type (random numbers' keys, truth values)."""
    try:
        lend(value)
        return value
    except TensorError:
        return value.reshape(-1).view(np.uint8)


def _leaves(tree: Any, wanted: Any, what: str) -> list:
    leaves: list
    structure: Any
    leaves, structure = jax.tree_util.tree_flatten(tree)
    if structure != wanted:
        raise ValueError(f"this pytree has another structure than {what}: {structure}, not {wanted}")
    return leaves
