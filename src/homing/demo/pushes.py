"""A thousand people watch roads; the matcher is killed; everybody gets what they asked for, once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from msgspec import Struct

from homing.clock import SystemClock
from homing.demo.push_stage import PushStage
from homing.demo.traffic import readings, watches
from homing.push.filters import parse_filter
from homing.push.index.oracle import matches
from homing.push.publisher import Publisher
from homing.push.subscriber import Subscriber
from homing.wire.pushed import Push

JOINING = 50  # subscribers that connect at one time
UNDER_WAY = 200  # publications that are not acknowledged yet
LAST_SECONDS = 20.0  # for what is under way when the last publication was acknowledged

Progress = Callable[[int], None]
Pairs = Counter[tuple[int, int]]  # (subscriber, publication)


class Pushes(Struct):
    """What publishers and subscribers saw."""

    subscribers: int
    published: int
    expected: int  # (subscriber, publication) pairs, by brute force over the filters
    delivered: int
    missing: int
    uncalled: int  # delivered to somebody who had not asked for it
    again: int  # further copies, each flagged as redelivered
    twice: int  # further copies that were not
    seconds: float  # of publishing, the matcher's recovery included


class Audience:
    """The subscribers, and every push they got."""

    def __init__(self, stage: PushStage, wanted: list[str]) -> None:
        self._stage = stage
        self._wanted = wanted
        self._subscribers: list[Subscriber] = []
        self._readers: list[asyncio.Task[None]] = []
        self.got: Pairs = Counter()
        self.flagged: Pairs = Counter()

    async def gather(self, progress: Progress) -> None:
        """Connect and subscribe everybody."""
        room = asyncio.Semaphore(JOINING)
        joined = [self._join(number, room) for number in range(len(self._wanted))]
        for done, joining in enumerate(asyncio.as_completed(joined), 1):
            await joining
            progress(done)

    async def _join(self, number: int, room: asyncio.Semaphore) -> None:
        client = f"{number:024x}"
        subscriber = Subscriber(
            client,
            self._stage.ends["subscribers"],
            credentials=lambda: self._stage.credentials(client),
            durable=True,
        )
        self._subscribers.append(subscriber)
        async with room:
            await subscriber.subscribe(self._wanted[number])
        self._readers.append(asyncio.create_task(self._read(number, subscriber)))

    async def _read(self, number: int, subscriber: Subscriber) -> None:
        async for arrived in subscriber:
            if isinstance(arrived, Push):
                pair = (number, int(arrived.attrs["n"]))
                (self.flagged if arrived.redelivered else self.got)[pair] += 1

    async def leave(self) -> None:
        """Hang up."""
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)
        await asyncio.gather(*(subscriber.close() for subscriber in self._subscribers))


async def push(
    stage: PushStage, people: int, count: int, gathering: Progress, publishing: Progress
) -> Pushes:
    """Publish `count` readings to `people` subscribers; half-way, kill the matcher with -9."""
    wanted = watches(people)
    audience = Audience(stage, wanted)
    await audience.gather(gathering)
    try:
        expected = _expected(wanted, count)
        start = SystemClock.monotonic()
        await _publish(stage, count, publishing)
        seconds = SystemClock.monotonic() - start
        deadline = SystemClock.monotonic() + LAST_SECONDS
        # Pushes come from a thousand places at once; asking now and then is simplest.
        while expected - _all(audience).keys() and SystemClock.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        return _compare(audience, people, count, expected, seconds)
    finally:
        await audience.leave()


async def _publish(stage: PushStage, count: int, progress: Progress) -> None:
    async with Publisher(stage.ends["publishers"], window=UNDER_WAY) as publisher:
        published = 0
        async for _ in publisher.publish_all(readings(count)):
            published += 1
            progress(published)
            if published == count // 2:
                stage.kill("matcher")


def _expected(wanted: list[str], count: int) -> set[tuple[int, int]]:
    """Who should get what: every filter asked about every reading."""
    filters = [parse_filter(text) for text in wanted]
    return {
        (person, number)
        for number, (attributes, _) in enumerate(readings(count))
        for person, alternatives in enumerate(filters)
        if any(matches(fields, attributes) for fields in alternatives)
    }


def _all(audience: Audience) -> Pairs:
    return audience.got + audience.flagged


def _compare(
    audience: Audience, people: int, count: int, expected: set[tuple[int, int]], seconds: float
) -> Pushes:
    everything = _all(audience)
    firsts = [pair for pair, times in audience.got.items() if times]
    return Pushes(
        subscribers=people,
        published=count,
        expected=len(expected),
        delivered=len(everything),
        missing=len(expected - everything.keys()),
        uncalled=len(everything.keys() - expected),
        again=everything.total() - len(everything) - (audience.got.total() - len(firsts)),
        twice=audience.got.total() - len(firsts),
        seconds=seconds,
    )
