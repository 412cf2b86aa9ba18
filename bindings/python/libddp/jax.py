"""JAX: gradients as a pytree in, averaged out.

::

    sync = libddp.jax.DataParallel(params)
    params = sync.broadcast(params)                 # rank 0's values
    grads = sync.average(jax.grad(loss)(params, batch))

JAX arrays are immutable and their memory is JAX's own, so one copy goes in and one comes out. Leaves are taken in reverse order as they
become ready: while the first layers are still being computed, the last layers' gradients travel.
"""
from __future__ import annotations

from typing import Any, Optional

import jax
import numpy as np

from ._group import Group
from ._model import Model
from .numpy import as_array


class DataParallel:
    """The ranks' agreement on a pytree of parameters: names, shapes and dtypes of its leaves. `options` go to :class:`libddp.Model`."""

    def __init__(self, params: Any, group: Optional[Group] = None, **options: Any) -> None:
        leaves, self._tree = jax.tree_util.tree_flatten_with_path(params)
        self.group = group or Group()
        self.model = Model(self.group, **options)  #: for stats(), plan() and checkpoints of libddp.State
        self._values = []
        for path, leaf in leaves:
            value = np.array(leaf, order="C")  # a copy that libddp may write
            self.model.add_parameter(jax.tree_util.keystr(path) or "params", value)
            self._values.append(value)
        self.model.commit()
        self._grads = [as_array(self.model.grad(index)) for index in range(len(leaves))]

    def _leaves(self, tree: Any) -> list:
        leaves: list
        structure: Any
        leaves, structure = jax.tree_util.tree_flatten(tree)
        if structure != self._tree:
            raise ValueError(f"this pytree has another structure than the parameters: {structure}, not {self._tree}")
        return leaves

    def _tree_of(self, arrays: list) -> Any:
        return jax.tree_util.tree_unflatten(self._tree, [jax.numpy.array(array, copy=True) for array in arrays])

    def broadcast(self, params: Any, root: int = 0) -> Any:
        """The parameters of one rank, on every rank."""
        self._take(params)
        for value in self._values:
            self.group.broadcast(value, root)
        return self._tree_of(self._values)

    def average(self, grads: Any) -> Any:
        """The mean of all ranks' gradients; the same bits on every rank."""
        leaves = self._leaves(grads)
        with self.model.backward():
            for index in reversed(range(len(leaves))):
                np.copyto(self._grads[index], np.asarray(leaves[index]), casting="no")
                self.model.mark_ready(index)
        return self._tree_of(self._grads)

    def check(self, params: Any) -> None:
        """Raise MismatchError unless the parameters are bitwise equal on all ranks."""
        self._take(params)
        self.model.check()

    def _take(self, params: Any) -> None:
        for value, leaf in zip(self._values, self._leaves(params)):
            np.copyto(value, np.asarray(leaf), casting="no")
