"""Finding whole messages in a stream, however it is cut into chunks."""

from __future__ import annotations

import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.errors import RemoteProtocolError, TooLargeOnWire, WireError
from homing.wire.frames import CUT, command, cut, frame, pack, unpack
from homing.wire.reader import KEPT, ImageReader

BODIES = st.one_of(st.binary(max_size=20), st.sampled_from([0, 255, 256, 5000]).map(bytes))
MESSAGES = st.lists(BODIES, min_size=1, max_size=5)
COMMANDS = st.builds(command, st.sampled_from([b"PING", b"SUBSCRIBE"]), st.binary(max_size=300))


def reader(
    message: int = 1 << 20, frames: int = 64, most: int = 1 << 12, passed: int = 0
) -> ImageReader:
    return ImageReader(max_message=message, max_frames=frames, max_command=most, max_passed=passed)


def feed_all(into: ImageReader, stream: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    images: list[bytes] = []
    for start, end in pairwise(edges):
        images += into.feed(stream[start:end])
    return images


@given(st.lists(MESSAGES | COMMANDS, max_size=8), st.lists(st.integers(0, 1 << 16), max_size=12))
def test_any_chunking_gives_the_same_messages(
    items: list[list[bytes] | bytes], cuts: list[int]
) -> None:
    images = [item if isinstance(item, bytes) else pack(item) for item in items]
    assert feed_all(reader(), b"".join(images), cuts) == images


@given(st.lists(MESSAGES, min_size=1, max_size=3), COMMANDS, st.data())
def test_a_command_may_come_between_two_frames(
    messages: list[list[bytes]], inserted: bytes, data: st.DataObject
) -> None:
    pieces = [frame(body, i < len(m) - 1) for m in messages for i, body in enumerate(m)]
    at = data.draw(st.integers(0, len(pieces)))
    stream = b"".join([*pieces[:at], inserted, *pieces[at:]])
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=8))
    found = feed_all(reader(), stream, cuts)
    assert inserted in found
    found.remove(inserted)
    assert found == [pack(message) for message in messages]


def test_one_byte_at_a_time() -> None:
    images = [pack([b"", b"MDPC0X", b"x" * 300]), command(b"PING", b"\0\0"), pack([b"z"])]
    stream = b"".join(images)
    assert feed_all(reader(), stream, list(range(len(stream)))) == images


def test_the_commands_mark_is_of_the_last_chunk_only() -> None:
    into = reader()
    into.feed(command(b"PING", b"\0\0"))
    assert into.commands
    into.feed(pack([b"x"]))
    assert not into.commands


@pytest.mark.parametrize(
    ("stream", "error", "offset"),
    [
        (b"\x08\x00", RemoteProtocolError, 0),  # a reserved bit
        (b"\x00\x01x\x05\x00", RemoteProtocolError, 3),  # a command with MORE
        (b"\xff\xff", RemoteProtocolError, 0),
        (b"\x02" + b"\xff" * 8, TooLargeOnWire, 0),  # 2^64 - 1 bytes announced
        (b"\x00\x01x\x02" + (2000).to_bytes(8, "big"), TooLargeOnWire, 3),
        (b"\x06" + (501).to_bytes(8, "big"), TooLargeOnWire, 0),  # a command
    ],
)
@pytest.mark.parametrize("whole", [True, False])
def test_malformed(stream: bytes, error: type[WireError], offset: int, whole: bool) -> None:
    into = reader(message=1000, frames=10, most=500)
    cuts = [] if whole else list(range(len(stream)))
    with pytest.raises(error) as caught:
        feed_all(into, stream, cuts)
    assert type(caught.value) is error
    assert caught.value.offset >= offset


@pytest.mark.parametrize("cuts", [[], [5], list(range(400))])
def test_limits_hold_for_whole_and_for_torn_messages(cuts: list[int]) -> None:
    fine = pack([b"x"] * 10)
    assert feed_all(reader(message=1000, frames=10), fine, cuts) == [fine]
    with pytest.raises(TooLargeOnWire):
        feed_all(reader(message=1000, frames=10), pack([b"x"] * 11), cuts)
    with pytest.raises(TooLargeOnWire):
        feed_all(reader(message=1000, frames=10), pack([b"x" * 250] * 5), cuts)


