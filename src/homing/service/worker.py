"""The worker: serves services with plain functions.

    worker = homing.Worker("tcp://127.0.0.1:5556")

    @worker.service("echo", concurrency=16)
    async def echo(body: bytes) -> bytes:
        return body

    @worker.service("sum")                 # JSON in, JSON out, by the annotations
    def total(numbers: list[float]) -> float:
        return sum(numbers)

    @worker.service("count")               # every yield is a part of the answer
    async def count(upto: int) -> AsyncIterator[bytes]: ...

    worker.run_forever()                   # or: await worker.run()

`concurrency` is the credit a broker is told: how many requests this worker holds at once. A
coroutine function runs on the loop; a plain function in a thread (`run="thread"`), in a process
(`run="process"`: it and its values must pickle), or, if it never waits for anything, on the
loop itself (`run="inline"`, the fastest). An exception becomes a refusal: a Refused keeps its
code, anything else is `failed` with its text.

Every service has a connection of its own, with heartbeats both ways. When it is lost, work
under way runs to its end but its answer goes nowhere: the broker has given the request to
another worker.
"""

from __future__ import annotations

import asyncio
import inspect
import typing
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, TypeVar

from homing.errors import HandshakeRefused
from homing.loops import fastest_loop, stop_on_signals
from homing.service.bodies import codec_named
from homing.service.names import may_be_served
from homing.service.processes import Processes
from homing.service.serve import Serve
from homing.service.station import Station
from homing.wire.mdp_fields import CREDIT_MAX, INTERVAL_MAX, NAME_MAX
from homing.wire.mdp_messages import Dialect
from homing.wire.mechanisms import Mechanism
from homing.wire.zmtp import NULL

DEFAULT_ENDPOINT = "tcp://127.0.0.1:5556"
# As the protocol page has it: three silent intervals and the other side is gone.
HEARTBEAT = 2.5
LIVENESS = 3
# Seconds between heartbeats that a worker can keep to while it is idle: as slow as a broker of ours asks for.
IDLE_HEARTBEAT = 30.0
# Seconds for work under way when the worker is asked to stop.
GRACE = 30.0

_DIALECTS = {"0X": Dialect.D0X, "01": Dialect.D01, "02": Dialect.D02}
_WAYS = ("loop", "inline", "thread", "process")

F = TypeVar("F", bound=Callable[..., Any])


