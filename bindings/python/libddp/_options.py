"""Options structs from keyword arguments."""
from __future__ import annotations

import enum
from typing import Any, Callable, Mapping

from ._enums import choose


def fill(struct: Any, init: Callable, given: Mapping[str, Any], choices: Mapping[str, type[enum.IntEnum]] = {}) -> Any:
    """Defaults from the library, then what is given. A name that the struct lacks is a TypeError, as for any keyword."""
    init(struct)
    for name, value in given.items():
        if not isinstance(getattr(type(struct), name, None), property):
            known = ", ".join(key for key in dir(type(struct)) if isinstance(getattr(type(struct), key), property) and key != "thisown")
            raise TypeError(f"unknown option {name!r}; there are {known}")
        if name in choices:
            value = choose(choices[name], value)
        setattr(struct, name, int(value) if isinstance(value, bool) else value)
    return struct
