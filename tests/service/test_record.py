"""What a broker writes down, and what it does while nothing can be written."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from homing.journal.events import (
    Event,
    NodeStopped,
    RequestAccepted,
    RequestAnswered,
    RequestRefused,
    RequestReposted,
    RequestRequeued,
)
from homing.service.dispatch import MAX_FRESH
from homing.service.peers import capacity_of
from homing.service.policy import BrokerPolicy, ServicePolicy
from homing.wire import mdp, mdp_peers
from homing.wire.frames import pack
from homing.wire.mdp_messages import Kind, Nak, PeerAnswer, PeerNak, Report, Work
from tests.service.stage import D0X, Stage
from tests.service.test_federation import Mesh


def test_the_journal_tells_the_story() -> None:
    stage = Stage()
    worker, client = stage.worker(b"echo"), stage.client()
    stage.ask(client)
    stage.answer(worker, b"")
    stage.pass_time(0.2)
    kinds = [type(event) for event in stage.port.events]
    assert kinds.index(RequestAccepted) < kinds.index(RequestAnswered)
    assert RequestRefused not in kinds


def test_what_was_answered_at_last_is_written_before_the_end() -> None:
    stage = Stage()
    worker, client = stage.worker(b"echo"), stage.client()
    stage.ask(client)
    stage.answer(worker, b"")
    stage.broker.stop(stage.now)
    stage.pass_time(0.2)
    kinds = [type(event) for event in stage.port.events]
    assert kinds.count(RequestAccepted) == kinds.count(RequestAnswered) == 1
    assert kinds[-1] is NodeStopped


def test_many_new_requests_bring_the_tick_forward() -> None:
    stage = Stage()
    worker, client = stage.worker(b"echo", credit=2 * MAX_FRESH), stage.client()
    stage.ask(client)
    (request,) = worker.sent
    work = mdp.read_to_worker(request)
    assert isinstance(work, Work)
    image = mdp.request_head(D0X, b"echo") + pack([b"hello"])
    stage.broker.receive_all(client, [image] * (MAX_FRESH - 2), stage.now)
    assert not any(isinstance(event, RequestAccepted) for event in stage.port.events)
    stage.broker.receive_all(client, [image], stage.now)
    told = [event for event in stage.port.events if isinstance(event, RequestAccepted)]
    assert len(told) == MAX_FRESH


def test_a_full_disk_takes_no_new_request_and_keeps_no_answer_back() -> None:
    stage = Stage()
    worker, client = stage.worker(b"echo"), stage.client()
    stage.ask(client)
    stage.port.full = True
    stage.answer(worker, b"done")
    stage.pass_time(0.2)
    stage.ask(client)
    report, nak = (mdp.read_to_client(image) for image in client.take())
    assert isinstance(report, Report)
    assert isinstance(nak, Nak)
    assert nak.reason.startswith(b"queue-full")
    assert stage.broker.core.live == 0
    stage.port.full = False
    stage.ask(client)
    stage.answer(worker, b"again")
    assert isinstance(mdp.read_to_client(client.take()[0]), Report)


def test_a_full_disk_stops_nobody_where_the_policy_says_so() -> None:
    stage = Stage(BrokerPolicy(refuse_unjournaled=False))
    worker, client = stage.worker(b"echo"), stage.client()
    stage.port.full = True
    for _ in range(2):
        stage.ask(client)
        stage.answer(worker, b"")
        stage.pass_time(0.2)
    assert len([mdp.read_to_client(image) for image in client.take()]) == 2
    assert stage.broker.record.unwritten == 2


KINDS = {"answer": Kind.FINAL, "part": Kind.PARTIAL, "fail": Kind.FAILED}
ACTIONS = (
    "ask",
    "ask",
    *KINDS,
    "answer",
    "leave",
    "join",
    "far",
    "far",
    "bounce",
    "cut",
    "publish",
    "wait",
)


class Play:
    """A broker with a client, workers that come and go, and a peer; `prompt`: every acceptance
    is written before anything else happens, as if a tick came after each step."""

    def __init__(self, prompt: bool) -> None:
        policy = BrokerPolicy(default=ServicePolicy(timeout=3.0, max_attempts=3))
        self.mesh = Mesh(policy)
        self.prompt = prompt
        self.client = self.mesh.client(b"alice")
        self.workers = [self.mesh.worker(b"echo")]
        self.mesh.publish(b"n", echo=2)

    def step(self, action: str, size: int) -> None:
        """What cannot be done now is left out."""
        mesh, worker = self.mesh, self.workers[size % len(self.workers)]
        if action == "ask":
            mesh.ask(self.client, body=b"x" * size)
        elif action == "join":
            self.workers.append(mesh.worker(b"echo"))
        elif action == "leave":
            mesh.broker.closed(worker, mesh.now)
            worker.take()
        elif action == "publish":
            mesh.publish(b"n", echo=size % 3)
        elif action == "cut":
            mesh.broker.closed(mesh.cloud[b"n"], mesh.now)
            mesh.cloud[b"n"] = mesh.link("cloudbe/n", b"n")
        elif action in ("far", "bounce"):
            self.from_afar(action, size)
        elif action == "wait":
            mesh.pass_time(size / 100)
        elif any(isinstance(mdp.read_to_worker(image), Work) for image in worker.sent):
            mesh.answer(worker, b"y" * size, kind=KINDS[action])
        mesh.now += 0.001
        if self.prompt:
            mesh.broker.record.gather(mesh.broker.core.deadlines.fresh)

    def from_afar(self, action: str, size: int) -> None:
        cloud = self.mesh.cloud[b"n"]
        if cloud.sent:
            address = mdp_peers.read_at_cloudfe(cloud.sent.pop(0)).address
            answer = PeerAnswer(Kind.FINAL, address, b"echo", pack([b"y" * size]))
            bounce = PeerNak(address, b"echo", b"queue-full")
            self.mesh.tell(cloud, answer if action == "far" else bounce)

    def stories(self) -> list[list[Event]]:
        """The events of each request, with its number taken out, in order of acceptance."""
        self.mesh.pass_time(5.0)
        found: dict[int, list[Event]] = {}
        for number, event in enumerate(self.mesh.port.events, 1):
            if isinstance(event, RequestAccepted):
                found[number] = [event]
            elif isinstance(
                event, RequestReposted | RequestRequeued | RequestAnswered | RequestRefused
            ):
                found[event.request].append(event)
                event.request = 0
        return sorted(found.values(), key=lambda story: story[0].at)


@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 20)), max_size=60))
@example([("ask", 1), ("ask", 2), ("bounce", 0), ("publish", 1), ("far", 0), ("answer", 0)])
@example([("ask", 1), ("ask", 2), ("cut", 0), ("publish", 1), ("wait", 20), ("far", 0)])
def test_stories_told_at_the_tick_are_those_told_as_they_happened(
    steps: list[tuple[str, int]],
) -> None:
    told: list[list[list[Event]]] = []
    for prompt in (True, False):
        play = Play(prompt)
        for action, size in steps:
            play.step(action, size)
        told.append(play.stories())
    assert told[0] == told[1]


@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 30)), max_size=40))
@example([("ask", 1), ("ask", 1), ("answer", 1), ("bounce", 1)])
def test_peers_are_told_of_all_that_changes_what_could_be_taken(
    steps: list[tuple[str, int]],
) -> None:
    play = Play(prompt=False)
    mesh = play.mesh
    watcher = mesh.link("statebe")
    told = b""
    for action, size in steps:
        play.step(action, size)
        mesh.broker.wake("state", mesh.now)
        told = ([told, *watcher.take()])[-1]
        state = mdp_peers.read_state(told)
        assert state == capacity_of(mesh.broker.core, b"here")
