"""The client: asks services for something and waits for the report.

    async with homing.Client("tcp://127.0.0.1:5555") as client:
        answer = await client.request("echo", b"hello", timeout=2.0, retries=3)
        total = await client.request("sum", [1, 2, 3], returns=int)
        async for thumb in client.map("resize", pictures, in_flight=64): ...
        async for line in client.stream("tail", b"/var/log/syslog"): ...

Any number of requests share one connection. It is made when first needed, and made again, after
pauses that grow, when it is lost; what was under way then fails with a LinkError, and is sent
again if `retries` allow. A refusal comes as the exception of its code (homing.errors.Refused).

`timeout` is for one try. A request that is retried may be executed twice: the broker's
`at_most_once` is about workers that die, not about clients that ask again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Iterable, Sequence
from functools import partial
from typing import Any, Self, TypedDict, TypeVar, Unpack, overload

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
from homing.service.asking import MAX_PLANS, Asked, Asking, Plan, Streamed
from homing.service.bodies import EMPTY, Bodies, body_of, codec_named
from homing.service.feeding import Feeding, Filling
from homing.service.lifeline import Lifeline, Pulse
from homing.service.turns import Turns
from homing.wire.frames import pack, unpack
from homing.wire.mdp_messages import Dialect
from homing.wire.mechanisms import Mechanism
from homing.wire.zmtp import NULL

DEFAULT_ENDPOINT = "tcp://127.0.0.1:5555"
# Longer than a worker needs to restart, shorter than a person waits.
TIMEOUT = 30.0
# Requests under way on one client: enough for any broker's turn, and their bodies are memory.
IN_FLIGHT = 1024
# Seconds between signs of life while something is under way, and how many may fail to come:
# as workers have it.
HEARTBEAT = 2.5
LIVENESS = 3

PRIORITY = 4
_DIALECTS = {"0X": Dialect.D0X, "01": Dialect.D01, "02": Dialect.D02}

T = TypeVar("T")


class Options(TypedDict, total=False):
    """What every call may say of its requests."""

    timeout: float  # seconds for one try
    retries: int  # further tries after a failure that may pass
    priority: int  # 0 to 9, 9 first


_OPTIONS = frozenset(Options.__annotations__)


class Client:
    """Requests over one kept connection.

        async with homing.Client("tcp://127.0.0.1:5555") as client:
            answer = await client.request("echo", b"hello", timeout=2.0, retries=3)
            total = await client.request("sum", [1, 2, 3], returns=int)
            async for thumb in client.map("resize", pictures, in_flight=64): ...
            async for line in client.stream("tail", b"/var/log/syslog"): ...

    A refusal comes as the exception of its code (homing.errors.Refused). One event loop's; homing.sync.Client blocks.
    """

    def __init__(
        self,
        endpoint: str | Sequence[str] = DEFAULT_ENDPOINT,
        *,
        timeout: float = TIMEOUT,
        retries: int = 0,
        in_flight: int = IN_FLIGHT,
        security: Mechanism = NULL,
        identity: bytes = b"",
        codec: str = "json",
        dialect: str = "0X",
        heartbeat: float = HEARTBEAT,
    ) -> None:
        """Several endpoints are tried in turn. `security`: PlainClient or CurveClient.

        `dialect` `01` or `02` is for brokers that others wrote: one request at a time.
        """
        if in_flight < 1:
            raise ValueError(f"in_flight is at least 1, not {in_flight}")
        if not heartbeat > 0:
            raise ValueError(f"heartbeat is more than 0 seconds, not {heartbeat}")
        if dialect not in _DIALECTS:
            raise ValueError(f"no dialect {dialect!r}; there are: {', '.join(_DIALECTS)}")
        self._asking = Asking(_DIALECTS[dialect], in_flight)
        self._usual: dict[str, Plan] = {}
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
        data = self._codec.write(body)
        read = body_of if returns is bytes else self._codec.reader(returns)
        if timeout is None and priority == PRIORITY:
            plan = self._usual.get(service) or self._usual_plan(service)
        else:
            plan = self._plan(service, timeout, priority)
        left = self._retries if retries is None else retries
        pauses: Backoff | None = None
        while True:
            asked = self._asking.at_once(plan, data, self._lifeline.stream)
            if asked is None:
                asked = await self._in_turn(plan, data)
            try:
                return read(await asked.done)
            except asyncio.CancelledError:
                self._give_up(asked)
                raise
            except HomingError as error:
                self._heed(error)
                if left <= 0 or not error.retryable or self._closed:
                    raise
            left -= 1
            pauses = pauses or Backoff(random.random)
            await asyncio.sleep(pauses.pause())

    @overload
    def map(
        self,
        service: str,
        bodies: Bodies,
        *,
        in_flight: int = ...,
        returns: type[T],
        **options: Unpack[Options],
    ) -> AsyncGenerator[T, None]: ...

    @overload
    def map(
        self, service: str, bodies: Bodies, *, in_flight: int = ..., **options: Unpack[Options]
    ) -> AsyncGenerator[bytes, None]: ...

    async def map(
        self,
        service: str,
        bodies: Bodies,
        *,
        in_flight: int = 64,
        returns: Any = bytes,
        **options: Unpack[Options],
    ) -> AsyncGenerator[Any, None]:
        """Ask once for every body, many at a time; the answers come in the order of the bodies."""
        if in_flight < 1:
            raise ValueError("in_flight is at least 1")
        _known(options)
        read = self._codec.reader(returns)
        plan = self._plan(service, options.get("timeout"), options.get("priority", PRIORITY))
        ask, feed = partial(self._in_turn, plan), self._feed(bodies, plan)
        window = feed.window
        try:
            while True:
                while not feed.fill(in_flight) and await feed.go_on(self._full, ask):
                    pass
                if not window:
                    return
                asked, data = window[0]
                try:
                    # An answer that is there already needs no trip through the loop.
                    got = asked.done.result() if asked.done.done() else await asked.done
                except HomingError as error:
                    got = await self._again(error, service, data, options)
                window.popleft()
                yield read(got)
        finally:
            await feed.stop()
            for asked, _ in window:
                self._give_up(asked)

    @overload
    def stream(
        self, service: str, body: Any = ..., *, returns: type[T], **options: Unpack[Options]
    ) -> AsyncGenerator[T, None]: ...

    @overload
    def stream(
        self, service: str, body: Any = ..., **options: Unpack[Options]
    ) -> AsyncGenerator[bytes, None]: ...

    async def stream(
        self, service: str, body: Any = b"", *, returns: Any = bytes, **options: Unpack[Options]
    ) -> AsyncGenerator[Any, None]:
        """Ask, and take the answer part by part as the worker makes it.

        `timeout` is the longest wait for the next part; nothing is retried. A worker that answers
        whole gives one part. An empty last part only says that it was the last.
        """
        _known(options)
        read = self._codec.reader(returns)
        patience, priority = options.get("timeout"), options.get("priority", PRIORITY)
        plan = self._plan(service, patience, priority, streamed=True)
        asked = await self._in_turn(plan, self._codec.write(body))
        assert isinstance(asked, Streamed)
        parts = 0
        try:
            while (data := await asked.next()) is not None:
                parts += 1
                yield read(data)
            last = await asked.done
            if last != EMPTY or not parts:
                yield read(last)
        finally:
            self._give_up(asked)

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

    async def _again(
        self, error: HomingError, service: str, data: bytes, options: Options
    ) -> bytes:
        """The answer to a request of `map` that failed once, if it may be tried again."""
        self._heed(error)
        left = options.get("retries", self._retries)
        if left <= 0 or not error.retryable:
            raise error
        options = {**options, "retries": left - 1}
        return pack(await self.request(service, unpack(data), returns=list[bytes], **options))

    def _feed(self, bodies: Bodies, plan: Plan) -> Filling | Feeding:
        """What asks for the bodies of `map`."""
        write = self._codec.write
        if isinstance(bodies, Iterable):
            return Filling(bodies, write, plan, self._asking, self._lifeline)
        return Feeding(bodies, write, partial(self._in_turn, plan))

    def _heed(self, error: HomingError) -> None:
        """A broker that goes is left for another as soon as it owes us nothing."""
        if isinstance(error, ShuttingDown) and not len(self._asking):
            self._lifeline.leave("the broker is shutting down")

    def _usual_plan(self, service: str) -> Plan:
        """Make the plan of requests without options, which most are, and keep it."""
        if len(self._usual) >= MAX_PLANS:
            self._usual.clear()
        plan = self._usual[service] = self._plan(service, None, PRIORITY)
        return plan

    def _plan(
        self, service: str, timeout: float | None, priority: int, streamed: bool = False
    ) -> Plan:
        patience = self._timeout if timeout is None else timeout
        return self._asking.plan(service, patience, priority, streamed)

    async def _in_turn(self, plan: Plan, data: bytes) -> Asked:
        """Send a request when there is room, or keep it until there is a connection."""
        if self._full():
            await self._room(plan.patience)
        stream = self._lifeline.stream
        if stream is None:
            self._start()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + plan.patience
        asked = self._asking.ask(plan, data, deadline, loop.create_future(), stream)
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


def _known(options: Options) -> None:
    """An option that is misspelt would be no option, and nobody told."""
    if not options.keys() <= _OPTIONS:
        unknown = ", ".join(sorted(options.keys() - _OPTIONS))
        raise TypeError(f"no option {unknown}; there are: {', '.join(sorted(_OPTIONS))}")


def _closed() -> Closed:
    return Closed("the client was closed")
