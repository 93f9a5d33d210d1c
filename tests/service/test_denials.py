"""Who may not come in, call or serve: counted, and told in the log, once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from homing.metrics import Registry
from homing.node.instruments import watch_role
from homing.node.metrics import Exposition
from homing.service.access import Access
from homing.service.denials import MAX_TOLD, Denials
from homing.service.policy import BrokerPolicy
from homing.testing import RecordingLink
from homing.wire import mdp_peers, tasks
from homing.wire.mdp_messages import State
from tests.service.stage import D0X, D01, D02, Stage
from tests.service.test_tasks import tell

ACCESS = Access({"ann": ["echo"]}, {"wes": ["echo"]}, {"lyon": "lyon"})


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """What was logged: the reason, and about which name."""
    return [
        (
            record.getMessage().split(": ")[1],
            getattr(record, "service", getattr(record, "peer", "")),
        )
        for record in caplog.records
    ]


def test_a_worker_that_may_not_serve(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(access=ACCESS)
    for dialect in (D0X, D01, D02):
        stage.worker(b"other", dialect, user="wes")
    tell(stage, stage.link("taskbe", user="wes"), tasks.Connect("other"))
    stage.worker(b"", user="wes")
    may_not = "its user may not serve this"
    assert told(caplog) == [(may_not, "other"), (may_not, "*")]
    assert {record.__dict__["user"] for record in caplog.records} == {"wes"}
    assert stage.broker.denials.workers == {b"denied": 5}
    stage.worker(b"echo", user="wes")
    assert len(stage.broker.core.roster) == 1
    registry = Registry()
    watch_role(registry, stage.broker)
    page, _ = Exposition(registry).render()
    assert b'homing_service_workers_refused_total{code="denied"} 5' in page


def test_a_worker_that_nobody_could_take_on(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(BrokerPolicy(max_workers=1, max_services=1))
    stage.worker(b"mmi.mine")
    stage.worker(b"first")
    stage.worker(b"second")
    stage.broker.drain(stage.now)
    stage.worker(b"third")
    assert [name for _, name in told(caplog)] == ["mmi.mine", "second"], "draining is no mistake"
    refused = {b"malformed": 1, b"queue-full": 1, b"shutting-down": 1}
    assert stage.broker.denials.workers == refused


def test_requests(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(access=ACCESS)
    for service in (b"secrets", b"secrets", b"echo"):
        stage.ask(stage.client(user="ann"), service)
    assert told(caplog) == [("its user may not call this", "secrets")]
    assert stage.broker.record.refusals == {b"denied": 2}


def test_doors_for_peers(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(access=ACCESS)
    allowed = [stage.link("cloudfe", b"lyon", "lyon"), stage.link("statebe", user="lyon")]
    denied = [stage.link("cloudfe", b"lyon", "ann"), stage.link("statebe", user="ann")]
    assert [link.reason for link in allowed] == [None, None]
    assert [link.reason for link in denied] == ["denied", "denied"]
    assert [why for why, _ in told(caplog)] == [
        "its user is no such broker",
        "its user may not hear of capacity",
    ]


def test_a_peer_with_another_name_than_the_settings_say(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(peers={b"lyon": ("tcp://127.0.0.1:1", "tcp://127.0.0.1:2")})
    for found in (
        b"nice",
        b"nice",
        b"\x00abcd",
        b"\x00abce",
    ):  # another broker, and a port that is no cloudfe
        link = RecordingLink("cloudbe/lyon", found, "")
        stage.broker.opened(link, stage.now)
        assert link.reason == "not the peer that was configured"
    assert [(r.__dict__["peer"], r.__dict__["found"]) for r in caplog.records] == [
        ("lyon", "nice"),
        ("lyon", ""),
    ]


def test_a_statebe_that_is_another_broker_s(caplog: pytest.LogCaptureFixture) -> None:
    """Its cloudfe is right and its statebe is not: a peer that is reached and never heard of."""
    names = (b"lyon", b"nice")
    stage = Stage(peers=dict.fromkeys(names, ("tcp://127.0.0.1:1", "tcp://127.0.0.1:2")))
    stage.link("cloudbe/lyon", b"lyon")
    feed = stage.link("statefe/lyon")
    for found in (b"nice", b"nice", b"oslo"):  # another peer of ours, a broker that is none
        stage.broker.receive(feed, mdp_peers.write(State(found, 1, {"echo": 1})), stage.now)
    assert [(r.__dict__["peer"], r.__dict__["found"]) for r in caplog.records] == [
        ("lyon", "nice"),
        ("lyon", "oslo"),
    ]
    peers = asked(stage, b"mmi.peers")
    assert [(peers[name]["idle"], peers[name]["mistaken"]) for name in ("lyon", "nice")] == [
        (0, "oslo"),
        (0, ""),
    ]
    stage.broker.receive(feed, mdp_peers.write(State(b"lyon", 1, {"echo": 1})), stage.now)
    assert asked(stage, b"mmi.peers")["lyon"]["mistaken"] == ""


def asked(stage: Stage, name: bytes) -> Any:
    client = stage.client()
    stage.ask(client, name)
    return json.loads(client.take_frames()[-1][-1])


def test_who_may_ask_what_is_served_may_hear_of_it() -> None:
    access = Access({"eve": ["mmi.*"], "all": ["*"], "ann": ["echo"]}, {}, {"lyon": "lyon"})
    users = ("eve", "all", "lyon", "ann", "nobody")
    assert [access.may_watch(user) for user in users] == [True, True, True, False, False]
    assert Access().may_watch("")


def test_what_was_told_is_forgotten_before_it_is_too_much(caplog: pytest.LogCaptureFixture) -> None:
    denials = Denials()
    for number in range(MAX_TOLD + 1):
        denials.request("ann", b"%d" % number)
    denials.request("ann", b"%d" % MAX_TOLD)
    assert len(caplog.records) == MAX_TOLD + 1
    denials.request("ann", b"0")
    assert len(caplog.records) == MAX_TOLD + 2


def test_other_lists_send_away_who_may_no_longer_serve() -> None:
    stage = Stage(access=ACCESS)
    worker, client = stage.worker(b"echo", user="wes"), stage.client(user="ann")
    stage.ask(client)
    worker.take()
    fresh = Access({"ann": ["echo", "other"]}, {"bob": ["echo"]}, {})
    stage.broker.allow(fresh, stage.now)
    assert worker.take_frames() == [[b"", b"MDPW0X", b"\x05"]]
    successor = stage.worker(b"echo", user="bob")
    stage.answer(successor, b"done")
    assert client.take_frames()[-1][-1] == b"done"
    assert not stage.broker.may_stay(stage.link("cloudfe", b"lyon", "lyon"))


def test_a_peer_with_more_services_than_we_know_stays_a_peer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It was taken for gone, without a word."""
    where = {b"lyon": ("tcp://127.0.0.1:1", "tcp://127.0.0.1:2")}
    stage = Stage(BrokerPolicy(max_services=2), peers=where)
    feed = stage.link("statefe/lyon")
    for idle in (1, 2):
        state = State(b"lyon", 3 * idle, dict.fromkeys(("a", "b", "c"), idle))
        stage.broker.receive(feed, mdp_peers.write(state), stage.now)
    peer = stage.broker.federation.peers[b"lyon"]
    assert (peer.heard, peer.capacity) == (stage.now, {b"a": 2, b"b": 2})
    assert [record.__dict__["peer"] for record in caplog.records] == ["lyon"]
