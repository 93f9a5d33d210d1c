"""Clients with a name of their own that come back, and others that come under their name."""

from __future__ import annotations

from homing.testing import RecordingLink
from homing.wire import mdp
from homing.wire.mdp_messages import Heartbeat, Nak, Ready, Report
from tests.service.stage import D0X, D01, Stage


def left_with_a_request(stage: Stage, user: str = "ann") -> RecordingLink:
    """A worker that still works for a client named `desk`, which has gone."""
    worker, client = stage.worker(b"echo"), stage.client(b"desk", user)
    stage.ask(client)
    stage.broker.closed(client, stage.now)
    return worker


def test_who_comes_back_gets_what_it_asked_for_and_goes_on() -> None:
    stage = Stage()
    worker = left_with_a_request(stage)
    again = stage.client(b"desk", "ann")
    stage.answer(worker, b"first")
    stage.ask(again, body=b"more")
    stage.answer(worker, b"second")
    assert [frames[-1] for frames in again.take_frames()] == [b"first", b"second"]


def test_another_user_under_the_same_name_gets_nothing() -> None:
    stage = Stage()
    worker = left_with_a_request(stage)
    other = stage.client(b"desk", "bob")
    stage.answer(worker, b"for ann alone")
    assert other.take() == []
    stage.ask(other, body=b"his own")
    stage.answer(worker, b"for bob")
    assert [frames[-1] for frames in other.take_frames()] == [b"for bob"]


def test_a_worker_under_the_name_of_a_client_is_a_worker() -> None:
    stage = Stage()
    left_with_a_request(stage, "")
    link = stage.client(b"desk")
    stage.say(link, Ready(D0X, b"other", 1))
    stage.ask(stage.client(), b"other")
    assert [frames[1:4] for frames in link.take_frames()] == [[b"MDPW0X", b"\x02", b"other"]]


def test_another_dialect_under_the_name_of_a_client_is_another_client() -> None:
    stage = Stage()
    worker = left_with_a_request(stage, "")
    link = stage.client(b"desk")
    stage.ask(link, dialect=D01)
    stage.answer(worker, b"nobody's")
    stage.answer(worker, b"hers")
    (report,) = (mdp.read_to_client(image) for image in link.take())
    assert isinstance(report, Report)
    assert (report.dialect, report.data[2:]) == (D01, b"hers")


def test_who_comes_back_only_to_go_may_come_back_once_more() -> None:
    stage = Stage()
    worker = left_with_a_request(stage)
    stage.broker.closed(stage.client(b"desk", "ann"), stage.now)
    last = stage.client(b"desk", "ann")
    stage.answer(worker, b"hello")
    assert len(last.take()) == 1


# --- ways of speaking that the specifications do not have ------------------------------------------


def test_an_envelope_is_its_client_s_own_whatever_it_begins_with() -> None:
    """ZMQ_REQ_CORRELATE counts in four bytes: once in 65 536 requests they begin with HM."""
    stage = Stage()
    worker = stage.worker(b"echo")
    for header in (b"MDPC01", b"MDPC0X"):
        client = stage.client()
        for envelope in (b"HMab", b"HM"):
            stage.send(client, envelope, b"", header, b"echo", b"x")
            stage.answer(worker, b"y")
            (answer,) = client.take_frames()
            assert (answer[0], answer[-1]) == (envelope, b"y")


def test_what_asks_for_parts_in_0x_asks_for_nothing_in_01() -> None:
    stage = Stage()
    worker, client = stage.worker(b"echo"), stage.client()
    wishes = b"HM\x01\x04\x00\x00\x00\x00"
    stage.send(client, wishes, b"", b"MDPC01", b"echo", b"x")
    (work,) = worker.take_frames()
    stage.send(worker, b"", b"MDPW0X", b"\x09", work[4], b"", b"echo", b"part")
    stage.send(worker, b"", b"MDPW0X", b"\x07", work[4], b"", b"echo", b"end")
    assert client.take_frames() == [[wishes, b"", b"MDPC01", b"echo", b"part", b"end"]]


def test_an_02_worker_that_keeps_the_empty_frame_of_01() -> None:
    stage = Stage()
    worker, client = stage.link("localbe"), stage.client()
    stage.send(worker, b"", b"MDPW02", b"\x05")
    assert worker.take_frames() == [[b"", b"MDPW02", b"\x06"]], "it shall register"
    stage.send(worker, b"", b"MDPW02", b"\x01", b"echo")
    for part in (b"", b"part"):
        stage.ask(client)
        (work,) = worker.take_frames()
        assert work[:3] + work[4:] == [b"", b"MDPW02", b"\x02", b"", b"hello"]
        if part:
            stage.send(worker, b"", b"MDPW02", b"\x03", work[3], b"", part)
        stage.send(worker, b"", b"MDPW02", b"\x04", work[3], b"", b"end")
        parts = [part] if part else []
        assert [frames[4:] for frames in client.take_frames()] == [[*parts, b"end"]]
    stage.now += stage.broker.policy.heartbeat
    stage.send(worker, b"", b"MDPW02", b"\x05")
    stage.broker.wake("tick", stage.now)
    assert worker.take_frames() == [[b"", b"MDPW02", b"\x05"]]
    stage.say(worker, Heartbeat(mdp.D02))
    assert worker.take_frames() == [[b"", b"MDPW02", b"\x06"]], "it keeps to one way"


def test_a_worker_s_excuse_is_cut_to_a_line() -> None:
    stage = Stage()
    worker, client = stage.worker(b"echo"), stage.client()
    stage.ask(client)
    (work,) = worker.take_frames()
    stage.send(worker, b"", b"MDPW0X", b"\x0b", work[4], b"", b"echo", b"x" * 100_000)
    nak = mdp.read_to_client(client.take()[0])
    assert isinstance(nak, Nak)
    assert nak.reason == b"x" * 400
    assert list(stage.broker.record.refusals) == [b"x" * 400]
