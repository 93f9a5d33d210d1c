"""One service's two queues: idle workers, least recently used first, and waiting requests.

Waiting requests stand in ten lanes by priority, each first come first served; a request whose
worker died goes back to the head of its lane. A request that ends while it waits (deadline,
client gone) leaves its place in the lane behind, marked DONE; it is skipped later, or swept out
when such places are the majority.
"""

from __future__ import annotations

from collections import deque

from homing.service.latency import Latency
from homing.service.pending import DONE, WAITING, Pending
from homing.service.policy import ServicePolicy
from homing.service.worker_pool import Pool
from homing.wire import mdp
from homing.wire.frames import prefix
from homing.wire.mdp_fields import EMPTY
from homing.wire.mdp_messages import Dialect, Kind
from homing.wire.mdp_peers import peer_answer_head

_SWEEP_FLOOR = 64
"""Dead places in a lane not worth a sweep."""


class Service:
    """A name, its policy, who is idle, what waits; and its heads of messages, made once."""

    __slots__ = (
        "_dead",
        "_lanes",
        "_mask",
        "cloud_0x",
        "idle",
        "live",
        "name",
        "policy",
        "report_0x",
        "report_01",
        "timeout",
        "times",
        "told_0x",
        "waiting",
        "waiting_bytes",
        "work_0x",
        "workers",
    )

    def __init__(self, name: bytes, policy: ServicePolicy) -> None:
        self.name = name
        self.policy = policy
        self.timeout = policy.timeout  # beside what every request needs
        self.idle = Pool()
        self.workers = 0  # that serve this by name
        self.live = 0  # requests that wait or are held
        self.waiting = 0
        self.waiting_bytes = 0
        self.times = Latency()  # from acceptance to the answer
        self.work_0x = mdp.work_head(Dialect.D0X, name)
        self.report_01 = mdp.report_head(Dialect.D01, Kind.FINAL, name)
        self.report_0x = mdp.report_head(Dialect.D0X, Kind.FINAL, name)
        self.told_0x = prefix((b"", name))  # what follows `[client]` in an answer
        self.cloud_0x = EMPTY + peer_answer_head(Kind.FINAL, name)  # and in one between brokers
        self._lanes: dict[int, deque[Pending]] = {}
        self._mask = 0  # bit n: lane n has places
        self._dead = 0

    def put(self, pending: Pending) -> None:
        """At the end of its lane; a new request is WAITING already."""
        self.waiting += 1
        self.waiting_bytes += pending.size
        priority = pending.priority
        if self._mask >> priority & 1:
            self._lanes[priority].append(pending)
        else:
            self._lane(priority).append(pending)

    def put_back(self, pending: Pending) -> None:
        """At the head of its lane, from a holder that has lost it."""
        pending.state = WAITING
        pending.holder = None
        self.waiting += 1
        self.waiting_bytes += pending.size
        self._lane(pending.priority).appendleft(pending)

    def _lane(self, priority: int) -> deque[Pending]:
        self._mask |= 1 << priority
        lane = self._lanes.get(priority)
        if lane is None:
            lane = self._lanes[priority] = deque()
        return lane

    def take(self) -> Pending | None:
        """The next request: highest priority, then longest there."""
        while self._mask:
            priority = self._mask.bit_length() - 1
            lane = self._lanes[priority]
            pending = lane.popleft()
            if not lane:
                self._mask ^= 1 << priority
            if pending.state == WAITING:
                self.waiting -= 1
                self.waiting_bytes -= pending.size
                if self._dead and not self.waiting:
                    self._sweep()
                return pending
            self._dead -= 1
        return None

    def drop(self, pending: Pending) -> None:
        """A waiting request ended: it no longer counts, its place is left behind."""
        self.waiting -= 1
        self.waiting_bytes -= pending.size
        pending.state = DONE
        self._dead += 1
        if not self.waiting or self._dead > self.waiting + _SWEEP_FLOOR:
            self._sweep()

    def line(self) -> list[Pending]:
        """What waits, in no order."""
        lanes = self._lanes.values()
        return [pending for lane in lanes for pending in lane if pending.state == WAITING]

    def _sweep(self) -> None:
        for priority, lane in list(self._lanes.items()):
            kept = deque(pending for pending in lane if pending.state == WAITING)
            self._lanes[priority] = kept
            if not kept and lane:
                self._mask ^= 1 << priority
        self._dead = 0

    @property
    def places(self) -> int:
        """Places in the lanes, dead ones too: what memory follows."""
        return sum(len(lane) for lane in self._lanes.values())

    @property
    def free(self) -> int:
        """Requests that idle workers of this service could take at once."""
        return sum(worker.room for worker in self.idle)
