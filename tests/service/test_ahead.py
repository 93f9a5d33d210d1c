"""Reposts sent ahead: more than a quick peer has places for, so that its workers never wait for us."""

from __future__ import annotations

from homing.service.dispatch import BEGUN
from homing.service.federation import LINE_OF_REPOSTS
from homing.service.handing import LINE, QUICK
from homing.service.policy import BrokerPolicy, ServicePolicy
from homing.testing import RecordingLink
from homing.wire import mdp_peers
from homing.wire.frames import pack
from homing.wire.mdp_messages import Kind, PeerAnswer, PeerNak, Repost
from tests.service.test_federation import Mesh

MANY = 2 + 4 * LINE_OF_REPOSTS + LINE  # so that a line is left when the peer has all it may have


class Near(Mesh):
    """A broker whose clients have asked for far more than its peer has places for."""

    def __init__(self, places: int = 2, policy: BrokerPolicy | None = None) -> None:
        super().__init__(policy)
        self.publish(b"n", echo=places)
        self.asker = self.client(b"alice")
        for _ in range(MANY):
            self.ask(self.asker)
        self.under_way = self.reposted(b"n")

    def answer_one(self, after: float) -> int:
        """The peer answers its oldest; how many it is sent for it."""
        self.now += after
        repost = self.under_way.pop(0)
        data = pack([b"done"])
        self.tell(self.cloud[b"n"], PeerAnswer(Kind.FINAL, repost.address, b"echo", data))
        sent = self.reposted(b"n")
        self.under_way += sent
        return len(sent)

    @property
    def ahead(self) -> int:
        return self.broker.federation.peers[b"n"].ahead


def test_a_quick_peer_is_sent_as_many_more_as_its_line_takes_while_a_line_waits_here() -> None:
    near = Near(places=2)
    assert len(near.under_way) == 2
    for _ in range(2 * LINE_OF_REPOSTS):
        assert near.answer_one(0.001) == 2
    assert (len(near.under_way), near.ahead) == (2 + 2 * LINE_OF_REPOSTS, 2 * LINE_OF_REPOSTS)
    assert near.answer_one(0.001) == 1


def test_all_are_answered_and_the_places_are_as_they_were() -> None:
    near = Near(places=2)
    while near.under_way:
        near.answer_one(0.001)
    assert len(near.asker.sent) == MANY
    assert near.ahead == 0
    assert near.broker.federation.peers[b"n"].capacity[b"echo"] == 2
    assert near.broker.core.live == 0


def test_refusals_of_the_peer_s_workers_free_their_places_too() -> None:
    near = Near(places=2)
    while near.under_way:
        near.answer_one(0.001)
        if near.under_way:
            failed = near.under_way.pop(0)
            near.tell(near.cloud[b"n"], PeerNak(failed.address, b"echo", b"failed no luck"))
            near.under_way += near.reposted(b"n")
    assert len(near.asker.sent) == MANY
    assert near.ahead == 0
    assert near.broker.federation.peers[b"n"].capacity[b"echo"] == 2


def test_a_bounce_of_what_has_timed_out_is_none_ahead_any_more() -> None:
    near = Near(places=2)
    near.answer_one(0.001)
    assert near.ahead == 1
    near.now += 100.0
    near.publish(b"n", echo=0)  # it is there, and slow
    near.broker.wake("tick", near.now)
    assert near.broker.core.live == 0
    for late in near.under_way:
        near.tell(near.cloud[b"n"], PeerNak(late.address, b"echo", b"queue-full no idle worker"))
    assert near.ahead == 0


def test_a_slow_peer_is_sent_what_it_has_places_for() -> None:
    near = Near(places=2)
    for _ in range(8):
        assert near.answer_one(QUICK) == 1
    assert near.ahead == 0


def test_what_is_ahead_at_a_peer_that_has_become_slow_is_not_replaced() -> None:
    near = Near(places=2)
    for _ in range(4):
        near.answer_one(0.001)
    assert near.ahead == 4
    near.now += QUICK
    assert [near.answer_one(0.0) for _ in range(6)] == [0, 0, 0, 0, 1, 1]
    assert (len(near.under_way), near.ahead) == (2, 0)


def test_a_short_line_waits_at_home() -> None:
    near = Near(places=2)
    while near.broker.core.services[b"echo"].waiting >= LINE:
        near.answer_one(QUICK)
    assert near.answer_one(0.001) == 1
    assert near.ahead == 0


def test_what_runs_once_at_most_is_not_sent_ahead() -> None:
    near = Near(policy=BrokerPolicy(services={b"echo": ServicePolicy(at_most_once=True)}))
    assert near.answer_one(0.001) == 1


def test_a_peer_that_bounces_is_left_in_peace_for_a_while() -> None:
    near = Near(places=2)
    near.answer_one(0.001)
    bounced = near.under_way.pop()
    near.tell(near.cloud[b"n"], PeerNak(bounced.address, b"echo", b"queue-full no idle worker"))
    assert near.reposted(b"n") == []
    assert near.ahead == 0
    assert near.answer_one(0.001) == 1
    near.now += 1.0
    assert [near.answer_one(0.001) for _ in range(3)][-1] == 2


