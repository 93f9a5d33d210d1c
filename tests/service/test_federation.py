"""Federation: local first, then the peer with most room; bounces, silence, and the way back."""

from __future__ import annotations

from typing import Any

import pytest

from homing.errors import ConfigError
from homing.node.broker import parse_peers
from homing.service.dispatch import BEGUN
from homing.service.federation import Federation
from homing.service.policy import BrokerPolicy, ServicePolicy
from homing.testing import RecordingLink, fabric
from homing.wire import mdp, mdp_peers
from homing.wire.frames import pack
from homing.wire.mdp_messages import (
    Kind,
    Message,
    Nak,
    PeerAnswer,
    PeerNak,
    Report,
    Repost,
    State,
    Work,
)
from tests.service.stage import D0X, D02, Stage

PEERS = {name: (f"tcp://{name.decode()}:1", f"tcp://{name.decode()}:2") for name in (b"n", b"s")}


class Mesh(Stage):
    """A broker with two peers, `n` and `s`, whose side the test plays."""

    def __init__(self, policy: BrokerPolicy | None = None, **options: Any) -> None:
        super().__init__(policy, peers=PEERS, **options)
        self.cloud = {name: self.link(f"cloudbe/{name.decode()}", name) for name in PEERS}
        self.feeds = {name: self.link(f"statefe/{name.decode()}") for name in PEERS}

    def publish(self, peer: bytes, **services: int) -> None:
        state = State(peer, sum(services.values()), services)
        self.broker.receive(self.feeds[peer], mdp_peers.write(state), self.now)

    def tell(self, link: RecordingLink, message: Message) -> None:
        self.broker.receive(link, mdp_peers.write(message), self.now)

    def reposted(self, peer: bytes) -> list[Repost]:
        return [mdp_peers.read_at_cloudfe(image) for image in self.cloud[peer].take()]


def test_asks_for_its_links() -> None:
    mesh = Mesh()
    assert ("cloudbe/n", "tcp://n:1") in mesh.port.connected
    assert ("statefe/n", "tcp://n:2") in mesh.port.connected


def test_repost_and_answer_byte_for_byte() -> None:
    mesh = Mesh()
    mesh.publish(b"n", echo=1)
    client = mesh.client(b"alice")
    mesh.ask(client)
    assert mesh.cloud[b"n"].take_frames() == [
        [b"MDPC0X", b"\x04", b"echo", b"here", b"alice", b"", b"hello"]
    ]
    mesh.send(mesh.cloud[b"n"], b"alice", b"", b"MDPW0X", b"\x08", b"echo", b"hi")
    assert client.take_frames() == [[b"", b"MDPC0X", b"\x02", b"echo", b"hi"]]
    assert mesh.broker.core.live == 0


def test_serves_a_repost_byte_for_byte() -> None:
    mesh = Mesh()
    worker, origin = mesh.worker(b"echo"), mesh.link("cloudfe", b"n")
    mesh.send(origin, b"MDPC0X", b"\x04", b"echo", b"n", b"alice", b"", b"hello")
    assert worker.take_frames() == [
        [b"", b"MDPW0X", b"\x06", b"echo", b"n", b"alice", b"", b"hello"]
    ]
    mesh.send(worker, b"", b"MDPW0X", b"\x08", b"alice", b"", b"n", b"echo", b"hi")
    assert origin.take_frames() == [[b"alice", b"", b"MDPW0X", b"\x08", b"echo", b"hi"]]


def test_a_repost_is_served_by_any_dialect_and_parts_travel() -> None:
    mesh = Mesh()
    worker, origin = mesh.worker(b"echo", D02), mesh.link("cloudfe", b"n")
    mesh.tell(origin, Repost(b"echo", b"n", b"alice", pack([b"x"])))
    mesh.answer(worker, b"part", D02, Kind.PARTIAL)
    mesh.answer(worker, b"end", D02)
    answers = [mdp_peers.read_at_cloudbe(image) for image in origin.take()]
    assert [answer.kind for answer in answers if isinstance(answer, PeerAnswer)] == [
        Kind.PARTIAL,
        Kind.FINAL,
    ]


def test_local_workers_come_first() -> None:
    mesh = Mesh()
    mesh.publish(b"n", echo=100)
    worker, client = mesh.worker(b"echo"), mesh.client()
    mesh.ask(client)
    mesh.ask(client)
    assert (len(worker.sent), len(mesh.reposted(b"n"))) == (1, 1)


