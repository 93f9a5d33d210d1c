"""kill -9 of one node after another at a thousand publications a second; the journals tell of all."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from homing.errors import QueueFull
from homing.ids import IdMaker
from homing.journal.events import (
    Acknowledged,
    DeliveryQueued,
    Event,
    PublicationAccepted,
    PublicationDone,
    PublicationMatched,
    Unknown,
)
from homing.journal.reader import journals, read
from homing.push.publisher import Publisher
from homing.push.subscriber import Subscriber
from homing.push.tokens import Keyring
from homing.wire.pushed import Push
from tests.push.processes import KINDS, Processes

pytestmark = pytest.mark.slow
RATE = 1000
STEP = 0.01
# A busy machine may keep the subscriber from its thousand a second; that is no loss.
NO_LIMITS = ("push.spill_count=10000000", "push.spill_bytes=2GiB", "push.spill_total=4GiB")


class Feed:
    """Publishes at a steady rate until told to stop; what was acknowledged, in order."""

    def __init__(self, publisher: Publisher) -> None:
        self.acknowledged: dict[bytes, int] = {}
        self._publisher = publisher
        self._ids = IdMaker(time.time, os.urandom(8))
        self._stop = asyncio.Event()
        self._under_way: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        began = time.monotonic()
        number = 0
        while not self._stop.is_set():
            while number < (time.monotonic() - began) * RATE and len(self._under_way) < 4000:
                task = asyncio.create_task(self._one(number))
                self._under_way.add(task)
                task.add_done_callback(self._under_way.discard)
                number += 1
            await asyncio.sleep(STEP)
        await asyncio.gather(*self._under_way)

    async def _one(self, number: int) -> None:
        identity, attrs, payload = self._ids(), {"n": number}, f"{number}"
        # A disk that took too long may have it all the same: the answer is then the first one's.
        matched = None
        while matched is None:
            with contextlib.suppress(QueueFull):
                matched = await self._publisher.publish(attrs, payload, identity=identity)
        assert matched == 1
        self.acknowledged[identity] = number

    def stop(self) -> None:
        self._stop.set()


async def collect(source: Subscriber, into: list[Push]) -> None:
    async for one in source:
        assert isinstance(one, Push), one
        into.append(one)


async def until(reached: object, what: str, seconds: float = 120.0) -> None:
    assert callable(reached)
    end = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < end, what
        await asyncio.sleep(0.02)


async def rounds(directory: Path, count: int, chance: random.Random) -> None:
    client = os.urandom(12).hex()
    async with Processes(directory, *NO_LIMITS) as nodes:
        keys = Keyring([nodes.token_key()])

        def credentials() -> tuple[int, str]:
            stamp = int(time.time())
            return stamp, keys.issue(client, stamp)

        async with (
            Publisher(nodes.port(7001), timeout=120.0) as publisher,
            Subscriber(client, nodes.port(7005), credentials=credentials, durable=True) as source,
        ):
            await source.subscribe("n >= 0")
            feed, got = Feed(publisher), list[Push]()
            reading = asyncio.create_task(collect(source, got))
            feeding = asyncio.create_task(feed.run())
            for number in range(count):
                kind = KINDS[number % len(KINDS)]
                before = len(feed.acknowledged)
                await until(lambda b=before: len(feed.acknowledged) > b + 200, f"after {number}")
                await asyncio.sleep(chance.uniform(0.0, 0.1))  # at any moment
                await nodes.kill(kind)
                await nodes.start(kind)
            feed.stop()
            await feeding
            arrived = f"{len(feed.acknowledged)} to arrive"
            await until(lambda: len(got) >= len(feed.acknowledged), arrived)
            await until(lambda: not reading.done() and source_idle(source), "the last ack")
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading
        for kind in reversed(KINDS):
            await nodes.kill(kind, signal.SIGTERM)
        numbers = [int(one.attrs["n"]) for one in got]
        assert numbers == list(range(len(feed.acknowledged))), "each once, in order"
        account(nodes.data / "journal", bytes.fromhex(client), set(feed.acknowledged))


def source_idle(source: Subscriber) -> bool:
    """The iterator waits for more: what it gave out is acknowledged."""
    return source._arrived.empty()


def events(directory: Path, role: str) -> Iterator[Event | Unknown]:
    for journal in journals(directory):
        if role in journal.name:
            for record in read(journal):
                yield record.event


def account(directory: Path, client: bytes, acknowledged: set[bytes]) -> None:
    """Every publication has its whole story in the journals."""
    at_matcher = list(events(directory, "matcher"))
    taken = {one.id for one in at_matcher if isinstance(one, PublicationAccepted)}
    matched = {one.id: one for one in at_matcher if isinstance(one, PublicationMatched)}
    assert taken == acknowledged
    assert all(client in matched[identity].clients for identity in taken)
    assert {one.id for one in at_matcher if isinstance(one, PublicationDone)} == taken
    at_connector = list(events(directory, "connector"))
    queued = {one.id for one in at_connector if isinstance(one, DeliveryQueued)}
    assert queued == taken
    assert {one.id for one in at_connector if isinstance(one, Acknowledged)} == taken


def test_any_node_may_be_killed_and_every_publication_is_accounted_for(tmp_path: Path) -> None:
    asyncio.run(rounds(tmp_path, 3, random.Random(1)))


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_fifty_kills(tmp_path: Path) -> None:
    asyncio.run(rounds(tmp_path, 50, random.Random(2)))
