"""Lines are JSON or human, thinned out when they repeat, and never block the node."""

from __future__ import annotations

import io
import json
import logging
import queue
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.node import logs
from homing.node.logs import MAX_REMEMBERED, Repeats, logging_to

log = logging.getLogger("homing.test")


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _json_lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_json_has_time_level_logger_event_and_extras() -> None:
    stream = io.StringIO()
    with logging_to(stream=stream):
        log.info("link open", extra={"peer": "paris", "bytes": 3})
        log.info("served %d", 7)
    first, second = _json_lines(stream)
    assert first.pop("timestamp").endswith("Z")
    assert first == {
        "event": "link open",
        "level": "info",
        "logger": "homing.test",
        "peer": "paris",
        "bytes": 3,
    }
    assert second["event"] == "served 7"


def test_human_on_a_terminal() -> None:
    stream = _Terminal()
    with logging_to(stream=stream):
        log.warning("link lost", extra={"peer": "paris"})
    assert "link lost" in stream.getvalue()
    assert "paris" in stream.getvalue()
    with pytest.raises(json.JSONDecodeError):
        _json_lines(stream)


def test_the_form_can_be_forced() -> None:
    terminal, plain = _Terminal(), io.StringIO()
    with logging_to(form="json", stream=terminal):
        log.info("a")
    with logging_to(form="human", stream=plain):
        log.info("b")
    assert _json_lines(terminal)[0]["event"] == "a"
    assert "b" in plain.getvalue()
    assert "\x1b" not in plain.getvalue()


def test_exceptions_are_one_json_line() -> None:
    stream = io.StringIO()
    with logging_to(stream=stream):
        try:
            raise ValueError("odd")
        except ValueError:
            log.exception("turn failed")
    (line,) = _json_lines(stream)
    assert "ValueError: odd" in line["exception"]


def test_the_level_holds_and_is_put_back() -> None:
    stream, before = io.StringIO(), logging.getLogger().level
    with logging_to("warning", stream=stream):
        log.info("quiet")
        log.warning("loud")
    assert [line["event"] for line in _json_lines(stream)] == ["loud"]
    assert logging.getLogger().level == before


def test_repeated_warnings_are_thinned_out_and_others_are_not() -> None:
    stream = io.StringIO()
    with logging_to(stream=stream):
        for number in range(100):
            log.warning("link lost", extra={"number": number})
            log.info("progress")
        log.warning("something else")
    events = [line["event"] for line in _json_lines(stream)]
    assert events.count("link lost") == logs.REPEAT_BURST
    assert events.count("progress") == 100
    assert events.count("something else") == 1


def test_a_new_window_tells_how_many_were_left_out() -> None:
    repeats = Repeats(burst=2, window=10.0)
    assert [repeats.admit("a", now) for now in (0, 1, 2, 3, 9)] == [0, 0, None, None, None]
    assert [repeats.admit("a", now) for now in (10, 11, 12)] == [3, 0, None]


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 5)), max_size=80))
def test_nothing_left_out_is_forgotten(history: list[tuple[int, float]]) -> None:
    """Written + told as left out + still pending = everything, per message."""
    repeats, now = Repeats(burst=2, window=10.0), 0.0
    told = dict.fromkeys(range(4), 0)
    for key, pause in history:
        now += pause
        left_out = repeats.admit(key, now)
        if left_out is not None:
            told[key] += 1 + left_out
    for key in told:
        pending = repeats.admit(key, now + 100.0)
        assert pending is not None
        assert told[key] + pending == sum(one == key for one, _ in history)


def test_the_memory_of_messages_is_bounded() -> None:
    repeats = Repeats()
    for number in range(5 * MAX_REMEMBERED):
        repeats.admit(number, 0.0)
    assert len(repeats._seen) == MAX_REMEMBERED


def test_a_stalled_reader_costs_lines_never_time() -> None:
    lines: queue.Queue[logging.LogRecord] = queue.Queue(2)
    entrance = logs._BoundedQueue(lines)
    for number in range(5):
        entrance.handle(logging.makeLogRecord({"msg": f"line {number}"}))
    kept = [lines.get_nowait().getMessage() for _ in range(2)]
    assert kept == ["line 0", "line 1"]
    entrance.handle(logging.makeLogRecord({"msg": "line 5"}))
    assert lines.get_nowait().__dict__["dropped_lines"] == 3