def test_an_answer_frees_its_place_without_another_publication() -> None:
    """A peer that is as idle as before publishes nothing new until its next heartbeat."""
    mesh = Mesh()
    mesh.publish(b"n", echo=1)
    client = mesh.client()
    for _ in range(3):
        mesh.ask(client)
    for _ in range(3):
        (repost,) = mesh.reposted(b"n")
        mesh.tell(mesh.cloud[b"n"], PeerAnswer(Kind.FINAL, repost.address, b"echo", pack([b"hi"])))
    assert len(client.take()) == 3
    assert mesh.reposted(b"n") == []


def test_the_peer_with_most_room_and_never_more_than_it_has() -> None:
    mesh = Mesh()
    mesh.publish(b"n", echo=1)
    mesh.publish(b"s", echo=3)
    client = mesh.client()
    for _ in range(6):
        mesh.ask(client)
    assert (len(mesh.reposted(b"n")), len(mesh.reposted(b"s"))) == (1, 3)
    mesh.publish(b"n", echo=1)
    assert len(mesh.reposted(b"n")) == 1, "new room is used for what waits"


def test_equal_peers_share() -> None:
    federation = Federation(b"here", PEERS)
    for name, peer in federation.peers.items():
        peer.link = RecordingLink("cloudbe", name)
        peer.publish(State(name, 1000, {"echo": 1000}), 0.0)
    taken = {b"n": 0, b"s": 0}
    for _ in range(1000):
        chosen = federation.choose(b"echo")
        assert chosen is not None
        taken[chosen.name] += 1
    assert min(taken.values()) > 300


def test_workers_for_any_service_count_as_room() -> None:
    mesh = Mesh()
    mesh.publish(b"n", **{"*": 1})
    client = mesh.client()
    mesh.ask(client)
    mesh.ask(client)
    assert len(mesh.reposted(b"n")) == 1


def test_bounce_goes_elsewhere_and_a_final_no_goes_to_the_client() -> None:
    mesh = Mesh()
    mesh.publish(b"n", echo=2)
    mesh.publish(b"s", echo=1)
    client = mesh.client(b"alice")
    mesh.ask(client)
    assert len(mesh.reposted(b"n")) == 1
    mesh.tell(mesh.cloud[b"n"], PeerNak(b"alice", b"echo", b"queue-full no idle worker"))
    assert len(mesh.reposted(b"s")) == 1
    assert client.sent == []
    mesh.tell(mesh.cloud[b"s"], PeerNak(b"alice", b"echo", b"worker-lost"))
    assert mdp.read_to_client(client.take()[0]) == Nak(b"echo", b"worker-lost")


def test_bounced_everywhere_waits_at_home() -> None:
    mesh = Mesh()
    mesh.publish(b"n", echo=5)
    client = mesh.client(b"alice")
    mesh.ask(client)
    mesh.tell(mesh.cloud[b"n"], PeerNak(b"alice", b"echo", b"queue-full"))
    assert len(mesh.reposted(b"n")) == 1, "not offered again before it publishes again"
    worker = mesh.worker(b"echo")
    assert isinstance(mdp.read_to_worker(worker.sent[0]), Work)


def test_bounces_are_no_deaths() -> None:
    """However often peers had no room for it, a request outlives the first holder that dies with it."""
    mesh = Mesh(BrokerPolicy(default=ServicePolicy(max_attempts=3)))
    client = mesh.client(b"alice")
    mesh.ask(client)
    for _ in range(5):
        mesh.publish(b"n", echo=1)
        assert len(mesh.reposted(b"n")) == 1
        mesh.tell(mesh.cloud[b"n"], PeerNak(b"alice", b"echo", b"queue-full"))
    mesh.publish(b"n", echo=1)
    mesh.broker.closed(mesh.cloud[b"n"], mesh.now)
    assert client.sent == []
    worker = mesh.worker(b"echo")
    assert isinstance(mdp.read_to_worker(worker.sent[0]), Work)