class Worker:
    """Functions offered as services.

        worker = homing.Worker("tcp://127.0.0.1:5556")

        @worker.service("sum", concurrency=16)
        def total(numbers: list[float]) -> float:
            return sum(numbers)

        worker.run_forever()  # or: await worker.run()

    Annotations say what is taken and given: bytes, str, list[bytes], anything that JSON can carry. An exception is a refusal.
    """

    def __init__(
        self,
        endpoint: str | Sequence[str] = DEFAULT_ENDPOINT,
        *,
        security: Mechanism = NULL,
        codec: str = "json",
        dialect: str = "0X",
        heartbeat: float = HEARTBEAT,
        liveness: int = LIVENESS,
        idle_heartbeat: float = IDLE_HEARTBEAT,
    ) -> None:
        """Several endpoints are tried in turn. `dialect` `01` and `02`: for others' brokers.

        `idle_heartbeat`: the slowest that a broker with very many workers may ask for while this one is idle; 0: it shall not.
        """
        if dialect not in _DIALECTS:
            raise ValueError(f"no dialect {dialect!r}; there are: {', '.join(_DIALECTS)}")
        self._endpoint = endpoint
        self._security = security
        self._codec = codec_named(codec)
        self._dialect = _DIALECTS[dialect]
        self._heartbeat = heartbeat
        self._liveness = liveness
        if not 0 <= idle_heartbeat * 1000 <= INTERVAL_MAX:
            raise ValueError(f"idle_heartbeat is from 0 to an hour, not {idle_heartbeat} seconds")
        self._idle_heartbeat = idle_heartbeat
        self._offers: dict[str, tuple[Serve, int]] = {}
        self._pools: dict[str, Executor] = {}
        self._threads = 0
        self._processes = 0
        self._end: asyncio.Future[None] | None = None
        self._stopping = False
        self._announced: set[str] = set()
        self._ready = asyncio.Event()

    # -- offering ---------------------------------------------------------------------------

    def service(
        self, name: str, *, concurrency: int = 1, run: str | None = None
    ) -> Callable[[F], F]:
        """Offer the decorated function under this name; an empty name is any service."""
        if callable(name) or not isinstance(name, str):
            raise TypeError(f'a service has a name: @worker.service("name"), not {name!r:.60}')
        if name in self._offers:
            raise ValueError(f"this worker serves {name!r} already")
        if not 1 <= concurrency <= CREDIT_MAX:
            raise ValueError(f"concurrency is from 1 to {CREDIT_MAX}")
        if len(name.encode()) > NAME_MAX:
            raise ValueError(f"a service name has at most {NAME_MAX} bytes")
        if name and not may_be_served(name.encode()):
            raise ValueError(
                f"no service can be called {name!r}: a name is printable, and `*` and mmi.… are brokers' own"
            )
        if self._dialect != Dialect.D0X and (concurrency > 1 or not name):
            raise ValueError("only the 0X dialect has concurrency, or serves any service")

        def offer(function: F) -> F:
            way = run or ("loop" if _on_loop(function) else "thread")
            if way not in _WAYS or (way == "loop") != _on_loop(function):
                raise ValueError(f"{function!r} cannot run in {way!r}; there are: {_WAYS}")
            serve = Serve(
                function, way, self._codec.reader(_annotation(function)), self._codec.write
            )
            if serve.parted and way == "process":
                raise ValueError("an answer in parts cannot be made in a process")
            self._threads += concurrency if way == "thread" else 0
            self._processes += concurrency if way == "process" else 0
            self._offers[name] = (serve, concurrency)
            return function

        return offer

    # -- running ----------------------------------------------------------------------------

    async def run(self, *, grace: float = GRACE) -> None:
        """Serve until `stop`; then let work under way end, for `grace` seconds at most.

        HandshakeRefused ends it too: a broker that will not have us will not change its mind.
        """
        if not self._offers:
            raise ValueError("a worker without a service: use @worker.service(name)")
        if self._end is not None:
            raise RuntimeError("this worker runs already: `stop` it first, or make another one")
        self._open_pools()
        stations = [self._station(name) for name in self._offers]
        self._end = asyncio.get_running_loop().create_future()
        if self._stopping:
            self._end.set_result(None)
        try:
            for station in stations:
                station.start()
            await self._end
        finally:
            await asyncio.gather(*(each.stop(grace) for each in stations))
            self._announced.clear()
            self._ready.clear()
            self._stopping = False
            self._end = None
            for pool in self._pools.values():
                pool.shutdown(wait=False, cancel_futures=True)
            self._pools.clear()

    def _station(self, name: str) -> Station:
        serve, credit = self._offers[name]
        serve.pool = self._pools.get(serve.way)
        return Station(
            self._endpoint,
            name,
            credit,
            serve,
            self,
            mechanism=self._security,
            dialect=self._dialect,
            interval=self._heartbeat,
            liveness=self._liveness,
            slowest=self._idle_heartbeat,
        )

    def stop(self) -> None:
        """Take no more work; `run` returns when what is under way is done, or as soon as it begins."""
        self._stopping = True
        if self._end is not None and not self._end.done():
            self._end.set_result(None)

    async def ready(self) -> None:
        """Wait until every service has been announced to a broker."""
        await self._ready.wait()

    def announced(self, service: str) -> None:
        """A station tells: a broker knows the service now."""
        self._announced.add(service)
        if len(self._announced) == len(self._offers):
            self._ready.set()

    def refused(self, error: HandshakeRefused) -> None:
        """A station tells: a broker will not have us."""
        if self._end is not None and not self._end.done():
            self._end.set_exception(error)

    def run_forever(self, *, grace: float = GRACE) -> None:
        """Serve until SIGINT or SIGTERM, on uvloop where it is installed; a second one ends the process at once."""
        with asyncio.Runner(loop_factory=fastest_loop()) as runner:
            runner.run(self._until_signal(grace))

    async def _until_signal(self, grace: float) -> None:
        stop_on_signals(self.stop)
        await self.run(grace=grace)

    def _open_pools(self) -> None:
        if self._threads:
            self._pools["thread"] = ThreadPoolExecutor(self._threads, "homing-worker")
        if self._processes:
            self._pools["process"] = Processes(self._processes)


def _on_loop(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def _annotation(function: Callable[..., Any]) -> Any:
    """What a function says its one argument is; bytes if it says nothing."""
    parameters = list(inspect.signature(function).parameters.values())
    taken = [each for each in parameters if each.default is each.empty]
    if len(taken) != 1 or taken[0].kind not in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    ):
        raise TypeError(f"{function!r} must take one argument: the body")
    return typing.get_type_hints(function).get(taken[0].name, bytes)
