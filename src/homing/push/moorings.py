"""The Port of a publisher or subscriber: dials on the running asyncio loop, with back-off.

What a role sends in one turn of the loop leaves in one write.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections.abc import Awaitable, Callable, Hashable
from typing import Protocol, cast

from homing.backoff import Backoff
from homing.endpoint import Endpoint, parse_endpoint, why_unreachable
from homing.errors import HomingError
from homing.ports import Link, Role

# Seconds for TCP and TLS together; a node that is there needs a hundredth of it.
CONNECT_TIMEOUT = 5.0
# First and last pause between dials: a node that is back is noticed within a second.
PAUSES = (0.05, 1.0)
# Seconds within which a node sends away whom it does not let in; who was let in is soon back elsewhere.
AT_ONCE = 1.0
_GUESS = "without a word: is it another port than ours, or does it speak TLS?"

_log = logging.getLogger("homing.moorings")


Find = Callable[[str], Awaitable[str]]


class Stream(Protocol):
    """Cuts what is received into messages."""

    def receive(self, data: bytes) -> list[bytes]: ...


class Whole:
    """Hands chunks on as they are, to a role that cuts them itself."""

    def receive(self, data: bytes) -> list[bytes]:
        return [data]


class MooredLink(Link, asyncio.Protocol):
    """One connection of ours."""

    def __init__(self, moorings: Moorings, plug: str) -> None:
        super().__init__(plug)
        self.where: Endpoint | str = ""
        self._moorings = moorings
        self._stream = moorings.stream()
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []
        self.over = moorings.loop.create_future()
        self.dumb = False  # the peer hung up without a word
        self.fault = ""  # why we hung up
        self._heard = False

    def send(self, message: bytes) -> None:
        if not self._out:
            self._moorings.loop.call_soon(self._flush)
        self._out.append(message)

    def close(self, reason: str = "") -> None:
        self._flush()
        if reason:
            self.fault = reason
            self._moorings.failure = f"{self.where}: {reason}"
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()

    @property
    def backlog(self) -> int:
        held = sum([len(message) for message in self._out])
        return held + (self._transport.get_write_buffer_size() if self._transport else 0)

    def read(self, on: bool) -> None:
        """Take no more from the peer for now, or again."""
        if self._transport is not None:
            (self._transport.resume_reading if on else self._transport.pause_reading)()

    def _flush(self) -> None:
        out, self._out = self._out, []
        if out and self._transport is not None:
            self._transport.write(b"".join(out))

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one by shape only
        self._moorings.opened(self)

    def data_received(self, data: bytes) -> None:
        self._heard = True
        now = self._moorings.loop.time()
        try:
            for message in self._stream.receive(data):
                self._moorings.role.receive(self, message, now)
        except HomingError as error:  # the peer breaks its protocol: another link may do better
            self.close(str(error))
            self._moorings.role.closed(self, now)

    def connection_lost(self, error: Exception | None) -> None:
        if self._transport is not None:
            self._transport = None
            self.dumb = not self._heard
            self._moorings.role.closed(self, self._moorings.loop.time())
        if not self.over.done():
            self.over.set_result(None)


class Moorings:
    """A homing.ports.Port with a few connections and timers; `role` must be set before use."""

    role: Role

    def __init__(
        self,
        stream: Callable[[], Stream],
        tls: ssl.SSLContext | None = None,
        find: Find | None = None,
    ) -> None:
        """`find`: asked before each dial where to go instead; what it raises is tried again."""
        self.loop = asyncio.get_running_loop()
        self.stream = stream
        self.failure = ""  # why the last dial did not succeed
        self.link: MooredLink | None = None  # the newest
        self._tls = tls
        self._find = find
        self._unreached: set[Endpoint] = set()  # those whose outage was logged
        self._dials: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._timers: dict[Hashable, asyncio.TimerHandle] = {}

    def connect(self, plug: str, endpoint: str) -> None:
        if (plug, endpoint) not in self._dials:
            keep = self._keep(plug, parse_endpoint(endpoint))
            self._dials[plug, endpoint] = self.loop.create_task(keep, name="homing-dial")

    def disconnect(self, plug: str, endpoint: str) -> None:
        task = self._dials.pop((plug, endpoint), None)
        if task is not None:
            task.cancel()

    def later(self, deadline: float, key: Hashable) -> None:
        self.cancel(key)
        self._timers[key] = self.loop.call_at(deadline, self._wake, key)

    def cancel(self, key: Hashable) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def journal(self, event: object) -> int:
        """Clients keep no journal: nothing to wait for."""
        return 0

    async def close(self) -> None:
        """Send what is queued, hang up, dial no more."""
        for key in list(self._timers):
            self.cancel(key)
        tasks = list(self._dials.values())
        self._dials.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def opened(self, link: MooredLink) -> None:
        self.link = link
        self.role.opened(link, self.loop.time())

    def _wake(self, key: Hashable) -> None:
        self._timers.pop(key, None)
        self.role.wake(key, self.loop.time())

    async def _keep(self, plug: str, where: Endpoint) -> None:
        backoff = Backoff(random.random, *PAUSES)
        fled = False
        while True:
            link = MooredLink(self, plug)
            try:
                if self._find is not None:
                    where = parse_endpoint(await self._find(str(where)))
                link.where = where
                async with asyncio.timeout(CONNECT_TIMEOUT):
                    await self._dial(link, where)
                since = self.loop.time()
                await link.over
                stayed = self.loop.time() - since >= AT_ONCE
                if stayed:
                    backoff.reset()
                fled = self._judge(link, where, stayed, fled)
            except HomingError as error:
                self._note(where, str(error))
            except (OSError, TimeoutError) as error:
                self._note(where, f"{where}: {why_unreachable(error)}")
            except asyncio.CancelledError:
                link.close()
                raise
            await asyncio.sleep(backoff.pause())

    def _judge(self, link: MooredLink, where: Endpoint, stayed: bool, again: bool) -> bool:
        """Note what was wrong with a connection that is over; whether the peer fled from it.

        Once is no trouble yet: it may be drained, or have told its role why.
        """
        if link.fault:
            self._note(where, f"{where}: {link.fault}")
        elif stayed:
            self._unreached.discard(where)
        elif link.dumb:
            self._note(where, f"{where}: it hung up {_GUESS}")
        elif again:
            self._note(where, f"{where}: it hangs up as soon as it has answered")
        return not stayed

    def _note(self, where: Endpoint, said: str) -> None:
        """Log it once for each endpoint and outage: who only waits for pushes is told in no other way."""
        level = logging.DEBUG if where in self._unreached else logging.WARNING
        self._unreached.add(where)
        self.failure = said
        _log.log(level, "no connection, trying on: %s", said)

    async def _dial(self, link: MooredLink, where: Endpoint) -> None:
        if where.path:
            await self.loop.create_unix_connection(lambda: link, where.path)
            return
        await self.loop.create_connection(
            lambda: link,
            where.host,
            where.port,
            ssl=self._tls,
            server_hostname=where.host if self._tls else None,
        )
