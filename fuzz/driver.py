"""Runs one fuzz target for a bounded time: coverage-guided by atheris where it is installed,
by hypothesis otherwise.

A target is a module of this package with

    def target(data: bytes) -> None      raises only when something is wrong
    SEEDS: tuple[bytes, ...]             optional: valid inputs to start from
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import fuzz

# Codecs keep state across a few messages; longer inputs only slow the search down.
MAX_INPUT = 4096


def targets() -> list[str]:
    """The names of all targets, from the files of this package."""
    folder = Path(fuzz.__path__[0])
    found = (path for path in folder.glob("*.py") if "\ndef target(" in path.read_text())
    return sorted(path.stem for path in found)


def run(name: str, seconds: int) -> None:
    """Fuzz one target; ends the process with a traceback and the input when it fails."""
    atheris: Any = None
    with contextlib.suppress(ImportError):
        atheris = importlib.import_module("atheris")
    if atheris is None:
        module = importlib.import_module(f"fuzz.{name}")
        _by_hypothesis(module.target, _seeds(module), seconds)
        return
    with atheris.instrument_imports(include=["homing", "fuzz"]):
        module = importlib.import_module(f"fuzz.{name}")
    _by_coverage(atheris, module.target, _seeds(module), seconds)


def _seeds(module: object) -> Sequence[bytes]:
    seeds: Sequence[bytes] = getattr(module, "SEEDS", ())
    return seeds


def _by_coverage(
    atheris: Any, target: Callable[[bytes], None], seeds: Sequence[bytes], seconds: int
) -> None:
    """libFuzzer's loop; it ends the process itself, with 0 when nothing was found."""
    corpus = Path(tempfile.mkdtemp(prefix="homing-fuzz-"))
    for number, seed in enumerate(seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    options = [
        sys.argv[0],
        f"-max_total_time={seconds}",
        f"-max_len={MAX_INPUT}",
        f"-artifact_prefix={corpus}/",
        "-print_final_stats=1",
        "-verbosity=0",
        "-rss_limit_mb=2048",
        str(corpus),
    ]
    atheris.Setup(options, target)
    atheris.Fuzz()


def _by_hypothesis(target: Callable[[bytes], None], seeds: Sequence[bytes], seconds: int) -> None:
    """Random bytes, and seeds with random bytes cut into them, until the time is over."""
    from hypothesis import HealthCheck, given, settings
    from hypothesis import strategies as st

    pieces = st.binary(max_size=MAX_INPUT)
    if seeds:
        pieces |= st.builds(
            _splice, st.sampled_from(list(seeds)), st.binary(max_size=64), st.floats(0, 1)
        )

    @settings(
        max_examples=1000, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(pieces)
    def once(data: bytes) -> None:
        target(data)

    for seed in seeds:
        target(seed)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        once()


def _splice(seed: bytes, piece: bytes, where: float) -> bytes:
    at = int(len(seed) * where)
    return seed[:at] + piece + seed[at + len(piece) :]
