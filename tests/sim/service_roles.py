"""Clients and workers for the simulator, and the ledger that both write their story in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from homing.ports import Link
from homing.testing import SimHost
from homing.wire import mdp
from homing.wire.frames import head, pack
from homing.wire.mdp_messages import (
    Answer,
    Dialect,
    Disconnect,
    Heartbeat,
    Kind,
    Nak,
    Options,
    Ready,
    Report,
    Request,
    Work,
)

HEARTBEAT = 1.0
LIVENESS = 3
LONGEST = 8.0  # more than any timeout, less than the quiet at the end


class Ledger:
    """What clients asked and were told, what workers did; survives every crash."""

    def __init__(self) -> None:
        self.asked: dict[bytes, Link] = {}
        self.ends: Counter[bytes] = Counter()
        self.cut: set[bytes] = set()  # its link was lost: an answer can no longer come
        self.runs: Counter[bytes] = Counter()
        self.refusals: Counter[bytes] = Counter()
        self.expired: list[tuple[float, bytes]] = []  # workers that a broker took for dead
        self.left: list[tuple[float, str]] = []  # workers that took their broker for dead

    def open_requests(self) -> list[bytes]:
        """Asked on a link that still stands, and not answered."""
        return [id_ for id_ in self.asked if not self.ends[id_] and id_ not in self.cut]


class SimClient:
    """Asks at random times, several at once, told apart by envelope."""

    def __init__(
        self,
        host: SimHost,
        endpoint: str,
        ledger: Ledger,
        services: list[bytes],
        at_once: tuple[int, ...] = (1, 1, 1, 5),
    ) -> None:
        self._at_once = at_once
        self._host = host
        self._ledger = ledger
        self._services = services
        self._link: Link | None = None
        self._asked = 0
        self.stop_at = 15.0
        mine = host.name.encode() + b"."
        ledger.cut.update(id_ for id_ in ledger.asked if id_.startswith(mine))  # a former life's
        host.connect("client", endpoint)
        host.later(0.5, "ask")

    def opened(self, link: Link, now: float) -> None:
        self._link = link

    def closed(self, link: Link, now: float) -> None:
        lost = [id_ for id_, over in self._ledger.asked.items() if over is link]
        self._ledger.cut.update(lost)
        if self._link is link:
            self._link = None

    def wake(self, key: Hashable, now: float) -> None:
        if now > self.stop_at:
            return
        random = self._host.random
        self._host.later(now + random.expovariate(4.0), "ask")
        for _ in range(random.choice(self._at_once) if self._link is not None else 0):
            self._ask(now)

    def _ask(self, now: float) -> None:
        random = self._host.random
        self._asked += 1
        service = random.choice(self._services)
        id_ = f"{self._host.name}.{self._host.life}.{self._asked}".encode()
        options = Options(
            random.random() < 0.3, random.randrange(10), random.choice((0, 1500)), id_
        )
        request = Request(
            Dialect.D0X, service, pack([service + b" " + id_]), mdp.write_options(options)
        )
        assert self._link is not None
        self._ledger.asked[id_] = self._link
        self._link.send(mdp.write(request))

    def receive(self, link: Link, message: bytes, now: float) -> None:
        answer = mdp.read_to_client(message)
        id_ = answer.envelope[8:]
        assert self._ledger.asked[id_] is link, "an answer came to another link"
        if isinstance(answer, Report) and answer.kind == Kind.PARTIAL:
            assert not self._ledger.ends[id_], "a part after the end"
            return
        self._ledger.ends[id_] += 1
        assert self._ledger.ends[id_] == 1, f"{id_!r} ended twice"
        if isinstance(answer, Nak):
            self._ledger.refusals[answer.reason.split(b" ")[0]] += 1
        else:
            last = head(answer.data, 100)[0][-1]
            assert last.endswith(b" " + id_), "somebody else's answer"

    def journaled(self, number: int, now: float) -> None:
        """Clients keep no journal."""


class SimWorker:
    """Serves after a random while; starts over when the broker says so or falls silent.

    Where READY says that it can, it beats slowly while it is idle, as often as it is told.
    """

    def __init__(
        self, host: SimHost, endpoint: str, ledger: Ledger, ready: Ready, slow: float = 0.2
    ) -> None:
        self._host = host
        self._ledger = ledger
        self._ready = ready
        self._slow = slow
        self._link: Link | None = None
        self._endpoint = endpoint
        self._heard = self._said = 0.0
        self._idle = HEARTBEAT
        self._serial = 0
        self._work: dict[int, Work] = {}
        host.connect("worker", endpoint)

    def opened(self, link: Link, now: float) -> None:
        self._link = link
        self._heard = self._said = now
        self._idle = HEARTBEAT
        self._work.clear()
        link.send(mdp.write(self._ready))
        self._host.later(now + HEARTBEAT, "beat")

    def closed(self, link: Link, now: float) -> None:
        self._link = None
        self._work.clear()

    def receive(self, link: Link, message: bytes, now: float) -> None:
        self._heard = now
        order = mdp.read_to_worker(message)
        if isinstance(order, Work):
            assert len(self._work) < self._ready.credit, "more than its credit"
            body = head(order.data, 1)[0][0]
            self._ledger.runs[body] += 1
            self._serial += 1
            self._work[self._serial] = order
            takes = min(self._host.random.expovariate(1 / self._slow), LONGEST)
            self._host.later(now + takes, self._serial)
        elif isinstance(order, Disconnect):
            self._start_over()
        else:
            assert isinstance(order, Heartbeat)
            assert order.interval <= self._ready.slowest, "slower than it can"
            if order.interval:
                self._idle = order.interval / 1000

    def wake(self, key: Hashable, now: float) -> None:
        if self._link is None:
            return
        if key == "beat":
            self._host.later(now + HEARTBEAT, "beat")
            pace = HEARTBEAT if self._work else self._idle
            if now - self._said > pace - HEARTBEAT / 2:
                self._said = now
                self._link.send(mdp.write(Heartbeat(self._ready.dialect)))
            if now - self._heard > pace * LIVENESS:
                self._ledger.left.append((now, self._host.name))
                self._start_over()
        elif isinstance(key, int) and key in self._work:
            self._answer(self._work.pop(key))

    def _start_over(self) -> None:
        self._work.clear()
        self._link = None
        self._host.disconnect("worker", self._endpoint)
        self._host.connect("worker", self._endpoint)

    def _answer(self, work: Work) -> None:
        assert self._link is not None
        dialect, random = self._ready.dialect, self._host.random
        draw = random.random()
        if dialect != Dialect.D01 and draw < 0.2:
            part = Answer(dialect, Kind.PARTIAL, work.address, work.service, work.data, work.origin)
            self._link.send(mdp.write(part))
        if dialect == Dialect.D0X and draw > 0.95:
            failed = Answer(dialect, Kind.FAILED, work.address, work.service, b"failed badly")
            self._link.send(mdp.write(failed))
            return
        final = Answer(dialect, Kind.FINAL, work.address, work.service, work.data, work.origin)
        self._link.send(mdp.write(final))
        if draw < 0.1:
            self._link.send(mdp.write(final))  # repeated: it must go nowhere

    def journaled(self, number: int, now: float) -> None:
        """Workers keep no journal."""
