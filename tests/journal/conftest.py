"""Journals on disk for the readers' tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from homing.journal.disk import Directory
from homing.journal.log import Limits, Log
from tests.pipeline.conftest import write_journal

__all__ = ["make_log", "write_journal"]

SKEW = 1_700_000_000_000_000  # µs
MakeLog = Callable[..., Log]


@pytest.fixture
def make_log() -> Iterator[MakeLog]:
    """A log on a real directory; the locks are let go of at the end."""
    opened: list[Directory] = []
    salts = count(1)

    def make(path: Path, node: bytes = b"node0001", **limits: float) -> Log:
        opened.append(Directory(path))
        kept = Limits(**limits)  # type: ignore[arg-type]
        return Log(
            opened[-1], node, name="test", limits=kept, wall=lambda: 1.7e9, salt=lambda: next(salts)
        )

    yield make
    for directory in opened:
        directory.close()
