"""A task worker: finds a broker of its group, opens, serves one service.

    worker = TaskWorker("tcp://127.0.0.1:5561", "echo", function, remember=Path("echo.json"))
    await worker.run()

The broker's CONFIG names its group. It is kept in a file, so that a worker whose own broker is
down at the next start finds the others; when none answers, `run` raises Unavailable with every
endpoint that was tried.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from homing.backoff import Backoff
from homing.errors import Denied, HomingError, Refused, RemoteProtocolError, Unavailable
from homing.service.lifeline import Lifeline
from homing.service.names import may_be_served
from homing.service.serve import reason_of
from homing.wire import tasks
from homing.wire.frames import frame, head
from homing.wire.mechanisms import Mechanism
from homing.wire.zmtp import NULL

CONNECT_TIMEOUT = 3.0
"""Seconds for CONNECT to CONFIG: a broker that is there answers in a thousandth of it."""
GROUP_MAX = 64
"""Endpoints remembered: a group is a handful of brokers."""

T = TypeVar("T", bound=tasks.Message)
Function = Callable[[bytes], bytes | Awaitable[bytes]]

_log = logging.getLogger("homing.worker")


class TaskWorker:
    """Serves one service with one function; credit: how many tasks at once."""

    def __init__(
        self,
        endpoint: str,
        service: str,
        function: Function,
        *,
        remember: Path | None = None,
        credit: int = 1,
        name: str = "",
        connect_timeout: float = CONNECT_TIMEOUT,
        mechanism: Mechanism = NULL,
    ) -> None:
        if service and not may_be_served(service.encode()):
            raise ValueError(f"no service can be called {service!r}")
        self._endpoint = endpoint
        self._connect = tasks.Connect(service, name, credit)
        self._function = function
        self._remember = remember
        self._timeout = connect_timeout
        self._mechanism = mechanism
        self._group: tuple[str, ...] = self._recall()
        self.broker = ""  # the one that serves us now
        self.endpoint = ""  # and where it is
        self.ready = asyncio.Event()  # the first one has let us in
        self._leaving = asyncio.Event()
        self._session: _Session | None = None

    def stop(self) -> None:
        """Take no more tasks, let those under way end, and have `run` return."""
        self._leaving.set()

    async def run(self) -> None:
        """Serve until stopped; raises Unavailable when no broker of the group answers."""
        loop = asyncio.get_running_loop()
        serving = loop.create_task(self._serve())
        leaving = loop.create_task(self._leaving.wait())
        try:
            await asyncio.wait((serving, leaving), return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
            elif self._session is not None:
                await self._session.finish()
        finally:
            leaving.cancel()
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    async def _serve(self) -> None:
        while True:
            tried: dict[str, HomingError] = {}
            for endpoint in dict.fromkeys((self._endpoint, *self._group)):
                try:
                    await self._serve_at(endpoint)
                    break  # it served and is over: start again with the whole group
                except HomingError as error:
                    tried[endpoint] = error
            else:
                told = "; ".join(f"{endpoint}: {str(e) or e.code}" for endpoint, e in tried.items())
                if all(isinstance(error, Denied) for error in tried.values()):
                    raise Denied(told)
                raise Unavailable(f"no broker answers: {told}")

    async def _serve_at(self, endpoint: str) -> None:
        """Until it is over; a broker that sends us away at once is asked anew, but not for ever."""
        clock, pauses = asyncio.get_running_loop().time, Backoff(random.random)
        patience = clock() + self._timeout
        while True:
            session = self._session = _Session(self, endpoint)
            try:
                await session.open()
                self.endpoint = endpoint
                self.ready.set()
                if await session.serve():
                    return
            finally:
                await session.close()
            if clock() >= patience:
                raise Unavailable("it sends us away")
            await asyncio.sleep(pauses.pause())

    # --- the remembered group -----------------------------------------------------------------

    def _recall(self) -> tuple[str, ...]:
        if self._remember is None or not self._remember.exists():
            return ()
        try:
            config = msgspec.json.decode(self._remember.read_bytes(), type=tasks.Config)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            _log.warning("%s is of no use: %s", self._remember, error)
            return ()
        return tuple(config.group[:GROUP_MAX])

    def learn(self, config: tasks.Config) -> None:
        """Take a broker's CONFIG to heart, and to disk."""
        self.broker = config.broker
        self._group = tuple(config.group[:GROUP_MAX])
        if self._remember is not None:
            beside = self._remember.with_suffix(".new")
            try:
                beside.write_bytes(msgspec.json.encode(config))
                beside.replace(self._remember)
            except OSError as error:
                _log.warning("the group is not remembered: %s", error)

    # --- what a session needs -----------------------------------------------------------------

    @property
    def settings(self) -> tuple[tasks.Connect, float, Mechanism]:
        """CONNECT, how long to wait for its answer, and how to prove who we are."""
        return self._connect, self._timeout, self._mechanism

    async def call(self, body: bytes) -> bytes:
        """The function's answer; one that is not async runs in a thread."""
        if inspect.iscoroutinefunction(self._function):
            return await self._function(body)  # type: ignore[no-any-return]
        result = await asyncio.to_thread(self._function, body)
        if not isinstance(result, bytes):
            raise TypeError(f"a task is answered with bytes, not {type(result).__name__}")
        return result


