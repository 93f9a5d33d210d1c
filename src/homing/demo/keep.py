"""`homing demo --keep`: after the demo a fabric stays up, with its page and some life on it.

Paris is a whole `homing up`, Lyon a broker that is its peer; both have the demo's workers. Requests
come in waves that overload Paris for a moment, sensors publish, people watch roads; the page's
pipeline table shows what Spark found in the demo itself.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import socket
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Self

from homing.demo.stage import Company, free_endpoints
from homing.demo.traffic import readings, watches
from homing.demo.worker import SERVICE
from homing.errors import HomingError
from homing.push.publisher import Publisher
from homing.push.subscriber import Subscriber
from homing.service.client import Client

PEOPLE = 100
WAVE = (5, 120)  # requests at once: the second is more than Paris can take
PAUSE = 0.25
READINGS = 10_000
PORTS = (*range(5555, 5562), *range(7001, 7009))


class Kept(Company):
    """What stays up."""

    def __init__(self, data: Path, tables: Path) -> None:
        super().__init__(data)
        self._tables = tables.absolute()
        self._offset = free_offset()
        self.token = secrets.token_urlsafe(12)
        self.page = f"http://127.0.0.1:{7007 + self._offset}/"

    @property
    def flag(self) -> str:
        """What other commands need to find it; nothing on the usual ports."""
        return f" --port-offset {self._offset}" if self._offset else ""

    def port(self, usual: int) -> int:
        return usual + self._offset

    async def __aenter__(self) -> Self:
        lyon = free_endpoints()
        paris = ",".join(f"tcp://127.0.0.1:{self.port(usual)}" for usual in (5557, 5558))
        self.start_node(
            *("lyon", "broker", "--name", "lyon", "--peer", f"paris={paris}"),
            **{f"service__{plug}": end for plug, end in lyon.items()},
        )
        self.start_node(
            *("paris", "up", "--name", "paris", "--port-offset", str(self._offset)),
            service__peers=f"lyon={lyon['cloudfe']}|{lyon['statebe']}",
            dashboard__token=self.token,
            security__token_key=self._key,
            pipeline__tables=str(self._tables),
        )
        await self._supervisor.ready()
        door = f"tcp://127.0.0.1:{self.port(5556)}"
        self.start_workers({"paris": door, "lyon": lyon["localbe"]})
        await self._supervisor.ready()
        return self


async def live(kept: Kept) -> None:
    """Some life, until cancelled."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_ask(kept))
        tasks.create_task(_publish(kept))
        for number, wanted in enumerate(watches(PEOPLE)):
            tasks.create_task(_watch(kept, f"{number:024x}", wanted))


async def _ask(kept: Kept) -> None:
    async with Client(f"tcp://127.0.0.1:{kept.port(5555)}", timeout=10.0) as client:
        while True:
            size = random.choice((WAVE[0], WAVE[0], WAVE[0], WAVE[1]))
            asked = [client.request(SERVICE, b"%d" % number) for number in range(size)]
            await asyncio.gather(*asked, return_exceptions=True)
            await asyncio.sleep(PAUSE)


async def _publish(kept: Kept) -> None:
    async with Publisher(f"127.0.0.1:{kept.port(7001)}") as publisher:
        for reading in cycle(readings(READINGS)):
            try:
                await publisher.publish(reading.attributes, reading.payload)
            except HomingError:  # a visitor may stop and start nodes; the publisher reconnects
                await asyncio.sleep(1.0)
            await asyncio.sleep(0.02)


async def _watch(kept: Kept, client: str, wanted: str) -> None:
    where = f"127.0.0.1:{kept.port(7005)}"
    credentials: Callable[[], tuple[int, str]] = lambda: kept.credentials(client)  # noqa: E731
    async with Subscriber(client, where, credentials=credentials) as subscriber:
        await subscriber.subscribe(wanted)
        async for _ in subscriber:
            pass


def free_offset() -> int:
    """0 if the usual ports are free, else a thousand or some more."""
    for offset in range(0, 50_000, 1_000):
        if all(_is_free(port + offset) for port in PORTS):
            return offset
    raise HomingError("no free ports for a fabric of its own", hint="`homing doctor` names them")


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
