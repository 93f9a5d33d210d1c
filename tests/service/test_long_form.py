"""Peers that announce small frames with eight bytes, as ZMTP lets them: they are served as all others."""

from __future__ import annotations

import pytest

from homing.service.access import Access
from homing.testing import RecordingLink
from homing.wire import mdp
from homing.wire.frames import MORE, frame, pack, shortest, unpack
from homing.wire.mdp_messages import (
    Answer,
    Dialect,
    Disconnect,
    Heartbeat,
    Kind,
    Ready,
    Report,
    Request,
    Work,
)
from tests.service.stage import D0X, D01, D02, Stage


def long_form(image: bytes) -> bytes:
    """Every frame with a length of eight bytes."""
    frames = unpack(image)
    sizes = [
        bytes((2 | (MORE if n < len(frames) - 1 else 0),)) + len(body).to_bytes(8, "big")
        for n, body in enumerate(frames)
    ]
    return b"".join(size + body for size, body in zip(sizes, frames, strict=True))


def hear(stage: Stage, link: RecordingLink, image: bytes) -> None:
    stage.broker.receive_all(link, [long_form(image)], stage.now)


@pytest.mark.parametrize("dialect", [D0X, D01, D02])
def test_a_whole_conversation(dialect: Dialect) -> None:
    stage = Stage()
    worker, client = stage.link("localbe"), stage.client()
    hear(stage, worker, mdp.write(Ready(dialect, b"echo")))
    for body in (b"first", b"x" * 300, b""):
        hear(stage, client, mdp.write(Request(dialect, b"echo", pack([body, b"two"]))))
        (image,) = worker.take()
        work = mdp.read_to_worker(image)
        assert isinstance(work, Work)
        assert unpack(work.data) == [body, b"two"]
        answer = Answer(dialect, Kind.FINAL, work.address, work.service, pack([body]))
        hear(stage, worker, mdp.write(answer))
        report = mdp.read_to_client(client.take()[0])
        assert isinstance(report, Report)
        assert unpack(report.data) == [body]
    hear(stage, worker, mdp.write(Heartbeat(dialect)))
    assert len(stage.broker.core.roster) == 1
    hear(stage, worker, mdp.write(Disconnect(dialect)))
    assert not stage.broker.core.roster
    assert not stage.broker.record.malformed


def test_allow_lists_are_asked_all_the_same() -> None:
    stage = Stage(access=Access({"ann": ["echo"]}))
    client = stage.client(user="ann")
    hear(stage, client, mdp.write(Request(D0X, b"other", pack([b"x"]), b"mine")))
    assert client.take_frames() == [[b"mine", b"", b"MDPC0X", b"\x03", b"other", b"denied"]]


def test_nonsense_stays_nonsense() -> None:
    stage = Stage()
    for plug in ("localfe", "localbe"):
        link = stage.link(plug)
        hear(stage, link, pack([b"", b"nonsense", b"x"]))
        assert link.reason == "malformed"
    assert stage.broker.record.malformed == 2


def test_shortest() -> None:
    for frames in ([b""], [b"", b"a", b"x" * 255, b"y" * 256], [b"z" * 1000, b""]):
        assert shortest(long_form(pack(frames))) == pack(frames) == shortest(pack(frames))
    assert shortest(b"\x80" + frame(b"", False)) == b"\x80" + frame(b"", False)
