"""A link's first message decides what is behind it: also where it breaks the letter of a protocol."""

from __future__ import annotations

import pytest

from homing.wire.mdp_messages import Kind, Ready
from tests.service.stage import D0X, D02, Stage


@pytest.mark.parametrize("credit", [b"0", b"-1", b"abc", b"", b"1.5", b"99999999999"])
def test_a_worker_whose_ready_is_broken_is_told_so_once(credit: bytes) -> None:
    stage = Stage()
    link = stage.link("localbe")
    for _ in range(2):
        stage.send(link, b"", b"MDPW0X", b"\x01", b"echo", credit)
    assert link.take_frames() == [[b"", b"MDPW0X", b"\x05"]]
    assert not stage.broker.core.roster
    stage.say(link, Ready(D0X, b"echo"))
    assert len(stage.broker.core.roster) == 1


def test_a_req_may_speak_02() -> None:
    """Its empty frame comes back; it hears one answer, so that parts are joined."""
    stage = Stage()
    worker, client = stage.worker(b"echo", D02), stage.client()
    for body in (b"one", b"two"):  # the second one is skimmed
        stage.send(client, b"", b"MDPC02", b"\x01", b"echo", body)
        stage.answer(worker, b"a", D02, Kind.PARTIAL)
        stage.answer(worker, b"b", D02)
        assert client.take_frames() == [[b"", b"MDPC02", b"\x03", b"echo", b"a", b"b"]]
    stage.ask(client, dialect=D02)
    assert client.sent == [], "it does not change its ways"
    assert stage.broker.record.malformed == 1