class _Session:
    """One conversation with one broker."""

    def __init__(self, worker: TaskWorker, endpoint: str) -> None:
        self._worker = worker
        self._connect, self._timeout, mechanism = worker.settings
        self._inbox: asyncio.Queue[tasks.Message | HomingError] = asyncio.Queue()
        self._line = Lifeline(endpoint, self, mechanism=mechanism)
        self._tasks: set[asyncio.Task[None]] = set()
        self._worked = False
        self._leaving = False
        self._heartbeat = 2.5
        self._liveness = 3

    # homing.service.lifeline.Owner

    def opened(self) -> None:
        self._send(self._connect)

    def received(self, images: list[bytes]) -> None:
        for image in images:
            try:
                self._inbox.put_nowait(tasks.read(image)[1])
            except RemoteProtocolError as error:
                self._inbox.put_nowait(error)

    def lost(self, error: HomingError) -> None:
        self._inbox.put_nowait(error)

    # the conversation

    async def open(self) -> None:
        """CONNECT, CONFIG, PING, PONG."""
        self._line.start()
        config = await self._expect(tasks.Config)
        self._worker.learn(config)
        self._heartbeat = max(config.heartbeat_ms, 1) / 1000
        self._liveness = max(config.liveness, 1)
        self._send(tasks.Ping(asyncio.get_running_loop().time()))
        await self._expect(tasks.Pong)

    async def _expect(self, kind: type[T]) -> T:
        try:
            async with asyncio.timeout(self._timeout):
                message = await self._inbox.get()
        except TimeoutError:
            if self._line.up:
                raise Unavailable(f"no answer in {self._timeout:g} s") from None
            raise self._line.unavailable() from None
        if isinstance(message, HomingError):
            raise message
        if isinstance(message, tasks.Error):
            raise Refused.from_reason(f"{message.code} {message.reason}")
        if not isinstance(message, kind):
            raise RemoteProtocolError(f"{type(message).__name__} instead of {kind.__name__}")
        return message

    async def serve(self) -> bool:
        """Until the broker says goodbye, is lost, or falls silent; whether we were of any use."""
        clock = asyncio.get_running_loop().time
        useful = clock() + self._heartbeat
        heard, beat_at = clock(), clock() + self._heartbeat
        while True:
            try:
                async with asyncio.timeout(max(0.0, beat_at - clock())):
                    message = await self._inbox.get()
            except TimeoutError:
                beat_at = clock() + self._heartbeat
                if clock() - heard > self._heartbeat * self._liveness:
                    return True
                self._send(tasks.Ping(asyncio.get_running_loop().time()))
                continue
            heard = clock()
            if isinstance(message, HomingError | tasks.Disconnect):
                return self._worked or heard >= useful
            self._take(message)

    def _take(self, message: tasks.Message) -> None:
        if isinstance(message, tasks.Task):
            if self._leaving:
                return  # with our goodbye it goes to another worker
            self._worked = True
            work = asyncio.get_running_loop().create_task(self._work(message))
            self._tasks.add(work)
            work.add_done_callback(self._tasks.discard)
        elif isinstance(message, tasks.Ping):
            self._send(tasks.Pong(message.ts))

    async def _work(self, task: tasks.Task) -> None:
        try:
            body = head(task.data, 1)[0][0]
            answer = frame(await self._worker.call(body), False)
            self._send(tasks.Response(task.service, task.message_id, answer))
        except Exception as error:  # the function is the user's: its bugs are its client's to know
            if not isinstance(error, HomingError):
                _log.exception("%s failed", task.service)
            code, _, why = reason_of(error).partition(" ")
            self._send(tasks.Error(code, why, task.message_id))

    async def finish(self) -> None:
        """Begin nothing new, and wait for the end of what is under way."""
        self._leaving = True
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _send(self, message: tasks.Message) -> None:
        self._line.send(tasks.write(message))

    async def close(self) -> None:
        """Say goodbye; what is not answered by now the broker gives to another worker."""
        for work in self._tasks:
            work.cancel()
        self._send(tasks.Disconnect())
        await self._line.close()
