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
        self._own = {name: [index_of[id(p)] for p in part.parameters(recurse=False) if id(p) in index_of] for name, part in module.named_modules()}
        self._left: set[int] = set()  # parameters that may not have come
        self._calls: Optional[set[str]] = None  # the modules that were called, while that is recorded
        self._hooks: dict[str, _Before] = {}
        self._handles: list = []
        for name, part in module.named_modules():
            self._hooks[name] = hook = _Before(self, name, self._own[name])
            self._handles += [part.register_forward_pre_hook(hook, prepend=True), part.register_state_dict_pre_hook(_All(self)),
                              part._register_load_state_dict_pre_hook(_All(self))]
        self._handles.append(module.register_forward_hook(_Behind(self)))
        self._is_known = False

    def begin(self) -> None:
        """A step has been made."""
        self._left = {index for indices in self._own.values() for index in indices}

    def wait(self, indices: Iterable[int]) -> None:
        for index in indices:
            if index in self._left:
                self._model.wait_value(index)
                self._left.discard(index)

    def wait_all(self) -> None:
        if self._left:
            self._model.wait_values()
            self._left.clear()

    def before(self, name: str, indices: list[int]) -> None:
        """A module is about to be called."""
        if self._calls is not None:
            self._calls.add(name)
        if name == "" and not self._is_known:
            self._calls = set()
        if self._left:
            self.wait_all() if not self._is_known or (name == "" and self._is_compiled()) else self.wait(indices)

    def behind(self) -> None:
        """The module has been called as a whole."""
        calls, self._calls = self._calls, None
        if self._is_known or calls is None:
            return
        self._is_known = True
        places: dict[int, set[str]] = {}
        for name, indices in self._own.items():
            for index in indices:
                places.setdefault(index, set()).add(name)
        for index, names in places.items():
            for name in names:
                caller = name
                while caller and caller not in calls:
                    caller = caller.rpartition(".")[0]
                self._hooks[caller].indices.add(index)
            if len(names) > 1:
                self._hooks[""].indices.add(index)

    def _is_compiled(self) -> bool:
        module = self._module()
        return module is not None and any(isinstance(part, torch._dynamo.OptimizedModule) or part._compiled_call_impl is not None
                                          for part in module.modules())

    def close(self) -> None:
        self.wait_all()
        for handle in self._handles:
            handle.remove()


class _Hook:
    """A hook of a module, which may outlive what it refers to; a copy of the module has hooks that do nothing."""

    def __init__(self, values: LateValues) -> None:
        self._values: Any = weakref.ref(values)

    def __deepcopy__(self, memo: dict) -> _Hook:
        return _nothing

    def __reduce__(self) -> Any:
        return _give_nothing, ()


class _Before(_Hook):
    def __init__(self, values: LateValues, name: str, indices: Iterable[int]) -> None:
        super().__init__(values)
        self.name, self.indices = name, set(indices)
        self._run = torch._dynamo.disable(_before)

    def __call__(self, module: Any, arguments: Any) -> None:
        self._run(self._values, self.name, self.indices)


class _Behind(_Hook):
    def __init__(self, values: LateValues) -> None:
        super().__init__(values)
        self._run = torch._dynamo.disable(_behind)

    def __call__(self, module: Any, arguments: Any, outputs: Any) -> None:
        self._run(self._values)


class _All(_Hook):
    def __call__(self, *_: Any, **__: Any) -> None:
        alive = self._values()
        if alive is not None:
            alive.wait_all()


class _Nothing(_Hook):
    def __init__(self) -> None:
        pass

    def __call__(self, *_: Any, **__: Any) -> None:
        pass


_nothing = _Nothing()


def _give_nothing() -> _Hook:
    return _nothing


# A compiled computation is interrupted for these two: a value must have come before it is used.

def _before(reference: Any, name: str, indices: Any) -> None:
    alive = reference()
    if alive is not None:
        alive.before(name, indices)


def _behind(reference: Any) -> None:
    alive = reference()
    if alive is not None:
        alive.behind()
