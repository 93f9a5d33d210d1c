"""Requests under way at a client: which answer belongs to which, and until when.

A `0X` request carries an envelope `HM`, options and an id of eight bytes (ADR 0010), which the
broker returns; so any number can be under way at once. `01` and `02` have nothing to tell
requests apart by: one is under way at a time, and one that is given up takes its connection
with it, or its late answer would be taken for the next one's.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from homing.errors import HomingError, Malformed, QueueFull, Refused, RemoteProtocolError
from homing.service.bodies import body_of
from homing.service.stream import Stream
from homing.wire import mdp
from homing.wire.frames import LAST, SHORT_MAX, tail_end
from homing.wire.mdp_fields import NAME_MAX
from homing.wire.mdp_messages import Dialect, Kind, Nak, Options

# An envelope of ours: MORE, its length, `HM`, flags, priority, timeout; then the id.
_ID_BYTES: Final = 8
_SHORT_16: Final = b"\x01\x10"
_ENVELOPE: Final = b"\x01\x10HM"
_MAGIC_END: Final = 4
_ID_AT: Final = 10
_ID_END: Final = 18
_LOW: Final = [bytes((byte,)) for byte in range(256)]
# Parts of a stream that nobody has read yet. Past it the stream fails: waiting for its reader
# would make every other request of the client wait too.
MAX_UNREAD: Final = 16 << 20
# Plans are made once for each service and set of options; programs use a handful.
MAX_PLANS: Final = 4096


class Plan:
    """What requests of one service with the same options have in common."""

    __slots__ = ("before", "behind", "patience", "report", "streamed")

    def __init__(
        self, before: bytes, behind: bytes, report: bytes, patience: float, streamed: bool
    ) -> None:
        self.before = before  # the envelope up to the id; empty where there is none
        self.behind = behind  # from the envelope to the data
        self.report = report  # how the REPORT goes on behind the envelope
        self.patience = patience
        self.streamed = streamed


class Asked:
    """One request under way. `done` gets the data frames of the answer, or the error.

    Where `bare` is set it gets the body alone: its header would only be cut off.
    """

    __slots__ = ("bare", "deadline", "done", "key", "plan", "unsent")

    def __init__(
        self, key: bytes, plan: Plan, deadline: float, done: asyncio.Future[bytes]
    ) -> None:
        self.key = key
        self.plan = plan
        self.unsent = b""  # its image, while there is no connection to send it by
        self.deadline = deadline
        self.done = done
        self.bare = False

    def part(self, data: bytes, now: float) -> None:
        """A PARTIAL that was not asked for: it is left out."""


class Streamed(Asked):
    """A request whose answer comes in parts."""

    __slots__ = ("_news", "_unread", "parts")

    def __init__(
        self, key: bytes, plan: Plan, deadline: float, done: asyncio.Future[bytes]
    ) -> None:
        super().__init__(key, plan, deadline, done)
        self.parts: deque[bytes] = deque()
        self._unread = 0
        self._news = asyncio.Event()
        done.add_done_callback(lambda _: self._news.set())

    def part(self, data: bytes, now: float) -> None:
        """One more part; it also gives the rest of the answer its full time again."""
        self.deadline = now + self.plan.patience
        self._unread += len(data)
        if self._unread > MAX_UNREAD and not self.done.done():
            self.done.set_exception(
                QueueFull(f"a stream is {self._unread} bytes ahead of its reader")
            )
            return
        self.parts.append(data)
        self._news.set()

    async def next(self) -> bytes | None:
        """The next part; None when the answer is complete (`done` has the rest)."""
        while not self.parts:
            if self.done.done():
                return None
            self._news.clear()
            await self._news.wait()
        data = self.parts.popleft()
        self._unread -= len(data)
        return data


class Asking:
    """The table of requests under way on one connection."""

    def __init__(self, dialect: Dialect, in_flight: int) -> None:
        self.dialect = dialect
        self.numbered = dialect == Dialect.D0X  # requests have ids
        self.most = in_flight if self.numbered else 1
        self.under_way: dict[bytes, Asked] = {}
        self.alarm_at = float("inf")  # when its owner will look for those that are overdue
        self._plans: dict[tuple[str, float, int, bool], Plan] = {}
        self._count = 0
        self._high = bytes(_ID_BYTES - 1)  # an id but for its last byte
        self._usual: dict[str, Plan] = {}  # of services that are asked without options

    def __len__(self) -> int:
        return len(self.under_way)

    @property
    def full(self) -> bool:
        """Whether no more may be under way."""
        return len(self.under_way) >= self.most

    def plan(self, service: str, patience: float, priority: int, streamed: bool) -> Plan:
        """The plan for such requests, made when it is first needed."""
        key = (service, patience, priority, streamed)
        found = self._plans.get(key)
        if found is None:
            if len(self._plans) >= MAX_PLANS:
                self._plans.clear()
            found = self._plans[key] = self._make_plan(service, patience, priority, streamed)
        return found

    def _make_plan(self, service: str, patience: float, priority: int, streamed: bool) -> Plan:
        if not isinstance(service, str):
            raise TypeError(f"a service's name is text, not {type(service).__name__}")
        try:
            name = service.encode()
        except UnicodeEncodeError as error:
            raise Malformed(f"text that has no UTF-8: {error}") from None
        if not 1 <= len(name) <= NAME_MAX:
            raise Malformed(f"a service name has 1 to {NAME_MAX} bytes, got {len(name)}")
        if not patience > 0:
            raise Malformed(f"a timeout is more than 0 seconds, got {patience}")
        if priority not in range(10):
            raise Malformed(f"a priority is 0 to 9, got {priority}")
        behind = mdp.request_head(self.dialect, name)
        report = mdp.report_head(self.dialect, Kind.FINAL, name)
        if self.dialect != Dialect.D0X:
            return Plan(b"", behind, report, patience, streamed)
        milliseconds = int(min(patience * 1000, 0xFFFFFFFF))
        options = mdp.write_options(Options(streamed, priority, milliseconds))
        return Plan(_SHORT_16 + options, behind, report, patience, streamed)

    def remember(self, service: str, plan: Plan) -> None:
        """Most requests of a service have no options: their plan is at hand."""
        if len(self._usual) >= MAX_PLANS:
            self._usual.clear()
        self._usual[service] = plan

    def quick(self, service: str, body: object, stream: Stream | None) -> Asked | None:
        """`at_once`, for bytes that are answered by bytes and a service that was asked so before."""
        plan = self._usual.get(service)
        if plan is None or type(body) is not bytes or len(body) > SHORT_MAX:
            return None
        asked = self.at_once(plan, LAST[len(body)], body, stream)
        if asked is not None:
            asked.bare = True
        return asked

    def at_once(self, plan: Plan, head: bytes, body: bytes, stream: Stream | None) -> Asked | None:
        """`ask`, where nothing else is to be seen to; None where something is.

        There is a connection, and room; others are under way, so that signs of life are
        waited for already; the alarm rings in time.
        """
        count = len(self.under_way)
        if stream is None or stream.full or not count or count >= self.most:
            return None
        loop = stream.loop  # before Python 3.12 asking which one runs is a system call
        deadline = loop.time() + plan.patience
        if deadline < self.alarm_at:
            return None
        return self.ask(plan, head, body, deadline, loop.create_future(), stream)

    def ask(
        self,
        plan: Plan,
        head: bytes,
        body: bytes,
        deadline: float,
        done: asyncio.Future[bytes],
        stream: Stream | None,
    ) -> Asked:
        """Remember a request and send it, or keep it until there is a connection.

        Its data is `head` and `body`: a header and what it is of, or nothing and whole frames.
        """
        if plan.before:
            self._count += 1
            low = self._count & 0xFF
            if not low:
                self._high = (self._count >> 8).to_bytes(_ID_BYTES - 1, "big")
            key = self._high + _LOW[low]
            # Compiled this is one copy; joining a tuple is not.
            image = b"%b%b%b%b%b" % (plan.before, key, plan.behind, head, body)
        else:
            key = b""
            image = plan.behind + head + body
        if plan.streamed:
            asked: Asked = Streamed(key, plan, deadline, done)
        else:
            asked = Asked(key, plan, deadline, done)
        self.under_way[key] = asked
        if stream is None:
            asked.unsent = image
        else:
            stream.send(image)
        return asked

    def unsent(self) -> Iterator[bytes]:
        """The images that wait for a connection, in the order they were asked."""
        for asked in self.under_way.values():
            if asked.unsent:
                yield asked.unsent
                asked.unsent = b""

    def forget(self, asked: Asked) -> bool:
        """No more; whether it was still under way: where requests have no id the next one has its key."""
        if self.under_way.get(asked.key) is not asked:
            return False
        del self.under_way[asked.key]
        return True

    def receive(self, images: list[bytes], now: float) -> None:
        """Give every answer to the request it belongs to; answers to nobody are dropped."""
        for image in images:
            if self.skim(image):
                continue
            if image[:_MAGIC_END] == _ENVELOPE and image[_ID_AT:_ID_END] not in self.under_way:
                continue
            self._read(image, now)

    def skim(self, data: bytes) -> int:
        """As `receive`, as long as these bytes are REPORTs of requests under way; where they end."""
        table, size = self.under_way, len(data)
        at = 0
        while at + _ID_END < size and data[at] == 1 and data[at + 1] == 16:
            key_end = at + _ID_END
            asked = table.get(data[at + _ID_AT : key_end])
            if asked is None:
                break
            report = asked.plan.report
            body = key_end + len(report)
            if data[key_end:body] != report or body + 2 > size:
                break
            end = tail_end(data, body) if data[body] else body + 2 + data[body + 1]
            if not end or end > size:
                break
            del table[asked.key]
            try:
                if not asked.bare:
                    asked.done.set_result(data[body:end])
                elif data[body]:
                    asked.done.set_result(body_of(data[body:end]))
                else:
                    asked.done.set_result(data[body + 2 : end])
            except asyncio.InvalidStateError:
                pass  # its waiter was cancelled and has not yet said so
            at = end
        return at

    def _read(self, image: bytes, now: float) -> None:
        """Anything but the REPORT of an enveloped request."""
        answer = mdp.read_to_client(image)
        asked = self.under_way.get(answer.envelope[-_ID_BYTES:])
        if asked is None:
            return
        if isinstance(answer, Nak):
            reason = answer.reason.decode("utf-8", "replace")
            self._settle(asked, Refused.from_reason(reason))
        elif not answer.data:
            self._settle(asked, RemoteProtocolError("an answer without data", len(image)))
        elif answer.kind == Kind.PARTIAL:
            asked.part(answer.data, now)
        elif self.forget(asked) and not asked.done.done():
            asked.done.set_result(body_of(answer.data) if asked.bare else answer.data)

    def _settle(self, asked: Asked, error: HomingError) -> None:
        self.forget(asked)
        if not asked.done.done():
            asked.done.set_exception(error)

    def expire(self, now: float, why: Callable[[], HomingError]) -> float:
        """Fail what is overdue; when the next one will be."""
        first = float("inf")
        for asked in list(self.under_way.values()):
            if asked.deadline <= now:
                self._settle(asked, why())
            elif asked.deadline < first:
                first = asked.deadline
        return first

    def fail(self, why: Callable[[], HomingError]) -> None:
        """Fail everything under way, each with an error of its own."""
        for asked in list(self.under_way.values()):
            self._settle(asked, why())
