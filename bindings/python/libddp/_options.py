# SPDX-License-Identifier: Apache-2.0
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


def fill_two(first: Any, first_init: Callable, second: Any, second_init: Callable, given: Mapping[str, Any],
             choices: Mapping[str, type[enum.IntEnum]] = {}) -> tuple[Any, Any]:
    """Two structs from the keywords of one call. A name that both lack is a TypeError."""
    known = (_fields(first), _fields(second))
    for name in given:
        if name not in known[0] and name not in known[1]:
            raise TypeError(f"unknown option {name!r}; there are {', '.join(sorted({*known[0], *known[1]}))}")
    return (fill(first, first_init, {name: value for name, value in given.items() if name in known[0]}, choices),
            fill(second, second_init, {name: value for name, value in given.items() if name not in known[0]}, choices))


def read(report: Any) -> dict[str, Any]:
    """The fields of a report."""
    return {name: getattr(report, name) for name in _fields(report)}


def _fields(struct: Any) -> list[str]:
    return [name for name in dir(type(struct)) if isinstance(getattr(type(struct), name), property) and name != "thisown"]
