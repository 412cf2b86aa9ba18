# SPDX-License-Identifier: Apache-2.0
"""NCCL as a Python wheel brings it (nvidia-nccl): the library's own search knows nothing of Python's folders."""
from __future__ import annotations

import importlib.util
import os
from typing import Optional

_VARIABLE = "DDP_NCCL_LIBRARY"


def wheel_file() -> Optional[str]:
    """The file of the installed wheel; nothing is imported for it."""
    try:
        spec = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):
        return None
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = os.path.join(folder, "nccl", "lib", "libnccl.so.2")
        if os.path.isfile(path):
            return path
    return None


def announce() -> None:
    """Say where it is, unless the user has said something else."""
    path = None if _VARIABLE in os.environ else wheel_file()
    if path is not None:
        os.environ[_VARIABLE] = path
