"""The broker's promises to clients and workers, one at a time, on a recording port."""

from __future__ import annotations

import msgspec
import pytest

from homing.journal.events import RequestRequeued
from homing.service.access import Access
from homing.service.policy import BrokerPolicy, ServicePolicy
from homing.wire import mdp
from homing.wire.frames import pack
from homing.wire.mdp_messages import (
    Answer,
    Dialect,
    Disconnect,
    Heartbeat,
    Kind,
    Nak,
    Options,
    Ready,
    Report,
    Work,
)
from tests.service.stage import D0X, D01, D02, Stage


def test_request_and_report_byte_for_byte() -> None:
    stage = Stage()
    worker = stage.worker(b"echo")
    client = stage.client(b"alice")
    stage.send(client, b"", b"MDPC0X", b"echo", b"one", b"two")
    work = [b"", b"MDPW0X", b"\x02", b"echo", b"alice", b"", b"one", b"two"]
    assert worker.take_frames() == [work]
    stage.send(worker, b"", b"MDPW0X", b"\x07", b"alice", b"", b"echo", b"TWO", b"ONE")
    assert client.take_frames() == [[b"", b"MDPC0X", b"\x02", b"echo", b"TWO", b"ONE"]]
    assert stage.broker.core.live == 0


@pytest.mark.parametrize("asking", Dialect)
@pytest.mark.parametrize("serving", Dialect)
def test_every_dialect_serves_every_dialect(asking: Dialect, serving: Dialect) -> None:
    stage = Stage()
    worker, client = stage.worker(b"echo", serving), stage.client()
    for body in (b"1", b"2"):
        stage.ask(client, b"echo", body, asking)
        stage.answer(worker, body + b"!", serving)
        report = mdp.read_to_client(client.take()[0])
        assert report == Report(asking, Kind.FINAL, b"echo", pack([body + b"!"]))


def test_both_ports_take_clients_and_workers() -> None:
    stage = Stage()
    worker = stage.link("localfe")
    stage.say(worker, Ready(D01, b"echo"))
    client = stage.link("localbe")
    stage.ask(client, dialect=D02)
    stage.answer(worker, b"yes", D01)
    assert mdp.read_to_client(client.take()[0]) == Report(D02, Kind.FINAL, b"echo", pack([b"yes"]))


def test_least_recently_used_worker_first() -> None:
    stage = Stage()
    first, second = stage.worker(b"echo"), stage.worker(b"echo")
    client = stage.client()
    stage.ask(client)
    assert len(first.sent) == 1
    stage.answer(first, b"")
    stage.ask(client)
    assert (len(first.sent), len(second.sent)) == (0, 1)


def test_credit_is_never_exceeded_and_always_used() -> None:
    stage = Stage()
    worker, client = stage.worker(b"echo", credit=3), stage.client()
    for _ in range(5):
        stage.ask(client)
    assert len(worker.sent) == 3
    stage.answer(worker, b"")
    assert len(worker.sent) == 3
    assert len({mdp.read_to_worker(image).address for image in worker.sent}) == 3  # type: ignore[union-attr]


def test_pipelined_requests_are_told_apart_by_envelope() -> None:
    stage = Stage()
    worker, client = stage.worker(b"echo", credit=2), stage.client()
    stage.ask(client, body=b"first", options=Options(id=b"A"))
    stage.ask(client, body=b"second", options=Options(id=b"B"))
    worker.sent.reverse()
    stage.answer(worker, b"second")
    stage.answer(worker, b"first")
    reports = [mdp.read_to_client(image) for image in client.take()]
    assert [(report.envelope[-1:], report.data[2:]) for report in reports] == [  # type: ignore[union-attr]
        (b"B", b"second"),
        (b"A", b"first"),
    ]


def test_priorities_overtake_and_equals_keep_their_order() -> None:
    stage = Stage()
    client = stage.client()
    for body, priority in ((b"low", 0), (b"a", 4), (b"b", 4), (b"high", 9)):
        stage.ask(client, body=body, options=Options(priority=priority, id=body))
    worker = stage.worker(b"echo")
    order = []
    for _ in range(4):
        order.append(mdp.read_to_worker(worker.sent[-1]).data[2:])  # type: ignore[union-attr]
        stage.answer(worker, b"")
    assert order == [b"high", b"a", b"b", b"low"]


