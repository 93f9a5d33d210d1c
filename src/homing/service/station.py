"""One service of a worker: its connection, its heartbeats, the requests in its hands.

    READY ─► REQUEST … REPORT (up to `credit` at once) ─► DISCONNECT
       ▲                                                      │
       └───────── lost, silent, DISCONNECT from the broker ───┘

A worker that stops keeps the answers that are ready until the last piece of work is done, and
sends them in one write with DISCONNECT: each answer sent earlier would bring a new request,
which nobody would serve.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, Protocol

from homing.clock import SystemClock
from homing.errors import HandshakeRefused, HomingError, RemoteProtocolError
from homing.service.bodies import EMPTY, body_of
from homing.service.lifeline import Lifeline
from homing.service.serve import Serve, reason_of
from homing.wire import mdp
from homing.wire.frames import LAST, MORE, SHORT_MAX, frame, pack, prefix, tail_end, unpack
from homing.wire.mdp_fields import EMPTY as DELIMITER
from homing.wire.mdp_messages import Answer, Dialect, Disconnect, Kind, Ready, Work
from homing.wire.mechanisms import Mechanism

_log = logging.getLogger("homing.worker")

# Requests served on the spot before the clock is asked whether the loop should have its turn. The
# first answer of a slow function should not wait for the last; but a turn costs all sides system
# calls, which are dearer than many a quick one.
FEW: Final = 8
TURN: Final = 0.0005
# Heartbeats and the like that may come with a full credit of requests: they are rare.
CONTROL: Final = 64
# Seconds between answers to heartbeats, half of the shortest interval: a broker that answers ours does not keep us busy.
ECHO: Final = 0.005
_REPORT_LOCAL: Final = prefix((b"", b"MDPW0X", mdp.W_REPORT_LOCAL))


class Owner(Protocol):
    """Who is told how a station fares."""

    def announced(self, service: str) -> None: ...

    def refused(self, error: HandshakeRefused) -> None: ...


class Station:
    """Keeps one service announced at a broker, and serves it."""

    def __init__(
        self,
        endpoint: str | Sequence[str],
        service: str,
        credit: int,
        serve: Serve,
        owner: Owner,
        *,
        mechanism: Mechanism,
        dialect: Dialect,
        interval: float,
        liveness: int,
        slowest: float = 0.0,
    ) -> None:
        """`slowest`: seconds between heartbeats that we keep to while idle if a broker asks for it; 0: it shall not."""
        self.dropped = 0  # answers that came too late for the connection they belonged to
        self._name = service.encode()
        self._credit = credit
        self._serve = serve
        self._owner = owner
        self._dialect = dialect
        self._interval = interval
        self._liveness = liveness
        self._ready = mdp.write(Ready(dialect, self._name, credit))
        self._slowest = (
            round(slowest * 1000) if slowest > interval and dialect == Dialect.D0X else 0
        )
        self._patient = self._slowest > 0  # READY says so; not to a broker that sent us away for it
        self._idle = interval  # between heartbeats while we have nothing to do
        self._request = mdp.work_head(Dialect.D0X, self._name) if service else b""
        self._service_frame = frame(self._name, True)
        skim = self._skim if service else None
        self._lifeline = Lifeline(endpoint, self, mechanism=mechanism, skim=skim)
        self._session = 0  # counts connections: an answer belongs to the one its request came by
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._count = 0
        self._held = 0  # requests of this connection that are not answered yet
        self._announced = False
        self._once = serve.on_loop if serve.way == "loop" else serve.elsewhere
        self._beat: asyncio.TimerHandle | None = None
        self._spoke = False
        self._said = 0.0  # when we last spoke, as far as the last heartbeat's time tells
        self._beaten = 0.0  # when we last answered a heartbeat
        self._last_words: list[bytes] | None = None  # a list once we are stopping
        self._inbox: list[bytes] = []  # what came and has not been begun
        self._busy = False  # the rest of the inbox waits for the loop's next turn
        self._at_once = serve.way == "inline" and not serve.parted
        self._bare = serve.read is body_of  # the function takes a body as it is

    # -- its life ---------------------------------------------------------------------------

    def start(self) -> None:
        """Connect and announce the service."""
        self._lifeline.start()

    async def stop(self, grace: float) -> None:
        """Finish what is under way, give back the rest, leave.

        What does not end within the grace is not answered: the broker deals with it as with
        the request of any worker that is gone.
        """
        self._last_words = []
        if self._tasks:
            _, late = await asyncio.wait(self._tasks.values(), timeout=grace)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        for image in (*self._last_words, mdp.write(Disconnect(self._dialect))):
            self._lifeline.send(image)
        if self._beat is not None:
            self._beat.cancel()
        await self._lifeline.close()

    def opened(self) -> None:
        """Connected: announce."""
        self._session += 1
        self._held = 0
        self._inbox = []
        self._announced = False
        self._idle = self._interval
        self._announce()

    def _announce(self) -> None:
        """Tell the broker, unless too much of a lost connection is still being worked on.

        So a connection that comes and goes never makes us run more than twice our credit.
        """
        if len(self._tasks) > self._credit or self._announced or not self._lifeline.up:
            return
        self._announced = True
        if self._patient:
            ready = Ready(self._dialect, self._name, self._credit, self._slowest)
            self._lifeline.send(mdp.write(ready))
        else:
            self._lifeline.send(self._ready)
        self._owner.announced(self._name.decode())
        loop = asyncio.get_running_loop()
        self._said = loop.time()
        self._beat = loop.call_later(self._interval, self._pulse)

    def lost(self, error: HomingError) -> None:
        """Disconnected: what is under way will be answered by somebody else."""
        self._session += 1
        self._inbox = []
        self._announced = False
        if self._beat is not None:
            self._beat.cancel()
        sent_away = self._patient and self._lifeline.sent_away
        self._patient = self._slowest > 0 and not sent_away
        if isinstance(error, HandshakeRefused):
            self._owner.refused(error)
        elif self._last_words is None:
            _log.warning("%s: %s; connecting again", self._name.decode(), error)

    def _pulse(self) -> None:
        """A heartbeat, unless an answer said as much; and is the broker's still there?

        While we have nothing to do both may be slow: then it is sent the time nearest to when it is due.
        """
        loop = asyncio.get_running_loop()
        now = loop.time()
        busy = self._held > 0 or bool(self._inbox)
        patience = self._interval if busy else max(self._interval, self._idle)
        if self._lifeline.heard < now - patience * self._liveness:
            self._lifeline.drop("the broker is silent")
            return
        if self._spoke:
            self._said = now
        elif busy or now - self._said > self._idle - self._interval / 2:
            self._said = now
            self._lifeline.send(mdp.HEARTBEATS[self._dialect])
        self._spoke = False
        self._beat = loop.call_later(self._interval, self._pulse)

    # -- requests ---------------------------------------------------------------------------

    def received(self, images: list[bytes]) -> None:
        """Requests, heartbeats, and the broker's wish to part."""
        self._inbox += images
        if len(self._inbox) > self._credit + CONTROL:
            self._lifeline.drop(f"the broker sent more than {self._credit} requests at once")
        elif not self._busy:
            self._work_off()

    def _skim(self, data: bytes) -> int:
        """Requests as nearly all are, in a chunk; where they end. Those served on the spot are, for a turn's time."""
        head, size = self._request, len(data)
        images: list[bytes] = []
        answers: list[bytes] = []
        served = 0
        here = self._at_once and not self._busy and self._last_words is None
        end_of_turn = SystemClock.monotonic() + TURN if here else 0.0
        at = 0
        while at < size:
            address = at + len(head)
            if data[at:address] != head or address + 2 > size or data[address] != MORE:
                break
            body = address + 4 + data[address + 1]
            if body + 2 > size or data[body - 2] != MORE or data[body - 1]:
                break
            end = tail_end(data, body) if data[body] else body + 2 + data[body + 1]
            if not end or end > size:
                break
            if not here:
                images.append(data[at:end])
                at = end
                continue
            try:
                answers.append(self._served(data, address, body, end))
            except Exception as error:
                self._refuse(data[at:end], error, self._session)
            at = end
            served += 1
            here = served % FEW != 0 or SystemClock.monotonic() < end_of_turn
        if answers and self._lifeline.stream is not None:
            self._spoke = True
            self._lifeline.stream.send_all(answers)
        if images:
            if served:
                self._go_on_later()
            self.received(images)
        return at

    def _served(self, data: bytes, address: int, body: int, end: int) -> bytes:
        """The answer to the request whose `[client] []` and data stand at these places of a chunk."""
        serve = self._serve
        if self._bare and not data[body]:
            got = serve.function(data[body + 2 : end])
        else:
            got = serve.function(serve.read(data[body:end]))
        if type(got) is bytes and len(got) <= SHORT_MAX:
            header, answer = LAST[len(got)], got
        else:
            header, answer = b"", serve.write(got)
        # Compiled this is one copy; joining a tuple is not.
        return b"%b%b%b%b%b" % (
            _REPORT_LOCAL,
            data[address:body],
            self._service_frame,
            header,
            answer,
        )

    def _work_off(self) -> None:
        """Take what came; of work done on the spot only as much as a turn of the loop allows.

        So the first answers leave, and heartbeats go out, while the last are still being made.
        """
        self._busy = False
        if self._last_words is not None:
            self._inbox.clear()  # the broker will see our DISCONNECT and give these to others
            return
        try:
            if self._at_once:
                self._work_a_turn()
            else:
                images, self._inbox = self._inbox, []
                for image in images:
                    self._take(image)
        except RemoteProtocolError as error:
            self._lifeline.drop(f"the broker sent what is no request: {error}")
        if self._inbox:
            self._go_on_later()

    def _go_on_later(self) -> None:
        self._busy = True
        asyncio.get_running_loop().call_soon(self._work_off)

    def _work_a_turn(self) -> None:
        end = SystemClock.monotonic() + TURN
        while self._inbox:
            images, self._inbox = self._inbox[:FEW], self._inbox[FEW:]
            for image in images:
                self._take(image)
            if SystemClock.monotonic() >= end:
                return

    def _take(self, image: bytes) -> None:
        head = self._request
        if head and image.startswith(head):
            # [client] [] [data]: a short frame, an empty one, and what we are here for.
            at = len(head)
            end = at + 2 + image[at + 1]
            if image[at] == MORE and image.startswith(DELIMITER, end):
                report = b"".join((_REPORT_LOCAL, image[at : end + 2], self._service_frame))
                self._begin(image, image[end + 2 :], report)
                return
        message = mdp.read_to_worker(image)
        if isinstance(message, Disconnect):
            self._lifeline.drop("the broker asked to part", sent_away=True)
        elif isinstance(message, Work):
            self._begin(image, message.data, b"")
        else:
            if message.interval:
                self._keep_to(message.interval)
            self._beat_back()

    def _keep_to(self, interval: int) -> None:
        """So many milliseconds between heartbeats from now on, while we are idle."""
        if interval > self._slowest:
            raise RemoteProtocolError(f"{interval} ms between heartbeats: slower than we can", 0)
        self._idle = interval / 1000

    def _beat_back(self) -> None:
        """The broker beats: one whose interval is shorter than ours shall hear from us as often."""
        now = asyncio.get_running_loop().time()
        if self._announced and now - self._beaten > ECHO:
            self._beaten = now
            self._spoke = True
            self._lifeline.send(mdp.HEARTBEATS[self._dialect])

    def _begin(self, image: bytes, data: bytes, report: bytes) -> None:
        """Start one piece of work; `report` stands before its answer, where that is known."""
        if self._at_once:
            try:
                answer = self._serve.now(data)
            except Exception as error:
                self._refuse(image, error, self._session)
            else:
                self._answer(image, report, answer, self._session)
            return
        self._held += 1
        if self._held > self._credit:
            raise RemoteProtocolError(f"more than {self._credit} requests at once", 0)
        self._count += 1
        work = self._work(self._count, image, data, report, self._session)
        self._tasks[self._count] = asyncio.get_running_loop().create_task(work)

    async def _work(
        self, number: int, image: bytes, data: bytes, report: bytes, session: int
    ) -> None:
        try:
            if self._serve.parted:
                answer = await self._stream(image, data, session)
            else:
                answer = await self._once(data)
            self._answer(image, report, answer, session)
        except Exception as error:
            self._refuse(image, error, session)
        finally:
            # A done callback would say the same, a turn later and at twice the cost.
            del self._tasks[number]
            if session == self._session:
                self._held -= 1
            elif not self._announced:
                self._announce()

    async def _stream(self, image: bytes, data: bytes, session: int) -> bytes:
        """Send parts as they come; what is left to answer: all of them where 01 has no parts."""
        kept: list[bytes] = []
        async for part in self._serve.parts(data):
            if self._dialect == Dialect.D01:
                kept += unpack(part)
            else:
                self._send(self._image(image, Kind.PARTIAL, part), session)
                await self._lifeline.room()
        return pack(kept) if kept else EMPTY

    def _answer(self, image: bytes, report: bytes, answer: bytes, session: int) -> None:
        self._send_last(
            report + answer if report else self._image(image, Kind.FINAL, answer), session
        )

    def _refuse(self, image: bytes, error: Exception, session: int) -> None:
        """Tell the client why; where a dialect has no refusal, an empty answer and a log line."""
        if not isinstance(error, HomingError):
            _log.error("%s failed", self._name.decode(), exc_info=error)
        if self._dialect == Dialect.D0X:
            self._send_last(self._image(image, Kind.FAILED, reason_of(error).encode()), session)
        else:
            self._send_last(self._image(image, Kind.FINAL, EMPTY), session)

    def _image(self, request: bytes, kind: Kind, data: bytes) -> bytes:
        """An answer to a request, in its dialect."""
        work = mdp.read_to_worker(request)
        assert isinstance(work, Work)
        service = work.service or self._name
        return mdp.write(Answer(work.dialect, kind, work.address, service, data, work.origin))

    def _send_last(self, image: bytes, session: int) -> None:
        """An answer that makes room for another request, unless we are stopping."""
        if self._last_words is None or session != self._session:
            self._send(image, session)
        else:
            self._last_words.append(image)

    def _send(self, image: bytes, session: int) -> None:
        if session == self._session:
            self._spoke = True
            self._lifeline.send(image)
        else:
            self.dropped += 1
