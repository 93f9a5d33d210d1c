"""Tasks: the opening, the message ids, errors, and services shared with Majordomo."""

from __future__ import annotations

from typing import TypeVar

from homing.service.access import Access
from homing.service.policy import BrokerPolicy, ServicePolicy
from homing.testing import RecordingLink
from homing.wire import mdp, tasks
from homing.wire.frames import frame, pack, prefix, unpack
from homing.wire.mdp_messages import Kind, Report
from tests.service.stage import D0X, Stage

T = TypeVar("T")
BODY = frame(b"hello", False)


def tell(stage: Stage, link: RecordingLink, message: tasks.Message, envelope: bytes = b"") -> None:
    stage.broker.receive(link, tasks.write(message, envelope), stage.now)


def told(link: RecordingLink, kind: type[T]) -> T:
    """The one message that was sent, of this kind."""
    (image,) = link.take()
    _, message = tasks.read(image)
    assert isinstance(message, kind)
    return message


def task_worker(stage: Stage, service: str = "echo") -> RecordingLink:
    link = stage.link("taskbe")
    tell(stage, link, tasks.Connect(service))
    told(link, tasks.Config)
    tell(stage, link, tasks.Ping(7))
    assert told(link, tasks.Pong).ts == 7
    return link


def test_a_worker_works_only_after_the_whole_opening() -> None:
    stage = Stage(group=("tcp://one:1", "tcp://two:2"))
    client, link = stage.link("taskfe"), stage.link("taskbe")
    tell(stage, client, tasks.Task("echo", "", BODY))
    tell(stage, link, tasks.Connect("echo", "wes"))
    config = told(link, tasks.Config)
    assert config == tasks.Config("here", ["tcp://one:1", "tcp://two:2"], 2500, 3, 16 << 20)
    tell(stage, link, tasks.Ping(1))
    pong, task = (tasks.read(image)[1] for image in link.take())
    assert pong == tasks.Pong(1)
    assert isinstance(task, tasks.Task)
    assert task.message_id
    tell(stage, link, tasks.Response("echo", task.message_id, BODY))
    assert told(client, tasks.Response) == tasks.Response("echo", task.message_id, BODY)


def test_out_of_order_openings_start_over() -> None:
    stage = Stage()
    link = stage.link("taskbe")
    tell(stage, link, tasks.Ping(1))
    told(link, tasks.Disconnect)
    tell(stage, link, tasks.Response("echo", "1", BODY))
    told(link, tasks.Disconnect)
    assert not stage.broker.core.roster


def test_the_client_s_message_id_comes_back_behind_its_envelope() -> None:
    stage = Stage()
    worker, client = task_worker(stage), stage.link("taskfe")
    envelope = prefix([b"\x00\x00\x00\x07", b""])
    tell(stage, client, tasks.Task("echo", "mine", BODY), envelope)
    assert told(worker, tasks.Task).message_id == "mine"
    tell(stage, worker, tasks.Response("echo", "mine", BODY))
    (image,) = client.take()
    assert tasks.read(image) == (envelope, tasks.Response("echo", "mine", BODY))


def test_header_alone_has_an_empty_body_both_ways() -> None:
    stage = Stage()
    worker, client = task_worker(stage), stage.link("taskfe")
    task = tasks.Task("echo", "mine", tasks.NO_BODY)
    stage.broker.receive(client, frame(_header(tasks.write(task)), False), stage.now)
    assert told(worker, tasks.Task) == task
    answer = tasks.Response("echo", "mine", tasks.NO_BODY)
    stage.broker.receive(worker, frame(_header(tasks.write(answer)), False), stage.now)
    assert told(client, tasks.Response) == answer


def _header(image: bytes) -> bytes:
    return unpack(image)[0]


def test_late_repeated_and_forged_responses_go_nowhere() -> None:
    stage = Stage(BrokerPolicy(default=ServicePolicy(timeout=1.0)))
    worker, client = task_worker(stage), stage.link("taskfe")
    tell(stage, client, tasks.Task("echo", "mine", BODY))
    tell(stage, worker, tasks.Response("echo", "other", BODY))
    assert client.sent == []
    stage.pass_time(1.5)
    error = told(client, tasks.Error)
    assert (error.code, error.message_id) == ("timeout", "mine")
    tell(stage, worker, tasks.Response("echo", "mine", BODY))
    tell(stage, worker, tasks.Response("echo", "mine", BODY))
    assert client.sent == []
    assert stage.broker.record.orphans == 3