def test_a_request_that_kills_a_peer_s_workers_is_given_up() -> None:
    mesh = Mesh()
    client = mesh.client()
    mesh.ask(client)
    tries = 0
    for _ in range(50):
        mesh.publish(b"n", echo=1)
        for repost in mesh.reposted(b"n"):
            tries += 1
            mesh.tell(mesh.cloud[b"n"], PeerNak(repost.address, b"echo", BEGUN))
    assert tries == ServicePolicy().max_attempts
    nak = mdp.read_to_client(client.take()[0])
    assert isinstance(nak, Nak)
    assert nak.reason == b"worker-lost after 10 attempts"


def test_what_runs_once_at_most_does_not_run_again_after_a_peer_s_worker_died() -> None:
    """Where the peer has not been told that it may run once only: whose client it is knows."""
    mesh = Mesh(BrokerPolicy(services={b"echo": ServicePolicy(at_most_once=True)}))
    mesh.publish(b"n", echo=1)
    mesh.publish(b"s", echo=1)
    client = mesh.client()
    mesh.ask(client)
    reposts = [(peer, repost) for peer in (b"n", b"s") for repost in mesh.reposted(peer)]
    ((peer, repost),) = reposts
    mesh.tell(mesh.cloud[peer], PeerNak(repost.address, b"echo", BEGUN))
    assert mesh.reposted(b"n") == mesh.reposted(b"s") == []
    nak = mdp.read_to_client(client.take()[0])
    assert isinstance(nak, Nak)
    assert nak.reason == b"worker-lost after 1 attempts"


@pytest.mark.parametrize(
    ("once", "reason"), [(False, BEGUN), (True, b"worker-lost after 1 attempts")]
)
@pytest.mark.parametrize("end", ["died", "drained"])
def test_a_repost_that_had_begun_goes_back_as_such(end: str, once: bool, reason: bytes) -> None:
    """`shutting-down` or `queue-full` would have it run elsewhere, though it may have been done."""
    mesh = Mesh(BrokerPolicy(services={b"echo": ServicePolicy(at_most_once=once)}))
    worker, origin = mesh.worker(b"echo"), mesh.link("cloudfe", b"n")
    mesh.tell(origin, Repost(b"echo", b"n", b"alice", pack([b"x"])))
    if end == "died":
        mesh.broker.closed(worker, mesh.now)
    else:
        mesh.broker.drain(mesh.now)
        mesh.broker.wake("stop", mesh.now)
    assert [mdp_peers.read_at_cloudbe(image) for image in origin.take()] == [
        PeerNak(b"alice", b"echo", reason)
    ]


def test_a_repost_is_never_reposted_nor_queued() -> None:
    mesh = Mesh()
    mesh.publish(b"s", echo=5)
    origin = mesh.link("cloudfe", b"n")
    mesh.tell(origin, Repost(b"echo", b"n", b"alice", pack([b"x"])))
    assert mdp_peers.read_at_cloudbe(origin.take()[0]) == PeerNak(b"alice", b"echo", b"no-service")
    assert mesh.reposted(b"s") == []
    mesh.worker(b"echo")
    for address in (b"alice", b"bob"):
        mesh.tell(origin, Repost(b"echo", b"n", address, pack([b"x"])))
    (nak,) = (mdp_peers.read_at_cloudbe(image) for image in origin.take())
    assert isinstance(nak, PeerNak)
    assert nak.reason.startswith(b"queue-full")


def test_a_repost_in_another_broker_s_name_is_dropped() -> None:
    mesh = Mesh()
    worker, origin = mesh.worker(b"echo"), mesh.link("cloudfe", b"n")
    mesh.tell(origin, Repost(b"echo", b"someone", b"alice", pack([b"x"])))
    assert worker.sent == []
    assert mesh.broker.record.malformed == 1


def test_lost_peer_gives_back_and_at_most_once_does_not_run_again() -> None:
    once = {b"once": ServicePolicy(at_most_once=True)}
    mesh = Mesh(BrokerPolicy(services=once))
    mesh.publish(b"n", echo=1, once=1)
    client = mesh.client(b"alice")
    mesh.ask(client)
    mesh.ask(client, b"once")
    mesh.broker.closed(mesh.cloud[b"n"], mesh.now)
    nak = mdp.read_to_client(client.take()[0])
    assert isinstance(nak, Nak)
    assert nak.service == b"once"
    assert nak.reason.startswith(b"worker-lost")
    worker = mesh.worker(b"echo")
    assert len(worker.sent) == 1
    late = PeerAnswer(Kind.FINAL, b"alice", b"echo", pack([b"late"]))
    again = mesh.link("cloudbe/n", b"n")
    mesh.tell(again, late)
    assert client.sent == []


