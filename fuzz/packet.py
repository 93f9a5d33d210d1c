"""Packets: any bytes, in two chunkings, give the same messages, then perhaps a typed error."""

from __future__ import annotations

from homing.errors import Malformed, WireError
from homing.wire import packet, publish, relay, status
from homing.wire.assembly import Assembler
from homing.wire.packet import Message, PacketStream

_ID = bytes(12)
SEEDS = (
    relay.Push(_ID, b"payload", bytes(40), b'{"a":1}').encode(),
    relay.Push(_ID, b"x" * 3000, bytes(20), b"{}", redirected=True).encode(),
    relay.Subscribe(_ID, _ID, bytes(8), b"name", b"{}").encode() + relay.Ack(_ID, _ID).encode(),
    relay.Hello(bytes(8), b"matcher", b"token", bytes(16)).encode() + relay.Heartbeat(1).encode(),
    publish.Publish(b"{}", b"", _ID).encode() + publish.Accepted(_ID, 1).encode(),
    status.Status(b"host", vnodes=bytes(60), number=1).encode() + status.confirm(1),
)


def target(data: bytes) -> None:
    whole = _messages([data])
    step = 1 + len(data) // 7
    pieces = _messages([data[at : at + step] for at in range(0, len(data), step)])
    # An error takes the rest of its chunk with it: smaller chunks may say more before it.
    assert pieces[: len(whole)] == whole
    for message in pieces:
        _typed(message)


def _messages(chunks: list[bytes]) -> list[Message]:
    stream, assembler = PacketStream(), Assembler(relay.MESSAGE_ID, max_unfinished=4)
    messages: list[Message] = []
    try:
        for chunk in chunks:
            for run in stream.receive(chunk):
                for one in _packets(run):
                    messages += assembler.receive(one, 0.0)
    except WireError:
        pass
    assert len(assembler) <= 4
    naks = Assembler(relay.MESSAGE_ID).receive(assembler.take(), 0.0)
    assert all(nak.command == packet.NAK for nak in naks)
    return messages


def _packets(run: bytes) -> list[bytes]:
    """Single packets, so that an error leaves the same messages whatever the chunking."""
    packets = []
    at = 0
    while at < len(run):
        end = at + packet.HEADER_BYTES + packet.body_size(run, at)
        packets.append(run[at:end])
        at = end
    return packets


def _typed(message: Message) -> None:
    for decode in (publish.from_publisher, publish.from_matcher, status.decode, status.confirmed):
        try:
            decode(message)
        except Malformed:
            continue
    try:
        typed = relay.decode(message)
    except Malformed:
        return
    [again] = Assembler(relay.MESSAGE_ID).receive(typed.encode(), 0.0)
    assert relay.decode(again) == typed
