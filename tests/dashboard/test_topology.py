"""What the page draws of each role: peers with capacity, who is behind."""

from __future__ import annotations

from homing.clock import SystemClock
from homing.dashboard import topology
from homing.metrics import Gauge, Registry
from homing.node.instruments import PEER_UP, watch_role
from homing.push.sessions import Session
from homing.push.shared import Shared
from homing.service.switch import Broker
from homing.testing import RecordingLink, RecordingPort
from homing.wire.mdp_messages import State
from tests.push.desk import Desk, client_id, message_id


def test_a_role_draws_only_its_own() -> None:
    assert topology.peers(object(), 0.0) == topology.ring(object()) == topology.slow(object()) == []


def test_peers_are_drawn_with_what_they_could_take() -> None:
    ends = {b"lyon": ("tcp://127.0.0.1:1", "tcp://127.0.0.1:2")}
    broker = Broker(b"paris", RecordingPort(), peers=ends)
    [away] = topology.peers(broker, 0.0)
    assert away == {"name": "lyon", "up": False, "free": 0, "holds": 0}
    [peer] = broker.federation.peers.values()
    peer.publish(State(b"lyon", 5, {"echo": 3, "total": 2}), 1.0)
    assert topology.peers(broker, 1.0)[0]["free"] == 5


def test_a_peer_that_hangs_is_not_reached_though_its_link_is_there() -> None:
    ends = {b"lyon": ("tcp://127.0.0.1:1", "tcp://127.0.0.1:2")}
    broker = Broker(b"paris", RecordingPort(), peers=ends)
    [peer] = broker.federation.peers.values()
    peer.link = RecordingLink("cloudbe")
    now = SystemClock.monotonic()
    for heard, up in ((now, True), (now - broker.policy.expiry - 1.0, False)):
        peer.publish(State(b"lyon", 5, {"echo": 5}), heard)
        assert topology.peers(broker, now)[0]["up"] == up
        registry = Registry()
        watch_role(registry, broker)
        child = registry.read()[PEER_UP][("lyon",)]
        assert isinstance(child, Gauge)
        assert child.value == up


def test_those_behind_are_drawn_the_furthest_first() -> None:
    desk = Desk()
    for number in range(2 * topology.MAX_SLOW):
        session = Session(client_id(number), True, "spill", desk.connector.store)
        desk.connector.sessions[session.client] = session
        if number:
            session.owe(Shared(message_id(number), b"x" * number, b"{}"))
    drawn = topology.slow(desk.connector)
    assert len(drawn) == topology.MAX_SLOW
    assert drawn[0]["client"] == client_id(2 * topology.MAX_SLOW - 1).hex()
    assert drawn[0]["bytes"] > drawn[-1]["bytes"] > 0
    assert (drawn[0]["here"], drawn[0]["owed"], drawn[0]["policy"]) == (False, 1, "spill")


def test_nobody_behind_is_an_empty_table() -> None:
    desk = Desk()
    session = Session(client_id(1), False, "drop-oldest", desk.connector.store)
    desk.connector.sessions[session.client] = session
    assert topology.slow(desk.connector) == []
