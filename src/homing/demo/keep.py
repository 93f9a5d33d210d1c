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
import sys
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from types import TracebackType
from typing import Self

from homing.clock import SystemClock
from homing.demo.stage import SITES, environment, free_endpoints
from homing.demo.traffic import readings, watches
from homing.demo.worker import SERVICE
from homing.errors import HomingError
from homing.node.supervisor import Supervisor
from homing.push.publisher import Publisher
from homing.push.subscriber import Subscriber
from homing.push.tokens import Keyring
from homing.service.client import Client

PEOPLE = 100
WAVE = (5, 120)  # requests at once: the second is more than Paris can take
PAUSE = 0.25
READINGS = 10_000
PORTS = (*range(5555, 5562), *range(7001, 7009))


class Kept:
    """What stays up; `async with` leaves nothing behind."""

    def __init__(self, data: Path, tables: Path) -> None:
        self._data = data
        self._tables = tables.absolute()
        self._supervisor = Supervisor(watch=lambda _name, _line: None)
        self._key = secrets.token_hex(16)
        self._offset = free_offset()
        self.token = secrets.token_urlsafe(12)
        self.page = f"http://127.0.0.1:{7007 + self._offset}/"

    @property
    def flag(self) -> str:
        """What other commands need to find it; nothing on the usual ports."""
        return f" --set node.port_offset={self._offset}" if self._offset else ""

    def port(self, usual: int) -> int:
        return usual + self._offset

    async def __aenter__(self) -> Self:
        lyon = free_endpoints()
        self._run("lyon", "broker", "--name", "lyon", *self._settings(lyon), *self._paris())
        self._run(
            *("paris", "up", "--name", "paris", "--port-offset", str(self._offset)),
            *("--set", f"service.peers=lyon={lyon['cloudfe']}|{lyon['statebe']}"),
            *("--set", f"dashboard.token={self.token}", "--set", f"security.token_key={self._key}"),
            *("--set", f"pipeline.tables={self._tables}"),
        )
        await self._supervisor.ready()
        doors = {"paris": f"tcp://127.0.0.1:{self.port(5556)}", "lyon": lyon["localbe"]}
        for site, workers in SITES.items():
            for number in range(workers):
                argv = [sys.executable, "-m", "homing.demo.worker", doors[site], site]
                self._supervisor.start(f"{site}-{number + 1}", argv, environment())
        await self._supervisor.ready()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._supervisor.stop()

    def _run(self, name: str, verb: str, *words: str) -> None:
        argv = [sys.executable, "-m", "homing.cli", verb, "--data", str(self._data / name), *words]
        argv += ["--set", "node.log_level=error"]
        self._supervisor.start(name, argv, environment())

    def _settings(self, ends: dict[str, str]) -> list[str]:
        return [word for plug, end in ends.items() for word in ("--set", f"service.{plug}={end}")]

    def _paris(self) -> list[str]:
        ends = [f"tcp://127.0.0.1:{self.port(usual)}" for usual in (5557, 5558)]
        return ["--peer", f"paris={','.join(ends)}"]

    def credentials(self, client: str) -> tuple[int, str]:
        """What the authority would give this client."""
        now = int(SystemClock.wall())
        return now, Keyring([self._key.encode()]).issue(client, now)


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