def test_a_small_limit_on_bytes_holds_beside_a_large_one_on_frames() -> None:
    with pytest.raises(TooLargeOnWire):
        reader(message=1000, frames=100_000).feed(pack([b"x" * 600, b"x" * 600]))


def _bytes_held(of: ImageReader) -> int:
    held = sys.getsizeof(of._torn)
    for piece in of._pieces:
        held += sys.getsizeof(piece.obj if isinstance(piece, memoryview) else piece)
    return held


@pytest.mark.parametrize("chunk", [1, 3, 4095, 4096, 65536])
def test_memory_is_bounded_by_the_limit_whatever_the_chunks(chunk: int) -> None:
    """A peer that trickles a message it never ends makes us hold its bytes and little more."""
    limit = 1 << 20 if chunk > 3 else 1 << 15
    into = reader(message=limit)
    stream = b"\x02" + (limit - 9).to_bytes(8, "big") + bytes(limit - 10)
    for at in range(0, len(stream), chunk):
        assert into.feed(stream[at : at + chunk]) == []
        assert len(into._pieces) <= limit // 4096 + 2
    assert _bytes_held(into) <= limit * 1.3 + chunk
    assert into.feed(b"!") == [stream + b"!"]
    assert _bytes_held(into) < 200


def test_little_pieces_do_not_pin_big_chunks() -> None:
    """A chunk of 64 KiB of which 5 KiB are a message's and the rest commands, again and again."""
    piece, filler = bytes(5000), command(b"FUTURE", bytes(60_000))
    into = reader(message=1 << 20, frames=1000, most=1 << 16)
    for _ in range(50):
        into.feed(frame(piece, True) + filler)
    assert _bytes_held(into) < 50 * len(piece) * 1.5


def test_endless_small_frames_meet_a_limit() -> None:
    into = reader(message=1 << 16, frames=1 << 20)
    with pytest.raises(TooLargeOnWire):
        feed_all(into, b"\x01\x00" * (1 << 17), [2 * n for n in range(1 << 17)])


# --- messages over a limit that go by -------------------------------------------------------------


@given(
    st.lists(st.lists(BODIES, min_size=1, max_size=7) | COMMANDS, max_size=8),
    st.lists(st.integers(0, 1 << 16), max_size=12),
)
def test_what_goes_by_leaves_its_beginning_in_any_chunking(
    items: list[list[bytes] | bytes], cuts: list[int]
) -> None:
    images = [item if isinstance(item, bytes) else pack(item) for item in items]
    expected = [
        cut(image[:KEPT])
        if not isinstance(item, bytes) and (len(image) > 600 or len(item) > 4)
        else image
        for item, image in zip(items, images, strict=True)
    ]
    into = reader(message=600, frames=4, passed=1 << 20)
    assert feed_all(into, b"".join(images), cuts) == expected
    assert not into._pieces
    assert into.skimmable == -1 or not into._torn


def test_a_message_is_cut_behind_its_last_whole_frame() -> None:
    image = pack([b"", b"MDPC0X", b"echo", b"x" * 300, b"tail"])
    for size in range(len(image)):
        left = cut(image[:size])
        assert left[0] == CUT
        assert unpack(left[1:])[-1] == b""
        assert [b"", b"MDPC0X", b"echo", b"x" * 300][: len(unpack(left[1:])) - 1] == unpack(
            left[1:]
        )[:-1]


@pytest.mark.parametrize("chunk", [1000, 65536])
def test_what_goes_by_is_not_kept(chunk: int) -> None:
    into = reader(message=1 << 16, passed=1 << 30)
    size = 1 << 24
    stream = frame(b"head", True) + b"\x02" + size.to_bytes(8, "big")
    assert into.feed(stream) == []
    for _ in range(0, size - chunk, chunk):
        assert into.feed(bytes(chunk)) == []
        assert _bytes_held(into) < 20_000
    rest = size - len(range(0, size - chunk, chunk)) * chunk
    assert into.feed(bytes(rest) + pack([b"next"])) == [cut(stream), pack([b"next"])]


def test_more_than_may_go_by_ends_the_stream() -> None:
    with pytest.raises(TooLargeOnWire):
        reader(message=1000, passed=5000).feed(b"\x02" + (5001).to_bytes(8, "big"))
    into = reader(message=1000, passed=5000)
    for _ in range(24):
        into.feed(frame(bytes(200), True))
    with pytest.raises(TooLargeOnWire):
        into.feed(frame(bytes(200), True))
