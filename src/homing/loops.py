"""The fastest event loop there is, one that runs in a thread of its own for blocking callers, and items that are waited for beside other work."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import CancelledError
from functools import update_wrapper
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from homing.errors import Closed

T = TypeVar("T")
P = ParamSpec("P")

_AFTER_FORK = (
    "threads and connections stay with the parent: make one in each process, after the fork"
)


def fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's loop where it is installed; None: asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    make: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return make


def stop_on_signals(stop: Callable[[], None]) -> None:
    """SIGINT and SIGTERM call `stop` on the running loop; a second one ends the process at once."""
    loop = asyncio.get_running_loop()
    stopping = False

    def heard(number: int) -> None:
        nonlocal stopping
        if stopping:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        stopping = True
        stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        # Not in the main thread, or (the first of these) on a loop that knows no signals.
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, heard, number)


class LoopThread:
    """A running loop in a thread of its own."""

    def __init__(self) -> None:
        make = fastest_loop() or asyncio.new_event_loop
        self._loop = make()
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._run, name="homing-loop", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(_end_all())
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine run over there; an interrupt here cancels it there."""
        try:
            self._check()
            with self._lock:
                if self._stopping.is_set():
                    raise Closed("it was closed")
                future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except BaseException:
            work.close()
            raise
        try:
            return future.result()
        except BaseException as error:
            future.cancel()
            if self._stopping.is_set() and isinstance(error, CancelledError):
                raise Closed("it was closed meanwhile") from None
            raise

    @property
    def forked(self) -> bool:
        """Whether this is a child of the process whose thread runs the loop: nobody runs it here."""
        return os.getpid() != self._process

    def _check(self) -> None:
        """Nobody would ever answer who asks in a forked process, or on the loop's own thread."""
        if self.forked:
            raise Closed("it was made before this process was forked", hint=_AFTER_FORK)
        if threading.current_thread() is self._thread:
            raise RuntimeError(
                "a blocking call within another one of the same object, by the iterable it was given perhaps: "
                "make a list of that first, or use a second object"
            )

    def stop(self) -> None:
        """End the loop, then the thread; who waits for something over there is told."""
        if self.forked:
            return
        with self._lock:
            self._stopping.set()
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


async def _end_all() -> None:
    """Cancel what still runs on this loop: somebody in another thread may wait for it."""
    running = asyncio.all_tasks() - {asyncio.current_task()}
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


def made_as(
    kind: Callable[P, object],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """An `__init__` that passes on what it gets takes what `kind` takes: type checkers, editors and `help` see it."""

    def same(make: Callable[..., None]) -> Callable[Concatenate[Any, P], None]:
        known: Any = kind
        return update_wrapper(make, known.__init__)

    return same


class Closing(ABC):
    """What is closed at the end of its `with`."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything; once is enough."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Closable(Protocol):
    """What a Blocking wraps."""

    async def close(self) -> None: ...


Inner = TypeVar("Inner", bound=Closable)


class Blocking(Closing, Generic[Inner]):
    """An asynchronous object on a running loop in a thread of its own."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, Inner]]) -> None:
        """`make` runs on that loop."""
        self._loop = LoopThread()
        self._call = self._loop.call
        self._closed = False
        try:
            self._inner: Inner = self._call(make())
        except BaseException:
            self._loop.stop()
            raise

    def close(self) -> None:
        """Hang up and end the thread."""
        if not self._closed:
            self._closed = True
            if self._loop.forked:
                return  # it is the parent's to close
            try:
                self._call(self._inner.close())
            finally:
                self._loop.stop()


class Ahead(Generic[T]):
    """Begins something for each item of an async iterable, in a task, so many ahead of who takes them from `window`."""

    def __init__(self, items: AsyncIterable[Any], begin: Callable[[Any], Awaitable[T]]) -> None:
        self.window: deque[T] = deque()  # what has begun, oldest first
        self._most = 1
        self._news, self._room = asyncio.Event(), asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run(items, begin))

    def allow(self, most: int) -> bool:
        """So many may stand in the window; False if none does."""
        self._most = most
        self._room.set()
        return bool(self.window)

    async def first(self) -> bool:
        """Wait until one has begun; False if none will. What the items raised comes behind all that had begun."""
        while not self.window and not self._task.done():
            self._news.clear()
            await self._news.wait()
        if not self.window:
            await self._task
        return bool(self.window)

    async def stop(self) -> None:
        """Take no more items."""
        self._task.cancel()
        await asyncio.wait((self._task,))
        if not self._task.cancelled():
            self._task.exception()  # told to the reader, or to nobody on purpose

    async def _run(self, items: AsyncIterable[Any], begin: Callable[[Any], Awaitable[T]]) -> None:
        try:
            async for item in items:
                while len(self.window) >= self._most:
                    self._room.clear()
                    await self._room.wait()
                self.window.append(await begin(item))
                self._news.set()
        finally:
            self._news.set()


class Elsewhere:
    """The items of an iterable as an async one: a thread takes them, up to `most` ahead.

    It may wait for anything, even for what this loop does.
    """

    def __init__(self, items: Iterable[Any], most: int) -> None:
        self._items = items
        self._most = most
        self._taken: deque[Any] = deque()
        self._room = threading.Event()
        self._error: BaseException | None = None
        self._ended = self._left = False
        self._told = False  # the loop knows that there is more: one call of it serves many

    async def __aiter__(self) -> AsyncIterator[Any]:
        news, loop = asyncio.Event(), asyncio.get_running_loop()
        thread = threading.Thread(
            target=self._run, args=(loop, news), name="homing-items", daemon=True
        )
        thread.start()
        try:
            while True:
                await news.wait()
                news.clear()
                self._told = False
                ended = self._ended  # before the last look
                while self._taken:
                    yield self._taken.popleft()
                self._room.set()
                if ended:
                    break
            if self._error is not None:
                raise self._error
        finally:
            self._left = True
            self._room.set()

    def _run(self, loop: asyncio.AbstractEventLoop, news: asyncio.Event) -> None:
        try:
            for item in self._items:
                self._taken.append(item)
                self._tell(loop, news)
                while len(self._taken) >= self._most and not self._left:
                    self._room.clear()
                    if (
                        len(self._taken) >= self._most and not self._left
                    ):  # else nobody may be left to set it
                        self._room.wait()
                if self._left:
                    return
        except BaseException as error:
            self._error = error
        finally:
            self._ended = True
            self._told = False
            self._tell(loop, news)

    def _tell(self, loop: asyncio.AbstractEventLoop, news: asyncio.Event) -> None:
        if not self._told:
            self._told = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to be told
                loop.call_soon_threadsafe(news.set)
