"""The subscriber's wire, both sides: any elements, any chunking, typed errors with offsets."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.errors import RemoteProtocolError, TooLargeOnWire
from homing.wire import session
from homing.wire.session import AnswerStream, CommandStream, Status, command, elements
from tests.compat import load

T = TypeVar("T")
some_elements = st.lists(st.binary(max_size=60), min_size=1, max_size=6)
cut_points = st.lists(st.integers(0, 2000), max_size=10)


def chunked(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *[cut % (len(data) + 1) for cut in cuts]})
    return [data[a:b] for a, b in itertools.pairwise(edges)]


def feed(receive: Callable[[bytes], list[T]], chunks: list[bytes]) -> list[T]:
    return [found for chunk in chunks for found in receive(chunk)]


def singles(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


@given(st.lists(some_elements, max_size=5), cut_points)
def test_commands_round_trip_in_any_chunking(sent: list[list[bytes]], cuts: list[int]) -> None:
    data = b"".join(command(parts) for parts in sent)
    frames = feed(CommandStream().receive, chunked(data, cuts))
    assert [elements(frame) for frame in frames] == sent
    assert b"".join(frames) == data


def test_commands_as_recorded() -> None:
    data = load("session/commands")
    expected = [
        [b"hb"],
        [b"sub", b"Price", b'{"use":2,"low":10,"high":20.5}'],
        [b"ack", b"650000000102030405000001"],
        [b"\r\n\x00\xff\r\n"],
    ]
    for chunks in ([data], singles(data)):
        frames = feed(CommandStream().receive, chunks)
        assert [elements(frame) for frame in frames] == expected
    assert b"".join(command(parts) for parts in expected) == data
    assert data.startswith(session.HEARTBEAT)


def test_answers_as_recorded() -> None:
    data = load("session/answers")
    for chunks in ([data], singles(data)):
        *lines, push = feed(AnswerStream().receive, chunks)
        assert [repr(line) for line in lines] == [
            "Status(+authsuccess)",
            "Status(-command error: unknown)",
            "Status(+h)",
        ]
        assert isinstance(push, bytes)
        assert data.endswith(session.framed(push))


def test_a_heartbeat_is_recognised_without_being_parsed() -> None:
    stream = CommandStream()
    assert stream.receive(bytes(bytearray(session.HEARTBEAT)))[0] is session.HEARTBEAT
    frames = stream.receive(session.HEARTBEAT[:5]) + stream.receive(session.HEARTBEAT[5:])
    assert frames == [session.HEARTBEAT]
    assert elements(session.HEARTBEAT) == [b"hb"]


json_bodies = st.binary(max_size=300)
lines = st.text(max_size=60).filter(lambda text: "\r" not in text and "\n" not in text)


@given(st.lists(json_bodies | lines, max_size=6), cut_points)
def test_answers_round_trip_in_any_chunking(sent: list[bytes | str], cuts: list[int]) -> None:
    data = b"".join(
        session.framed(item) if isinstance(item, bytes) else session.status(True, item)
        for item in sent
    )
    got = feed(AnswerStream().receive, chunked(data, cuts))
    assert [item.text if isinstance(item, Status) else item for item in got] == sent


def test_a_status_line_stays_one_line() -> None:
    line = session.status(False, "bad\r\n+authsuccess\r\n")
    [answer] = AnswerStream().receive(line)
    assert isinstance(answer, Status)
    assert (answer.ok, answer.text) == (False, "bad  +authsuccess  ")
    assert len(session.status(True, "x" * 5000)) == session.MAX_STATUS


@pytest.mark.parametrize(
    ("data", "offset"),
    [
        (b"hello\r\n", 0),
        (b"\r\n", 0),
        (b"#\r\n", 0),
        (b"#-1\r\n", 0),
        (b"#1x\r\n", 0),
        (b"#12\n", 0),
        (b"# 12\r\n", 0),
        (b"#123456789\r\n", 0),  # too many digits
        (b"#" + b"1" * 40, 0),
        (session.HEARTBEAT + b"*1\r\n", 17),
    ],
)
def test_broken_framing_ends_the_connection(data: bytes, offset: int) -> None:
    for chunks in ([data], singles(data)):
        stream = CommandStream()
        with pytest.raises(RemoteProtocolError) as caught:
            feed(stream.receive, chunks)
        assert caught.value.offset == offset
        assert stream.last_words.startswith(b"-command error: ")
        assert stream.last_words.endswith(b"\r\n")


@pytest.mark.parametrize(
    ("body", "offset"),
    [
        (b"", 5),
        (b"hello\r\n", 5),
        (b"*1\r\n", 9),  # announces an element and has none
        (b"*0\r\n", 9),
        (b"*9999\r\n", 12),
        (b"*1\r\n$5\r\nhb\r\n", 13),  # runs out of its frame
        (b"*1\r\n$1\r\nhb\r\n", 13),  # ends too early
        (b"*1\r\n$2\r\nhb\r\nmore", 17),
        (b"*1\r\n$-2\r\nhb\r\n", 9),
        (b"*1\r\n$99999999\r\nhb\r\n", 20),
        (b"*1\n$2\nhb\n", 5),
    ],
)
def test_a_broken_command_is_an_error_and_the_next_one_counts(body: bytes, offset: int) -> None:
    frame = b"#%02d\r\n%b" % (len(body), body)
    first, second = CommandStream().receive(frame + session.HEARTBEAT)
    with pytest.raises(RemoteProtocolError) as caught:
        elements(first)
    assert caught.value.offset == offset
    assert second == session.HEARTBEAT


def test_a_frame_announced_larger_than_the_limit_is_refused_at_once() -> None:
    stream = CommandStream()
    with pytest.raises(TooLargeOnWire, match="262145 bytes announced"):
        stream.receive(b"#262145\r\n")
    assert stream.held == 0


def test_what_is_held_is_bounded_by_the_limit() -> None:
    stream = CommandStream(limit=1000)
    assert stream.receive(b"#1000\r\n") == []
    for _ in range(249):
        assert stream.receive(b"$1\r\n") == []
    assert stream.held < 1100
    assert len(stream.receive(b"last")) == 1
    assert stream.held == 0


@pytest.mark.parametrize(
    "data",
    [b"x", b"#1\r\n", b"#0\r\n", b"#4\r\nabcd", b"+" + b"x" * 2000, b"#99999999\r\n", b"#z\r\n"],
)
def test_broken_answers_are_typed_errors(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        feed(AnswerStream().receive, [data, b"\r\n"])


@given(st.binary(max_size=100), cut_points)
def test_any_bytes_give_commands_or_a_typed_error(data: bytes, cuts: list[int]) -> None:
    streams: list[CommandStream | AnswerStream] = [CommandStream(), AnswerStream()]
    for stream in streams:
        offset = 0
        try:
            for chunk in chunked(data, cuts):
                stream.receive(chunk)
        except RemoteProtocolError as error:
            offset = error.offset
        assert 0 <= offset <= len(data)
