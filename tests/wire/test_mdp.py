"""Majordomo in three dialects: every message survives its bytes, no other bytes crash."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.errors import LocalProtocolError, RemoteProtocolError, WireError
from homing.wire import mdp, mdp_peers
from homing.wire.frames import pack, unpack
from homing.wire.mdp_messages import (
    Answer,
    Dialect,
    Disconnect,
    Heartbeat,
    Kind,
    Nak,
    Options,
    PeerAnswer,
    PeerNak,
    Ready,
    Report,
    Repost,
    Request,
    State,
    Work,
)

names = st.binary(min_size=1, max_size=255)
addresses = st.binary(min_size=1, max_size=300)
datas = st.lists(st.binary(max_size=300), min_size=1, max_size=4).map(pack)
envelopes = st.one_of(st.just(b""), st.binary(min_size=1, max_size=255))
dialects = st.sampled_from(Dialect)
reports = st.sampled_from((Kind.FINAL, Kind.PARTIAL))
D0X, D01, D02 = Dialect.D0X, Dialect.D01, Dialect.D02


@given(dialects, names, datas, envelopes)
def test_request(dialect: Dialect, service: bytes, data: bytes, envelope: bytes) -> None:
    sent = Request(dialect, service, data, b"" if dialect == D02 else envelope)
    assert mdp.read_from_client(mdp.write(sent)) == sent


@given(dialects, reports, names, datas, envelopes)
def test_report(dialect: Dialect, kind: Kind, service: bytes, data: bytes, envelope: bytes) -> None:
    kind = Kind.FINAL if dialect == D01 else kind
    sent = Report(dialect, kind, service, data, b"" if dialect == D02 else envelope)
    assert mdp.read_to_client(mdp.write(sent)) == sent


@given(names, st.binary(max_size=100), envelopes)
def test_nak(service: bytes, reason: bytes, envelope: bytes) -> None:
    sent = Nak(service, reason, envelope)
    assert mdp.read_to_client(mdp.write(sent)) == sent


@given(dialects, names, st.integers(1, 65536), st.integers(0, 3_600_000))
def test_ready(dialect: Dialect, service: bytes, credit: int, slowest: int) -> None:
    sent = Ready(dialect, service, credit, slowest) if dialect == D0X else Ready(dialect, service)
    assert mdp.worker_dialect(mdp.write(sent)) == dialect
    assert mdp.read_from_worker(mdp.write(sent)) == sent


def test_ready_for_any_service() -> None:
    for sent in (Ready(D0X), Ready(D0X, b"", 7), Ready(D0X, b"", 1, 30_000)):
        assert mdp.read_from_worker(mdp.write(sent)) == sent


@given(dialects, names, addresses, datas, st.one_of(st.just(b""), names))
def test_work(dialect: Dialect, service: bytes, address: bytes, data: bytes, origin: bytes) -> None:
    sent = Work(D0X, service, address, data, origin)
    if dialect != D0X:
        sent = Work(dialect, b"", address, data)
    assert mdp.read_to_worker(mdp.write(sent)) == sent


@given(dialects, reports, addresses, names, datas, st.one_of(st.just(b""), names))
def test_answer(
    dialect: Dialect, kind: Kind, address: bytes, service: bytes, data: bytes, origin: bytes
) -> None:
    sent = Answer(dialect, kind, address, service, data, origin)
    if dialect == D02:
        sent = Answer(D02, kind, address, b"", data)
    if dialect == D01:
        sent = Answer(D01, Kind.FINAL, address, b"", data)
    assert mdp.read_from_worker(mdp.write(sent)) == sent


@given(addresses, names, st.binary(max_size=50))
def test_failed(address: bytes, service: bytes, reason: bytes) -> None:
    sent = Answer(D0X, Kind.FAILED, address, service, reason)
    assert mdp.read_from_worker(mdp.write(sent)) == sent


@pytest.mark.parametrize("dialect", Dialect)
def test_heartbeat_and_disconnect_go_both_ways(dialect: Dialect) -> None:
    for sent in (Heartbeat(dialect), Disconnect(dialect)):
        assert mdp.read_from_worker(mdp.write(sent)) == sent
        assert mdp.read_to_worker(mdp.write(sent)) == sent


@given(st.integers(1, 3_600_000))
def test_an_interval_goes_to_workers_alone(interval: int) -> None:
    image = mdp.write(Heartbeat(D0X, interval))
    assert unpack(image) == [b"", b"MDPW0X", b"\x04", b"%d" % interval]
    assert mdp.read_to_worker(image) == Heartbeat(D0X, interval)
    with pytest.raises(RemoteProtocolError):
        mdp.read_from_worker(image)


@given(names, names, addresses, datas)
def test_repost(service: bytes, origin: bytes, address: bytes, data: bytes) -> None:
    sent = Repost(service, origin, address, data)
    assert mdp_peers.read_at_cloudfe(mdp_peers.write(sent)) == sent


@given(reports, addresses, names, datas, st.binary(max_size=50))
def test_peer_answers(
    kind: Kind, address: bytes, service: bytes, data: bytes, reason: bytes
) -> None:
    for sent in (PeerAnswer(kind, address, service, data), PeerNak(address, service, reason)):
        assert mdp_peers.read_at_cloudbe(mdp_peers.write(sent)) == sent


@given(names, st.integers(0, 999_999_999), st.dictionaries(st.text(), st.integers(0, 10**6)))
def test_state(broker: bytes, idle: int, services: dict[str, int]) -> None:
    sent = State(broker, idle, services)
    assert mdp_peers.read_state(mdp_peers.write(sent)) == sent


@given(st.booleans(), st.integers(0, 9), st.integers(0, 2**32 - 1), st.binary(max_size=247))
def test_options(partials: bool, priority: int, timeout_ms: int, identity: bytes) -> None:
    sent = Options(partials, priority, timeout_ms, identity)
    assert mdp.read_options(mdp.write_options(sent)) == sent


def test_foreign_envelopes_are_opaque() -> None:
    assert mdp.read_options(b"\x00\x00\x00\x07") is None
    assert mdp.read_options(b"H") is None
    assert mdp.read_options(b"HMab") is None, "a REQ counts its requests in four bytes"


@pytest.mark.parametrize("broken", [b"HM\x02\x04\0\0\0\0", b"HM\x00\x0a\0\0\0\0"])
def test_broken_options(broken: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        mdp.read_options(broken)


READERS = (
    mdp.read_from_client,
    mdp.read_to_client,
    mdp.read_from_worker,
    mdp.read_to_worker,
    mdp_peers.read_at_cloudfe,
    mdp_peers.read_at_cloudbe,
    mdp_peers.read_state,
)

MALFORMED_CLIENT = {
    "no frames": b"",
    "half a frame": b"\x01\x00\x01\x06MDP",
    "unknown header": pack([b"", b"MDPC09", b"echo", b"x"]),
    "no data": pack([b"", b"MDPC0X", b"echo"]),
    "no service": pack([b"", b"MDPC0X"]),
    "empty service": pack([b"", b"MDPC0X", b"", b"x"]),
    "long service": pack([b"", b"MDPC0X", b"s" * 256, b"x"]),
    "long envelope": pack([b"e" * 256, b"", b"MDPC0X", b"echo", b"x"]),
    "two envelopes": pack([b"e", b"e", b"", b"MDPC0X", b"echo", b"x"]),
    "02 with a wrong command": pack([b"MDPC02", b"\x07", b"echo", b"x"]),
    "02 with a long command": pack([b"MDPC02", b"\x01\x01", b"echo", b"x"]),
    "02 with an envelope": pack([b"e", b"MDPC02", b"\x01", b"echo", b"x"]),
    "02 without data": pack([b"MDPC02", b"\x01", b"echo"]),
}

MALFORMED_WORKER = {
    "no frames": b"",
    "unknown header": pack([b"", b"MDPW09", b"\x01", b"echo"]),
    "unknown command": pack([b"", b"MDPW0X", b"\x1f", b"x"]),
    "the client's REPOST": pack([b"", b"MDPW0X", b"\x06", b"echo", b"p", b"c", b"", b"x"]),
    "READY with too much": pack([b"", b"MDPW0X", b"\x01", b"echo", b"1", b"x"]),
    "READY with credit 0": pack([b"", b"MDPW0X", b"\x01", b"echo", b"0"]),
    "READY with credit text": pack([b"", b"MDPW0X", b"\x01", b"echo", b"many"]),
    "READY with huge credit": pack([b"", b"MDPW0X", b"\x01", b"echo", b"99999"]),
    "READY with interval 0": pack([b"", b"MDPW0X", b"\x01", b"echo", b"1", b"0"]),
    "READY with no interval": pack([b"", b"MDPW0X", b"\x01", b"echo", b"1", b""]),
    "READY with a fraction": pack([b"", b"MDPW0X", b"\x01", b"echo", b"1", b"2.5"]),
    "READY with a long interval": pack([b"", b"MDPW0X", b"\x01", b"echo", b"1", b"3600001"]),
    "READY with five frames": pack([b"", b"MDPW0X", b"\x01", b"echo", b"1", b"9", b"9"]),
    "01 READY with an interval": pack([b"", b"MDPW01", b"\x01", b"echo", b"1", b"9"]),
    "02 READY with an interval": pack([b"MDPW02", b"\x01", b"echo", b"1", b"9"]),
    "01 READY for anything": pack([b"", b"MDPW01", b"\x01"]),
    "01 READY with credit": pack([b"", b"MDPW01", b"\x01", b"echo", b"4"]),
    "02 READY, empty name": pack([b"MDPW02", b"\x01", b""]),
    "01 unknown command": pack([b"", b"MDPW01", b"\x09", b"x"]),
    "answer without delimiter": pack([b"", b"MDPW0X", b"\x07", b"c", b"echo", b"x"]),
    "answer without address": pack([b"", b"MDPW0X", b"\x07", b"", b"", b"echo", b"x"]),
    "answer without data": pack([b"", b"MDPW0X", b"\x07", b"c", b"", b"echo"]),
    "01 answer without data": pack([b"", b"MDPW01", b"\x03", b"c", b""]),
    "02 answer, long address": pack([b"MDPW02", b"\x04", b"c" * 1025, b"", b"x"]),
    "cloud answer, no origin": pack([b"", b"MDPW0X", b"\x08", b"c", b"", b"echo"]),
    "failed with two reasons": pack([b"", b"MDPW0X", b"\x0b", b"c", b"", b"echo", b"a", b"b"]),
    "heartbeat with more": pack([b"", b"MDPW0X", b"\x04", b""]),
    "heartbeat with an interval": pack([b"", b"MDPW0X", b"\x04", b"9"]),
}

MALFORMED_TO_WORKER = {
    "no interval": pack([b"", b"MDPW0X", b"\x04", b""]),
    "interval 0": pack([b"", b"MDPW0X", b"\x04", b"0"]),
    "a fraction": pack([b"", b"MDPW0X", b"\x04", b"2.5"]),
    "an interval beyond an hour": pack([b"", b"MDPW0X", b"\x04", b"3600001"]),
    "two intervals": pack([b"", b"MDPW0X", b"\x04", b"9", b"9"]),
    "01 with an interval": pack([b"", b"MDPW01", b"\x04", b"9"]),
    "02 with an interval": pack([b"MDPW02", b"\x05", b"9"]),
    "half an interval": pack([b"", b"MDPW0X", b"\x04", b"2500"])[:-2],
}


@pytest.mark.parametrize(
    "frames",
    [
        [b"", b"MDPC0X", b"mmi.services"],
        [b"id", b"", b"MDPC0X", b"mmi.services"],
        [b"", b"MDPC01", b"mmi.services"],
        [b"MDPC02", b"\x01", b"mmi.services"],
    ],
)
def test_a_question_to_the_broker_needs_no_data(frames: list[bytes]) -> None:
    request = mdp.read_from_client(pack(frames))
    assert (request.service, request.data) == (b"mmi.services", pack([b""]))
    frames[-1] = b"echo mmi."
    with pytest.raises(RemoteProtocolError):
        mdp.read_from_client(pack(frames))


@pytest.mark.parametrize("name", MALFORMED_CLIENT)
def test_malformed_from_client(name: str) -> None:
    image = MALFORMED_CLIENT[name]
    with pytest.raises(RemoteProtocolError) as caught:
        mdp.read_from_client(image)
    assert 0 <= caught.value.offset <= len(image)


@pytest.mark.parametrize("name", MALFORMED_WORKER)
def test_malformed_from_worker(name: str) -> None:
    image = MALFORMED_WORKER[name]
    with pytest.raises(RemoteProtocolError) as caught:
        mdp.read_from_worker(image)
    assert 0 <= caught.value.offset <= len(image)


@pytest.mark.parametrize("name", MALFORMED_TO_WORKER)
def test_malformed_to_worker(name: str) -> None:
    image = MALFORMED_TO_WORKER[name]
    with pytest.raises(RemoteProtocolError) as caught:
        mdp.read_to_worker(image)
    assert 0 <= caught.value.offset <= len(image)


@pytest.mark.parametrize(
    "frames",
    [
        [b"a", b"-1", b"{}"],
        [b"a", b"1", b"[]"],
        [b"a", b"1", b'{"echo": -1}'],
        [b"a", b"1", b'{"echo": "x"}'],
        [b"a", b"1", b"\xff"],
        [b"", b"1", b"{}"],
        [b"a", b"1"],
        [b"a", b"1", b"{}", b""],
    ],
)
def test_malformed_state(frames: list[bytes]) -> None:
    with pytest.raises(RemoteProtocolError):
        mdp_peers.read_state(pack(frames))


@given(st.binary(max_size=80), st.sampled_from([pack([b"", b"MDPW0X", b"x"]), b"", b"\x01\x00"]))
def test_any_bytes_give_a_message_or_a_typed_error(tail: bytes, start: bytes) -> None:
    for read in READERS:
        try:
            read(start + tail)
        except WireError as error:
            inside(error, len(start + tail))


@given(st.data())
def test_any_cut_of_a_message_is_a_typed_error_or_a_shorter_tail(data: st.DataObject) -> None:
    whole = mdp.write(Answer(D0X, Kind.FINAL, b"c", b"echo", pack([b"one", b"two"])))
    cut = data.draw(st.integers(0, len(whole) - 1))
    try:
        mdp.read_from_worker(whole[:cut])
    except RemoteProtocolError as error:
        inside(error, cut)


def test_what_a_dialect_lacks_cannot_be_written() -> None:
    impossible = (
        Ready(D01),
        Ready(D02, b"echo", 2),
        Ready(D01, b"echo", 1, 30_000),
        Heartbeat(D01, 10_000),
        Answer(D01, Kind.PARTIAL, b"c", b"", pack([b"x"])),
        Answer(D02, Kind.FAILED, b"c", b"", b"why"),
        Report(D01, Kind.PARTIAL, b"echo", pack([b"x"])),
        State(b"a", 1, {}),
    )
    for message in impossible:
        with pytest.raises(LocalProtocolError):
            mdp.write(message)
    with pytest.raises(LocalProtocolError):
        mdp_peers.write(Ready(D0X))


def test_data_is_forwarded_untouched() -> None:
    data = pack([b"a" * 300, b"", b"b"])
    image = pack([b"", b"MDPC0X", b"echo", b"a" * 300, b"", b"b"])
    request = mdp.read_from_client(image)
    assert request.data == data
    work = mdp.write(Work(D02, b"", b"client", request.data))
    assert unpack(work) == [b"MDPW02", b"\x02", b"client", b"", b"a" * 300, b"", b"b"]


def inside(error: WireError, size: int) -> None:
    """An offset points into what was read."""
    assert 0 <= error.offset <= size
