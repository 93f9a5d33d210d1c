"""A broker that compares the beginnings of messages reads them as one that parses each."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from homing.testing import RecordingLink
from homing.wire import mdp
from homing.wire.frames import LONG, MORE, pack
from homing.wire.mdp_messages import (
    Answer,
    Dialect,
    Disconnect,
    Kind,
    Options,
    Ready,
    Report,
    Request,
    Work,
)
from tests.service.stage import Stage

NAMES = (b"echo", b"echo2", b"sum")

envelopes = st.one_of(
    st.just(b""),
    st.binary(min_size=1, max_size=20).filter(lambda one: not one.startswith(b"HM")),
    st.builds(
        lambda streams, priority, timeout, key: mdp.write_options(
            Options(streams, priority, timeout, key)
        ),
        st.booleans(),
        st.sampled_from((0, 4, 9)),
        st.sampled_from((0, 5000, 60000)),
        st.binary(max_size=9),
    ),
)


@st.composite
def requests(draw: st.DrawFn) -> tuple[bytes, bytes, bytes, bytes]:
    """A service, an envelope, data, and the image; some envelopes as long frames."""
    service, envelope = draw(st.sampled_from(NAMES)), draw(envelopes)
    data = pack(draw(st.lists(st.binary(max_size=9), min_size=1, max_size=3)))
    image = mdp.request_head(Dialect.D0X, service) + data
    if envelope and draw(st.booleans()):
        image = bytes((MORE | LONG,)) + len(envelope).to_bytes(8, "big") + envelope + image
    elif envelope:
        image = bytes((MORE, len(envelope))) + envelope + image
    return service, envelope, data, image


@given(st.lists(requests(), min_size=1, max_size=12), st.lists(st.booleans(), max_size=12))
def test_what_one_client_asks_in_any_order(
    asked: list[tuple[bytes, bytes, bytes, bytes]], forget: list[bool]
) -> None:
    stage = Stage()
    workers = {name: stage.worker(name) for name in NAMES}
    client = stage.client(b"alice")
    for place, (service, envelope, data, image) in enumerate(asked):
        if place < len(forget) and forget[place]:  # as after a sweep of unused services
            del stage.broker.core.services[service]
            workers[service] = stage.worker(service)
        stage.broker.receive(client, image, stage.now)
        (work,) = workers[service].take()
        found = mdp.read_to_worker(work)
        assert found == Work(Dialect.D0X, service, b"alice" + envelope, data)
        (pending,) = (one for link in workers.values() for one in link.state.held.values())
        assert pending.envelope == envelope
        wishes = mdp.read_options(envelope) or Options(False, 4, 0)
        assert (pending.streams, pending.priority) == (wishes.partials, wishes.priority)
        patience = wishes.timeout_ms / 1000 or pending.service.policy.timeout
        assert pending.deadline == stage.now + patience
        stage.broker.receive(
            workers[service],
            mdp.write(Answer(Dialect.D0X, Kind.FINAL, found.address, service, data)),
            stage.now,
        )
        (report,) = client.take()
        assert mdp.read_to_client(report) == Report(
            Dialect.D0X, Kind.FINAL, service, data, envelope
        )
    assert stage.broker.core.live == 0


def test_an_answer_for_another_service_goes_nowhere() -> None:
    stage = Stage()
    worker, client = stage.worker(b"echo"), stage.client(b"alice")
    stage.ask(client)
    worker.take()
    for service in (b"sum", b"ech", b"echo2"):
        stage.send(worker, b"", b"MDPW0X", b"\x07", b"alice", b"", service, b"no")
    assert client.take() == []
    stage.send(worker, b"", b"MDPW0X", b"\x07", b"alice", b"", b"echo", b"yes")
    assert len(client.take()) == 1


dialects = st.sampled_from((Dialect.D0X, Dialect.D01, Dialect.D02))


@given(dialects, st.lists(st.sampled_from(NAMES), min_size=1, max_size=12), st.data())
def test_what_comes_together_is_taken_as_one_by_one(
    dialect: Dialect, asked: list[bytes], data: st.DataObject
) -> None:
    """Two brokers get the same messages, one of them in chunks: they say the same to all."""
    stages = (Stage(), Stage())
    links = [[stage.worker(name, dialect) for name in NAMES] for stage in stages]
    clients = [stage.client(b"alice") for stage in stages]
    requests = [
        mdp.write(Request(dialect, name, pack([b"%d" % place]))) for place, name in enumerate(asked)
    ]
    for _ in range(len(asked)):
        _give(stages, clients, requests, data)
        requests = []
        assert clients[0].sent == clients[1].sent
        for one, many in zip(*links, strict=True):
            assert one.sent == many.sent
            many.take()
            _give(stages, (one, many), _said_by_worker(one.take(), dialect, data), data)
        for client in clients:
            for report in (mdp.read_to_client(image) for image in client.sent):
                assert isinstance(report, Report)
    assert stages[0].broker.core.live == stages[1].broker.core.live
    assert len(stages[0].port.events) == len(stages[1].port.events)


def _give(
    stages: tuple[Stage, Stage],
    links: list[RecordingLink] | tuple[RecordingLink, RecordingLink],
    images: list[bytes],
    data: st.DataObject,
) -> None:
    for image in images:
        stages[0].broker.receive(links[0], image, 0.0)
    cut = data.draw(st.integers(0, len(images)))
    for chunk in (images[:cut], images[cut:]):
        stages[1].broker.receive_all(links[1], chunk, 0.0)


def _said_by_worker(work: list[bytes], dialect: Dialect, data: st.DataObject) -> list[bytes]:
    """Answers to its work, some twice, some forged, and all else that a worker may say."""
    said: list[bytes] = []
    for image in work:
        found = mdp.read_to_worker(image)
        if isinstance(found, Work):
            answer = Answer(dialect, Kind.FINAL, found.address, found.service, found.data)
            said += [mdp.write(answer)] * data.draw(st.sampled_from((1, 1, 2)))
    others = (
        mdp.HEARTBEATS[dialect],
        mdp.write(Answer(dialect, Kind.FINAL, b"nobody", b"echo", pack([b"forged"]))),
        mdp.write(Ready(dialect, b"echo")),
        mdp.write(Disconnect(dialect)),
        pack([b"", b"MDPW0X", b"\x63"]),
    )
    weights = (0, 0, 0, 1, 2, 3, 4)
    for at in data.draw(st.lists(st.sampled_from(weights), max_size=3)):
        said.insert(data.draw(st.integers(0, len(said))), others[at])
    return said


def test_an_18_mdp_client_has_no_envelope() -> None:
    stage = Stage()
    worker, client = stage.worker(b"echo", Dialect.D02), stage.client(b"alice")
    stage.ask(client, dialect=Dialect.D02)
    assert len(worker.take()) == 1
    image = mdp.write(Request(Dialect.D02, b"echo", pack([b"hello"])))
    stage.broker.receive(client, b"\x01\x03abc" + image, stage.now)
    assert worker.take() == []
    assert stage.broker.core.live == 1
