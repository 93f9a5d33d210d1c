"""What the client's and the worker's tests stand on: a broker on real sockets, in the same loop."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any, ParamSpec

from homing.node.host import Host
from homing.node.zmtp import ZmtpPlug
from homing.service.policy import BrokerPolicy, ServicePolicy
from homing.service.switch import Broker
from homing.service.worker import Worker
from homing.wire.mechanisms import Mechanism
from homing.wire.zmtp import NULL, Connection

PATIENCE = 20.0
P = ParamSpec("P")


def on_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a coroutine test on a loop of its own; it must leave no task behind."""

    @functools.wraps(test)
    def run(*arguments: P.args, **named: P.kwargs) -> None:
        asyncio.run(_checked(test(*arguments, **named)))

    return run


async def _checked(test: Coroutine[Any, Any, None]) -> None:
    async with asyncio.timeout(60):
        await test
    await asyncio.sleep(0)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left, left


class Running:
    """A broker that runs, and where."""

    def __init__(self, host: Host, localfe: str, localbe: str) -> None:
        self.host = host
        self.localfe = localfe
        self.localbe = localbe


@contextlib.asynccontextmanager
async def broker(
    *,
    mechanism: Mechanism = NULL,
    heartbeat: float = 2.5,
    idle_beats: float = 500.0,
    localfe: str = "tcp://127.0.0.1:0",
    localbe: str = "tcp://127.0.0.1:0",
    **policy: Any,
) -> AsyncIterator[Running]:
    """homing's own broker; `policy` is of every service."""
    host = Host()
    for name in ("localfe", "localbe"):
        host.add(ZmtpPlug(name, "ROUTER", mechanism=mechanism))
    default = replace(ServicePolicy(absent_grace=0.2), **policy)
    limits = BrokerPolicy(heartbeat=heartbeat, idle_beats=idle_beats, default=default)
    host.role = Broker(b"test", host, policy=limits)
    try:
        yield Running(host, host.listen("localfe", localfe), host.listen("localbe", localbe))
    finally:
        host.stop()
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def serving(worker: Worker) -> AsyncIterator[Worker]:
    """A worker that runs, announced."""
    task = asyncio.create_task(worker.run(grace=5.0))
    try:
        async with asyncio.timeout(PATIENCE):
            await worker.ready()
        yield worker
    finally:
        worker.stop()
        await task


async def eventually(done: Callable[[], bool]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(PATIENCE):
        while not done():  # noqa: ASYNC110 - what it waits for knows of no event
            await asyncio.sleep(0.005)


async def within(work: Awaitable[Any], seconds: float = PATIENCE) -> Any:
    """The result, or a failure of the test."""
    async with asyncio.timeout(seconds):
        return await work


class FakeBroker:
    """A peer that shakes hands and then does what a test says with each chunk."""

    def __init__(self, react: Callable[[list[bytes]], list[bytes]]) -> None:
        self._react = react
        self.connections = 0
        self.endpoint = ""
        self.pongs = True
        self.reads: asyncio.Event | None = None  # set: nothing is read before it, but handshakes
        self._tasks: set[asyncio.Task[Any]] = set()

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[FakeBroker]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.endpoint = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        connection = Connection("ROUTER")
        writer.write(connection.take())
        try:
            while data := await reader.read(1 << 16):
                images = connection.receive(data)
                if not connection.ready:
                    writer.write(connection.take())
                    continue
                if self.reads is not None:
                    writer.write(connection.take())
                    await self.reads.wait()
                writer.write(self._filter(connection.take()))
                for image in self._react(images):
                    writer.write(image)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    def _filter(self, answer: bytes) -> bytes:
        """Leave PONGs unanswered when told to."""
        return answer if self.pongs or b"PONG" not in answer else b""
