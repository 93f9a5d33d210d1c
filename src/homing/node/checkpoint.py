"""Checkpoints: a node's state as a file, so that a restart reads little of its journal.

    "HOMINGC1" | number 8 B | blocks: length 4 B | CRC-32 4 B | events | … | 0 | CRC-32 of number

`number` is the last journal event that the state includes. The file is written beside, synced
and renamed over the old one, and only once the journal is durable up to `number`. What it does not
include the journal holds, whatever retention says: a quiet node may need what it wrote months ago. One
that is damaged costs time, and what retention has taken since the first.
"""

from __future__ import annotations

import asyncio
import logging
import os
import zlib
from pathlib import Path
from struct import Struct
from typing import Protocol

from homing.journal.body import decode, encode
from homing.journal.events import Event, Unknown
from homing.journal.writer import Journal
from homing.node.host import Host

MAGIC = b"HOMINGC1"
EVERY_EVENTS = 50_000
"""Journal events after which a checkpoint pays: they would take about a second to read back."""
LOOK_SECONDS = 10.0
BLOCK_EVENTS = 2_000
"""Encoded in one go: a few milliseconds between two turns of the loop."""

_NUMBER = Struct(">Q")
_BLOCK = Struct(">II")
_tasks: set[asyncio.Task[None]] = set()  # the loop alone would let them be collected
_log = logging.getLogger("homing.node")


class Rememberer(Protocol):
    """A role whose state can be told as events."""

    def checkpoint(self) -> list[Event]: ...


def read_checkpoint(path: Path) -> tuple[int, list[Event | Unknown]]:
    """The number and events of a checkpoint; (0, []) if there is none that can be trusted."""
    try:
        data = path.read_bytes()
        return parse_checkpoint(data)
    except FileNotFoundError:
        return 0, []
    except ValueError as error:
        _log.error("%s is not used, the whole journal is read instead: %s", path, error)
        return 0, []


def parse_checkpoint(data: bytes) -> tuple[int, list[Event | Unknown]]:
    """The same from its bytes; ValueError says what is wrong."""
    if data[: len(MAGIC)] != MAGIC or len(data) < len(MAGIC) + _NUMBER.size:
        raise ValueError("no checkpoint of this version")
    (number,) = _NUMBER.unpack_from(data, len(MAGIC))
    at = len(MAGIC) + _NUMBER.size
    events: list[Event | Unknown] = []
    while at + _BLOCK.size <= len(data):
        size, checksum = _BLOCK.unpack_from(data, at)
        body = data[at + _BLOCK.size : at + _BLOCK.size + size]
        if size == 0 and data[at:] == _end(number):
            return number, events
        if not size or len(body) < size or zlib.crc32(body) != checksum:
            raise ValueError(f"damaged at byte {at}")
        events += decode(body)
        at += _BLOCK.size + size
    raise ValueError("it has no end")


def block(events: list[Event]) -> bytes:
    """Some events with their length and checksum."""
    body = encode(events)
    return _BLOCK.pack(len(body), zlib.crc32(body)) + body


def image(number: int, blocks: list[bytes]) -> bytes:
    """The bytes of a whole checkpoint."""
    return b"".join([MAGIC, _NUMBER.pack(number), *blocks, _end(number)])


def _end(number: int) -> bytes:
    """The last block: no events, and the number's checksum."""
    return _BLOCK.pack(0, zlib.crc32(_NUMBER.pack(number)))


def write_checkpoint(path: Path, number: int, blocks: list[bytes]) -> None:
    """Put a whole checkpoint in the place of the old one."""
    beside = path.with_suffix(".new")
    try:
        with beside.open("wb") as file:
            file.write(image(number, blocks))
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        beside.unlink(missing_ok=True)  # half of it would take the room that the journal waits for
        raise
    beside.rename(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def start_checkpoints(host: Host, role: Rememberer, path: Path) -> None:
    """Keep checkpoints of a role for as long as its host's loop runs."""
    journal = host.journal_writer
    if isinstance(journal, Journal):
        task = host.loop.create_task(keep_checkpoints(role, journal, path), name="checkpoints")
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)


async def keep_checkpoints(role: Rememberer, journal: Journal, path: Path) -> None:
    """Write one whenever enough has happened since the last, it holds too much, or some of it is gone; until cancelled.

    At once where earlier lives left that: this one may be as short as they were.
    """
    made_up_for = 0
    while True:
        since = journal.number - (journal.held or 1) + 1
        holes = journal.holes
        if since >= EVERY_EVENTS or journal.crowded or holes != made_up_for:
            try:
                await checkpoint_now(role, journal, path)
                made_up_for = holes
            except OSError as error:
                _log.warning("no checkpoint could be written: %s", error)
        await asyncio.sleep(LOOK_SECONDS)


async def checkpoint_now(role: Rememberer, journal: Journal, path: Path) -> int:
    """Write a checkpoint of this moment; the journal number it stands at."""
    number = journal.number
    events = role.checkpoint()
    blocks = []
    for at in range(0, len(events), BLOCK_EVENTS):
        blocks.append(block(events[at : at + BLOCK_EVENTS]))
        await asyncio.sleep(0)
    # A journal tells its host alone what is durable; this is no hot path.
    while journal.durable < number:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    await asyncio.to_thread(write_checkpoint, path, number, blocks)
    journal.hold(number + 1)
    return number
