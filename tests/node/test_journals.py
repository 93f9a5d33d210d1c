"""Where journals lie: one directory a node, below its own data and nowhere else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from homing.config import load
from homing.node.host import Host
from homing.node.journals import journal_directory, start_journal
from tests.node.stage import Memory

LONGEST = "n" * 255


@pytest.mark.parametrize("name", ["paris", "a/b", "../../../elsewhere", "..", LONGEST])
def test_a_broker_of_any_name_has_a_journal_below_its_own_data(tmp_path: Path, name: str) -> None:
    config = load(Path("/dev/null"), flags={"node.data": str(tmp_path / "data")}, environment={})

    async def start() -> None:
        host = Host()
        host.role = Memory()
        start_journal(host, config, "broker", name, b"node0001")
        host.stop()

    asyncio.run(start())
    below = tmp_path / "data" / "journal"
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    assert list(below.iterdir()) == [journal_directory(config, "broker", name)]


def test_names_that_differ_have_directories_that_do(tmp_path: Path) -> None:
    config = load(Path("/dev/null"), flags={"node.data": str(tmp_path)}, environment={})
    names = ["a/b", "a%2Fb", "a%252Fb", LONGEST, LONGEST[1:], LONGEST[1:] + "m"]
    assert len({journal_directory(config, "broker", name) for name in names}) == len(names)


@pytest.mark.parametrize(
    ("harm", "level", "told"),
    [
        (lambda data: data[:-5], logging.INFO, "bytes were cut off the end of"),
        (lambda data: data + bytes(50), logging.WARNING, "50 bytes were cut off the end of"),
        (lambda data: bytes(8192) + data[8192:], logging.ERROR, "the journal is damaged"),
        (lambda data: data, logging.INFO, ""),
    ],
)
def test_what_opening_a_journal_found_is_told(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    harm: Callable[[bytes], bytes],
    level: int,
    told: str,
) -> None:
    config = load(Path("/dev/null"), flags={"node.data": str(tmp_path)}, environment={})

    async def live() -> None:
        host = Host()
        host.role = Memory()
        start_journal(host, config, "broker", "here", b"node0001")
        host.stop()

    asyncio.run(live())
    (segment,) = journal_directory(config, "broker", "here").glob("*.hj")
    segment.write_bytes(harm(segment.read_bytes()))
    with caplog.at_level(logging.INFO, "homing.node"):
        asyncio.run(live())
    found = [record for record in caplog.records if segment.name in record.getMessage()]
    assert [record.levelno for record in found] == ([level] if told else [])
    assert told in caplog.text
