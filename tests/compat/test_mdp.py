"""Majordomo's recorded bytes, row by row, both ways."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from homing.wire import mdp, mdp_peers
from homing.wire.mdp_messages import (
    Answer,
    Dialect,
    Disconnect,
    Heartbeat,
    Kind,
    Message,
    Nak,
    PeerAnswer,
    PeerNak,
    Ready,
    Report,
    Repost,
    Request,
    State,
    Work,
)
from tests.compat import load, names

D0X, D01, D02 = Dialect.D0X, Dialect.D01, Dialect.D02
FINAL, PARTIAL = Kind.FINAL, Kind.PARTIAL
ID = b"\x00\x01\x02\x03\x04"
DATA = b"\x00\x05hello"
ENVELOPE = b"HM\x01\x09\x00\x00\x03\xe8id"

ROWS: dict[str, Message] = {
    "c1-request-0x": Request(D0X, b"echo", DATA),
    "c1-request-0x-two-frames": Request(D0X, b"echo", b"\x01\x01a\x00\x00"),
    "c1-request-01": Request(D01, b"echo", DATA),
    "c1-request-02": Request(D02, b"echo", DATA),
    "c1-request-0x-envelope": Request(D0X, b"echo", DATA, ENVELOPE),
    "c2-report-0x": Report(D0X, FINAL, b"echo", DATA),
    "c2-partial-0x": Report(D0X, PARTIAL, b"echo", DATA),
    "c2-nak-0x": Nak(b"echo", b"timeout"),
    "c2-report-01": Report(D01, FINAL, b"echo", DATA),
    "c2-final-02": Report(D02, FINAL, b"echo", DATA),
    "c2-partial-02": Report(D02, PARTIAL, b"echo", DATA),
    "w1-ready-0x": Ready(D0X, b"echo"),
    "w1-ready-0x-any": Ready(D0X),
    "w1-ready-0x-credit": Ready(D0X, b"echo", 16),
    "w1-ready-0x-slowest": Ready(D0X, b"echo", 16, 30_000),
    "w1-ready-0x-slowest-any": Ready(D0X, b"", 1, 30_000),
    "w1-ready-01": Ready(D01, b"echo"),
    "w1-ready-02": Ready(D02, b"echo"),
    "w2-request-0x": Work(D0X, b"echo", ID, DATA),
    "w2-request-01": Work(D01, b"", ID, DATA),
    "w2-request-02": Work(D02, b"", ID, DATA),
    "w3-repost-0x": Work(D0X, b"echo", ID, DATA, b"north"),
    "w4-report-local": Answer(D0X, FINAL, ID, b"echo", DATA),
    "w5-report-cloud": Answer(D0X, FINAL, ID, b"echo", DATA, b"north"),
    "w4-reply-01": Answer(D01, FINAL, ID, b"", DATA),
    "w4-partial-02": Answer(D02, PARTIAL, ID, b"", DATA),
    "w4-final-02": Answer(D02, FINAL, ID, b"", DATA),
    "w6-heartbeat-0x": Heartbeat(D0X),
    "w6-heartbeat-0x-interval": Heartbeat(D0X, 10_000),
    "w6-heartbeat-01": Heartbeat(D01),
    "w6-heartbeat-02": Heartbeat(D02),
    "w6-disconnect-0x": Disconnect(D0X),
    "w6-disconnect-01": Disconnect(D01),
    "w6-disconnect-02": Disconnect(D02),
    "b4-repost": Repost(b"echo", b"north", ID, DATA),
    "b7-report-cloud": PeerAnswer(FINAL, ID, b"echo", DATA),
    "b10-nak": PeerNak(ID, b"echo", b"queue-full"),
    "s1-state": State(b"north", 12, {"echo": 12}),
}

READERS: dict[type[Message], Callable[[bytes], Message]] = {
    Request: mdp.read_from_client,
    Report: mdp.read_to_client,
    Nak: mdp.read_to_client,
    Ready: mdp.read_from_worker,
    Answer: mdp.read_from_worker,
    Heartbeat: mdp.read_to_worker,
    Disconnect: mdp.read_from_worker,
    Work: mdp.read_to_worker,
    Repost: mdp_peers.read_at_cloudfe,
    PeerAnswer: mdp_peers.read_at_cloudbe,
    PeerNak: mdp_peers.read_at_cloudbe,
    State: mdp_peers.read_state,
}
BETWEEN_BROKERS = (Repost, PeerAnswer, PeerNak, State)


@pytest.mark.parametrize("row", ROWS)
def test_row(row: str) -> None:
    image, message = load(f"mdp/{row}"), ROWS[row]
    assert READERS[type(message)](image) == message
    write = mdp_peers.write if isinstance(message, BETWEEN_BROKERS) else mdp.write
    assert write(message) == image


def test_every_recording_is_checked() -> None:
    assert {f"mdp/{row}" for row in ROWS} == set(names("mdp"))
