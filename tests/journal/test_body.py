"""Runs of requests in a block's body: what stands for many events is these events to every reader."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.journal.body import decode, encode, expand, width
from homing.journal.events import (
    Event,
    Gap,
    NodeStopped,
    Parties,
    RequestAccepted,
    RequestAnswered,
    RequestReposted,
    RequestRun,
)

TIMES = st.floats(0, 1e9)
SIZES = st.integers(0, 2**31)
NAMES = st.binary(max_size=5)
PARTIES = st.tuples(NAMES, NAMES, NAMES, NAMES, NAMES)


@st.composite
def runs(draw: st.DrawFn) -> RequestRun:
    parties: list[Parties] = draw(st.lists(PARTIES, min_size=1, max_size=4))
    size = draw(st.integers(0, 6))
    who = draw(st.lists(st.integers(0, len(parties) - 1), min_size=size, max_size=size))
    times = st.lists(TIMES, min_size=size, max_size=size)
    sizes = st.lists(SIZES, min_size=size, max_size=size)
    odd = st.dictionaries(
        st.integers(0, 5), st.tuples(st.integers(1, 9), st.integers(0, 9), NAMES), max_size=2
    )
    count = sum(3 if parties[one][4] else 2 for one in who)
    first = draw(st.integers(1, 2**40))
    columns: list[Any] = [
        draw(times),
        draw(times),
        draw(times),
        draw(sizes),
        draw(sizes),
        draw(odd),
    ]
    return RequestRun(draw(TIMES), first, count, parties, who, *columns)


OTHERS = st.builds(Gap, TIMES, SIZES, TIMES)


@given(st.lists(runs() | OTHERS, max_size=4))
def test_a_run_is_read_as_the_events_it_stands_for(events: list[Event]) -> None:
    due: list[Event] = []
    for event in events:
        due += expand(event) if isinstance(event, RequestRun) else [event]
    assert decode(encode(events)) == due
    assert width(events) == len(due)


def a_run(**changed: Any) -> RequestRun:
    """Two requests; a peer answered the second, in three parts."""
    usual: dict[str, Any] = {
        "at": 1.0,
        "first": 7,
        "count": 5,
        "parties": [(b"echo", b"c", b"", b"w", b""), (b"echo", b"c", b"", b"", b"lyon")],
        "who": [0, 1],
        "accepted": [1.0, 2.0],
        "handed": [1.5, 2.0],
        "ended": [2.0, 4.0],
        "sizes": [64, 65],
        "answers": [3, 4],
        "odd": {1: (1, 3, b"id")},
    }
    return RequestRun(**{**usual, **changed})


def test_what_it_stands_for() -> None:
    assert expand(a_run()) == [
        RequestAccepted(1.0, b"echo", b"c", 64),
        RequestAnswered(2.0, 7, b"w", 3, 0.5),
        RequestAccepted(2.0, b"echo", b"c", 65, b"", b"id"),
        RequestReposted(2.0, 9, b"lyon"),
        RequestAnswered(4.0, 9, b"", 4, 0.0, 1, 3, b"lyon"),
    ]


def test_its_bytes_never_change() -> None:
    """By hand: kind 16, at, first, count, parties, and a column each for the rest."""
    one, two = b"\xcb\x3f\xf0" + bytes(6), b"\xcb\x40\x00" + bytes(6)
    body = (
        b"\x91\x9c\x10" + one + b"\x07\x02"
        b"\x91\x95\xc4\x04echo\xc4\x01c\xc4\x00\xc4\x01w\xc4\x00"
        b"\x91\x00\x91" + one + b"\x91" + one + b"\x91" + two + b"\x91\x40\x91\x03\x80"
    )
    found = [RequestAccepted(1.0, b"echo", b"c", 64), RequestAnswered(2.0, 7, b"w", 3)]
    assert decode(body) == found
    parties = [(b"echo", b"c", b"", b"w", b"")]
    run = RequestRun(1.0, 7, 2, parties, [0], [1.0], [1.0], [2.0], [64], [3], {})
    assert encode([run]) == body


@pytest.mark.parametrize(
    "changed",
    [
        {"count": 4},
        {"who": [0, 2]},
        {"who": [0, -1]},
        {"who": [0]},
        {"ended": [2.0]},
        {"answers": [3, 4, 5]},
        {"parties": []},
    ],
)
def test_columns_that_disagree_are_told(changed: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"run|batch|zip|RequestRun"):
        decode(encode([a_run(**changed)]))


def test_a_run_beside_what_nobody_knows_yet() -> None:
    items = [*msgspec.msgpack.decode(encode([a_run(), NodeStopped(9.0)])), [99, 1.0, b"new"]]
    found = decode(msgspec.msgpack.encode(items))
    assert found[:6] == [*expand(a_run()), NodeStopped(9.0)]
    assert len(found) == 7