def test_a_worker_for_any_service_takes_turns_between_them() -> None:
    stage = Stage()
    client = stage.client()
    for service in (b"a", b"a", b"b"):
        stage.ask(client, service)
    worker = stage.worker(b"")
    served = []
    for _ in range(3):
        served.append(mdp.read_to_worker(worker.sent[-1]).service)  # type: ignore[union-attr]
        stage.answer(worker, b"")
    assert served == [b"a", b"b", b"a"]
    assert stage.broker.core.live == 0


def test_dead_worker_gives_its_request_back_to_the_head() -> None:
    stage = Stage()
    first, client = stage.worker(b"echo"), stage.client()
    stage.ask(client, body=b"1", options=Options(id=b"1"))
    stage.ask(client, body=b"2", options=Options(id=b"2"))
    stage.broker.closed(first, stage.now)
    second = stage.worker(b"echo")
    assert mdp.read_to_worker(second.sent[0]).data[2:] == b"1"  # type: ignore[union-attr]
    kinds = [type(event) for event in stage.port.events]
    assert RequestRequeued in kinds


def test_at_most_once_is_refused_instead() -> None:
    policy = BrokerPolicy(services={b"pay": ServicePolicy(at_most_once=True)})
    stage = Stage(policy)
    worker, spare, client = stage.worker(b"pay"), stage.worker(b"pay"), stage.client()
    stage.ask(client, b"pay")
    stage.broker.closed(worker, stage.now)
    assert spare.sent == []
    nak = mdp.read_to_client(client.take()[0])
    assert isinstance(nak, Nak)
    assert nak.reason.startswith(b"worker-lost")


def test_a_request_that_kills_workers_is_given_up() -> None:
    stage = Stage(BrokerPolicy(default=ServicePolicy(max_attempts=2)))
    client = stage.client()
    stage.ask(client)
    for _ in range(2):
        stage.broker.closed(stage.worker(b"echo"), stage.now)
    nak = mdp.read_to_client(client.take()[0])
    assert isinstance(nak, Nak)
    assert nak.reason.startswith(b"worker-lost")


def test_silent_worker_expires_and_a_beating_one_does_not() -> None:
    stage = Stage()
    silent, beating, client = stage.worker(b"echo"), stage.worker(b"echo"), stage.client()
    stage.ask(client)
    for _ in range(6):
        stage.pass_time(2.0)
        stage.say(beating, Heartbeat(D0X))
    assert mdp.read_to_worker(silent.sent[-1]) == Disconnect(D0X)
    assert any(isinstance(mdp.read_to_worker(image), Work) for image in beating.sent)
    beats = [image for image in beating.sent if mdp.read_to_worker(image) == Heartbeat(D0X)]
    assert len(beats) >= 4


def test_late_repeated_and_forged_answers_go_nowhere() -> None:
    stage = Stage(BrokerPolicy(default=ServicePolicy(timeout=1.0)))
    worker, other, client = stage.worker(b"echo"), stage.worker(b"echo"), stage.client(b"alice")
    stage.ask(client)
    forged = Answer(D0X, Kind.FINAL, b"alice", b"echo", pack([b"forged"]))
    stage.say(other, forged)
    stage.say(worker, Answer(D0X, Kind.FINAL, b"alice", b"other", pack([b"wrong service"])))
    stage.say(worker, Answer(D0X, Kind.FINAL, b"alice", b"echo", pack([b"x"]), b"peer"))
    assert client.sent == []
    stage.pass_time(1.2)
    assert isinstance(mdp.read_to_client(client.take()[0]), Nak)
    stage.answer(worker, b"late")
    stage.say(worker, forged)
    assert client.sent == []
    assert stage.broker.record.orphans == 5
    stage.ask(client)
    assert len(other.sent) == 1, "least recently used"
    stage.ask(client)
    assert len(worker.sent) == 1, "the late answer freed its worker"