def test_a_stalled_peer_stalls_nobody() -> None:
    mesh = Mesh()
    mesh.publish(b"n", echo=1)
    client = mesh.client()
    mesh.ask(client)
    assert len(mesh.reposted(b"n")) == 1
    mesh.pass_time(5.0)
    mesh.publish(b"s", echo=1)
    assert mesh.reposted(b"s") == []
    mesh.pass_time(3.0)
    assert len(mesh.reposted(b"s")) == 1, "silent for three heartbeats: given to another"


def test_state_is_published_on_change_and_on_every_heartbeat() -> None:
    mesh = Mesh()
    watcher = mesh.link("statebe")
    mesh.pass_time(0.1, 0.01)
    assert [mdp_peers.read_state(i) for i in watcher.take()] == [State(b"here", 0, {})]
    mesh.worker(b"echo", credit=2)
    mesh.worker(b"")
    mesh.pass_time(0.1, 0.01)
    assert [mdp_peers.read_state(i) for i in watcher.take()] == [
        State(b"here", 3, {"echo": 2, "*": 1})
    ]
    mesh.pass_time(2.0, 0.01)
    assert watcher.sent == []
    mesh.pass_time(0.6, 0.01)
    assert len(watcher.take()) == 1
    mesh.broker.drain(mesh.now)
    mesh.pass_time(0.1, 0.01)
    assert mdp_peers.read_state(watcher.take()[0]) == State(b"here", 0, {})


def test_a_state_of_no_peer_of_ours_is_not_heard() -> None:
    mesh = Mesh()
    for name in (b"mallory", b"s"):
        state = State(name, 5, {"echo": 5})
        mesh.broker.receive(mesh.feeds[b"n"], mdp_peers.write(state), mesh.now)
    mesh.broker.receive(mesh.feeds[b"n"], b"\x00\x01x", mesh.now)
    mesh.ask(mesh.client())
    assert mesh.reposted(b"n") == []
    assert mesh.reposted(b"s") == []


def test_a_broker_under_another_name_than_configured_is_hung_up_on() -> None:
    mesh = Mesh()
    assert mesh.link("cloudbe/n", b"s").reason is not None


def test_two_requests_of_one_client_are_told_apart_at_a_peer() -> None:
    mesh = Mesh()
    mesh.publish(b"n", echo=2)
    client = mesh.client(b"alice")
    mesh.ask(client, body=b"1")
    mesh.ask(client, body=b"2")
    first, second = mesh.reposted(b"n")
    assert first.address == b"alice"
    assert second.address != first.address
    mesh.tell(mesh.cloud[b"n"], PeerAnswer(Kind.FINAL, second.address, b"echo", pack([b"two"])))
    assert mdp.read_to_client(client.take()[0]) == Report(D0X, Kind.FINAL, b"echo", pack([b"two"]))


def test_a_peer_that_takes_and_never_answers_is_not_kept_account_of_for_ever() -> None:
    mesh = Mesh(BrokerPolicy(default=ServicePolicy(timeout=5.0)))
    client, peer = mesh.client(b"alice"), mesh.broker.federation.peers[b"n"]
    for _ in range(20):
        mesh.publish(b"n", echo=10)
        mesh.ask(client)
        mesh.pass_time(2.0)
    [late, *_] = mesh.reposted(b"n")
    assert 10 < len(peer.held) <= 20, "late answers are told by what is kept"
    client.take()
    mesh.tell(mesh.cloud[b"n"], PeerAnswer(Kind.FINAL, late.address, b"echo", pack([b"late"])))
    for _ in range(40):
        mesh.publish(b"n", echo=10)
        mesh.pass_time(2.0)
    assert not any(b"late" in image for image in client.sent)
    assert peer.held == {}


def test_who_is_no_peer() -> None:
    with pytest.raises(ConfigError, match="a peer of that name already"):
        parse_peers(("lyon=tcp://127.0.0.1:1", "lyon=tcp://127.0.0.1:2"))
    with (
        pytest.raises(ConfigError, match="no peer of its own"),
        fabric('service.peers=["fabric=tcp://127.0.0.1:1"]'),
    ):
        pass
