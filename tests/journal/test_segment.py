"""Segment bytes: what is whole always comes back, what is not is always reported."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.journal import segment as segments
from homing.journal.body import encode
from homing.journal.events import NodeStopped
from homing.journal.segment import (
    BLOCK_BYTES,
    BLOCK_HEADER_BYTES,
    BLOCKS_AT,
    FORMAT,
    MARKER,
    Block,
    Damage,
    Header,
    read_header,
    scan,
    walk,
    write_block,
    write_header,
)

SALT = 0x5EED
HEADER = Header(b"node0001", 1, 1_700_000_000_000_000, SALT, "paris")
bodies = st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=6)


def segment(contents: list[bytes]) -> bytes:
    blocks = [write_block(1 + 10 * i, 10, 5, body, SALT) for i, body in enumerate(contents)]
    return write_header(HEADER) + b"".join(blocks)


def whole(data: bytes) -> list[bytes]:
    return [piece.body for piece in scan(data, SALT) if isinstance(piece, Block)]


def spans(contents: list[bytes]) -> list[tuple[int, int]]:
    """Where each block lies."""
    at, found = BLOCKS_AT, []
    for body in contents:
        found.append((at, at + BLOCK_HEADER_BYTES + len(body)))
        at = found[-1][1]
    return found


@given(bodies)
def test_blocks_come_back_with_their_numbers(contents: list[bytes]) -> None:
    data = segment(contents)
    assert read_header(data) == HEADER
    assert list(scan(data, SALT)) == [
        Block(start, end, 1 + 10 * i, 10, 5, contents[i])
        for i, (start, end) in enumerate(spans(contents))
    ]


@pytest.mark.parametrize(
    ("name", "role"),
    [("connector 00a1", "connector"), ("broker my site", "broker"), ("paris", None), ("", None)],
)
def test_a_header_says_which_role_of_its_node_writes(name: str, role: str | None) -> None:
    header = Header(b"node0001", 1, 0, SALT, name)
    assert read_header(write_header(header)).role == role


@given(bodies, st.data())
def test_any_truncation_leaves_exactly_the_whole_blocks(
    contents: list[bytes], draw: st.DataObject
) -> None:
    data = segment(contents)
    size = draw.draw(st.integers(BLOCKS_AT, len(data)))
    places = spans(contents)
    kept = [body for body, (_, end) in zip(contents, places, strict=True) if end <= size]
    pieces = list(scan(data[:size], SALT))
    assert whole(data[:size]) == kept
    boundary = places[len(kept) - 1][1] if kept else BLOCKS_AT
    torn = [(piece.start, piece.end) for piece in pieces if isinstance(piece, Damage)]
    assert torn == ([(boundary, size)] if boundary < size else [])


@given(bodies, st.data())
def test_any_corruption_costs_only_the_blocks_it_touches(
    contents: list[bytes], draw: st.DataObject
) -> None:
    data = bytearray(segment(contents))
    at = draw.draw(st.integers(BLOCKS_AT, len(data) - 1))
    noise = draw.draw(st.binary(min_size=1, max_size=30))
    end = min(len(data), at + len(noise))
    before = bytes(data)
    data[at:end] = noise[: end - at]
    changed = [i for i in range(at, end) if before[i] != data[i]]
    touched = [any(start <= i < stop for i in changed) for start, stop in spans(contents)]
    assert whole(bytes(data)) == [
        body for body, hit in zip(contents, touched, strict=True) if not hit
    ]
    reported = [piece for piece in scan(bytes(data), SALT) if isinstance(piece, Damage)]
    for i in changed:
        assert any(piece.start <= i < piece.end for piece in reported)


@given(st.integers(0, BLOCKS_AT // 2 - 1), st.booleans())
def test_one_broken_header_does_no_harm(at: int, second: bool) -> None:
    data = bytearray(segment([b"x"]))
    data[at + (BLOCKS_AT // 2 if second else 0)] ^= 0xFF
    assert read_header(bytes(data)) == HEADER


def walked(data: bytes) -> list[tuple[int, int, int, int]]:
    return list(walk(lambda at, size: data[at : at + size], len(data), SALT))


@given(bodies, st.integers(0, 400))
def test_walking_the_headers_finds_the_same_blocks(contents: list[bytes], cut: int) -> None:
    data = segment(contents)
    data = data[: max(BLOCKS_AT, len(data) - cut)]
    found = [piece for piece in scan(data, SALT) if isinstance(piece, Block)]
    assert walked(data) == [(p.start, p.end, p.first, p.count) for p in found]


def test_walking_passes_over_a_broken_header() -> None:
    data = bytearray(segment([b"one", b"two", b"three"]))
    data[spans([b"one", b"two"])[1][0] + 9] ^= 1
    assert [first for _, _, first, _ in walked(bytes(data))] == [1, 21]


@pytest.mark.parametrize("over", range(-6, 7))
def test_walking_finds_a_marker_wherever_what_is_taken_ends(over: int) -> None:
    contents = [bytes(BLOCK_BYTES - BLOCK_HEADER_BYTES + over), b"two"]
    data = bytearray(segment(contents))
    data[BLOCKS_AT + 9] ^= 1
    assert [first for _, _, first, _ in walked(bytes(data))] == [11]


def test_both_headers_broken_is_an_error() -> None:
    data = bytearray(segment([b"x"]))
    data[0] ^= 1
    data[BLOCKS_AT // 2] ^= 1
    with pytest.raises(ValueError, match="no whole segment header"):
        read_header(bytes(data))


@pytest.mark.parametrize("size", [0, 7, 16, 60, 4096, 4100])
def test_a_short_header_is_an_error_or_the_header(size: int) -> None:
    data = write_header(HEADER)[:size]
    if size >= 200:
        assert read_header(data) == HEADER
    else:
        with pytest.raises(ValueError, match="no whole segment header"):
            read_header(data)


def test_a_newer_format_is_refused_by_name() -> None:
    newer = Header(b"n", 1, 0, SALT, format=FORMAT + 1)
    with pytest.raises(ValueError, match=f"format {FORMAT + 1}, written by a newer homing"):
        read_header(write_header(newer))


def test_a_block_inside_a_payload_is_not_a_block() -> None:
    """Even where damage makes the reader search, bytes a peer sent never pass for events."""
    forged = write_block(900, 1, 0, encode([NodeStopped(1.0)]), 0)
    data = bytearray(segment([b"before", MARKER + forged + MARKER, b"after"]))
    start, _ = spans([b"before"])[0]
    data[start + BLOCK_HEADER_BYTES + len(b"before") + 4] ^= 0xFF  # the carrying block's header
    assert whole(bytes(data)) == [b"before", b"after"]


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="4096 bytes at most"):
        write_header(Header(b"n", 1, 0, SALT, "x" * 5000))
    monkeypatch.setattr(segments, "BODY_LIMIT", 1000)
    with pytest.raises(ValueError, match="holds 1000 bytes at most"):
        write_block(1, 1, 0, bytes(1001), SALT)