def test_timeout_of_the_request_itself() -> None:
    stage = Stage()
    stage.worker(b"echo")
    client = stage.client()
    stage.ask(client, options=Options(timeout_ms=300, id=b"x"))
    stage.pass_time(0.2)
    assert client.sent == []
    stage.pass_time(0.3)
    nak = mdp.read_to_client(client.take()[0])
    assert isinstance(nak, Nak)
    assert nak.reason.startswith(b"timeout")
    assert nak.envelope.endswith(b"x")


def test_nobody_serves_it() -> None:
    stage = Stage()
    new, old = stage.client(), stage.client()
    stage.ask(new)
    stage.ask(old, dialect=D01)
    stage.pass_time(3.0)
    assert mdp.read_to_client(new.take()[0]) == Nak(b"echo", b"no-service")
    worker = stage.worker(b"echo")
    stage.answer(worker, b"better late", D0X)
    assert len(old.take()) == 1, "7/MDP requests wait for a worker to come"


def test_worker_that_comes_within_the_grace_serves() -> None:
    stage = Stage()
    client = stage.client()
    stage.ask(client)
    stage.pass_time(1.0)
    stage.worker(b"echo")
    stage.pass_time(5.0)
    assert client.sent == []
    stage.pass_time(60.0)
    assert isinstance(mdp.read_to_client(client.take()[0]), Nak)
    assert stage.broker.core.live == 0


def test_limits_refuse_with_their_code() -> None:
    small = ServicePolicy(max_waiting=2, max_waiting_bytes=1000)
    policy = BrokerPolicy(default=small, max_body=500, max_services=2, max_client_requests=3)
    stage = Stage(policy)
    clients = [stage.client() for _ in range(3)]

    def reason(index: int) -> bytes:
        nak = mdp.read_to_client(clients[index].take()[-1])
        assert isinstance(nak, Nak)
        return nak.reason.split(b" ")[0]

    stage.ask(clients[0])
    stage.ask(clients[0])
    stage.ask(clients[0])
    assert reason(0) == b"queue-full"
    stage.ask(clients[1], body=b"x" * 501)
    assert reason(1) == b"too-large"
    stage.ask(clients[1], b"two")
    stage.ask(clients[1], b"three")
    assert reason(1) == b"queue-full"
    stage.ask(clients[2], b"two", b"x" * 490)
    stage.ask(clients[2], b"two", b"x" * 490)
    assert reason(2) == b"queue-full"
    stage.ask(clients[2], b"\xff\xfe")
    assert reason(2) == b"malformed"
    assert len(stage.broker.core.services) == 2


def test_partial_answers_reach_those_who_can_read_them() -> None:
    stage = Stage()
    worker = stage.worker(b"echo", D02)
    modern, streaming, plain, old = (stage.client() for _ in range(4))
    for client, dialect, options in (
        (modern, D02, None),
        (streaming, D0X, Options(partials=True, id=b"s")),
        (plain, D0X, None),
        (old, D01, None),
    ):
        stage.ask(client, dialect=dialect, options=options)
        stage.answer(worker, b"a", D02, Kind.PARTIAL)
        stage.answer(worker, b"b", D02, Kind.PARTIAL)
        stage.answer(worker, b"c", D02)
    for client in (modern, streaming):
        kinds = [mdp.read_to_client(image).kind for image in client.take()]  # type: ignore[union-attr]
        assert kinds == [Kind.PARTIAL, Kind.PARTIAL, Kind.FINAL]
    for client in (plain, old):
        (report,) = (mdp.read_to_client(image) for image in client.take())
        assert isinstance(report, Report)
        assert report.data == pack([b"a", b"b", b"c"])


def test_a_stream_is_not_begun_twice() -> None:
    stage = Stage()
    worker, client = stage.worker(b"echo", D02), stage.client()
    stage.ask(client, dialect=D0X, options=Options(partials=True))
    stage.answer(worker, b"a", D02, Kind.PARTIAL)
    stage.broker.closed(worker, stage.now)
    stage.worker(b"echo", D02)
    nak = mdp.read_to_client(client.take()[-1])
    assert isinstance(nak, Nak)
    assert nak.reason.startswith(b"worker-lost")


