"""homing.push.index.build, imported late: it needs the kernels, which are slow to come."""

from __future__ import annotations

from typing import Any


def build_module() -> Any:
    """The module, after waiting for it."""
    from homing.push.index import build

    return build
