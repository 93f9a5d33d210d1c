"""The compiled kernels: fetched from a disk cache or compiled, in the background, once a process.

Everything else in the index asks `ready()`: until it answers, numpy does the work (blocks.py), so
that a node's first match never waits for a compiler. The cache is keyed by a digest of the kernels'
sources and of numba's version: numba's own key looks at one file only and would go stale when
layout.py changes.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple


class Kernels(NamedTuple):
    """The modules of kernels."""

    match: Any
    build: Any
    arrange: Any
    plan: Any
    pages: Any
    rows: Any


# Seconds in which a new index may answer its first publications before the imports and the compiler
# want the interpreter too.
HEAD_START = 0.02

# For the colours of its messages numba puts something of its own in place of sys.stdout and sys.stderr and back, whenever
# it makes an error: in our thread, behind the back of a program that sets or captures them meanwhile.
os.environ.setdefault("NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING", "1")

_lock = threading.Lock()
_loaded: Kernels | None = None
_thread: threading.Thread | None = None


def ready() -> Kernels | None:
    """The kernels if they can be called at once."""
    return _loaded


def load() -> Kernels:
    """The kernels, after waiting for them."""
    global _loaded
    with _lock:
        if _loaded is None:
            _loaded = Kernels(*_import_cached(f"{__name__}.{name}" for name in Kernels._fields))
        return _loaded


def fetch(module: str) -> Any:
    """Kernels that somebody else has, from the same cache: a module that imports no other kernels."""
    with _lock:
        (found,) = _import_cached((module,))
        return found


def load_in_background() -> None:
    """Start loading unless that is done or under way."""
    global _thread
    if _loaded is None and _thread is None:
        # A daemon: a process that ends meanwhile must not wait for a compiler.
        _thread = threading.Timer(HEAD_START, load)
        _thread.name, _thread.daemon = "homing-kernels", True
        _thread.start()


def loading() -> bool:
    """Whether the compiler is at work behind our backs."""
    return _loaded is None and _thread is not None and _thread.is_alive()


def _import_cached(modules: Iterable[str]) -> list[Any]:
    numba = import_module("numba")
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(_cache_directory())
    try:
        return [import_module(module) for module in modules]
    finally:
        numba.config.CACHE_DIR = before


def _cache_directory() -> Path:
    """Where kernels of exactly this source are kept; numba adds the processor to each file."""
    digest = hashlib.sha256(version("numba").encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    home = os.environ.get("HOMING_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    root = Path(home) if home else Path.home() / ".cache"
    return root / "homing" / f"kernels-{digest.hexdigest()[:16]}"
