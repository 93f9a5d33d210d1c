"""The client and the worker without asyncio: the same names, the same arguments, blocking.

    from homing.sync import Client

    with Client("tcp://127.0.0.1:5555") as client:
        answer = client.request("echo", b"hello", timeout=2.0)
        for thumb in client.map("resize", pictures, in_flight=64): ...

A thread of its own runs the loop of each client, so it may be used from several threads.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator
from typing import Any, Self, TypeVar, Unpack, overload

from homing.errors import LinkError
from homing.loops import Blocking, Elsewhere, fastest_loop, made_as
from homing.service import client as asynchronous
from homing.service.client_core import Options
from homing.service.worker import GRACE
from homing.service.worker import Worker as AsyncWorker

T = TypeVar("T")

# Answers that wait for a reader in another thread.
_AHEAD = 64


class Client(Blocking[asynchronous.Client]):
    """homing.Client, blocking. Takes what it takes; close it, or use it in a `with`."""

    @made_as(asynchronous.Client)
    def __init__(self, *arguments: Any, **settings: Any) -> None:
        async def make() -> asynchronous.Client:
            return asynchronous.Client(*arguments, **settings)

        super().__init__(make)

    def connect(self) -> Self:
        """Connect now and know that it worked."""
        self._call(self._inner.connect())
        return self

    @overload
    def request(
        self, service: str, body: Any = ..., *, returns: type[T], **options: Unpack[Options]
    ) -> T: ...

    @overload
    def request(self, service: str, body: Any = ..., **options: Unpack[Options]) -> bytes: ...

    def request(
        self, service: str, body: Any = b"", *, returns: Any = bytes, **options: Unpack[Options]
    ) -> Any:
        """Ask, wait, and return the answer."""
        return self._call(self._inner.request(service, body, returns=returns, **options))

    @overload
    def map(
        self,
        service: str,
        bodies: Iterable[Any],
        *,
        in_flight: int = ...,
        returns: type[T],
        **options: Unpack[Options],
    ) -> Iterator[T]: ...

    @overload
    def map(
        self,
        service: str,
        bodies: Iterable[Any],
        *,
        in_flight: int = ...,
        **options: Unpack[Options],
    ) -> Iterator[bytes]: ...

    def map(
        self,
        service: str,
        bodies: Iterable[Any],
        *,
        in_flight: int = 64,
        returns: Any = bytes,
        **options: Unpack[Options],
    ) -> Iterator[Any]:
        """Ask once for every body, many at a time; the answers come in order.

        Bodies that are made on the way (a generator, a file) are taken in another thread.
        """
        ready = isinstance(bodies, Collection)
        items = bodies if ready else Elsewhere(bodies, max(in_flight, 1))
        return self._iterate(
            lambda: self._inner.map(service, items, in_flight=in_flight, returns=returns, **options)
        )

    @overload
    def stream(
        self, service: str, body: Any = ..., *, returns: type[T], **options: Unpack[Options]
    ) -> Iterator[T]: ...

    @overload
    def stream(
        self, service: str, body: Any = ..., **options: Unpack[Options]
    ) -> Iterator[bytes]: ...

    def stream(
        self, service: str, body: Any = b"", *, returns: Any = bytes, **options: Unpack[Options]
    ) -> Iterator[Any]:
        """Ask, and take the answer part by part."""
        return self._iterate(lambda: self._inner.stream(service, body, returns=returns, **options))

    def _iterate(self, start: Callable[[], AsyncGenerator[Any, None]]) -> Iterator[Any]:
        """Items of an async generator as they come, several at a time if there are."""
        pump = _Pump(start())
        try:
            while got := self._call(pump.some()):
                yield from got
        finally:
            with contextlib.suppress(
                LinkError
            ):  # of a client that is closed nothing is left to end
                self._call(pump.close())


class _Pump:
    """Runs an async generator a little ahead of its blocking reader: changing threads is dear."""

    def __init__(self, items: AsyncGenerator[Any, None]) -> None:
        self._items = items
        self._got: list[Any] = []
        self._news, self._room = asyncio.Event(), asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def some(self) -> list[Any]:
        """What there is, one item at least; none means that there are no more."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(_told)
        if not self._got and not self._task.done():
            self._news.clear()
            await self._news.wait()
        if not self._got:
            await self._task  # raises what the generator raised
        got, self._got = self._got, []
        self._room.set()
        return got

    async def _run(self) -> None:
        try:
            async for item in self._items:
                self._got.append(item)
                self._news.set()
                while len(self._got) >= _AHEAD:
                    self._room.clear()
                    await self._room.wait()
        finally:
            self._news.set()

    async def close(self) -> None:
        """Leave the rest."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._items.aclose()


def _told(task: asyncio.Task[None]) -> None:
    """Whoever reads on is told how it failed; nobody has to."""
    if not task.cancelled():
        task.exception()


class Worker(AsyncWorker):
    """homing.Worker, blocking: `run` returns once `stop` was called, from a thread or a signal."""

    @made_as(AsyncWorker)
    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._running: asyncio.AbstractEventLoop | None = None

    def run(self, *, grace: float = GRACE) -> None:  # type: ignore[override]
        """Serve until `stop`, on uvloop where it is installed."""
        with asyncio.Runner(loop_factory=fastest_loop()) as runner:
            self._running = runner.get_loop()
            runner.run(super().run(grace=grace))
        self._running = None

    def stop(self) -> None:
        """Take no more work; may be called from any thread."""
        loop = self._running
        if loop is None:
            super().stop()
            return
        with contextlib.suppress(RuntimeError):  # it ended meanwhile
            loop.call_soon_threadsafe(super().stop)
