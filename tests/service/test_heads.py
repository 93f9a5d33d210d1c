"""A broker that compares the beginnings of messages reads them as one that parses each."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from homing.wire import mdp
from homing.wire.frames import LONG, MORE, pack
from homing.wire.mdp_messages import Answer, Dialect, Kind, Options, Report, Work
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
