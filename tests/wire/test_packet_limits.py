"""Assembly within its limits: what is too much is refused once, and the link stays up."""

from __future__ import annotations

import pytest

from homing.errors import RemoteProtocolError
from homing.wire import packet
from homing.wire.assembly import Assembler
from homing.wire.packet import Message, encode

KEY = 1


def parts(number: int, size: int, command: int = packet.PUSH) -> list[bytes]:
    """The packets of a long message."""
    data = encode(command, [(2, b"x" * size)], key=(KEY, identity(number)))
    packets = []
    while data:
        end = 4 + int.from_bytes(data[1:3], "big")
        packets.append(data[:end])
        data = data[end:]
    return packets


def identity(number: int) -> bytes:
    return number.to_bytes(12, "big")


def naks(assembler: Assembler) -> list[tuple[bytes, str]]:
    answer = Assembler(KEY).receive(assembler.take(), 0.0)
    assert all(message.command == packet.NAK for message in answer)
    return [(m.items.get(KEY, b""), m.items[packet.REASON].decode()) for m in answer]


def test_too_large_is_refused_once_and_the_rest_dropped() -> None:
    assembler = Assembler(KEY, max_message=5000)
    for run in parts(1, 20_000):
        assert assembler.receive(run, 0.0) == []
        assert assembler.held <= 5000
    assert naks(assembler) == [(identity(1), "too-large over 5000 bytes")]
    again = [m for run in parts(1, 4000) for m in assembler.receive(run, 0.0)]
    assert again == [Message(packet.PUSH, {KEY: identity(1), 2: b"x" * 4000})]
    assert naks(assembler) == []


def test_one_too_many_under_way_is_refused_and_the_others_finish() -> None:
    assembler = Assembler(KEY, max_unfinished=3)
    messages = [parts(n, 4000) for n in range(4)]
    for packets in messages:
        assembler.receive(packets[0], 0.0)
    assert len(assembler) == 3
    assert naks(assembler) == [(identity(3), "too-large 3 messages under way")]
    done = [m for packets in messages for m in assembler.receive(b"".join(packets[1:]), 0.0)]
    assert [m.items[KEY] for m in done] == [identity(n) for n in range(3)]
    assert (len(assembler), naks(assembler)) == (0, [])


def test_a_message_without_news_is_dropped_with_a_nak() -> None:
    assembler = Assembler(KEY, patience=30.0)
    first, second = parts(1, 6000), parts(2, 6000)
    assembler.receive(first[0], 0.0)
    assembler.receive(second[0], 10.0)
    assembler.receive(first[1], 20.0)  # news: its time starts again
    assembler.expire(41.0)
    assert naks(assembler) == [(identity(2), "timeout no packet for too long")]
    assembler.expire(60.0)
    assert naks(assembler) == [(identity(1), "timeout no packet for too long")]
    assert (len(assembler), assembler.held) == (0, 0)


def test_a_head_again_starts_the_message_over() -> None:
    assembler = Assembler(KEY)
    packets = parts(1, 4000)
    assembler.receive(packets[0] + packets[1], 0.0)
    [message] = assembler.receive(b"".join(packets), 0.0)
    assert message.items[2] == b"x" * 4000


def test_an_orphaned_tail_is_refused_once() -> None:
    assembler = Assembler(KEY)
    assert assembler.receive(b"".join(parts(1, 9000)[1:]), 0.0) == []
    assert naks(assembler) == [(identity(1), "malformed middle or tail of an unknown message")]


def test_refusals_are_remembered_within_a_bound() -> None:
    assembler = Assembler(KEY, max_unfinished=2)
    for number in range(1000):
        assembler.receive(parts(number, 9000)[1], 0.0)
    assert len(naks(assembler)) == 1000
    assert len(assembler) == 0


def test_empty_items_are_not_free() -> None:
    assembler = Assembler(KEY, max_message=10_000)
    empty = b"".join(bytes((2, 0, 0)) for _ in range(600))
    body = b"\x01\x00\x0c" + identity(1) + empty
    middle = bytes((packet.PUSH,)) + len(body).to_bytes(2, "big") + bytes((packet.MIDDLE,)) + body
    assembler.receive(parts(1, 4000)[0], 0.0)
    for _ in range(20):
        assembler.receive(middle, 0.0)
    assert naks(assembler) == [(identity(1), "too-large over 10000 bytes")]


@pytest.mark.parametrize("command", [0, 9, 255])
def test_an_unknown_command_is_refused_and_the_link_stays_up(command: int) -> None:
    assembler = Assembler(KEY)
    odd = encode(command, [], key=(KEY, identity(7)))
    [message] = assembler.receive(odd + encode(packet.HEARTBEAT), 0.0)
    assert message == Message(packet.HEARTBEAT, {})
    assert naks(assembler) == [(identity(7), f"malformed unknown command {command}")]


@pytest.mark.parametrize("extra", [0x03, 0x20, 0x0C, 0xFF])
def test_an_unknown_extra_is_refused(extra: int) -> None:
    assembler = Assembler(KEY)
    assert assembler.receive(bytes((packet.PUSH, 0, 0, extra)), 0.0) == []
    assert naks(assembler) == [(b"", "malformed unknown extra")]


def test_an_extra_of_none_is_a_single_packet() -> None:
    assembler = Assembler(KEY)
    assert assembler.receive(b"\x02\x00\x00\x00", 0.0) == [Message(packet.HEARTBEAT, {})]
    assert assembler.receive(b"\x02\x00\x00\x10", 0.0) == [Message(packet.HEARTBEAT, {}, True)]


def test_a_part_without_an_id_is_refused() -> None:
    assembler = Assembler(KEY)
    assembler.receive(b"\x03\x00\x04\x02\x02\x00\x01x", 0.0)
    assert naks(assembler) == [(b"", "malformed part of a message without its id")]


@pytest.mark.parametrize("command", [packet.ACK, packet.NAK])
def test_answers_are_never_answered(command: int) -> None:
    assembler = Assembler(KEY)
    assembler.receive(bytes((command, 0, 0, 0x03)) + parts(1, 4000, command)[1], 0.0)
    assert assembler.take() == b""


def test_unknown_items_are_kept_for_whoever_knows_them() -> None:
    [message] = Assembler(KEY).receive(encode(packet.PUSH, [(200, b"new"), (200, b"er")]), 0.0)
    assert message.items == {200: b"newer"}


def test_a_run_that_breaks_keeps_what_came_before_it() -> None:
    assembler = Assembler(KEY)
    with pytest.raises(RemoteProtocolError):
        assembler.receive(parts(1, 4000)[0] + b"\x03\xff\xff\x01", 0.0)
    assert len(assembler) == 1
