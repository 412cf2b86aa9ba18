# SPDX-License-Identifier: Apache-2.0
"""Waits for values that come after their step (late_values), where the modules that use them are called: part of libddp.torch."""
from __future__ import annotations

import weakref
from typing import Any, Iterable, Optional

import torch

from ._model import Model
from ._torch_tensors import Call


class LateValues:
    """Of a wrapped module. The first forward computation records which modules are called. A parameter is waited for before its module is
    called; if that is not called (nn.MultiheadAttention uses the weight of out_proj itself), before the nearest module around it that is; if
    two modules have it, or something is compiled, before the whole module is called as well."""

    def __init__(self, model: Model, module: torch.nn.Module, parameters: Iterable[torch.nn.Parameter]) -> None:
        self._model, self._module = model, weakref.ref(module)
        index_of = {id(parameter): index for index, parameter in enumerate(parameters)}
        self._own = {name: {index_of[id(p)] for p in part.parameters(recurse=False) if id(p) in index_of} for name, part in module.named_modules()}
        self._awaited: Optional[dict[str, set[int]]] = None  # before a module of this name is called; None: it has not been recorded
        self._calls: set[str] = set()  # the modules that were called, while that is recorded
        self._left: set[int] = set()  # parameters that may not have come
        self._handles: list = [module.register_forward_hook(_Hook(self, "behind"))]
        for name, part in module.named_modules():
            self._handles += [part.register_forward_pre_hook(_Hook(self, "before", name), prepend=True),
                              part.register_state_dict_pre_hook(_Hook(self, "wait_all")),
                              part._register_load_state_dict_pre_hook(_Hook(self, "wait_all"))]

    def begin(self) -> None:
        """A step has been made."""
        self._left = set().union(*self._own.values())

    def wait_all(self) -> None:
        if self._left:
            self._model.wait_values()
            self._left.clear()

    def before(self, name: str) -> None:
        """A module is about to be called."""
        if self._awaited is None:
            self._calls = {name} | (self._calls if name else set())
            self.wait_all()
        elif self._left:
            if name == "" and self._is_compiled():
                self.wait_all()
            for index in self._left & self._awaited[name]:
                self._model.wait_value(index)
                self._left.discard(index)

    def behind(self) -> None:
        """The module has been called as a whole."""
        if self._awaited is not None:
            return
        self._awaited, seen = {name: set(indices) for name, indices in self._own.items()}, set()
        for caller, indices in self._own.items():
            while caller and caller not in self._calls:
                caller = caller.rpartition(".")[0]
            self._awaited[caller] |= indices
            self._awaited[""] |= indices & seen  # a second module has these
            seen |= indices

    def _is_compiled(self) -> bool:
        return any(isinstance(part, torch._dynamo.OptimizedModule) or part._compiled_call_impl is not None for part in self._module().modules())

    def close(self) -> None:
        self.wait_all()
        for handle in self._handles:
            handle.remove()


class _Hook(Call):
    """A hook of a module, which may outlive what it refers to. A compiled computation is interrupted for it: a value must have come before it is
    used."""

    def __init__(self, values: Optional[LateValues], method: str, *arguments: Any) -> None:
        super().__init__(values, method, *arguments)
        self._call = torch._dynamo.disable(super().__call__)

    def __call__(self, *_: Any, **__: Any) -> None:
        self._call()
