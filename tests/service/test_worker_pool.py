"""The pool of workers with room: least recently used first, and those who left are passed over."""

from __future__ import annotations

from collections import OrderedDict

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from homing.service.worker_pool import Pool, Worker
from homing.service.workers import Worker0X
from homing.testing import RecordingLink
from tests.service.stage import Stage

CREDIT = st.integers(1, 3)


def one_of(draw: st.DataObject, workers: list[Worker]) -> Worker:
    """By its place: `sampled_from` keeps weak references, which compiled objects do not survive."""
    return workers[draw.draw(st.integers(0, len(workers) - 1))]


class Pools(RuleBasedStateMachine):
    """Beside an OrderedDict that says the same in an obvious way."""

    def __init__(self) -> None:
        super().__init__()
        self.broker = Stage().broker
        self.pool = Pool()
        self.model: OrderedDict[Worker, int] = OrderedDict()  # those with room
        self.busy: dict[Worker, int] = {}  # what each holds

    @rule(credit=CREDIT)
    def join(self, credit: int) -> None:
        worker = Worker0X(self.broker, RecordingLink("localbe"), credit, 0.0)
        self.pool.join(worker)
        self.model[worker] = credit
        self.busy[worker] = 0

    @rule()
    def take(self) -> None:
        worker = self.pool.take()
        if not self.model:
            assert worker is None
            return
        expected, room = self.model.popitem(last=False)
        assert worker is expected
        self.busy[expected] += 1
        if room > 1:
            self.model[expected] = room - 1

    @precondition(lambda self: any(self.busy.values()))
    @rule(draw=st.data())
    def give_back(self, draw: st.DataObject) -> None:
        worker = one_of(draw, [one for one, held in self.busy.items() if held])
        self.pool.give_back(worker)
        self.busy[worker] -= 1
        self.model[worker] = self.model.get(worker, 0) + 1

    @precondition(lambda self: bool(self.busy))
    @rule(draw=st.data())
    def leave(self, draw: st.DataObject) -> None:
        worker = one_of(draw, list(self.busy))
        self.pool.leave(worker)
        del self.busy[worker]
        self.model.pop(worker, None)

    @invariant()
    def same(self) -> None:
        assert list(self.pool) == list(self.model)
        assert len(self.pool) == len(self.model)
        assert [one.room for one in self.pool] == list(self.model.values())


TestPools = Pools.TestCase


def test_those_who_left_are_swept_out() -> None:
    broker, pool = Stage().broker, Pool()
    stays = Worker0X(broker, RecordingLink("localbe"), 1, 0.0)
    pool.join(stays)
    for _ in range(1000):
        passes = Worker0X(broker, RecordingLink("localbe"), 1, 0.0)
        pool.join(passes)
        pool.leave(passes)
    assert pool.places < 100
    assert list(pool) == [stays]
