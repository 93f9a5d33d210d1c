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

from collections.abc import AsyncGenerator, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar, Unpack, overload

from homing.errors import HomingError
from homing.service.asking import Plan, Streamed
from homing.service.bodies import EMPTY, Bodies
from homing.service.client_core import PRIORITY, ClientCore, Options
from homing.service.feeding import Feeding, Filling
from homing.wire.frames import pack, unpack
from homing.wire.mdp_messages import Dialect
from homing.wire.mechanisms import Mechanism
from homing.wire.zmtp import NULL

DEFAULT_ENDPOINT = "tcp://127.0.0.1:5555"
# Longer than a worker needs to restart, shorter than a person waits.
TIMEOUT = 30.0
# Requests under way on one client: enough for any broker's turn, and their bodies are memory.
IN_FLIGHT = 1024
# Seconds between signs of life while something is under way, as workers have it.
HEARTBEAT = 2.5

_DIALECTS = {"0X": Dialect.D0X, "01": Dialect.D01, "02": Dialect.D02}

T = TypeVar("T")

_OPTIONS = frozenset(Options.__annotations__)


class Client(ClientCore):
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
        super().__init__(
            endpoint,
            _DIALECTS[dialect],
            timeout=timeout,
            retries=retries,
            in_flight=in_flight,
            security=security,
            identity=identity,
            codec=codec,
            heartbeat=heartbeat,
        )

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


def _known(options: Options) -> None:
    """An option that is misspelt would be no option, and nobody told."""
    if not options.keys() <= _OPTIONS:
        unknown = ", ".join(sorted(options.keys() - _OPTIONS))
        raise TypeError(f"no option {unknown}; there are: {', '.join(sorted(_OPTIONS))}")
