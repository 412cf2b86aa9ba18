# SPDX-License-Identifier: Apache-2.0
"""Waits for values that come after their step (late_values), where the modules that use them are called: part of libddp.torch."""
from __future__ import annotations

import weakref
from typing import Any, Iterable, Optional

import torch

from ._model import Model


class LateValues:
    """Of a wrapped module. The first forward computation records which modules are called. A parameter is waited for before its module is
    called; if that is not called (nn.MultiheadAttention uses the weight of out_proj itself), before the nearest module around it that is; if
    two modules have it, or something is compiled, before the whole module is called as well."""

    def __init__(self, model: Model, module: torch.nn.Module, parameters: Iterable[torch.nn.Parameter]) -> None:
        self._model, self._module = model, weakref.ref(module)
        index_of = {id(parameter): index for index, parameter in enumerate(parameters)}
        self._own = {name: {index_of[id(p)] for p in part.parameters(recurse=False) if id(p) in index_of} for name, part in module.named_modules()}
        self._awaited = {name: set(indices) for name, indices in self._own.items()}  # before a module of this name is called
        self._left: set[int] = set()  # parameters that may not have come
        self._calls: Optional[set[str]] = None  # the modules that were called, while that is recorded
        self._is_known = False
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
        if self._calls is not None:
            self._calls.add(name)
        if name == "" and not self._is_known:
            self._calls = set()
        if self._left and (not self._is_known or (name == "" and self._is_compiled())):
            self.wait_all()
        for index in self._left & self._awaited[name] if self._left else ():
            self._model.wait_value(index)
            self._left.discard(index)

    def behind(self) -> None:
        """The module has been called as a whole."""
        calls, self._calls = self._calls, None
        if self._is_known or calls is None:
            return
        self._is_known = True
        places: dict[int, list[str]] = {}
        for name, indices in self._own.items():
            for index in indices:
                places.setdefault(index, []).append(name)
        for index, names in places.items():
            for caller in names:
                while caller and caller not in calls:
                    caller = caller.rpartition(".")[0]
                self._awaited[caller].add(index)
            if len(names) > 1:
                self._awaited[""].add(index)

    def _is_compiled(self) -> bool:
        module = self._module()
        return module is not None and any(isinstance(part, torch._dynamo.OptimizedModule) or part._compiled_call_impl is not None
                                          for part in module.modules())

    def close(self) -> None:
        self.wait_all()
        for handle in self._handles:
            handle.remove()


class _Hook:
    """A hook of a module, which may outlive what it refers to; in a copy of the module it does nothing. A compiled computation is interrupted
    for it: a value must have come before it is used."""

    def __init__(self, values: Optional[LateValues], method: str, *arguments: Any) -> None:
        self._values: Any = _gone if values is None else weakref.ref(values)
        self._method, self._arguments = method, arguments
        self._run = torch._dynamo.disable(_run)

    def __reduce__(self) -> Any:
        return _Hook, (None, "")

    def __call__(self, *_: Any, **__: Any) -> None:
        self._run(self)


def _gone() -> None:
    return None


def _run(hook: _Hook) -> None:
    alive = hook._values()
    if alive is not None:
        getattr(alive, hook._method)(*hook._arguments)
