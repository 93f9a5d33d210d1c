"""What a client does for a request: sends it when it may, waits, tries again, and keeps the time.

Compiled, where the rest of the client (homing.service.client) cannot be: it has async generators.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any, Final, Self, TypedDict, TypeVar, Unpack, overload

from homing.backoff import Backoff
from homing.errors import (
    Closed,
    HandshakeRefused,
    HomingError,
    LinkError,
    RemoteProtocolError,
    RequestTimeout,
    ShuttingDown,
)
from homing.ports import mypyc_attr
from homing.service.asking import Asked, Asking, Plan
from homing.service.bodies import Read, body_of, codec_named
from homing.service.lifeline import Lifeline, Pulse
from homing.service.turns import Turns
from homing.wire.mdp_messages import Dialect
from homing.wire.mechanisms import Mechanism

# Signs of life of a broker that may fail to come, as workers have it.
LIVENESS: Final = 3
PRIORITY: Final = 4

T = TypeVar("T")


class Options(TypedDict, total=False):
    """What every call may say of its requests."""

    timeout: float  # seconds for one try
    retries: int  # further tries after a failure that may pass
    priority: int  # 0 to 9, 9 first


_BODY: Final[Read] = body_of


@mypyc_attr(allow_interpreted_subclasses=True)  # homing.Client is one, and programs may have theirs
class ClientCore:
    """The part of homing.Client that all its calls share, and `request`."""

    def __init__(
        self,
        endpoint: str | Sequence[str],
        dialect: Dialect,
        *,
        timeout: float,
        retries: int,
        in_flight: int,
        security: Mechanism,
        identity: bytes,
        codec: str,
        heartbeat: float,
    ) -> None:
        self._asking = Asking(dialect, in_flight)
        self._lifeline = Lifeline(
            endpoint, self, mechanism=security, identity=identity, skim=self._skim
        )
        self._timeout = timeout
        self._retries = retries
        self._codec = codec_named(codec)
        self._pulse = Pulse(self._lifeline, self._asking.__len__, heartbeat, LIVENESS)
        self._turns = Turns()
        self._alarm: asyncio.TimerHandle | None = None
        self._connected: asyncio.Future[None] | None = None
        self._closed = False

    # -- the public calls -------------------------------------------------------------------

    @overload
    async def request(
        self, service: str, body: Any = ..., *, returns: type[T], **options: Unpack[Options]
    ) -> T: ...

    @overload
    async def request(self, service: str, body: Any = ..., **options: Unpack[Options]) -> bytes: ...

    async def request(
        self,
        service: str,
        body: Any = b"",
        *,
        returns: Any = bytes,
        timeout: float | None = None,  # noqa: ASYNC109 (of one try, and the broker is told)
        retries: int | None = None,
        priority: int = PRIORITY,
    ) -> Any:
        """Ask, wait, and return the answer as `returns` says (see homing.service.bodies)."""
        asking, plan, data, tried = self._asking, None, b"", 0
        asked, read = None, _BODY
        if returns is not bytes:
            read = self._codec.reader(returns)
        elif timeout is None and priority == PRIORITY:
            asked = asking.quick(service, body, self._lifeline.stream)
        pauses: Backoff | None = None
        while True:
            if asked is None:
                if plan is None:
                    data, plan = self._codec.write(body), self._plan(service, timeout, priority)
                asked = asking.at_once(plan, b"", data, self._lifeline.stream)
                if asked is None:
                    asked = await self._in_turn(plan, data)
            try:
                return await asked.done if asked.bare else read(await asked.done)
            except asyncio.CancelledError:
                self._give_up(asked)
                raise
            except HomingError as error:
                self._heed(error)
                most = self._retries if retries is None else retries
                if tried >= most or not error.retryable or self._closed:
                    raise
            tried += 1
            asked = None
            pauses = pauses or Backoff(random.random)
            await asyncio.sleep(pauses.pause())

    async def connect(self) -> Self:
        """Connect now and know that it worked: Unavailable or HandshakeRefused if it did not."""
        self._start()
        if not self._lifeline.up:
            if self._connected is None:
                self._connected = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(self._timeout):
                    await asyncio.shield(self._connected)
            except TimeoutError:
                raise self._lifeline.unavailable() from None
        return self

    async def close(self) -> None:
        """Hang up; what is still under way fails."""
        if self._closed:
            return
        self._closed = True
        self._asking.fail(_closed)
        self._pulse.stop()
        if self._alarm is not None:
            self._alarm.cancel()
        self._wake()
        await self._lifeline.close()
        self._asking.fail(_closed)  # what was asked while it hung up

    async def __aenter__(self) -> Self:
        self._start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- one request --------------------------------------------------------------------------

    def _heed(self, error: HomingError) -> None:
        """A broker that goes is left for another as soon as it owes us nothing."""
        if isinstance(error, ShuttingDown) and not len(self._asking):
            self._lifeline.leave("the broker is shutting down")

    def _plan(
        self, service: str, timeout: float | None, priority: int, streamed: bool = False
    ) -> Plan:
        patience = self._timeout if timeout is None else timeout
        plan = self._asking.plan(service, patience, priority, streamed)
        if timeout is None and priority == PRIORITY and not streamed:
            self._asking.remember(service, plan)
        return plan

    async def _in_turn(self, plan: Plan, data: bytes) -> Asked:
        """Send a request when there is room, or keep it until there is a connection."""
        if self._full():
            await self._room(plan.patience)
        stream = self._lifeline.stream
        if stream is None:
            self._start()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + plan.patience
        asked = self._asking.ask(plan, b"", data, deadline, loop.create_future(), stream)
        if deadline < self._asking.alarm_at:
            self._set_alarm(loop, deadline)
        if not self._pulse.running:
            self._pulse.start()
        return asked

    def _give_up(self, asked: Asked) -> None:
        """Nobody waits for this answer any more."""
        if self._asking.forget(asked):
            self._wake()
            self._abandon()
        if not asked.done.cancelled() and asked.done.done():
            asked.done.exception()  # told to nobody, on purpose
        asked.done.cancel()

    def _abandon(self) -> None:
        """A late answer could be taken for the next one's where requests have no id."""
        if not self._asking.numbered:
            self._lifeline.drop("a request was given up")

    # -- room: neither more requests nor more bytes than there should be ------------------------

    def _full(self) -> bool:
        stream = self._lifeline.stream
        return self._asking.full or (stream is not None and stream.full)

    async def _room(self, patience: float) -> None:
        """Wait for one's turn to send."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience
        while self._full() and not self._closed:
            if not self._asking.full:
                await self._drained(deadline)
                continue
            if deadline < self._asking.alarm_at:
                self._set_alarm(loop, deadline)
            await self._turns.wait(deadline)
        if self._closed:
            self._start()  # says so: nothing more is sent while the last bytes leave

    async def _drained(self, deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                await self._lifeline.room()
        except TimeoutError:
            raise RequestTimeout("the broker takes nothing") from None

    def _wake(self) -> None:
        """Let as many go on as there is room for."""
        if self._turns:
            room = len(self._turns) if self._closed else self._asking.most - len(self._asking)
            self._turns.wake(room)

    # -- deadlines: one timer for all -----------------------------------------------------------

    def _set_alarm(self, loop: asyncio.AbstractEventLoop, at: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._asking.alarm_at = at
        self._alarm = loop.call_at(at, self._ring)

    def _ring(self) -> None:
        """A deadline has come, perhaps of a request long answered: look at those that are left."""
        loop = asyncio.get_running_loop()
        self._alarm = None
        before = len(self._asking)
        first = self._asking.expire(loop.time(), self._overdue)
        if self._turns:
            first = min(first, self._turns.expire(loop.time()))
        self._asking.alarm_at = first
        if first != float("inf"):
            self._set_alarm(loop, first)
        if len(self._asking) < before:
            self._wake()
            self._abandon()

    def _overdue(self) -> HomingError:
        if self._lifeline.up:
            return RequestTimeout("no answer in time")
        return self._lifeline.unavailable()

    # -- what the lifeline tells --------------------------------------------------------------

    def _start(self) -> None:
        if self._closed:
            raise _closed()
        self._lifeline.start()

    def opened(self) -> None:
        """Connected: what was asked meanwhile goes out."""
        for image in self._asking.unsent():
            self._lifeline.send(image)
        if self._connected is not None and not self._connected.done():
            self._connected.set_result(None)
        self._connected = None

    def received(self, images: list[bytes]) -> None:
        """Answers."""
        try:
            self._asking.receive(images, asyncio.get_running_loop().time())
        except RemoteProtocolError as error:
            self._lifeline.drop(f"the broker sent what is no answer: {error}")
        if self._turns:
            self._wake()

    def _skim(self, data: bytes) -> int:
        """Answers as nearly all are, in a chunk; where they end."""
        at = self._asking.skim(data)
        if self._turns:
            self._wake()
        return at

    def lost(self, error: HomingError) -> None:
        """Disconnected, or turned away: the answers to what was sent will not come."""
        kind = HandshakeRefused if isinstance(error, HandshakeRefused) else LinkError
        self._asking.fail(lambda: kind(str(error)))
        if self._connected is not None and not self._connected.done():
            self._connected.set_exception(error)
            self._connected.exception()  # whoever waited may have given up before
        self._connected = None
        self._wake()


def _closed() -> Closed:
    return Closed("the client was closed")
