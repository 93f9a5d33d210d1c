"""The doubles behave as links and ports do, as far as a role can tell."""

from __future__ import annotations

import pytest

from homing.errors import DiskFull
from homing.ports import Link, Port
from homing.testing import EPOCH, ManualClock, RecordingLink, RecordingPort
from homing.wire.frames import pack


def test_a_link_keeps_what_was_sent_until_taken() -> None:
    link: Link = RecordingLink("localfe", b"c1", "alice")
    assert (link.plug, link.peer, link.user, link.backlog) == ("localfe", b"c1", "alice", 0)
    recorder = RecordingLink("localfe")
    recorder.send(pack([b"", b"x"]))
    recorder.send(b"raw")
    assert recorder.sent == [pack([b"", b"x"]), b"raw"]
    assert recorder.take() == [pack([b"", b"x"]), b"raw"]
    assert recorder.take() == []
    recorder.send(pack([b"a", b"b"]))
    assert recorder.take_frames() == [[b"a", b"b"]]


def test_a_closed_link_sends_nothing_and_remembers_why() -> None:
    link = RecordingLink("localfe")
    link.close("first")
    link.close("second")
    link.send(b"late")
    assert (link.reason, link.sent) == ("first", [])


def test_a_port_keeps_connections_timers_and_events() -> None:
    port = RecordingPort()
    seen: Port = port
    seen.connect("cloudbe", "tcp://b:1")
    seen.connect("cloudbe", "tcp://b:1")
    seen.connect("cloudbe", "tcp://c:1")
    seen.disconnect("cloudbe", "tcp://b:1")
    seen.disconnect("cloudbe", "tcp://never:1")
    assert port.connected == [("cloudbe", "tcp://c:1")]
    seen.later(3.0, "c")
    seen.later(2.0, "b")
    seen.later(9.0, "a")
    seen.later(1.0, "a")
    seen.later(5.0, "never")
    seen.cancel("never")
    seen.cancel("unknown")
    assert port.due(2.5) == ["a", "b"]
    assert port.due(2.5) == []
    assert port.timers == {"c": 3.0}


def test_a_full_port_refuses_events() -> None:
    port = RecordingPort()
    assert (port.journal("one"), port.journal("two")) == (1, 2)
    port.full = True
    with pytest.raises(DiskFull):
        port.journal("three")
    assert port.events == ["one", "two"]


def test_a_manual_clock_moves_when_told() -> None:
    clock = ManualClock()
    assert (clock.monotonic(), clock.wall()) == (0.0, EPOCH)
    assert clock.advance(2.5) == 2.5
    clock.jump(-100.0)
    assert (clock.monotonic(), clock.wall()) == (2.5, EPOCH + 2.5 - 100.0)
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1.0)