def test_a_refusal_that_comes_too_late_counts_too() -> None:
    near = Near(policy=BrokerPolicy(default=ServicePolicy(timeout=1.0)))
    near.answer_one(0.001)
    near.pass_time(1.5)  # all have timed out at home
    assert near.ahead == 1
    for late in near.under_way:
        near.tell(near.cloud[b"n"], PeerNak(late.address, b"echo", b"timeout after 1 s"))
    assert near.ahead == 0


def test_a_lost_peer_holds_nothing_ahead() -> None:
    near = Near(places=2)
    near.answer_one(0.001)
    near.broker.closed(near.cloud[b"n"], near.now)
    assert near.ahead == 0


# -- the other side -------------------------------------------------------------------------


class Far(Mesh):
    """A broker with busy workers, to which peer `n` reposts."""

    def __init__(self, workers: int = 2) -> None:
        super().__init__()
        self.workers = [self.worker(b"echo") for _ in range(workers)]
        self.origin = self.link("cloudfe", b"n")
        self.serial = 1000

    def repost(self, count: int = 1) -> None:
        for _ in range(count):
            self.serial += 1
            address = b"%d" % self.serial
            self.tell(self.origin, Repost(b"echo", b"n", address, pack([b"x"])))

    def said(self) -> list[PeerAnswer | PeerNak]:
        return [mdp_peers.read_at_cloudbe(image) for image in self.origin.take()]

    def flowing(self) -> Far:
        """All workers busy, and one answer just given."""
        self.repost(len(self.workers))
        self.answer(self.workers[0], b"done")
        assert len(self.said()) == 1
        self.repost()
        return self


def reasons(said: list[PeerAnswer | PeerNak]) -> list[bytes]:
    return [nak.reason for nak in said if isinstance(nak, PeerNak)]


def test_reposts_that_flow_wait_a_little() -> None:
    far = Far().flowing()
    far.repost(2 * LINE_OF_REPOSTS)
    assert far.said() == []
    far.repost()
    assert reasons(far.said()) == [b"queue-full no idle worker"]
    for _ in range(LINE_OF_REPOSTS + 1):
        for worker in far.workers:
            far.answer(worker, b"done")
    assert len(far.said()) == 2 * LINE_OF_REPOSTS + 2
    assert far.broker.core.live == 0


def test_reposts_in_line_go_back_when_the_workers_take_long_after_all() -> None:
    far = Far(workers=2).flowing()
    far.repost(2)
    assert far.said() == []
    far.pass_time(1.0)
    assert reasons(far.said()) == [b"queue-full no idle worker"] * 2
    for worker in far.workers:  # who has been handed one keeps it
        far.send(worker, b"", b"MDPW0X", b"\x04")
        far.answer(worker, b"done")
    assert len(far.said()) == 2
    assert far.broker.core.live == 0


def test_reposts_that_do_not_flow_go_back() -> None:
    far = Far().flowing()
    far.now += 0.2
    far.repost()
    assert reasons(far.said()) == [b"queue-full no idle worker"]


def test_clients_here_come_before_a_peer_s_line() -> None:
    far = Far().flowing()
    alice = far.client(b"alice")
    for _ in range(2 * LINE_OF_REPOSTS):
        far.ask(alice)
    far.repost()
    assert reasons(far.said()) == [b"queue-full no idle worker"]


def test_the_line_goes_home_with_the_last_worker() -> None:
    far = Far().flowing()
    far.repost(3)
    leave(far, far.workers[0])
    assert reasons(far.said()) == [BEGUN], "what it held; a worker is left"
    leave(far, far.workers[1])
    assert sorted(reasons(far.said())) == [b"no-service"] * 3 + [BEGUN]
    assert far.broker.core.live == 0
    assert far.broker.core.waiting_bytes == 0


def leave(far: Far, worker: RecordingLink) -> None:
    far.broker.closed(worker, far.now)


def test_a_repost_in_line_never_goes_on_to_another_peer() -> None:
    far = Mesh()
    worker, origin = far.worker(b"echo"), far.link("cloudfe", b"n")
    far.tell(origin, Repost(b"echo", b"n", b"one", pack([b"x"])))
    far.answer(worker, b"done")
    for address in (b"two", b"three", b"four"):
        far.tell(origin, Repost(b"echo", b"n", address, pack([b"x"])))
    ours = far.client(b"alice")
    far.ask(ours)
    far.publish(b"s", echo=8)
    assert [repost.address for repost in far.reposted(b"s")] == [b"alice"]
    far.ask(ours)
    assert [repost.address for repost in far.reposted(b"s")] == [b"alice~1"]
    far.tell(far.cloud[b"s"], PeerAnswer(Kind.FINAL, b"alice", b"echo", pack([b"done"])))
    assert far.reposted(b"s") == []
    for _ in range(3):
        far.answer(worker, b"done")
    answers = [mdp_peers.read_at_cloudbe(image) for image in origin.take()]
    assert [answer.address for answer in answers] == [b"one", b"two", b"three", b"four"]
    assert far.broker.core.services[b"echo"].waiting == 0
