"""Slow heartbeats of idle workers: who is asked for them, when, and that nobody is lost over it."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from homing.journal.events import WorkerLeft
from homing.service.beats import SLACK, SLOWEST, rungs
from homing.service.policy import BrokerPolicy
from homing.testing import RecordingLink
from homing.wire import mdp
from homing.wire.frames import head, unpack
from homing.wire.mdp_messages import Answer, Disconnect, Heartbeat, Kind, Work
from tests.service.stage import D0X, D01, D02, Stage

HEARTBEAT, LIVENESS = 2.5, 3
PATIENT = 30_000
PLAIN = mdp.HEARTBEATS[D0X]
BYE = mdp.DISCONNECTS[D0X]
TICK = 0.11


def stage_of(beats: float) -> Stage:
    """With a budget of so many heartbeats a second."""
    return Stage(BrokerPolicy(idle_beats=beats))


def expired(stage: Stage) -> int:
    events: list[Any] = stage.port.events
    return sum(isinstance(event, WorkerLeft) and event.reason == b"expired" for event in events)


def keep_alive(stage: Stage, workers: list[RecordingLink], seconds: float) -> None:
    """Time in which these beat every heartbeat."""
    end = stage.now + seconds
    while stage.now < end:
        stage.pass_time(min(HEARTBEAT / 2, end - stage.now))
        for worker in workers:
            stage.say(worker, Heartbeat(D0X))


def intervals_told(worker: RecordingLink) -> list[int]:
    found = [mdp.read_to_worker(image) for image in worker.sent]
    return [each.interval for each in found if isinstance(each, Heartbeat) and each.interval]


@pytest.mark.parametrize("heartbeat", [0.01, 0.3, 1.0, 2.5, 20.0, 30.0, 3600.0])
def test_rungs_are_few_and_begin_with_the_heartbeat(heartbeat: float) -> None:
    found = rungs(heartbeat)
    assert found[0] == heartbeat
    assert found[-1] == max(heartbeat, SLOWEST)
    assert found == sorted(set(found))
    assert len(found) <= 25
    assert all(later <= earlier * 1.5 + 1e-9 for earlier, later in pairwise(found))


def test_within_the_budget_nothing_is_told() -> None:
    stage = stage_of(4 / HEARTBEAT)
    workers = [stage.worker(b"echo", slowest=PATIENT) for _ in range(4)]
    keep_alive(stage, workers, 20.0)
    for worker in workers:
        assert set(worker.take()) == {PLAIN}


def test_beyond_the_budget_those_that_can_are_told_once() -> None:
    stage = stage_of(1.0)
    patient = [stage.worker(b"echo", slowest=PATIENT) for _ in range(6)]
    quicker = stage.worker(b"echo", slowest=6_000)
    others = [stage.worker(b"echo"), stage.worker(b"echo", D01), stage.worker(b"echo", D02)]
    keep_alive(stage, [*patient, quicker, others[0]], 30.0)
    assert [intervals_told(worker) for worker in patient] == [[10_000]] * 6
    assert intervals_told(quicker) == [5_000], "no more than it can keep to"
    for worker, dialect in zip(others, (D0X, D01, D02), strict=True):
        byes = {mdp.DISCONNECTS[dialect]}
        assert {*worker.take()} - byes == {mdp.HEARTBEATS[dialect]}


def test_a_slow_worker_is_beaten_to_and_answered_at_its_own_interval() -> None:
    stage = stage_of(0.1)
    worker = stage.worker(b"echo", slowest=10_000)
    keep_alive(stage, [worker], 3.0)
    assert intervals_told(worker) == [10_000]
    worker.take()
    stage.pass_time(10.0 - TICK * 2)
    assert worker.take() == [], "not before an interval is over"
    for _ in range(5):
        stage.say(worker, Heartbeat(D0X))
        assert worker.take() == [PLAIN], "at once, while its socket is at hand"
        stage.pass_time(10.0 * SLACK - TICK * 2)
        assert worker.take() == []
    stage.say(worker, Heartbeat(D0X))
    worker.take()
    stage.pass_time(6.0)
    stage.say(worker, Heartbeat(D0X))
    assert worker.take() == [PLAIN], "ours is due within three quarters of an interval"
    assert expired(stage) == 0
    stage.pass_time(42.6)
    assert worker.take()[-1] == BYE
    assert expired(stage) == 1


def slow_worker(stage: Stage, service: bytes = b"echo") -> RecordingLink:
    """One that was told 20 s, and has just been heard."""
    worker = stage.worker(service, slowest=20_000)
    keep_alive(stage, [worker], 8.0)
    assert intervals_told(worker)[-1] == 20_000
    stage.say(worker, Heartbeat(D0X))
    worker.take()
    return worker


@pytest.mark.parametrize("service", [b"echo", b""])
def test_a_worker_that_hangs_over_a_request_is_found_as_soon_as_ever(service: bytes) -> None:
    stage = stage_of(0.05)
    worker = slow_worker(stage, service)
    stage.pass_time(15.0)
    worker.take()
    stage.ask(stage.client())
    stage.pass_time(HEARTBEAT * LIVENESS - TICK)
    assert BYE not in worker.take(), "the request was a reason to live for so long"
    stage.pass_time(HEARTBEAT + 2 * TICK)
    assert worker.take()[-1] == BYE


def test_a_slow_worker_that_is_given_what_was_put_back_is_watched() -> None:
    stage = stage_of(0.05)
    first, second = slow_worker(stage), stage.worker(b"echo", slowest=20_000)
    keep_alive(stage, [first, second], 26.0)
    first.take()
    second.take()
    stage.ask(stage.client())
    holder = first if any(isinstance(mdp.read_to_worker(i), Work) for i in first.sent) else second
    other = second if holder is first else first
    stage.pass_time(1.0)
    stage.broker.closed(holder, stage.now)
    assert any(isinstance(mdp.read_to_worker(image), Work) for image in other.take())
    stage.pass_time(HEARTBEAT * (LIVENESS + 1) + 2 * TICK)
    assert other.take()[-1] == BYE


def test_a_busy_worker_is_beaten_to_as_ever_and_an_idle_one_slowly_again() -> None:
    stage = stage_of(0.05)
    worker = slow_worker(stage)
    stage.ask(stage.client())
    keep_alive(stage, [worker], 10.0)
    assert len([image for image in worker.sent if image == PLAIN]) >= 3
    stage.answer(worker, b"done")
    stage.pass_time(HEARTBEAT * SLACK + TICK)
    worker.take()
    stage.pass_time(15.0)
    assert worker.take() == []
    assert expired(stage) == 0


def test_one_that_works_on_what_was_refused_hears_of_us() -> None:
    """It beats as who has work does; we might not know of any."""
    stage = stage_of(0.05)
    worker = slow_worker(stage)
    stage.ask(stage.client(), options=mdp.read_options(b"HM\x00\x04\x00\x00\x00\x01"))
    stage.broker.core.begun.clear()
    stage.broker.core.deadlines.fresh.clear()
    worker.take()
    stage.pass_time(HEARTBEAT)
    stage.say(worker, Heartbeat(D0X))
    assert worker.take() == [PLAIN]
    stage.pass_time(HEARTBEAT * SLACK + TICK)
    assert worker.take() == [PLAIN]


def test_a_fleet_that_shrinks_is_told_a_shorter_interval_and_given_time_to_hear_of_it() -> None:
    stage = stage_of(1.0)
    stays = stage.worker(b"echo", slowest=PATIENT)
    leave = [stage.worker(b"echo", slowest=PATIENT) for _ in range(15)]
    keep_alive(stage, [stays, *leave], 12.0)
    assert intervals_told(stays) == [20_000]
    stays.take()
    stage.say(stays, Heartbeat(D0X))
    for worker in leave:
        stage.broker.closed(worker, stage.now)
    while not intervals_told(stays):
        stage.pass_time(0.1)
    assert intervals_told(stays) == [2_500]
    stage.pass_time(2.4)
    stage.say(stays, Heartbeat(D0X))
    keep_alive(stage, [stays], 20.0)
    assert expired(stage) == 0


def test_told_shorter_ones_in_a_row_nobody_loses_time_it_was_given() -> None:
    """What it was told may be under way for long: it is silent as it may be, from before the first."""
    stage = stage_of(1.0)
    worker = stage.worker(b"echo", slowest=15_000)
    others = [stage.worker(b"other", slowest=PATIENT) for _ in range(14)]
    keep_alive(stage, [worker, *others], 12.0)
    stage.say(worker, Heartbeat(D0X))
    silent_since = stage.now
    for left in (9, 4):
        told = len(intervals_told(worker))
        while len(others) > left:
            stage.broker.closed(others.pop(), stage.now)
        while len(intervals_told(worker)) == told:
            keep_alive(stage, others, 1.0)
    assert intervals_told(worker) == [15_000, 10_000, 5_000]
    keep_alive(stage, others, silent_since + 40.0 - stage.now)
    stage.say(worker, Heartbeat(D0X))
    keep_alive(stage, [worker, *others], 10.0)
    assert expired(stage) == 0


def test_one_that_is_gone_is_not_kept_by_changes_of_the_interval() -> None:
    """Told another one at every heartbeat, it stays no longer than the slowest allows."""
    liveness = 6
    stage = Stage(BrokerPolicy(idle_beats=1.0, liveness=liveness))
    gone = stage.worker(b"echo", slowest=5_000)
    silent_since = stage.now
    others = [stage.worker(b"other") for _ in range(4)]
    told = 0
    while not expired(stage):
        stage.pass_time(0.1)
        assert stage.now <= silent_since + 5.0 * (liveness + 1) + 2 * TICK
        intervals = intervals_told(gone)
        if len(intervals) > told and intervals[-1] == 5_000:
            for worker in others:
                stage.broker.closed(worker, stage.now)
        elif len(intervals) > told:
            others = [stage.worker(b"other") for _ in range(4)]
        told = len(intervals)
    assert told > 3


def test_a_worker_that_comes_back_begins_anew() -> None:
    stage = stage_of(0.05)
    worker = slow_worker(stage)
    stage.say(worker, Disconnect(D0X))
    stage.send(worker, b"", b"MDPW0X", b"\x01", b"echo")
    keep_alive(stage, [worker], 30.0)
    assert set(worker.take()) == {PLAIN}


def test_who_asks_is_told_the_interval_in_force() -> None:
    stage = stage_of(0.05)
    slow_worker(stage)
    stage.worker(b"echo", D01)
    client = stage.client()
    stage.ask(client, b"mmi.workers", b"echo")
    (answer,) = client.take()
    found = json.loads(unpack(answer)[-1])
    assert [each["idle_heartbeat"] for each in found] == [20.0, 2.5]


class Model:
    """A worker that keeps to the protocol to the letter, at the last moment; or hangs."""

    def __init__(self, stage: Stage, slowest: int) -> None:
        self.stage = stage
        self.link = stage.worker(b"echo", credit=2, slowest=slowest)
        self.slowest = slowest
        self.idle = self.longest = HEARTBEAT  # the longest that was in force since it hung
        self.work: list[Work] = []
        self.heard = stage.now
        self.sent = stage.now
        self.due = stage.now + HEARTBEAT
        self.hung: float | None = None
        self.gone = False

    @property
    def pace(self) -> float:
        return HEARTBEAT if self.work else self.idle

    def step(self) -> None:
        now = self.stage.now
        for image in self.link.take():
            self.hear(mdp.read_to_worker(image), now)
        if self.hung is not None:
            return
        assert not self.gone, "a healthy worker was sent away"
        assert now - self.heard <= self.pace * SLACK + 2 * TICK, "the broker is silent"
        if now >= self.due:
            self.speak(Heartbeat(D0X))

    def speak(self, message: Heartbeat | Answer) -> None:
        self.sent = self.stage.now
        self.due = self.sent + self.pace
        self.stage.say(self.link, message)

    def hear(self, message: Work | Heartbeat | Disconnect, now: float) -> None:
        self.heard = now
        if isinstance(message, Disconnect):
            self.gone = True
        elif isinstance(message, Work):
            if not self.work:
                self.due = min(self.due, now + HEARTBEAT)
                self.hung = now if self.hung is not None else None
            self.work.append(message)
        elif message.interval:
            assert message.interval <= self.slowest, "nobody is told what it did not offer"
            before, self.idle = self.idle, message.interval / 1000
            if not self.work:
                shorter = self.idle < before
                self.due = min(self.due, now + self.idle) if shorter else self.sent + self.idle
            self.longest = max(self.longest, self.idle)

    def answer(self) -> None:
        work = self.work.pop(0)
        body = head(work.data, 1)[0][0]
        answer = Answer(D0X, Kind.FINAL, work.address, work.service, b"\x00\x01" + body)
        self.speak(answer)


class Fleet(RuleBasedStateMachine):
    """Workers come and go, patient and not, work and hang, under a budget of two heartbeats a second."""

    def __init__(self) -> None:
        super().__init__()
        self.stage = stage_of(2.0)
        self.client = self.stage.client()
        self.workers: list[Model] = []

    @rule(many=st.integers(1, 12), slowest=st.sampled_from((0, 2_000, 6_000, 20_000, 30_000)))
    def join(self, many: int, slowest: int) -> None:
        self.workers += [Model(self.stage, slowest) for _ in range(many)]

    @precondition(lambda self: self.workers)
    @rule(place=st.integers(0, 99), many=st.integers(1, 12))
    def leave(self, place: int, many: int) -> None:
        for _ in range(min(many, len(self.workers))):
            worker = self.workers.pop(place % len(self.workers))
            self.stage.broker.closed(worker.link, self.stage.now)

    @precondition(lambda self: self.workers)
    @rule(many=st.integers(1, 5))
    def ask(self, many: int) -> None:
        for _ in range(many):
            self.stage.ask(self.client, body=b"x")

    @rule(place=st.integers(0, 99))
    def answer(self, place: int) -> None:
        busy = [worker for worker in self.workers if worker.work and worker.hung is None]
        if busy:
            busy[place % len(busy)].answer()

    @precondition(lambda self: self.workers)
    @rule(place=st.integers(0, 99))
    def hang(self, place: int) -> None:
        worker = self.workers[place % len(self.workers)]
        if worker.hung is None:
            worker.hung = self.stage.now
            worker.longest = worker.idle

    @rule(seconds=st.floats(0.1, 15.0))
    def wait(self, seconds: float) -> None:
        end = self.stage.now + seconds
        while self.stage.now < end:
            self.stage.pass_time(0.1)
            for worker in self.workers:
                worker.step()
            self.look()

    def look(self) -> None:
        """Who hangs is sent away in time; then nobody speaks of it any more."""
        for worker in self.workers:
            if worker.hung is not None and not worker.gone:
                silent = self.stage.now - worker.hung
                checks = LIVENESS + 1 + SLACK  # and one for what was heard just before
                slack = 3 * TICK
                assert silent <= worker.longest * checks + slack
                if worker.work:
                    assert silent <= HEARTBEAT * checks + slack, "it holds requests"
        self.workers = [worker for worker in self.workers if not worker.gone]

    @invariant()
    def no_more_lines_than_workers_need(self) -> None:
        beats = self.stage.broker.beats
        assert beats.wanted in rungs(HEARTBEAT)


TestFleet = Fleet.TestCase
