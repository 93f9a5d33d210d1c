"""The simulated network: order, cuts, loss, duplicates, slow lines, dials."""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from homing.ports import Link
from homing.testing import (
    Conditions,
    Disconnect,
    Duplicate,
    FaultPlan,
    Line,
    Partition,
    Pause,
    Probe,
    SimHost,
    Simulation,
    Slow,
)
from tests.testing.pair import SERVER, numbers, pair, say, talk


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


def test_a_disconnect_asked_for_is_not_dialled_again() -> None:
    sim = pair()
    sim.at(1.0, lambda: sim.nodes["client"].host.disconnect("back", SERVER))
    sim.run(until=30.0)
    assert sim.nodes["server"].role.links == []
    assert sim.nodes["server"].role.events[-1][1] == "closed"
    assert [what for _, what in sim.nodes["client"].role.events] == ["opened"]


def test_a_dial_given_up_in_mid_handshake_leaves_no_link() -> None:
    sim = pair(conditions=Conditions(line=Line(delay=0.1, jitter=0.0)))
    sim.at(0.35, lambda: sim.nodes["client"].host.disconnect("back", SERVER))
    sim.run(until=0.34)
    assert len(sim.nodes["server"].role.links) == 1
    assert sim.nodes["client"].role.links == []
    sim.run(until=10.0)
    assert sim.nodes["client"].role.events == []
    assert [what for _, what in sim.nodes["server"].role.events] == ["opened", "closed"]
    assert not sim.nodes["server"].host.links
    assert not sim.nodes["client"].host.links


class Streamer(Probe):
    """Counts up on every link it gets, naming the link."""

    def __init__(self, host: SimHost) -> None:
        super().__init__(host, {"back": SERVER})
        self.names = 0
        self.sent = 0
        host.later(0.0, "send")

    def opened(self, link: Link, now: float) -> None:
        super().opened(link, now)
        self.names += 1
        self.sent = 0

    def wake(self, key: Hashable, now: float) -> None:
        if self.send(b"%d/%d/%d" % (self.host.life, self.names, self.sent)):
            self.sent += 1
        self.host.later(now + 0.02, "send")


@given(st.integers(0, 2**32))
@settings(max_examples=60)
def test_whatever_happens_a_link_delivers_a_prefix_in_order(seed: int) -> None:
    plan = FaultPlan.random(seed, ["server", "client"], until=30.0, every=0.7, longest=20.0)
    sim = Simulation(seed, plan, Conditions(patience=4.0))
    got: list[bytes] = []

    class Server(Probe):
        def receive(self, link: Link, message: bytes, now: float) -> None:
            got.append(message)

    sim.node("server", Server, listen={"front": SERVER})
    sim.node("client", Streamer)
    sim.run(until=45.0)
    expected: dict[bytes, int] = {}
    for message in got:
        name, _, number = message.rpartition(b"/")
        assert int(number) == expected.get(name, 0), f"{message!r} out of order"
        expected[name] = int(number) + 1
    assert got, "nothing ever arrived"
    assert len(sim.nodes["server"].role.links) == len(sim.nodes["client"].role.links) == 1


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
