"""The package as its users meet it: light to import, typed, versioned once."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

import homing

# What a client, a worker, a publisher or a subscriber must never pull in.
SERVER_ONLY = {"numba", "numpy", "pandas", "pyarrow", "pyspark", "starlette", "structlog", "zmq"}


def _loaded_by(code: str) -> set[str]:
    """Top-level modules that a fresh interpreter loads for `code`, beyond those it starts with."""
    script = (
        f"import sys\nbefore = set(sys.modules)\n{code}\nprint(*sorted(set(sys.modules) - before))"
    )
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return {name.partition(".")[0] for name in told.stdout.split()}


def test_import_homing_loads_nothing_else() -> None:
    """So it stays far below 60 ms on any machine; time itself is not asserted."""
    assert _loaded_by("import homing") <= {"homing", "__future__"}


@pytest.mark.parametrize("name", [name for name in homing.__all__ if name != "__version__"])
def test_public_names_resolve_without_server_parts(name: str) -> None:
    assert getattr(homing, name).__name__ == name
    assert name in dir(homing)
    assert not _loaded_by(f"import homing; homing.{name}") & SERVER_ONLY


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        homing.Nothing


def test_version_and_type_marker_are_the_packages() -> None:
    assert importlib.metadata.version("homing") == homing.__version__
    assert Path(homing.__file__).with_name("py.typed").exists()
