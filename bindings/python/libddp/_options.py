"""Options structs from keyword arguments, and reports as dictionaries."""
from __future__ import annotations

import enum
from typing import Any, Callable, Mapping

from ._enums import choose


def fill(struct: Any, init: Callable, given: Mapping[str, Any], choices: Mapping[str, type[enum.IntEnum]] = {}) -> Any:
    """Defaults from the library, then what is given. A name that the struct lacks is a TypeError, as for any keyword."""
    init(struct)
    known = _fields(struct)
    for name, value in given.items():
        if name not in known:
            raise TypeError(f"unknown option {name!r}; there are {', '.join(known)}")
        if name in choices:
            value = choose(choices[name], value)
        setattr(struct, name, int(value) if isinstance(value, bool) else value)
    return struct


def read(report: Any) -> dict[str, Any]:
    """The fields of a report."""
    return {name: getattr(report, name) for name in _fields(report)}


def _fields(struct: Any) -> list[str]:
    return [name for name in dir(type(struct)) if isinstance(getattr(type(struct), name), property) and name != "thisown"]
