"""A thousand subscribers, each with a filter of its own: everybody gets what they asked for, once.

    python examples/thousand_subscribers.py

People look for flats by city, rent and rooms. Flats are published as they come up; the matcher finds the
people concerned in its index, whatever their number. At the end each person's letter box is
compared with what brute force says they should have got.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import homing
from homing.push.filters import parse_filter
from homing.push.index.oracle import matches
from homing.testing import fabric

CITIES = ("Paris", "Lyon", "Nice", "Lille")
PEOPLE = 1000
FLATS = 500


def wishes(number: int) -> list[str]:
    """What so many people look for, in the filter language."""
    chance = random.Random(1)
    return [
        f'city = "{chance.choice(CITIES)}" and rent < {chance.randrange(500, 900, 10)} '
        f"and rooms in {(rooms := chance.randrange(1, 5))}..{rooms + 1}"
        for _ in range(number)
    ]


def flats(number: int) -> list[dict[str, Any]]:
    """What comes up."""
    chance = random.Random(2)
    return [
        {
            "flat": flat,
            "city": chance.choice(CITIES),
            "rent": chance.randrange(450, 2500),
            "rooms": chance.randrange(1, 6),
        }
        for flat in range(number)
    ]


async def read(subscriber: homing.Subscriber, box: set[int]) -> None:
    """Put every push into a letter box."""
    async for push in subscriber:
        if isinstance(push, homing.Push):
            assert push.attrs["flat"] not in box, "nobody gets anything twice"
            box.add(int(push.attrs["flat"]))


async def main() -> None:
    """Gather the people, publish the flats, compare."""
    wanted, offered = wishes(PEOPLE), flats(FLATS)
    boxes: list[set[int]] = [set() for _ in wanted]
    with fabric(push=True) as here:
        people = [here.subscriber() for _ in wanted]
        for person, wish in zip(people, wanted, strict=True):
            await person.subscribe(wish)
        readers = [
            asyncio.create_task(read(person, box))
            for person, box in zip(people, boxes, strict=True)
        ]
        async with homing.Publisher(here.publishers) as publisher:
            begun = time.monotonic()
            counts = [n async for n in publisher.publish_all((flat, b"") for flat in offered)]
            took = time.monotonic() - begun
        while sum(map(len, boxes)) < sum(counts):  # noqa: ASYNC110 - a thousand places to look
            await asyncio.sleep(0.05)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*(person.close() for person in people))
    for wish, box in zip(wanted, boxes, strict=True):
        [fields] = parse_filter(wish)
        assert box == {flat["flat"] for flat in offered if matches(fields, flat)}
    print(f"{FLATS} flats for {PEOPLE} people in {took:.2f} s")
    print(f"{sum(counts)} letters, every one for somebody who asked for it, none missing")


if __name__ == "__main__":
    asyncio.run(main())
