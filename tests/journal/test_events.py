"""Events and their bytes: every kind round-trips, and old and new journals stay readable."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, get_args, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.journal import events
from homing.journal.body import decode, encode

_FIELD: dict[type, st.SearchStrategy[Any]] = {
    bytes: st.binary(max_size=40),
    int: st.integers(0, 2**31 - 1),
    float: st.floats(0, 1e9),
    bool: st.booleans(),
}


def any_event(kind: type[events.Event]) -> st.SearchStrategy[events.Event]:
    hints = get_type_hints(kind)
    return st.builds(kind, **{name: _FIELD[hints[name]] for name in kind.__struct_fields__})


batches = st.lists(st.one_of([any_event(kind) for kind in events.KINDS.values()]), max_size=20)


@given(batches)
def test_what_is_encoded_comes_back(batch: list[events.Event]) -> None:
    assert decode(encode(batch)) == batch


def test_every_event_has_a_number_of_its_own() -> None:
    assert len(events.KINDS) == len(get_args(events.AnyEvent))
    assert set(events.KINDS.values()) >= events.PROMISES


def test_the_numbers_on_disk_never_change() -> None:
    """The first journals' bytes, by hand: [kind, at, fields…] with the first version's fields."""
    first = [
        (
            b"\x93\x01\xcb\x3f\xf0" + bytes(6) + b"\xc4\x06broker",
            events.NodeStarted(1.0, b"broker"),
        ),
        (
            b"\x95\x0a\xcb\x3f\xf0" + bytes(6) + b"\xc4\x04echo\xc4\x01c\x40",
            events.RequestAccepted(1.0, b"echo", b"c", 64),
        ),
        (
            b"\x95\x0c\xcb\x3f\xf0" + bytes(6) + b"\x07\xc4\x01w\x40",
            events.RequestAnswered(1.0, 7, b"w", 64),
        ),
        (
            b"\x94\x28\xcb\x3f\xf0" + bytes(6) + b"\xc4\x02id\xc4\x01c",
            events.Delivered(1.0, b"id", b"c"),
        ),
    ]
    body = bytes([0x90 + len(first)]) + b"".join(raw for raw, _ in first)
    assert decode(body) == [event for _, event in first]


def test_fields_added_later_are_skipped_and_missing_ones_take_their_default() -> None:
    body = msgspec.msgpack.encode([[2, 1.0, b"bye", "a field of 2031"], [2, 1.0]])
    assert decode(body) == [events.NodeStopped(1.0, b"bye"), events.NodeStopped(1.0)]


def test_a_kind_from_the_future_is_kept_beside_those_we_know() -> None:
    body = msgspec.msgpack.encode([[99, 1.0, b"x", 5], [2, 2.0], [10, 3.0, b"echo", b"c", 64]])
    assert decode(body) == [
        events.Unknown(99, 1.0, [b"x", 5]),
        events.NodeStopped(2.0),
        events.RequestAccepted(3.0, b"echo", b"c", 64),
    ]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x05",
        b"\x91\x05",
        b"\x91\x90",
        msgspec.msgpack.encode([["10", 1.0]]),
        msgspec.msgpack.encode([[True, 1.0]]),
        msgspec.msgpack.encode([[99, "now"]]),
        msgspec.msgpack.encode([[2, 1.0, "text where bytes belong"]]),
        msgspec.msgpack.encode([[2, 1.0]])[:-1],
        msgspec.msgpack.encode([[2, 1.0]]) + b"\x00",
        b"\x91" * 100_000,
    ],
)
def test_what_is_not_events_is_a_value_error(body: bytes) -> None:
    with pytest.raises(ValueError, match="not a "):
        decode(body)


@given(st.binary(max_size=200))
def test_any_bytes_decode_or_are_refused(body: bytes) -> None:
    with suppress(ValueError):
        assert isinstance(decode(body), list)
