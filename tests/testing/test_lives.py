"""The lives of simulated nodes: pauses, crashes, timers, clocks, journals."""

from __future__ import annotations

from functools import partial

import pytest

from homing.testing import (
    EPOCH,
    Crash,
    FullDisk,
    Pause,
    Probe,
    SimHost,
    Simulation,
    Skew,
    SlowDisk,
)
from tests.testing.pair import numbers, pair, talk, write_down, write_if_possible


def test_a_paused_node_stands_still_and_then_catches_up() -> None:
    sim = pair(1, Pause(at=1.0, lasts=3.0, node="server"), Pause(at=2.0, lasts=4.0, node="server"))
    talk(sim, 0.9, 100)
    sim.at(0.5, lambda: sim.nodes["server"].host.later(2.0, "tick"))
    sim.run(until=5.9)
    assert numbers(sim) == list(range(10))
    sim.run(until=6.1)
    assert numbers(sim) == list(range(100))
    assert sim.nodes["server"].role.events[-1][1] == "wake tick"


def test_a_crash_loses_the_role_and_a_restart_makes_a_new_one() -> None:
    sim = pair(1, Crash(at=1.0, node="server", down=2.0))
    first = sim.nodes["server"].role
    was_up: list[bool] = []
    for when in (0.9, 2.0, 10.0):
        sim.run(until=when)
        was_up.append(sim.nodes["server"].up)
    assert was_up == [True, False, True]
    assert [what for _, what in sim.nodes["client"].role.events] == ["opened", "closed", "opened"]
    assert sim.nodes["server"].role is not first
    assert len(sim.nodes["client"].role.links) == len(sim.nodes["server"].role.links) == 1


def test_a_crash_can_wait_for_a_moment() -> None:
    """Right after the first event written from 2 s on: before any sync can have ended."""
    sim = pair(1, Crash(at=2.0, node="server", down=1.0, after="journal"))
    for when in (1.0, 3.0, 3.5):
        sim.at(when, partial(write_if_possible, sim.nodes["server"]))
    sim.run(until=10.0)
    crashed, restarted = (
        float(line.split()[0])
        for line in sim.trace.lines()
        if line.split()[1] == "server"
        and line.split()[2] in ("crash", "start")
        and "life 1" not in line
    )
    assert crashed == 3.0
    assert restarted == 4.0
    assert [what for _, what in sim.nodes["server"].role.events] == ["opened"]


def test_a_silent_crash_is_noticed_late() -> None:
    sim = pair(1, Crash(at=1.0, node="client", down=None, silent=True))
    sim.run(until=15.0)
    assert len(sim.nodes["server"].role.links) == 1
    sim.run(until=25.0)
    assert sim.nodes["server"].role.links == []
    assert not sim.nodes["client"].up


def test_a_machine_that_is_back_tells_the_peers_of_its_former_life() -> None:
    sim = pair(1, Crash(at=1.0, node="server", down=2.0, silent=True))
    sim.run(until=2.9)
    assert len(sim.nodes["client"].role.links) == 1
    sim.run(until=8.0)
    assert [what for _, what in sim.nodes["client"].role.events] == ["opened", "closed", "opened"]


def test_wall_clocks_jump_and_monotonic_ones_do_not() -> None:
    sim = pair(1, Skew(at=1.0, node="client", seconds=-3600.0))
    sim.run(until=2.0)
    clock = sim.nodes["client"].host.clock
    assert (clock.monotonic(), clock.wall()) == (2.0, EPOCH + 2.0 - 3600.0)
    assert sim.nodes["server"].host.clock.wall() == EPOCH + 2.0


class Timers(Probe):
    """Sets a few timers, moves some, drops one."""

    def __init__(self, host: SimHost) -> None:
        super().__init__(host)
        for when, key in ((1.0, "kept"), (1.0, "put off"), (9.0, "moved up"), (1.0, "cancelled")):
            host.later(when, key)
        host.later(2.0, "put off")
        host.later(0.5, "moved up")
        host.cancel("cancelled")


def test_timers_fire_once_at_or_soon_after_the_last_deadline_given() -> None:
    sim = Simulation(1)
    sim.node("n", Timers)
    sim.run(until=20.0)
    fired = [(what, when) for when, what in sim.nodes["n"].role.events]
    assert [what for what, _ in fired] == ["wake moved up", "wake kept", "wake put off"]
    assert [when for _, when in fired] == pytest.approx([0.5, 1.0, 2.0], abs=0.0011)
    assert all(when >= due for (_, when), due in zip(fired, (0.5, 1.0, 2.0), strict=True))


def test_a_cancelled_timer_can_be_set_again() -> None:
    sim = Simulation(1)
    host = sim.node("n", Probe).host
    host.later(1.0, "t")
    host.cancel("t")
    host.later(3.0, "t")
    sim.run(until=5.0)
    assert sim.nodes["n"].role.events == [(pytest.approx(3.0, abs=0.0011), "wake t")]


def test_events_are_journaled_in_groups_after_the_disks_delay() -> None:
    sim = pair(1, SlowDisk(at=0.0, lasts=5.0, node="server", delay=1.0))
    host = sim.nodes["server"].host
    for when in (1.0, 1.1, 1.2):
        sim.at(when, lambda: host.journal({"n": host.now}))
    sim.run(until=6.0)
    events = sim.nodes["server"].role.events
    done = [(what, when) for when, what in events if "journaled" in what]
    assert [what for what, _ in done] == ["journaled 1", "journaled 3"]
    assert [when for _, when in done] == pytest.approx([2.0, 3.0], abs=0.01)


def test_what_was_journaled_survives_every_crash_in_order() -> None:
    survivors = set()
    for seed in range(30):
        sim = pair(seed, Crash(at=2.0, node="server", down=1.0))
        host = sim.nodes["server"].host
        sim.at(1.0, partial(write_down, host, 0, 5))
        sim.at(1.9999, partial(write_down, host, 5, 10))
        sim.run(until=4.0)
        recovered = sim.nodes["server"].host.recovered
        assert recovered == [[n] for n in range(len(recovered))]
        assert len(recovered) >= 5
        survivors.add(len(recovered))
        assert sim.nodes["server"].host.journal(["next"]) == len(recovered) + 1
    assert {5, 10} <= survivors
    assert survivors & {6, 7, 8, 9}


def test_a_full_disk_refuses_and_recovers() -> None:
    sim = pair(1, FullDisk(at=1.0, lasts=1.0, node="server"))
    outcome: list[str] = []

    def write() -> None:
        try:
            outcome.append(str(sim.nodes["server"].host.journal(["x"])))
        except Exception as error:
            outcome.append(type(error).__name__)

    for when in (0.5, 1.5, 2.5):
        sim.at(when, write)
    sim.run(until=3.0)
    assert outcome == ["1", "DiskFull", "2"]
