"""Publisher: sends publications and tells when the fabric has them.

    async with Publisher("127.0.0.1:7001") as publisher:
        matched = await publisher.publish({"price": 12.5, "city": "Paris"}, b"hello")

Publications are pipelined: start many (`asyncio.gather`, or `publish_all`) and they share
round trips. An awaited publish returns when the publication is journaled and on its way to
its subscribers; a lost link is mended underneath and what was open is sent again.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, Self, TypeAlias

from homing.clock import SystemClock
from homing.errors import Closed, HomingError, RequestTimeout
from homing.ids import IdMaker
from homing.loops import Ahead
from homing.push import given
from homing.push.moorings import Moorings
from homing.push.publishing import Publishing
from homing.push.values import Value
from homing.wire.packet import PacketStream

DEFAULT_MATCHER = "127.0.0.1:7001"
MOMENT: Final = 0.001
"""Seconds after which what was published leaves, and acknowledgements are looked at: publications may be work to make."""

# Attributes, payload and, if it is to be known when it comes again, a message id of the caller's.
Publication: TypeAlias = (
    tuple[Mapping[str, Value], bytes | str] | tuple[Mapping[str, Value], bytes | str, bytes]
)


class Publisher:
    """A publisher on the running loop; one connection, any number of publications under way.

        async with homing.Publisher("127.0.0.1:7001") as publisher:
            matched = await publisher.publish({"price": 12.5, "city": "Paris"}, b"hello")

    homing.sync.Publisher blocks.
    """

    def __init__(
        self, *matchers: str, token: str = "", timeout: float | None = 30.0, window: int = 4096
    ) -> None:
        """`matchers`: any of them, then in turn or where a busy one says that there is less to do.

        `token`: one of the fabric's API keys, where it has any. `timeout`: seconds until a publication that nobody
        acknowledged is given up; None never. `window`: under way before `publish` waits.
        """
        where = given.endpoints(matchers, DEFAULT_MATCHER)
        start = secrets.randbelow(len(where))  # many publishers spread out
        self._matchers: Sequence[str] = (*where[start:], *where[:start])
        self._token = given.token(token)
        self._timeout = given.seconds(timeout)
        self._window = given.window(window)
        self._slots = asyncio.Semaphore(self._window)
        self._waiting: dict[bytes, asyncio.Future[int]] = {}
        # Who published the same while it was under way: each gives up for itself.
        self._others: dict[bytes, list[asyncio.Future[int]]] = {}
        self._deadlines: deque[tuple[float, asyncio.Future[int]]] = deque()  # all equally far
        self._timer: asyncio.TimerHandle | None = None
        self._moorings: Moorings | None = None
        self._role: Publishing | None = None
        self._closed = False

    @property
    def matcher(self) -> str:
        """The matcher it publishes at; one that is busy may send it to another."""
        return self._matchers[0] if self._role is None else self._role.endpoint

    async def __aenter__(self) -> Self:
        self._open(asyncio.get_running_loop())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def publish(
        self, attributes: Mapping[str, Value], payload: bytes | str = b"", *, identity: bytes = b""
    ) -> int:
        """Publish; how many subscriptions matched.

        `identity`: a 12-byte message id of the caller's; sent again under the same one, it is
        answered and goes nowhere a second time.

        Raises SubscriptionError for attributes that have no meaning, a Refused (QueueFull,
        TooLarge, Denied…) if the matcher says no, RequestTimeout if nobody says anything, Closed
        once this publisher was closed.
        """
        same = given.identity(identity)
        known = self._waiting.get(same) if same else None
        if known is not None and not known.done():  # under way already: one answer for both
            return await self._also(same)
        async with self._slots:
            return await self._start(attributes, payload, identity)

    async def publish_all(
        self, publications: Iterable[Publication] | AsyncIterable[Publication]
    ) -> AsyncGenerator[int, None]:
        """Publish many, as many at once as the window allows; match counts in their order, each once it is there.

        Each is (attributes, payload) or (attributes, payload, identity). A plain iterable is taken from between
        counts; one that waits for something should be an async one.
        """
        if not isinstance(publications, Iterable):
            ahead = Ahead(publications, self._in_turn)
            try:
                while ahead.allow(self._window) or await ahead.first():
                    yield await ahead.window.popleft()
            finally:
                await ahead.stop()
                for future in ahead.window:
                    future.cancel()
            return
        under_way: deque[asyncio.Future[int]] = deque()
        clock = asyncio.get_running_loop().time
        rest_at = clock() + MOMENT
        try:
            for publication in publications:
                while under_way and (
                    len(under_way) >= self._window or self._full() or under_way[0].done()
                ):
                    yield await under_way.popleft()
                under_way.append(self._start(*given.parts(publication)))
                if clock() >= rest_at:
                    await asyncio.sleep(0)
                    rest_at = clock() + MOMENT
            while under_way:
                yield await under_way.popleft()
        finally:
            for future in under_way:
                future.cancel()

    async def _in_turn(self, publication: Publication) -> asyncio.Future[int]:
        """Send one as soon as there is room for it."""
        while self._full():
            open_ones = [one for one in self._waiting.values() if not one.done()]
            await asyncio.wait(open_ones[:1]) if open_ones else await asyncio.sleep(MOMENT)
        return self._start(*given.parts(publication))

    def _start(
        self, attributes: Mapping[str, Value], payload: bytes | str, identity: bytes = b""
    ) -> asyncio.Future[int]:
        """Send one; what comes of it. No task and no timer of its own: those cost more than it."""
        json, body = given.publication(attributes, payload)
        loop = asyncio.get_running_loop()
        identity = self._open(loop).publish(json, body, given.identity(identity))
        known = self._waiting.get(identity)
        if known is not None and not known.done():  # under way already: one answer for both
            return self._also(identity)
        future = self._waiting[identity] = loop.create_future()
        self._give_time(future, loop)
        return future

    def _also(self, identity: bytes) -> asyncio.Future[int]:
        """One more who waits for what is under way."""
        loop = asyncio.get_running_loop()
        self._here(loop)
        future: asyncio.Future[int] = loop.create_future()
        self._others.setdefault(identity, []).append(future)
        self._give_time(future, loop)
        return future

    def _give_time(self, future: asyncio.Future[int], loop: asyncio.AbstractEventLoop) -> None:
        if self._timeout is not None:
            while self._deadlines and self._deadlines[0][1].done():
                self._deadlines.popleft()
            self._deadlines.append((loop.time() + self._timeout, future))
            if self._timer is None:
                self._timer = loop.call_later(self._timeout, self._expire)

    def _expire(self) -> None:
        """Give up on those that have waited too long; the oldest comes first."""
        loop = asyncio.get_running_loop()
        self._timer = None
        while self._deadlines:
            due, future = self._deadlines[0]
            if not future.done() and due > loop.time():
                self._timer = loop.call_at(due, self._expire)
                return
            self._deadlines.popleft()
            if not future.done():
                future.set_exception(RequestTimeout(self._why_late()))

    async def close(self) -> None:
        """Hang up, for good; whoever still waits is told that it is Closed."""
        moorings = self._moorings
        if moorings is not None and not moorings.loop.is_closed():
            self._here(asyncio.get_running_loop())
        self._closed = True
        self._moorings = self._role = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._deadlines.clear()
        for future in [*self._waiting.values(), *chain.from_iterable(self._others.values())]:
            if not future.done() and not future.get_loop().is_closed():
                future.set_exception(Closed("the publisher was closed"))
        if moorings is not None and not moorings.loop.is_closed():
            await moorings.close()

    def _full(self) -> bool:
        return self._role is not None and self._role.full

    def _here(self, loop: asyncio.AbstractEventLoop) -> None:
        """Nothing of ours may be touched from any other loop than its own."""
        if self._moorings is not None and self._moorings.loop is not loop:
            raise Closed("this publisher is another event loop's")

    def _open(self, loop: asyncio.AbstractEventLoop) -> Publishing:
        if self._closed:
            raise Closed("the publisher was closed")
        self._here(loop)
        if self._role is None:
            self._moorings = Moorings(PacketStream)
            ids = IdMaker(SystemClock.wall, secrets.token_bytes(8))
            self._role = Publishing(self._moorings, ids, self._matchers, self._ended, self._token)
            self._moorings.role = self._role
        return self._role

    def _ended(self, identity: bytes, result: int | HomingError) -> None:
        future = self._waiting.pop(identity, None)
        if future is not None:
            _tell(future, result)
        if self._others:
            for other in self._others.pop(identity, ()):
                _tell(other, result)

    @property
    def connected(self) -> bool:
        """Whether a matcher is there now."""
        return self._role is not None and self._role.connected

    def _why_late(self) -> str:
        if self._role is None or self._moorings is None or self._role.greeted:
            return f"no acknowledgement within {self._timeout:g} s"
        if self.connected:
            return (
                f"{self.matcher} is there and does not answer as a matcher does within {self._timeout:g} s: "
                "is it stuck, or another port than that for publishers?"
            )
        tried = ", ".join(self._matchers)
        return f"no matcher answers at {tried} ({self._moorings.failure or 'no answer'})"


def _tell(future: asyncio.Future[int], result: int | HomingError) -> None:
    """What came of a publication, unless whoever waited has given it up."""
    if future.done():
        return
    if isinstance(result, int):
        future.set_result(result)
    else:
        future.set_exception(result)