def test_services_are_shared_with_majordomo() -> None:
    stage = Stage()
    mdp_worker, task_client = stage.worker(b"echo"), stage.link("taskfe")
    tell(stage, task_client, tasks.Task("echo", "mine", BODY))
    stage.answer(mdp_worker, b"from mdp")
    assert told(task_client, tasks.Response) == tasks.Response("echo", "mine", pack([b"from mdp"]))
    stage.broker.closed(mdp_worker, stage.now)
    worker, mdp_client = task_worker(stage), stage.client()
    stage.ask(mdp_client)
    task = told(worker, tasks.Task)
    assert task.data == BODY
    tell(stage, worker, tasks.Response("echo", task.message_id, pack([b"from task"])))
    assert mdp.read_to_client(mdp_client.take()[0]) == Report(
        D0X, Kind.FINAL, b"echo", pack([b"from task"])
    )


def test_heartbeats_expiry_and_farewell() -> None:
    stage = Stage()
    alive, silent, leaving = task_worker(stage), task_worker(stage), task_worker(stage)
    tell(stage, leaving, tasks.Disconnect())
    assert len(stage.broker.core.roster) == 2
    for _ in range(6):
        stage.pass_time(2.0)
        tell(stage, alive, tasks.Pong())
    kinds = [type(tasks.read(image)[1]) for image in silent.take()]
    assert kinds[-1] is tasks.Disconnect
    assert tasks.Ping in kinds
    pings = [
        one
        for one in (tasks.read(image)[1] for image in alive.take())
        if isinstance(one, tasks.Ping)
    ]
    assert pings
    assert all(isinstance(ping.ts, int | float) for ping in pings)
    assert len(stage.broker.core.roster) == 1


def test_errors_name_their_code() -> None:
    stage = Stage()
    worker, client = task_worker(stage), stage.link("taskfe")
    tell(stage, client, tasks.Task("mmi.service", "q", frame(b"echo", False)))
    assert told(client, tasks.Response).data == frame(b"200", False)
    stage.send(client, b"not json", b"")
    assert told(client, tasks.Error).code == "malformed"
    tell(stage, client, tasks.Connect("echo"))
    assert told(client, tasks.Error).code == "malformed"
    tell(stage, client, tasks.Task("echo", "x", BODY))
    tell(stage, worker, tasks.Error("failed", "no luck", "x"))
    assert told(client, tasks.Error) == tasks.Error("failed", "no luck", "x")
    tell(stage, client, tasks.Ping("t"))
    assert told(client, tasks.Pong).ts == "t"
    stage.send(
        client,
        b'{"request":"TASK","type":"REQUEST","service":"echo","message_id":"y","priority":10}',
    )
    refused = told(client, tasks.Error)
    assert (refused.code, refused.message_id) == ("malformed", "y"), "the id is known"


def test_a_req_hears_that_its_header_is_nonsense() -> None:
    """Its socket drops whatever does not begin with the delimiter."""
    stage = Stage()
    for plug in ("taskfe", "taskbe"):
        link = stage.link(plug)
        stage.send(link, b"", b"{nonsense", b"")
        envelope, message = tasks.read(link.take()[-1])
        assert envelope == prefix([b""])
        assert isinstance(message, tasks.Error)


def test_a_broken_worker_is_sent_away_and_its_task_goes_on() -> None:
    stage = Stage()
    worker, client = task_worker(stage), stage.link("taskfe")
    tell(stage, client, tasks.Task("echo", "x", BODY))
    worker.take()
    stage.send(worker, b"nonsense")
    told(worker, tasks.Disconnect)
    assert told_last(task_worker_with_work(stage)).message_id == "x"


def task_worker_with_work(stage: Stage) -> RecordingLink:
    link = stage.link("taskbe")
    tell(stage, link, tasks.Connect("echo"))
    tell(stage, link, tasks.Ping(7))
    return link


def told_last(link: RecordingLink) -> tasks.Task:
    _, message = tasks.read(link.sent[-1])
    assert isinstance(message, tasks.Task)
    return message


def test_a_worker_that_may_not_serve_is_told_so_at_once() -> None:
    stage = Stage(access=Access(workers={"wes": ["echo"]}))
    link = stage.link("taskbe", user="wes")
    tell(stage, link, tasks.Connect("other"))
    assert told(link, tasks.Error).code == "denied"
    tell(stage, link, tasks.Ping(1))
    told(link, tasks.Disconnect)
    tell(stage, link, tasks.Connect("echo"))
    told(link, tasks.Config)
