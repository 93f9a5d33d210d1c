"""The fastest event loop there is, and one that runs in a thread of its own for blocking callers."""

from __future__ import annotations

import asyncio
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
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
