"""The queues against the simplest thing that does the same, step by step."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from homing.service.clients import Client01
from homing.service.deadlines import SLICE, Deadlines
from homing.service.pending import DONE, HELD, Asker, Pending
from homing.service.policy import BrokerPolicy, ServicePolicy
from homing.service.queues import Service
from homing.service.switch import Broker
from homing.testing import RecordingLink, RecordingPort
from tests.service.stage import Stage


def some_asker() -> Asker:
    """Who asks does not matter to a queue."""
    return Client01(Broker(b"oslo", RecordingPort()), RecordingLink("localfe"))


class WaitQueue(RuleBasedStateMachine):
    """A Service's lanes beside ten plain lists; Deadlines beside a dict of due times."""

    def __init__(self) -> None:
        super().__init__()
        self.asker = some_asker()
        self.service = Service(b"echo", ServicePolicy())
        self.deadlines = Deadlines(0.1, {})
        self.model: list[list[Pending]] = [[] for _ in range(10)]
        self.held: list[Pending] = []
        self.now = 0.0

    def _open(self) -> list[Pending]:
        return [pending for lane in self.model for pending in lane] + self.held

    @rule(priority=st.integers(0, 9), size=st.integers(0, 9), wait=st.floats(0.01, 5.0))
    def put(self, priority: int, size: int, wait: float) -> None:
        pending = Pending(self.asker, self.service, b"x" * size, b"", self.now, self.now + wait)
        pending.priority = priority
        self.service.put(pending)
        self.deadlines.add(pending)
        self.model[priority].append(pending)

    @rule()
    def take(self) -> None:
        taken = self.service.take()
        lane = next((lane for lane in reversed(self.model) if lane), None)
        assert taken is (lane[0] if lane else None)
        if taken is not None and lane is not None:
            del lane[0]
            taken.state = HELD
            self.held.append(taken)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def put_back(self, data: st.DataObject) -> None:
        pending = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.service.put_back(pending)
        self.model[pending.priority].insert(0, pending)

    @precondition(lambda self: self.held)
    @rule()
    def finish(self) -> None:
        self.held.pop().state = DONE

    @rule(seconds=st.floats(0.0, 3.0))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        due = self.deadlines.tick(self.now, len(self._open()))
        expected = [p for p in self._open() if p.due <= self.now - 0.1]
        assert (
            {id(p) for p in expected}
            <= {id(p) for p in due}
            <= {id(p) for p in self._open() if p.due <= self.now}
        )
        assert len({id(p) for p in due}) == len(due), "due once"
        for pending in due:
            if pending in self.held:
                self.held.remove(pending)
                pending.state = DONE
            else:
                self.model[pending.priority].remove(pending)
                self.service.drop(pending)

    @invariant()
    def counts_agree(self) -> None:
        waiting = [pending for lane in self.model for pending in lane]
        assert self.service.waiting == len(waiting)
        assert self.service.waiting_bytes == sum(len(pending.data) for pending in waiting)
        assert self.service.places <= 2 * len(waiting) + 64 + 1

    @invariant()
    def deadlines_forget(self) -> None:
        assert len(self.deadlines) <= 2 * len(self._open()) + 4096 + 200


WaitQueue.TestCase.settings = settings(max_examples=60, stateful_step_count=60)
TestWaitQueue = WaitQueue.TestCase


def test_deadlines_follow_what_is_open_not_what_has_been() -> None:
    asker, service = some_asker(), Service(b"echo", ServicePolicy())
    deadlines = Deadlines(0.1, {})
    for step in range(200):
        now = step * 0.1
        batch = [Pending(asker, service, b"", b"", now, now + 60.0) for _ in range(500)]
        for pending in batch:
            deadlines.add(pending)
        deadlines.tick(now, len(batch))
        for pending in batch:
            pending.state = DONE
    assert len(deadlines) < 8000, "100 000 requests came and went"


def test_a_clock_that_jumps_finds_everything_due() -> None:
    asker, service = some_asker(), Service(b"echo", ServicePolicy())
    deadlines = Deadlines(0.1, {})
    batch = [Pending(asker, service, b"", b"", 0.0, 1.0 + n) for n in range(50)]
    for pending in batch:
        deadlines.add(pending)
    assert deadlines.tick(0.5, 50) == []
    assert deadlines.tick(1e6, 50) == batch


def test_very_many_that_are_due_at_once_come_in_slices() -> None:
    """A client may have half a million under way: refused in one go they would hold up everybody."""
    stage = Stage(BrokerPolicy(default=ServicePolicy(absent_grace=1.0)))
    client = stage.client()
    for _ in range(2 * SLICE + 1):
        stage.ask(client, b"nobody")
    stage.now = 2.0
    for left in (SLICE, SLICE, 1):
        stage.broker.wake("tick", stage.now)
        assert len(client.take()) == left
        soon = stage.port.timers["tick"] == stage.now
        assert soon == stage.broker.core.deadlines.behind == (stage.broker.core.live > 0)
