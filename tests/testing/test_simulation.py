"""The simulator keeps its own promises: one trace a seed, failures that say how to repeat them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Hashable
from functools import partial

import pytest

from homing.ports import Link
from homing.testing import (
    Conditions,
    FaultPlan,
    Probe,
    SimHost,
    Simulation,
    SimulationFailure,
    Skew,
)
from tests.testing.pair import SERVER, pair, talk, write_if_possible


def test_names_and_endpoints_are_taken_once() -> None:
    sim = pair()
    with pytest.raises(ValueError, match="client"):
        sim.node("client", Probe)
    with pytest.raises(ValueError, match="taken by server"):
        sim.node("other", Probe, listen={"front": SERVER})


def busy(seed: int) -> Simulation:
    """Probes, faults and a journal: a bit of everything."""
    names = ["server", "client"]
    plan = FaultPlan.random(seed, names, until=40.0, every=1.0)
    sim = pair(seed, *plan.faults)
    talk(sim, 0.5, 400, gap=0.1)
    for second in range(40):
        sim.at(second, partial(write_if_possible, sim.nodes["server"]))
    sim.run(until=60.0)
    return sim


def test_the_same_seed_gives_the_same_trace_and_another_seed_another() -> None:
    digests = [busy(seed).trace.digest() for seed in (1, 1, 2)]
    assert digests[0] == digests[1]
    assert digests[0] != digests[2]


def test_the_trace_does_not_depend_on_the_process() -> None:
    """String hashes differ from process to process; no order may hang on them."""
    code = "from tests.testing.test_simulation import busy; print(busy(5).trace.digest())"
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2", "3")
    }
    assert digests == {busy(5).trace.digest() + "\n"}


class Raiser(Probe):
    def receive(self, link: Link, message: bytes, now: float) -> None:
        raise KeyError("what the role did not expect")


def test_a_role_that_raises_fails_the_run_and_says_how_to_see_it_again() -> None:
    plan = FaultPlan((Skew(at=0.1, node="server", seconds=1.0),))
    sim = Simulation(99, plan)
    sim.node("server", Raiser, listen={"front": SERVER})
    sim.node("client", lambda host: Probe(host, {"back": SERVER}))
    sim.at(1.0, lambda: sim.nodes["client"].role.send(b"boom"))
    with pytest.raises(SimulationFailure) as caught:
        sim.run(until=2.0)
    told = str(caught.value)
    assert "seed 99 failed at 1.0" in told
    assert "KeyError" in told
    assert "receive    front<client#1  boom" in told
    assert "HOMING_SIM_SEED=99" in told
    assert '"fault":"skew"' in told.splitlines()[-1]
    assert "test_a_role_that_raises" in told.splitlines()[-1]


def test_invariants_are_checked_after_each_event_periodically_and_at_the_end() -> None:
    counts = {"each": 0, "periodic": 0, "end": 0}

    def count(name: str, _sim: Simulation) -> None:
        counts[name] += 1

    sim = pair()
    sim.always(partial(count, "each"))
    sim.always(partial(count, "periodic"), every=0.5)
    sim.at_end(partial(count, "end"))
    sim.run(until=10.2)
    assert counts == {"each": sim.events, "periodic": 20, "end": 0}
    assert sim.finish() == sim.trace.digest()
    assert counts["end"] == 1


def test_run_until_stops_when_reached_and_fails_past_its_limit() -> None:
    sim = pair()
    sim.run_until(lambda: bool(sim.nodes["client"].role.links), limit=5.0)
    assert sim.now < 1.0
    with pytest.raises(SimulationFailure, match="not reached by"):
        sim.run_until(lambda: False, limit=2.0)


class Spinner(Probe):
    """Wakes itself at once, for ever."""

    def __init__(self, host: SimHost) -> None:
        super().__init__(host)
        host.later(0.0, "spin")

    def wake(self, key: Hashable, now: float) -> None:
        self.host.later(now, "spin")


def test_time_that_stands_still_is_a_failure() -> None:
    sim = Simulation(conditions=Conditions(lateness=0.0))
    sim.node("n", Spinner)
    with pytest.raises(SimulationFailure, match="time stands still"):
        sim.run(until=1.0)
