"""Bugs of the kind homing must not have, planted in toy roles, are found within a few seeds."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial

import pytest

from homing.errors import DiskFull
from homing.ports import Link
from homing.testing import (
    Conditions,
    Crash,
    Disconnect,
    FaultPlan,
    Partition,
    Pause,
    SimHost,
    Simulation,
    SimulationFailure,
    Skew,
    explore,
    seeds,
    shrink,
)
from homing.testing.explore import Scenario

STORE = "tcp://store:1"
NUMBERS = 60


class Store:
    """Takes numbers, writes them down, then acknowledges."""

    ack_early = False

    def __init__(self, host: SimHost) -> None:
        self.host = host
        self.kept = {int(number) for number in host.recovered}  # type: ignore[call-overload]
        self.waiting: list[tuple[int, int, Link]] = []

    def opened(self, link: Link, now: float) -> None: ...

    def closed(self, link: Link, now: float) -> None:
        self.waiting = [entry for entry in self.waiting if entry[2] is not link]

    def receive(self, link: Link, message: bytes, now: float) -> None:
        number = int(message)
        try:
            at = self.host.journal(number)
        except DiskFull:
            return
        self.kept.add(number)
        if self.ack_early:
            link.send(message)
        else:
            self.waiting.append((at, number, link))

    def journaled(self, number: int, now: float) -> None:
        while self.waiting and self.waiting[0][0] <= number:
            _, value, link = self.waiting.pop(0)
            link.send(b"%d" % value)

    def wake(self, key: Hashable, now: float) -> None: ...


class EagerStore(Store):
    """The bug: it acknowledges what may still be lost."""

    ack_early = True


class Sender:
    """Sends a number every 0.5 s until all are acknowledged, again after a reconnect."""

    sends_again = True

    def __init__(self, host: SimHost) -> None:
        self.host = host
        self.acked: set[int] = set()
        self.link: Link | None = None
        self.next = 0
        host.connect("store", STORE)
        host.later(0.5, "send")

    def opened(self, link: Link, now: float) -> None:
        self.link = link
        if self.sends_again:
            for number in range(self.next):
                if number not in self.acked:
                    link.send(b"%d" % number)

    def closed(self, link: Link, now: float) -> None:
        self.link = None

    def receive(self, link: Link, message: bytes, now: float) -> None:
        self.acked.add(int(message))

    def wake(self, key: Hashable, now: float) -> None:
        if self.link is not None and self.next < NUMBERS:
            self.link.send(b"%d" % self.next)
            self.next += 1
        self.host.later(now + 0.5, "send")

    def journaled(self, number: int, now: float) -> None: ...


class ForgetfulSender(Sender):
    """The bug: what was under way when the link was lost is never sent again."""

    sends_again = False


def nothing_acknowledged_is_lost(sim: Simulation) -> None:
    if sim.nodes["store"].up:
        lost = sim.nodes["sender"].role.acked - sim.nodes["store"].role.kept
        assert not lost, f"acknowledged and gone: {sorted(lost)}"


def everything_is_acknowledged(sim: Simulation) -> None:
    missing = set(range(NUMBERS)) - sim.nodes["sender"].role.acked
    assert not missing, f"never acknowledged: {sorted(missing)}"


def scenario(
    store: Callable[[SimHost], Store],
    sender: Callable[[SimHost], Sender],
    seed: int,
    faults: FaultPlan,
) -> str:
    sim = Simulation(seed, faults, Conditions(sync=0.05))
    sim.node("store", store, listen={"senders": STORE})
    sim.node("sender", sender)
    sim.always(nothing_acknowledged_is_lost)
    sim.at_end(everything_is_acknowledged)
    sim.run(until=90.0)
    return sim.finish()


def store_faults(seed: int) -> FaultPlan:
    kinds = (Crash, Disconnect, Partition, Pause, Skew)
    plan = FaultPlan.random(seed, ["store", "sender"], until=40.0, every=1.0, kinds=kinds)
    # The sender has no disk, so its crash may forget what it sent: not what is tested here.
    kept = [f for f in plan.faults if not isinstance(f, Crash) or f.node == "store"]
    return FaultPlan(tuple(kept))


GOOD: Scenario = partial(scenario, Store, Sender)


def test_roles_without_bugs_pass_every_seed() -> None:
    assert explore(GOOD, seeds(ci=25, nightly=1000), store_faults) == len(seeds(25, 1000))


@pytest.mark.parametrize(
    ("store", "sender", "says"),
    [
        pytest.param(EagerStore, Sender, "acknowledged and gone", id="acks before journaled"),
        pytest.param(Store, ForgetfulSender, "never acknowledged", id="forgets on reconnect"),
    ],
)
def test_planted_bugs_are_found_and_shrunk(
    store: type[Store], sender: type[Sender], says: str
) -> None:
    with pytest.raises(SimulationFailure, match=says) as caught:
        explore(partial(scenario, store, sender), range(20), store_faults)
    seed, plan = caught.value.sim.seed, caught.value.sim.faults
    assert len(plan.faults) < len(store_faults(seed).faults)
    for index in range(len(plan.faults)):  # every fault left is needed
        scenario(store, sender, seed, plan.without(index))
    assert "HOMING_SIM_FAULTS=" in str(caught.value).splitlines()[-1]


def test_one_seed_and_plan_can_be_chosen_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, FaultPlan]] = []
    plan = FaultPlan((Skew(at=1.0, node="store", seconds=5.0),))
    monkeypatch.setenv("HOMING_SIM_SEED", "42")
    monkeypatch.setenv("HOMING_SIM_FAULTS", plan.to_json())
    ran = explore(lambda seed, faults: seen.append((seed, faults)), range(100), store_faults)
    assert (ran, seen) == (1, [(42, plan)])


def test_the_nightly_profile_runs_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOMING_TEST_PROFILE", "ci")
    assert seeds(ci=3, nightly=9) == range(3)
    monkeypatch.setenv("HOMING_TEST_PROFILE", "nightly")
    assert seeds(ci=3, nightly=9) == range(9)
    assert seeds(ci=3, first=100) == range(100, 103)


def test_shrinking_keeps_just_what_is_needed() -> None:
    """Here: it fails while both a crash and a pause are in the plan."""

    def both(_seed: int, plan: FaultPlan) -> None:
        assert not {Crash, Pause} <= {type(fault) for fault in plan.faults}

    plan = FaultPlan.random(3, ["a", "b"], until=200.0, every=2.0)
    assert {Crash, Pause} <= {type(fault) for fault in plan.faults}
    smallest = shrink(both, 3, plan)
    assert sorted(type(fault).__name__ for fault in smallest.faults) == ["Crash", "Pause"]
