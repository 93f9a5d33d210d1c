"""A node seals its finished segments by itself, and retention takes the copies along."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from homing.config import load
from homing.journal.events import RequestAccepted
from homing.journal.reader import segments
from homing.node.host import Host
from homing.node.journals import journal_directory, start_journal
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
