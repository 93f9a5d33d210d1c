"""Two sites, one overloaded: requests spill to the peer, a worker is killed, nothing is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from msgspec import Struct

from homing.clock import SystemClock
from homing.demo.stage import SITES, Stage
from homing.demo.worker import SERVICE
from homing.metrics import Histogram
from homing.service.client import Client

BUSY = "paris"
IN_FLIGHT = 64
VICTIM = f"{BUSY}-1"

Progress = Callable[[int], None]


class Requests(Struct):
    """What the clients of the busy site saw."""

    asked: int
    answered: Counter[str]  # by site
    wrong: int  # answers that belong to another request
    seconds: float
    round_trips: Histogram
    brokers_cpu: float
    victim_lives: int

    @property
    def rate(self) -> float:
        return self.asked / self.seconds


async def ask(stage: Stage, count: int, progress: Progress) -> Requests:
    """Ask the busy site `count` times; half-way, kill one of its workers with -9."""
    answered: Counter[str] = Counter()
    round_trips = Histogram()
    sent: dict[int, float] = {}
    wrong = 0
    cpu, start = stage.brokers_cpu(), SystemClock.monotonic()
    async with Client(stage.sites[BUSY].ends["localfe"]) as client:
        answers = client.map(SERVICE, _bodies(count, sent), in_flight=IN_FLIGHT)
        number = 0
        async for answer in answers:
            site, _, body = answer.partition(b" ")
            wrong += body != b"%d" % number
            round_trips.observe(SystemClock.monotonic() - sent.pop(number))
            answered[site.decode()] += 1
            number += 1
            if number == count // 2:
                stage.kill(VICTIM)
            progress(number)
    seconds = SystemClock.monotonic() - start
    cpu = stage.brokers_cpu() - cpu
    return Requests(count, answered, wrong, seconds, round_trips, cpu, stage.lives(VICTIM))


def _bodies(count: int, sent: dict[int, float]) -> Iterator[bytes]:
    for number in range(count):
        sent[number] = SystemClock.monotonic()
        yield b"%d" % number


def workers() -> str:
    """`2 + 4`: the workers of each site."""
    return " + ".join(str(number) for number in SITES.values())
