"""How every kernel is compiled: without the interpreter's lock, cached on disk."""

from __future__ import annotations

from typing import Any

import numba


def kernel(signature: str | None = None, *, nogil: bool = True) -> Any:
    """A decorator; with a signature the kernel is compiled, or fetched, as it is defined.

    What takes a microsecond keeps the interpreter's lock: let go beside a thread that wants it, it
    comes back milliseconds later.
    """
    options: dict[str, Any] = {"nogil": nogil, "cache": True, "error_model": "numpy"}
    return numba.njit(signature, **options) if signature else numba.njit(**options)


def direct(compiled: Any) -> Any:
    """A kernel as callers with exactly the types of its one signature may call it.

    numba's dispatcher looks at the type of every argument first, which takes longer than a small
    kernel does.
    """
    (only,) = compiled.overloads.values()
    return only.entry_point
