"""The simulator keeps its own promises: order, cuts, pauses, crashes, one trace a seed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Hashable
from functools import partial
from typing import Literal

import pytest

from homing.ports import Link
from homing.testing import (
    EPOCH,
    LOCAL,
    AnyFault,
    Conditions,
    Crash,
    Disconnect,
    Duplicate,
    FaultPlan,
    FullDisk,
    Line,
    Node,
    Partition,
    Pause,
    Probe,
    SimHost,
    Simulation,
    SimulationFailure,
    Skew,
    Slow,
    SlowDisk,
)

SERVER = "tcp://server:1"


def pair(seed: int = 1, *faults: AnyFault, conditions: Conditions = LOCAL) -> Simulation:
    """A probe that listens, a probe that dials it."""
    sim = Simulation(seed, FaultPlan(faults), conditions, keep=None)
    sim.node("server", Probe, listen={"front": SERVER})
    sim.node("client", lambda host: Probe(host, {"back": SERVER}), identities={"back": b"me"})
    return sim


def say(sim: Simulation, name: str, message: bytes) -> None:
    """One node sends something on its newest link, if it has one."""
    sim.nodes[name].role.send(message)


def talk(sim: Simulation, start: float, count: int, gap: float = 0.01) -> None:
    """The client sends 0, 1, 2… every `gap` seconds."""
    for number in range(count):
        sim.at(start + number * gap, partial(say, sim, "client", b"%d" % number))


def numbers(sim: Simulation) -> list[int]:
    return [int(message) for message in sim.nodes["server"].role.messages]


def test_a_dialled_link_opens_on_both_sides_with_names() -> None:
    sim = pair()
    sim.run(until=1.0)
    (front,) = sim.nodes["server"].role.links
    (back,) = sim.nodes["client"].role.links
    assert (front.plug, front.peer, back.plug) == ("front", b"me", "back")
    assert back.peer[:1] == b"\0"
    assert len(back.peer) == 5


def test_messages_keep_their_order_within_a_link() -> None:
    sim = pair(conditions=Conditions(line=Line(delay=0.01, jitter=0.05)))
    talk(sim, 1.0, 500, gap=0.001)
    sim.run(until=30.0)
    assert numbers(sim) == list(range(500))


def test_messages_of_different_links_overtake_each_other() -> None:
    sim = Simulation(3, conditions=Conditions(line=Line(delay=0.01, jitter=0.05)))
    sim.node("server", Probe, listen={"front": SERVER})
    for name in ("a", "b"):
        sim.node(name, lambda host: Probe(host, {"back": SERVER}))
    sim.run(until=5.0)
    for number in range(100):
        sim.at(5.0 + number * 0.01, partial(say, sim, "ab"[number % 2], b"%d" % number))
    sim.run(until=30.0)
    got = numbers(sim)
    assert sorted(got) == list(range(100))
    assert got != sorted(got)
    assert [n for n in got if n % 2] == sorted(n for n in got if n % 2)


def test_a_short_partition_delays_and_loses_nothing() -> None:
    sim = pair(1, Partition(at=1.0, lasts=2.0, left=("client",), right=("server",)))
    talk(sim, 0.5, 100)
    sim.run(until=2.9)
    assert numbers(sim) == list(range(50))
    sim.run(until=3.1)
    assert numbers(sim) == list(range(100))
    assert sim.nodes["server"].role.events == [(pytest.approx(0, abs=0.1), "opened")]


def test_a_one_way_partition_cuts_one_way() -> None:
    sim = pair(1, Partition(at=1.0, lasts=2.0, left=("client",), right=("server",), one_way=True))
    sim.at(1.5, lambda: sim.nodes["client"].role.send(b"up"))
    sim.at(1.5, lambda: sim.nodes["server"].role.send(b"down"))
    sim.run(until=2.5)
    assert sim.nodes["client"].role.messages == [b"down"]
    assert sim.nodes["server"].role.messages == []
    sim.run(until=3.5)
    assert sim.nodes["server"].role.messages == [b"up"]


def test_a_long_partition_breaks_links_on_both_sides_and_heals_into_new_ones() -> None:
    sim = pair(1, Partition(at=1.0, lasts=60.0, left=("client",), right=("server",)))
    sim.at(2.0, lambda: sim.nodes["client"].role.send(b"lost"))
    sim.run(until=60.0)
    for name in ("client", "server"):
        assert [what for _, what in sim.nodes[name].role.events] == ["opened", "closed"]
        assert 16.0 <= sim.nodes[name].role.events[1][0] <= 22.0
    sim.run(until=70.0)
    assert len(sim.nodes["client"].role.links) == 1
    assert sim.nodes["server"].role.messages == []


def test_overlapping_partitions_heal_with_the_last() -> None:
    left, right = ("client",), ("server",)
    sim = pair(
        1,
        Partition(at=1.0, lasts=2.0, left=left, right=right),
        Partition(at=2.0, lasts=3.0, left=right, right=left),
    )
    sim.at(1.5, lambda: sim.nodes["client"].role.send(b"x"))
    sim.run(until=4.9)
    assert sim.nodes["server"].role.messages == []
    sim.run(until=5.1)
    assert sim.nodes["server"].role.messages == [b"x"]


def test_a_disconnect_loses_a_suffix_and_dials_again() -> None:
    slow = Conditions(line=Line(delay=0.05, jitter=0.02))
    lost = set()
    for seed in range(20):
        sim = pair(seed, Disconnect(at=2.0, left="client", right="server"), conditions=slow)
        talk(sim, 1.9, 10, gap=0.01)
        sim.run(until=30.0)
        got = numbers(sim)
        assert got == list(range(len(got)))
        lost.add(len(got) < 10)
        assert len(sim.nodes["client"].role.links) == len(sim.nodes["server"].role.links) == 1
    assert True in lost


def test_a_duplicate_connect_leaves_the_old_link_standing_at_the_other_side() -> None:
    sim = pair(1, Duplicate(at=1.0, left="client", right="server"))
    sim.run(until=3.0)
    server = sim.nodes["server"].role
    assert [link.peer for link in server.links] == [b"me", b"me"]
    assert len(sim.nodes["client"].role.links) == 1
    sim.run(until=30.0)
    assert len(server.links) == 1


@pytest.mark.parametrize("rule", ["refuse", "replace"])
def test_a_router_holds_one_peer_of_a_name(rule: Literal["refuse", "replace"]) -> None:
    """The newcomer waits until the old link's silence is noticed, or takes its place at once."""
    sim = Simulation(1, FaultPlan((Duplicate(at=1.0, left="client", right="server"),)))
    sim.node("server", Probe, listen={"front": SERVER}, same_name={"front": rule})
    sim.node("client", lambda host: Probe(host, {"back": SERVER}), identities={"back": b"me"})
    most = 0

    def count(_: Simulation) -> None:
        nonlocal most
        most = max(most, len(sim.nodes["server"].role.links))

    sim.always(count)
    sim.run(until=3.0)
    assert len(sim.nodes["client"].role.links) == (rule == "replace")
    sim.run(until=30.0)
    assert most == 1
    assert [what for _, what in sim.nodes["server"].role.events] == ["opened", "closed", "opened"]


