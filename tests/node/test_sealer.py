"""A node seals its finished segments by itself, and retention takes the copies along."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from homing.config import load
from homing.journal.events import RequestAccepted
from homing.journal.reader import segments
from homing.node.host import Host
from homing.node.journals import journal_directory, start_journal
from homing.node.sealer import Sealer
from tests.node.stage import Memory


async def sealing(directory: Path) -> None:
    flags = {"node.data": str(directory)}
    settings = ["journal.seal_interval=0.1", "journal.segment_age=0.1", "journal.durability=os"]
    config = load(Path("/dev/null"), flags=flags, assignments=settings, environment={})
    host = Host()
    host.role = Memory()
    start_journal(host, config, "broker", "b", b"node0001")
    where = journal_directory(config, "broker", "b")
    try:
        end = time.monotonic() + 60
        while len(list(where.glob("*.parquet"))) < 2:
            assert time.monotonic() < end, "nothing was sealed"
            host.journal(RequestAccepted(host.now(), b"echo", b"c", 1))
            await asyncio.sleep(0.05)
    finally:
        host.stop()
    for segment in segments(where)[:2]:
        assert segment.parquet.exists()


def test_finished_segments_are_sealed_by_a_child(tmp_path: Path) -> None:
    asyncio.run(sealing(tmp_path))


class Children:
    """Stands in for the processes that a sealer starts: what each comes to, in order, then 0."""

    def __init__(self, *ends: int | OSError) -> None:
        self.started = 0
        self.pauses: list[float] = []
        self._ends = list(ends)

    async def start(self, *arguments: str, **options: Any) -> SimpleNamespace:
        self.started += 1
        end = self._ends.pop(0) if self._ends else 0
        if isinstance(end, OSError):
            raise end

        async def wait() -> int:
            return end

        return SimpleNamespace(wait=wait)

    async def rest(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await TURN(0)


TURN = asyncio.sleep


def seals(monkeypatch: pytest.MonkeyPatch, children: Children, *, finish: int = 0) -> None:
    """A sealer for a hundred turns of its loop, and as many after each segment that is finished."""
    monkeypatch.setattr(asyncio, "create_subprocess_exec", children.start)
    monkeypatch.setattr(asyncio, "sleep", children.rest)

    async def run() -> None:
        sealer = Sealer(Path("/nowhere"), 0.001)
        host: Any = SimpleNamespace(loop=asyncio.get_running_loop())
        sealer.start(host)
        for segment in range(finish + 1):
            if segment:
                sealer.finished("a segment")
            for _ in range(100):
                await TURN(0)

    asyncio.run(run())


def test_a_sealer_waits_for_a_finished_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    children = Children()
    seals(monkeypatch, children, finish=2)
    assert children.started == 3, "what an earlier run left, and what was finished"
    assert len(children.pauses) == 4


@pytest.mark.parametrize("end", [OSError(24, "Too many open files"), 1])
def test_a_sealer_outlives_a_child_that_fails(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, end: int | OSError
) -> None:
    children = Children(end, end)
    seals(monkeypatch, children)
    assert children.started == 3, "it is tried until it was done"
    assert children.pauses == [0.001, 10.0, 10.0, 0.001]
    assert "could not be sealed" in caplog.text
