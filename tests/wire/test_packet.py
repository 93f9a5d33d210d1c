"""Packets: any items, any chunking, any interleaving come back; broken lengths never pass."""

from __future__ import annotations

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.errors import RemoteProtocolError
from homing.wire import packet
from homing.wire.assembly import Assembler
from homing.wire.packet import MAX_BODY, Message, PacketStream, encode

KEY = 3
ID = bytes(range(12))

item_ids = st.integers(0, 255).filter(lambda identity: identity != KEY)
items = st.lists(st.tuples(item_ids, st.binary(max_size=50)), max_size=8)
long_items = st.lists(
    st.tuples(item_ids, st.integers(0, 5000).map(lambda n: bytes(i % 251 for i in range(n)))),
    max_size=4,
)
commands = st.integers(1, 8).filter(lambda command: command != packet.STATUS)


def joined(pairs: list[tuple[int, bytes]]) -> dict[int, bytes]:
    whole: dict[int, bytes] = {KEY: ID}
    for identity, body in pairs:
        whole[identity] = whole.get(identity, b"") + body
    return whole


def chunked(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *[cut % (len(data) + 1) for cut in cuts]})
    return [data[a:b] for a, b in itertools.pairwise(edges)]


def decode(data: bytes, chunks: list[bytes] | None = None) -> list[Message]:
    stream, assembler = PacketStream(), Assembler(KEY)
    runs = [run for chunk in chunks or [data] for run in stream.receive(chunk)]
    assert b"".join(runs) == data
    return [message for run in runs for message in assembler.receive(run, 0.0)]


@given(commands, items | long_items, st.booleans(), st.lists(st.integers(0, 20000), max_size=12))
def test_round_trip_in_any_chunking(
    command: int, pairs: list[tuple[int, bytes]], redirected: bool, cuts: list[int]
) -> None:
    data = encode(command, pairs, key=(KEY, ID), redirected=redirected)
    assert decode(data, chunked(data, cuts)) == [Message(command, joined(pairs), redirected)]


def test_a_byte_at_a_time() -> None:
    data = encode(packet.PUSH, [(2, b"x" * 4500)], key=(KEY, ID)) + encode(packet.HEARTBEAT)
    whole = decode(data, [data[i : i + 1] for i in range(len(data))])
    assert whole == [
        Message(packet.PUSH, {KEY: ID, 2: b"x" * 4500}),
        Message(packet.HEARTBEAT, {}),
    ]


@given(st.lists(st.integers(1, 9000), min_size=2, max_size=6), st.randoms(use_true_random=False))
def test_messages_interleave_packet_by_packet(sizes: list[int], random: object) -> None:
    ids = [bytes([n]) * 12 for n in range(len(sizes))]
    waiting = [
        cut(encode(packet.PUSH, [(1, b"{}"), (2, bytes([n]) * size)], key=(KEY, ids[n])))
        for n, size in enumerate(sizes)
    ]
    mixed: list[bytes] = []
    while any(waiting):
        queue = random.choice([q for q in waiting if q])  # type: ignore[attr-defined]
        mixed.append(queue.pop(0))
    done = {message.items[KEY]: message.items[2] for message in decode(b"".join(mixed))}
    assert done == {ids[n]: bytes([n]) * size for n, size in enumerate(sizes)}


def cut(data: bytes) -> list[bytes]:
    packets = []
    while data:
        size = 4 + struct.unpack(">H", data[1:3])[0]
        packets.append(data[:size])
        data = data[size:]
    return packets


def test_a_body_of_exactly_the_largest_size_is_one_packet() -> None:
    room = MAX_BODY - 3 - len(ID) - 3
    assert [len(p) for p in cut(encode(packet.PUSH, [(2, b"a" * room)], key=(KEY, ID)))] == [2004]
    longer = cut(encode(packet.PUSH, [(2, b"a" * (room + 1))], key=(KEY, ID)))
    assert [p[3] for p in longer] == [packet.HEAD, packet.TAIL]


