"""Recorded task messages: header, body, both ways."""

from __future__ import annotations

import pytest

from homing.wire import tasks
from tests.compat import load, names

BODY = b"\x00\x05hello"
ROWS: dict[str, tasks.Message] = {
    "connect": tasks.Connect("echo"),
    "config": tasks.Config("north", ["tcp://127.0.0.1:5561"], 2500, 3, 1024),
    "ping": tasks.Ping(1.5),
    "pong": tasks.Pong(1.5),
    "task-request": tasks.Task("echo", "", BODY),
    "task-response": tasks.Response("echo", "7", BODY),
    "error": tasks.Error("timeout", "30 s", "7"),
    "disconnect": tasks.Disconnect(),
}


@pytest.mark.parametrize("row", ROWS)
def test_row(row: str) -> None:
    image = load(f"tasks/{row}")
    assert tasks.read(image) == (b"", ROWS[row])
    assert tasks.write(ROWS[row]) == image


def test_every_recording_is_checked() -> None:
    assert {f"tasks/{row}" for row in ROWS} == set(names("tasks"))