def test_parts_without_end_are_refused() -> None:
    stage = Stage(BrokerPolicy(max_body=1000))
    worker, client = stage.worker(b"echo", D02), stage.client()
    stage.ask(client)
    for _ in range(5):
        stage.answer(worker, b"x" * 300, D02, Kind.PARTIAL)
    stage.answer(worker, b"end", D02)
    (nak,) = (mdp.read_to_client(image) for image in client.take())
    assert isinstance(nak, Nak)
    assert nak.reason.startswith(b"too-large")


def test_worker_may_say_that_it_failed() -> None:
    stage = Stage()
    worker, client = stage.worker(b"echo"), stage.client()
    stage.ask(client)
    stage.answer(worker, b"failed division by zero", D0X, Kind.FAILED)
    assert mdp.read_to_client(client.take()[0]) == Nak(b"echo", b"failed division by zero")


def test_a_second_ready_ends_the_conversation() -> None:
    stage = Stage()
    worker, client = stage.worker(b"echo"), stage.client()
    stage.ask(client)
    stage.say(worker, Ready(D0X, b"echo"))
    assert mdp.read_to_worker(worker.sent[-1]) == Disconnect(D0X)
    stage.say(worker, Heartbeat(D0X))
    assert mdp.read_to_worker(worker.sent[-1]) == Disconnect(D0X)
    stage.say(worker, Ready(D0X, b"echo"))
    assert isinstance(mdp.read_to_worker(worker.sent[-1]), Work), "READY starts another one"


def test_an_unknown_worker_is_told_to_register() -> None:
    stage = Stage()
    for dialect in Dialect:
        worker = stage.link("localbe")
        stage.say(worker, Heartbeat(dialect))
        stage.say(worker, Heartbeat(dialect))
        assert [mdp.read_to_worker(image) for image in worker.sent] == [Disconnect(dialect)]


def test_strangers_and_broken_messages() -> None:
    stage = Stage()
    stranger = stage.client()
    stage.send(stranger, b"GET / HTTP/1.1")
    assert stranger.reason == "malformed"
    client = stage.client()
    stage.send(client, b"", b"MDPC0X", b"echo")
    nak = mdp.read_to_client(client.take()[0])
    assert isinstance(nak, Nak)
    assert nak.reason.startswith(b"malformed")
    stage.send(client, b"HM\x09\x04\x00\x00\x00\x00id", b"", b"MDPC0X", b"echo", b"body")
    nak = mdp.read_to_client(client.take()[0])
    assert isinstance(nak, Nak)
    assert nak.reason.startswith(b"malformed")
    assert nak.envelope.endswith(b"id"), "whoever asked can tell which request it was"
    worker = stage.worker(b"echo")
    stage.send(worker, b"", b"MDPW0X", b"\x63")
    assert mdp.read_to_worker(worker.sent[-1]) == Disconnect(D0X)
    assert not stage.broker.core.roster


def test_gone_clients_cost_no_work_and_named_ones_may_return() -> None:
    stage = Stage()
    anonymous, named = stage.client(), stage.client(b"alice")
    stage.ask(anonymous, body=b"1")
    stage.ask(named, body=b"2")
    stage.broker.closed(anonymous, stage.now)
    worker = stage.worker(b"echo")
    assert mdp.read_to_worker(worker.sent[0]).data[2:] == b"2"  # type: ignore[union-attr]
    stage.broker.closed(named, stage.now)
    again = stage.client(b"alice")
    stage.answer(worker, b"here you are")
    assert len(again.take()) == 1
    assert stage.broker.core.live == 0


def test_drain_finishes_what_runs_and_refuses_the_rest() -> None:
    stage = Stage()
    worker, client = stage.worker(b"echo"), stage.client()
    stage.ask(client, options=Options(id=b"1"))
    stage.ask(client, options=Options(id=b"2"))
    stage.broker.drain(stage.now)
    stage.ask(client, options=Options(id=b"3"))
    nak = mdp.read_to_client(client.take()[0])
    assert isinstance(nak, Nak)
    assert nak.reason == b"shutting-down"
    stage.answer(worker, b"done")
    assert isinstance(mdp.read_to_client(client.take()[0]), Report)
    stage.broker.stop(stage.now)
    last = mdp.read_to_client(client.take()[0])
    assert isinstance(last, Nak)
    assert last.envelope.endswith(b"2")
    assert mdp.read_to_worker(worker.sent[-1]) == Disconnect(D0X)
    assert stage.broker.drained


