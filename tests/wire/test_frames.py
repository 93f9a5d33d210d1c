"""Wire images: packing, unpacking, heads and tails, and every way an image can be broken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.errors import RemoteProtocolError
from homing.wire.frames import command, frame, head, pack, prefix, tail_end, unpack

BODIES = st.one_of(st.binary(max_size=40), st.sampled_from([254, 255, 256, 70_000]).map(bytes))
MESSAGES = st.lists(BODIES, min_size=1, max_size=12)


@given(MESSAGES)
def test_unpack_undoes_pack(frames: list[bytes]) -> None:
    assert unpack(pack(frames)) == frames


@given(MESSAGES, MESSAGES)
def test_a_prefix_before_an_image_is_the_longer_message(
    front: list[bytes], frames: list[bytes]
) -> None:
    assert prefix(front) + pack(frames) == pack(front + frames)


@given(MESSAGES, st.integers(0, 14))
def test_head_leaves_a_tail_that_is_itself_an_image(frames: list[bytes], count: int) -> None:
    image = pack(frames)
    first, at = head(image, count)
    assert first == frames[:count]
    if count < len(frames):
        assert unpack(image[at:]) == frames[count:]
    else:
        assert at == len(image)


@given(st.binary(max_size=9), MESSAGES, st.binary(max_size=9), st.integers(0, 99))
def test_the_end_of_a_tail(before: bytes, frames: list[bytes], after: bytes, lost: int) -> None:
    """Found if all of it is there and it is short; nothing else is taken for it."""
    data = before + pack(frames)
    end = len(data) if len(frames) <= 8 else 0
    assert tail_end(data, len(before)) == end
    assert tail_end(data + after, len(before)) == end
    assert tail_end(data[: -1 - lost], len(before)) == 0


@given(st.binary(max_size=40), st.integers(0, 40))
def test_anything_has_an_end_within_it_or_none(data: bytes, at: int) -> None:
    end = tail_end(data, at)
    assert end == 0 or (at < end <= len(data) and unpack(data[at:end]))


def test_a_command_is_no_tail() -> None:
    assert tail_end(command(b"PING"), 0) == 0


def test_the_image_is_what_zmtp_says() -> None:
    image = pack([b"", b"MDPC0X", b"x" * 256])
    assert image == b"\x01\x00\x01\x06MDPC0X\x02" + (256).to_bytes(8, "big") + b"x" * 256
    assert frame(b"hi", True) == b"\x01\x02hi"
    assert command(b"PING", b"\x00\x0a") == b"\x04\x07\x04PING\x00\x0a"
    assert command(b"SUBSCRIBE", b"t" * 300)[:9] == b"\x06" + (310).to_bytes(8, "big")


def test_a_message_has_at_least_one_frame() -> None:
    with pytest.raises(ValueError, match="at least one frame"):
        pack([])


@pytest.mark.parametrize(
    ("image", "offset"),
    [
        (b"", 0),
        (b"\x00", 0),
        (b"\x00\x02x", 0),
        (b"\x01\x01x", 3),
        (b"\x01\x01x\x00", 3),
        (b"\x02\x00\x00\x00", 0),
        (b"\x02" + (5).to_bytes(8, "big") + b"abcd", 0),
        (b"\x00\x01xmore", 3),
    ],
)
def test_a_broken_image_says_where(image: bytes, offset: int) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        unpack(image)
    assert caught.value.offset == offset
