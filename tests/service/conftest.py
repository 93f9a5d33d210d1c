"""What tests with real processes and libzmq have in common."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from tests.service.processes import Reaper, processes


@pytest.fixture
def reaper(tmp_path: Path) -> Iterator[Reaper]:
    with processes(tmp_path) as reaper:
        yield reaper


@pytest.fixture
def context() -> Iterator[zmq.Context[Any]]:
    context: zmq.Context[Any] = zmq.Context()
    context.setsockopt(zmq.LINGER, 0)  # a socket collected with something unsent ends too
    yield context
    context.destroy(linger=0)