@given(long_items)
def test_packets_of_a_long_message_are_as_full_as_they_get(
    pairs: list[tuple[int, bytes]],
) -> None:
    packets = cut(encode(packet.PUSH, pairs, key=(KEY, ID)))
    assert all(len(p) > 2004 - 4 for p in packets[:-1])
    if len(packets) > 1:
        parts = [p[3] for p in packets]
        assert parts == [
            packet.HEAD,
            *[packet.MIDDLE] * (len(packets) - 2),
            packet.TAIL,
        ]


def test_a_long_message_needs_a_key() -> None:
    with pytest.raises(ValueError, match="needs a key"):
        encode(packet.PUSH, [(2, b"x" * 3000)])


@pytest.mark.parametrize(
    ("data", "offset"),
    [
        (b"\x03\x07\xd1\x01", 1),  # 2001 bytes announced
        (b"\x03\xff\xff\x01", 1),
        (b"\x02\x00\x00\x00\x03\xff\xff\x01", 5),  # the second packet of a chunk
    ],
)
def test_a_broken_packet_length_ends_the_link(data: bytes, offset: int) -> None:
    for chunks in ([data], [data[i : i + 1] for i in range(len(data))]):
        with pytest.raises(RemoteProtocolError) as caught:
            decode(data, chunks)
        assert caught.value.offset == offset


@pytest.mark.parametrize(
    ("data", "offset"),
    [
        (b"\x03\x00\x08\x01" + b"\x01\xff\xff" + b"12345", 5),  # item of 65535 in 12 bytes
        (b"\x03\x00\x03\x01" + b"\x01\x00\x01", 5),  # one byte past the end
        (b"\x03\x00\x02\x01" + b"\x01\x00", 4),  # item header cut off
        (b"\x03\x00\x05\x01" + b"\x01\x00\x01a\x02", 8),
        (b"\x03\x00", 0),  # not a whole packet: a caller that skipped PacketStream
        (b"\x03\x00\x05\x01\x01", 0),
    ],
)
def test_a_broken_item_length_ends_the_link(data: bytes, offset: int) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        Assembler(KEY).receive(data, 0.0)
    assert caught.value.offset == offset


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=5))
def test_any_bytes_give_messages_or_a_typed_error(data: bytes, cuts: list[int]) -> None:
    stream, assembler = PacketStream(), Assembler(KEY)
    offset = 0
    try:
        for chunk in chunked(data, cuts):
            for run in stream.receive(chunk):
                assembler.receive(run, 0.0)
    except RemoteProtocolError as error:
        offset = error.offset
    assert 0 <= offset <= len(data)


def test_whole_chunks_are_not_copied() -> None:
    data = encode(packet.PUSH, [(2, b"x" * 9000)], key=(KEY, ID))
    assert PacketStream().receive(data)[0] is data


parts = st.sampled_from(
    [packet.HEAD, packet.MIDDLE, packet.TAIL, packet.MIDDLE | packet.TAIL, packet.SINGLE]
)
some_items = st.lists(
    st.tuples(st.sampled_from([KEY, 1, 2]), st.sampled_from([b"", b"a" * 12, b"b" * 12])),
    max_size=3,
)
raw_packets = st.builds(
    lambda command, extra, redirected, pairs, times: (
        _raw(command, extra | redirected, pairs),
        times,
    ),
    st.sampled_from([packet.PUSH, packet.STATUS, packet.ACK, 9]),
    parts,
    st.sampled_from([0, packet.REDIRECTED]),
    some_items | some_items.map(lambda pairs: [(KEY, b"a" * 12), *pairs]),
    st.integers(1, 4),
)


def _raw(command: int, extra: int, pairs: list[tuple[int, bytes]]) -> bytes:
    body = b"".join([struct.pack(">BH", i, len(one)) + one for i, one in pairs])
    return struct.pack(">BHB", command, len(body), extra) + body


@given(st.lists(raw_packets, max_size=12), st.integers(20, 200))
def test_packets_in_one_run_mean_what_they_mean_one_by_one(
    pieces: list[tuple[bytes, int]], most: int
) -> None:
    packets = [one for one, times in pieces for _ in range(times)]
    together, apart = Assembler(KEY, max_message=most), Assembler(KEY, max_message=most)
    expected = [message for one in packets for message in apart.receive(one, 0.0)]
    assert together.receive(b"".join(packets), 0.0) == expected
    assert together.take() == apart.take()
    assert (together.held, len(together)) == (apart.held, len(apart))
