# SPDX-License-Identifier: Apache-2.0
"""What SWIG writes has no annotations: the package around it has."""
from typing import Any

def __getattr__(name: str) -> Any: ...