def test_a_slow_line_backs_up_and_recovers() -> None:
    window = Conditions(window=1000)
    sim = pair(
        1,
        Slow(at=1.0, lasts=5.0, left="client", right="server", bandwidth=1000.0),
        conditions=window,
    )
    sim.at(2.0, lambda: [sim.nodes["client"].role.send(b"7" * 100) for _ in range(50)])
    sim.run(until=2.5)
    (link,) = sim.nodes["client"].role.links
    assert 3000 <= link.backlog <= 4000
    sim.run(until=7.5)
    assert link.backlog == 0
    assert len(numbers(sim)) == 50


def test_a_backlog_without_end_breaks_the_link() -> None:
    sim = pair(
        1, Pause(at=1.0, lasts=5.0, node="server"), conditions=Conditions(backlog_limit=10_000)
    )
    sim.at(2.0, lambda: [sim.nodes["client"].role.send(bytes(1000)) for _ in range(20)])
    sim.run(until=3.0)
    assert sim.nodes["client"].role.events[1][1] == "closed"


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


def write_down(host: SimHost, first: int, end: int) -> None:
    for number in range(first, end):
        host.journal([number])


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


def test_a_disconnect_asked_for_is_not_dialled_again() -> None:
    sim = pair()
    sim.at(1.0, lambda: sim.nodes["client"].host.disconnect("back", SERVER))
    sim.run(until=30.0)
    assert sim.nodes["server"].role.links == []
    assert sim.nodes["server"].role.events[-1][1] == "closed"
    assert [what for _, what in sim.nodes["client"].role.events] == ["opened"]


def test_a_link_closed_by_the_listener_is_dialled_again_after_what_was_sent() -> None:
    sim = pair()

    def goodbye() -> None:
        sim.nodes["server"].role.send(b"bye")
        sim.nodes["server"].role.links.pop().close("enough")

    sim.at(1.0, goodbye)
    sim.run(until=5.0)
    client = sim.nodes["client"].role
    assert client.messages == [b"bye"]
    assert [what for _, what in client.events] == ["opened", "closed", "opened"]


def test_nobody_listening_is_dialled_until_somebody_does() -> None:
    sim = Simulation(1)
    sim.node("client", lambda host: Probe(host, {"back": SERVER}))
    sim.run(until=20.0)
    assert sim.nodes["client"].role.events == []
    sim.node("server", Probe, listen={"front": SERVER})
    sim.run(until=30.0)
    assert len(sim.nodes["client"].role.links) == 1


def test_names_and_endpoints_are_taken_once() -> None:
    sim = pair()
    with pytest.raises(ValueError, match="client"):
        sim.node("client", Probe)
    with pytest.raises(ValueError, match="taken by server"):
        sim.node("other", Probe, listen={"front": SERVER})


def write_if_possible(node: Node) -> None:
    if node.up and not node.disk.full:
        node.host.journal(["x"])


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
