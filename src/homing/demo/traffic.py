"""A seeded city: sensors on roads that publish, people who watch some of them."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

ROADS = tuple(f"{letter}{number}" for letter in "ABCD" for number in range(1, 11))
FREE_FLOW = 90.0  # km/h on an empty road
SEED = 20_260


class Reading(NamedTuple):
    """What a sensor publishes."""

    attributes: dict[str, float | str | bool]
    payload: bytes


def readings(count: int, seed: int = SEED) -> Iterator[Reading]:
    """Speeds that wander; now and then a road jams."""
    random = Random(seed)
    speed = dict.fromkeys(ROADS, FREE_FLOW)
    for number in range(count):
        road = random.choice(ROADS)
        if random.random() < 0.05:
            speed[road] = random.uniform(3.0, 25.0)
        drift = random.gauss(0.1 * (FREE_FLOW - speed[road]), 6.0)
        speed[road] = min(130.0, max(1.0, speed[road] + drift))
        yield Reading(
            {
                "n": number,
                "road": road,
                "speed": round(speed[road], 1),
                "lorries": random.random() < 0.3,
            },
            b"reading %d" % number,
        )


def watches(count: int, seed: int = SEED) -> list[str]:
    """What each subscriber wants to know, in the filter language."""
    random = Random(seed + 1)
    return [_watch(random) for _ in range(count)]


def _watch(random: Random) -> str:
    road, limit = random.choice(ROADS), random.choice((15, 25, 40))
    kind = random.random()
    if kind < 0.6:
        return f'road = "{road}" and speed < {limit}'
    if kind < 0.9:
        other = random.choice(ROADS)
        return f'road in ("{road}", "{other}") and speed < {limit - 5} and lorries = true'
    return f"speed > {random.randint(115, 128)}"
