"""What users notice when something changes: a subscription of theirs, or a node that is killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
import time
from statistics import quantiles

from benchmarks.harness import server
from benchmarks.push.servers import (
    CONNECTOR,
    DISPATCHER,
    KINDS,
    PORTS,
    PUBLISHERS,
    SUBSCRIBERS,
    homing_command,
    homing_env,
)
from benchmarks.service.brokers import free_offset
from homing.node.run import run
from homing.push.publisher import Publisher
from homing.push.subscriber import Subscriber
from homing.push.tokens import Keyring
from homing.wire.pushed import Push

KILLED = {"connector": CONNECTOR, "dispatcher": DISPATCHER, "matcher": PUBLISHERS}
PAUSE = 0.005  # between publications
CALM = 1.0  # before a node is killed: all is well again
PATIENCE = 60.0


class Fabric:
    """The nodes of one fabric; any of them can be killed and started again where it was."""

    def __init__(self, python_path: str) -> None:
        self._path = python_path
        self._offset = free_offset(PORTS)
        self._directory = tempfile.TemporaryDirectory()
        self._running: dict[str, contextlib.ExitStack] = {}
        self._pids: dict[str, int] = {}

    def __enter__(self) -> Fabric:
        for kind in KINDS:
            self.start(kind)
        return self

    def __exit__(self, *_: object) -> None:
        for stack in self._running.values():
            stack.close()
        self._directory.cleanup()

    def start(self, kind: str) -> None:
        """Returns when it listens."""
        argv = [*homing_command(), kind, "--port-offset", str(self._offset)]
        argv += ["--data", self._directory.name]
        stack = self._running[kind] = contextlib.ExitStack()
        node = server(argv, KINDS[kind] + self._offset, env=homing_env(self._path))
        self._pids[kind] = stack.enter_context(node).pid

    def kill(self, kind: str) -> None:
        """kill -9."""
        os.kill(self._pids[kind], signal.SIGKILL)
        self._running.pop(kind).close()

    def publisher(self) -> Publisher:
        return Publisher(f"127.0.0.1:{PUBLISHERS + self._offset}", timeout=PATIENCE)

    def subscriber(self) -> Subscriber:
        """A durable one: what it is owed survives."""
        client = os.urandom(12).hex()
        with open(f"{self._directory.name}/token.key", "rb") as file:
            keys = Keyring([file.read().strip()])

        def credentials() -> tuple[int, str]:
            stamp = int(time.time())
            return stamp, keys.issue(client, stamp)

        where = f"127.0.0.1:{SUBSCRIBERS + self._offset}"
        return Subscriber(client, where, credentials=credentials, durable=True)


def seconds_to_subscribe(python_path: str, times: int) -> tuple[float, float]:
    """From a changed filter to its being in force, which a publication proves: p50 and p99."""
    with Fabric(python_path) as fabric:
        taken = sorted(run(_subscribe(fabric, times)))
    cuts = quantiles(taken, n=100)
    return cuts[49], cuts[98]


async def _subscribe(fabric: Fabric, times: int) -> list[float]:
    taken: list[float] = []
    async with fabric.publisher() as publisher, fabric.subscriber() as subscriber:
        await subscriber.subscribe("n = -1")
        for number in range(times):
            began = time.perf_counter()
            await subscriber.subscribe(f"n = {number}")
            taken.append(time.perf_counter() - began)
            if await publisher.publish({"n": number}) != 1:
                raise RuntimeError("a subscription was confirmed and not in force")
    return taken


def seconds_away(python_path: str, repeats: int) -> dict[str, list[float]]:
    """For each kind of node: from kill -9 until what is published after it is received again."""
    with Fabric(python_path) as fabric:
        return run(_killed(fabric, repeats))


async def _killed(fabric: Fabric, repeats: int) -> dict[str, list[float]]:
    away: dict[str, list[float]] = {kind: [] for kind in KILLED}
    async with fabric.publisher() as publisher, fabric.subscriber() as subscriber:
        await subscriber.subscribe("n >= 0")
        traffic = Traffic(publisher, subscriber)
        for kind in KILLED:
            for _ in range(repeats):
                await asyncio.sleep(CALM)
                fabric.kill(kind)
                killed, first = time.monotonic(), traffic.published
                await asyncio.to_thread(fabric.start, kind)
                away[kind].append(await traffic.received_from(first) - killed)
        await traffic.end()
    return away


class Traffic:
    """Publications at a steady pace, and when each was received."""

    def __init__(self, publisher: Publisher, subscriber: Subscriber) -> None:
        self.published = 0
        self._publisher = publisher
        self._subscriber = subscriber
        self._received: dict[int, float] = {}
        self._under_way: set[asyncio.Task[int]] = set()
        self._ending = False
        self._all = asyncio.Event()
        self._tasks = [asyncio.create_task(self._publish()), asyncio.create_task(self._receive())]

    async def received_from(self, first: int) -> float:
        """When something was received that was published as this one or later."""
        async with asyncio.timeout(PATIENCE):
            while True:
                later = [at for number, at in self._received.items() if number >= first]
                if later:
                    return min(later)
                await asyncio.sleep(PAUSE)

    async def end(self) -> None:
        """Every publication was acknowledged, so every one must come."""
        self._ending = True
        await self._tasks[0]
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*self._under_way)
            if len(self._received) < self.published:
                await self._all.wait()
        self._tasks[1].cancel()

    async def _publish(self) -> None:
        while not self._ending:
            task = asyncio.create_task(self._publisher.publish({"n": self.published}))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
            self.published += 1
            await asyncio.sleep(PAUSE)

    async def _receive(self) -> None:
        async for one in self._subscriber:
            if isinstance(one, Push):
                self._received.setdefault(int(one.attrs["n"]), time.monotonic())
            if self._ending and len(self._received) == self.published:
                self._all.set()
