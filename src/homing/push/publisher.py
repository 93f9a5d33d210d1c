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
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from homing.clock import SystemClock
from homing.errors import (
    ConfigError,
    HomingError,
    Malformed,
    RequestTimeout,
    ShuttingDown,
    SubscriptionError,
)
from homing.ids import ID_BYTES, IdMaker
from homing.push.moorings import Moorings
from homing.push.publishing import Publishing
from homing.push.subscription import check_attributes
from homing.push.values import Value
from homing.wire.packet import PacketStream

DEFAULT_MATCHER = "127.0.0.1:7001"

# Attributes, payload and, if it is to be known when it comes again, a message id of the caller's.
Publication: TypeAlias = (
    tuple[Mapping[str, Value], bytes | str] | tuple[Mapping[str, Value], bytes | str, bytes]
)


class Publisher:
    """A publisher on the running loop; one connection, any number of publications under way."""

    def __init__(
        self, *matchers: str, token: str = "", timeout: float | None = 30.0, window: int = 4096
    ) -> None:
        """`matchers`: any of them, then in turn or where a busy one says that there is less to do.

        `window`: under way before `publish` waits.
        """
        if window < 1:
            raise ConfigError([f"window: at least 1 publication under way, not {window}"])
        start = secrets.randbelow(max(1, len(matchers)))  # many publishers spread out
        self._matchers: Sequence[str] = (*matchers[start:], *matchers[:start]) or (DEFAULT_MATCHER,)
        self._token = token.encode()
        self._timeout = timeout
        self._window = window
        self._slots = asyncio.Semaphore(window)
        self._waiting: dict[bytes, asyncio.Future[int]] = {}
        self._deadlines: deque[tuple[float, asyncio.Future[int]]] = deque()  # all equally far
        self._timer: asyncio.TimerHandle | None = None
        self._moorings: Moorings | None = None
        self._role: Publishing | None = None

    @property
    def matcher(self) -> str:
        """The matcher it publishes at; one that is busy may send it to another."""
        return self._matchers[0] if self._role is None else self._role.endpoint

    async def __aenter__(self) -> Publisher:
        self._open()
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
        TooLarge, Denied…) if the matcher says no, RequestTimeout if nobody says anything.
        """
        known = self._waiting.get(identity)
        if known is not None and not known.done():  # under way already: one answer for both
            return await asyncio.shield(known)
        async with self._slots:
            return await self._start(attributes, payload, identity)

    async def publish_all(self, publications: Iterable[Publication]) -> AsyncIterator[int]:
        """Publish many, as many at once as the window allows; match counts in their order.

        Each is (attributes, payload) or (attributes, payload, identity).
        """
        under_way: deque[asyncio.Future[int]] = deque()
        try:
            for publication in publications:
                while under_way and (len(under_way) >= self._window or self._open().full):
                    yield await under_way.popleft()
                under_way.append(self._start(*publication))
            while under_way:
                yield await under_way.popleft()
        finally:
            for future in under_way:
                future.cancel()

    def _start(
        self, attributes: Mapping[str, Value], payload: bytes | str, identity: bytes = b""
    ) -> asyncio.Future[int]:
        """Send one; what comes of it. No task and no timer of its own: those cost more than it."""
        check_attributes(dict(attributes))
        if identity and len(identity) != ID_BYTES:
            raise Malformed(f"a message id is {ID_BYTES} bytes, got {len(identity)}")
        try:
            body = payload.encode() if isinstance(payload, str) else payload
            json = msgspec.json.encode(attributes)
        except UnicodeEncodeError as error:
            raise SubscriptionError(f"text that has no UTF-8: {error}") from error
        identity = self._open().publish(json, body, identity)
        known = self._waiting.get(identity)
        if known is not None and not known.done():  # under way already: one answer for both
            return known
        loop = asyncio.get_running_loop()
        future = self._waiting[identity] = loop.create_future()
        if self._timeout is not None:
            while self._deadlines and self._deadlines[0][1].done():
                self._deadlines.popleft()
            self._deadlines.append((loop.time() + self._timeout, future))
            if self._timer is None:
                self._timer = loop.call_later(self._timeout, self._expire)
        return future

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
        """Hang up; whoever still waits gets ShuttingDown."""
        moorings, self._moorings, self._role = self._moorings, None, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._deadlines.clear()
        for future in list(self._waiting.values()):
            if not future.done():
                future.set_exception(ShuttingDown("the publisher was closed"))
        if moorings is not None:
            await moorings.close()

    def _open(self) -> Publishing:
        if self._role is None:
            self._moorings = Moorings(PacketStream)
            ids = IdMaker(SystemClock.wall, secrets.token_bytes(8))
            self._role = Publishing(self._moorings, ids, self._matchers, self._ended, self._token)
            self._moorings.role = self._role
        return self._role

    def _ended(self, identity: bytes, result: int | HomingError) -> None:
        future = self._waiting.pop(identity, None)
        if future is None or future.done():
            return
        if isinstance(result, int):
            future.set_result(result)
        else:
            future.set_exception(result)

    @property
    def connected(self) -> bool:
        """Whether a matcher is there now."""
        return self._role is not None and self._role.connected

    def _why_late(self) -> str:
        if self.connected or self._moorings is None:
            return f"no acknowledgement within {self._timeout} s"
        tried = ", ".join(self._matchers)
        return f"no matcher answers at {tried} ({self._moorings.failure or 'no answer'})"
