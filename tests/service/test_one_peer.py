"""A broker with one peer: its short ways do what the choice among several would."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from homing.service.policy import BrokerPolicy, ServicePolicy
from homing.testing import RecordingLink
from homing.wire import mdp, mdp_peers
from homing.wire.frames import pack
from homing.wire.mdp_messages import Kind, PeerAnswer, PeerNak, State
from tests.service.stage import Stage

SERVICES = (b"echo", b"other")
ACTIONS = (
    "ask",
    "ask",
    "ask",
    "far",
    "far",
    "far",
    "bounce",
    "publish",
    "any",
    "cut",
    "leave",
    "wait",
)


class Pair(Stage):
    """A broker and its only peer, `n`, whose side the test plays; `short`: as a broker has it."""

    def __init__(self, short: bool) -> None:
        policy = BrokerPolicy(default=ServicePolicy(timeout=3.0, max_attempts=3))
        peers: Any = {b"n": ("tcp://n:1", "tcp://n:2")}
        super().__init__(policy, peers=peers)
        if not short:
            self.broker.federation.only = None
        self.clients = [self.client(b"alice"), self.client(b"bob")]
        self.feed = self.link("statefe/n")
        self.cloud = self.link("cloudbe/n", b"n")
        self.under_way: list[bytes] = []
        self.told: list[tuple[str, list[bytes]]] = []

    def step(self, action: str, size: int) -> None:
        """What cannot be done now is left out; whatever the broker sends is noted."""
        client, service = self.clients[size % 2], SERVICES[size % 3 == 0]
        if action == "ask" and client.state is not None:
            self.ask(client, service, b"x" * size)
        elif action == "publish":
            self.publish({"echo": size % 4, "other": size % 2})
        elif action == "any":
            self.publish({"*": size % 4})
        elif action == "cut":
            self.broker.closed(self.cloud, self.now)
            self.note("cut", self.cloud)
            self.under_way.clear()
            self.cloud = self.link("cloudbe/n", b"n")
        elif action == "leave" and size == 0:
            self.broker.closed(client, self.now)
        elif action == "wait":
            self.pass_time(size / 100)
        elif action in ("far", "bounce") and self.under_way:
            self.from_afar(action, size)
        self.now += 0.001
        self.note(action, self.cloud, *self.clients)

    def publish(self, services: dict[str, int]) -> None:
        state = State(b"n", sum(services.values()), services)
        self.broker.receive(self.feed, mdp_peers.write(state), self.now)

    def from_afar(self, action: str, size: int) -> None:
        """Up to three answers in one chunk, or a bounce."""
        images: list[bytes] = []
        for image in self.under_way[: 1 + size % 3]:
            repost = mdp_peers.read_at_cloudfe(image)
            data = pack([b"y" * size])
            answer = PeerAnswer(Kind.FINAL, repost.address, repost.service, data)
            bounce = PeerNak(repost.address, repost.service, b"queue-full")
            images.append(mdp_peers.write(answer if action == "far" else bounce))
        del self.under_way[: len(images)]
        self.broker.receive_all(self.cloud, images, self.now)

    def note(self, action: str, *links: RecordingLink) -> None:
        for link in links:
            sent = link.take()
            if link is self.cloud:
                self.under_way += sent
            self.told.append((action, sent))


@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 20)), max_size=80))
@example([("publish", 1), *[("ask", 1)] * 4, ("far", 0), ("far", 0), ("far", 0)])
@example([("any", 2), *[("ask", 3), ("ask", 1)] * 3, ("far", 2), ("bounce", 0), ("far", 2)])
@example([("publish", 1), *[("ask", 2)] * 3, ("ask", 1), ("leave", 0), ("far", 0), ("far", 0)])
def test_one_for_one_is_what_a_choice_would_be(steps: list[tuple[str, int]]) -> None:
    short, choosing = Pair(True), Pair(False)
    for action, size in steps:
        short.step(action, size)
        choosing.step(action, size)
    assert short.told == choosing.told
    mine, theirs = (pair.broker.federation.peers[b"n"] for pair in (short, choosing))
    assert mine.capacity == theirs.capacity
    assert short.port.events == choosing.port.events
    assert short.broker.record.reposts == choosing.broker.record.reposts


def test_reposts_of_one_chunk_are_read_one_by_one() -> None:
    stage = Stage()
    worker, origin = stage.worker(b"echo", credit=9), stage.link("cloudfe", b"n")
    good = mdp_peers.repost_head(b"echo", b"n") + mdp.address_head(b"alice") + pack([b"1"])
    forged = mdp_peers.repost_head(b"echo", b"m") + mdp.address_head(b"alice") + pack([b"2"])
    long = mdp_peers.repost_head(b"echo", b"n") + mdp.address_head(b"a" * 300) + pack([b"3"])
    stage.broker.receive_all(origin, [good, forged, long, good], stage.now)
    bodies = [frames[-1] for frames in worker.take_frames()]
    assert bodies == [b"1", b"3", b"1"]
    assert stage.broker.record.malformed == 1


def test_an_answer_to_a_repost_must_be_one() -> None:
    """REPORT_LOCAL does not answer a repost, nor REPORT_CLOUD a client of ours."""
    stage = Stage()
    worker, origin, client = (
        stage.worker(b"echo", credit=2),
        stage.link("cloudfe", b"n"),
        stage.client(),
    )
    repost = mdp_peers.repost_head(b"echo", b"n") + mdp.address_head(b"alice") + pack([b"1"])
    stage.broker.receive(origin, repost, stage.now)
    stage.ask(client)
    far, near = worker.take_frames()
    tail = mdp.cloud_tail(b"n", b"echo") + pack([b"done"])
    address = mdp.address_head(far[5])[:-2]
    stage.broker.receive(worker, mdp.REPORT_LOCAL + address + tail, stage.now)
    assert not origin.take()
    told = mdp.address_head(near[4])[:-2] + tail
    stage.broker.receive(worker, mdp.REPORT_CLOUD + told, stage.now)
    assert not client.take()
    stage.broker.receive(worker, mdp.REPORT_CLOUD + address + tail, stage.now)
    assert origin.take_frames() == [[b"alice", b"", b"MDPW0X", b"\x08", b"echo", b"done"]]