def test_mmi() -> None:
    stage = Stage()
    stage.worker(b"echo", credit=2)
    client = stage.client()

    def mmi(name: bytes, body: bytes = b"") -> bytes:
        stage.ask(client, name, body, D01)
        report = mdp.read_to_client(client.take()[0])
        assert isinstance(report, Report)
        return report.data[2:] if not report.data[0] & 2 else report.data[9:]

    assert mmi(b"mmi.service", b"echo") == b"200"
    assert mmi(b"mmi.service", b"nothing") == b"404"
    assert mmi(b"mmi.unknown") == b"501"
    services = msgspec.json.decode(mmi(b"mmi.services"))
    assert services["echo"] == {"workers": 1, "free": 2, "waiting": 0, "live": 0, "peers": []}
    assert msgspec.json.decode(mmi(b"mmi.workers", b"echo"))[0]["credit"] == 2
    assert "*" not in services
    stage.worker(b"", credit=3)
    services = msgspec.json.decode(mmi(b"mmi.services"))
    assert services["*"] == {"workers": 1, "free": 3, "waiting": 0, "live": 0, "peers": []}
    assert msgspec.json.decode(mmi(b"mmi.peers")) == {}
    assert msgspec.json.decode(mmi(b"mmi.queue"))["echo"] == {"waiting": 0, "bytes": 0}


def test_allow_lists() -> None:
    access = Access(clients={"ann": ["echo", "math.*"]}, workers={"wes": ["echo"], "any": ["*"]})
    stage = Stage(access=access)
    denied = stage.worker(b"echo", user="ann")
    assert mdp.read_to_worker(denied.sent[-1]) == Disconnect(D0X)
    stage.worker(b"echo", user="wes")
    nosy = stage.worker(b"", user="wes")
    assert mdp.read_to_worker(nosy.sent[-1]) == Disconnect(D0X)
    assert stage.worker(b"", user="any").sent == []
    ann, bob = stage.client(user="ann"), stage.client(user="bob")
    for service, code in ((b"echo", None), (b"math.add", None), (b"secret", b"denied")):
        stage.ask(ann, service)
        sent = [mdp.read_to_client(image) for image in ann.take()]
        assert [nak.reason for nak in sent if isinstance(nak, Nak)] == ([code] if code else [])
    stage.ask(bob)
    assert mdp.read_to_client(bob.take()[0]) == Nak(b"echo", b"denied")


def test_content_routing_and_its_bugs() -> None:
    def route(user: str, service: bytes, data: bytes) -> bytes:
        if data[2:] == b"boom":
            raise ValueError("no such tenant")
        return service + b"." + data[2:3]

    stage = Stage(route=route)
    worker, client = stage.worker(b"echo.x"), stage.client()
    stage.ask(client, body=b"xyz")
    assert len(worker.sent) == 1
    stage.ask(client, body=b"boom")
    nak = mdp.read_to_client(client.take()[0])
    assert isinstance(nak, Nak)
    assert nak.reason == b"malformed no such tenant"


def test_nothing_stays_behind_when_all_is_quiet() -> None:
    stage = Stage(BrokerPolicy(default=ServicePolicy(timeout=2.0)))
    for round_ in range(30):
        client = stage.client()
        worker = stage.worker(b"service-%d" % round_)
        for _ in range(20):
            stage.ask(client, b"service-%d" % round_)
        stage.answer(worker, b"")
        stage.broker.closed(worker, stage.now)
        stage.broker.closed(client, stage.now)
    stage.pass_time(10.0)
    core = stage.broker.core
    assert core.live == 0
    assert core.waiting_bytes == 0
    assert core.services == {}
    assert len(core.deadlines) == 0
    assert not core.roster
    assert not core.anyone
