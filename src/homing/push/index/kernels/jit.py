"""How every kernel is compiled: without the interpreter's lock, cached on disk."""

from __future__ import annotations

from typing import Any

import numba


def kernel(signature: str | None = None) -> Any:
    """A decorator; with a signature the kernel is compiled, or fetched, as it is defined."""
    options: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy"}
    return numba.njit(signature, **options) if signature else numba.njit(**options)
