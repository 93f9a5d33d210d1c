"""Task messages survive their bytes; no other bytes crash."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.errors import RemoteProtocolError, WireError
from homing.wire import tasks
from homing.wire.frames import pack, prefix

texts = st.text(min_size=1, max_size=60, alphabet=st.characters(exclude_categories=["Cs"]))
datas = st.lists(st.binary(max_size=300), min_size=1, max_size=3).map(pack)
counts = st.integers(1, 2**32 - 1)
stamps = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=9),
)
envelopes = st.sampled_from([b"", prefix([b""]), prefix([b"\x00\x00\x00\x07", b""])])

messages = st.one_of(
    st.builds(tasks.Connect, texts, texts, st.integers(1, 65536)),
    st.builds(tasks.Config, texts, st.lists(texts), counts, counts, st.integers(1)),
    st.builds(tasks.Ping, stamps),
    st.builds(tasks.Pong, stamps),
    st.builds(tasks.Task, texts, texts, datas, st.integers(0, 9), st.integers(0, 2**32 - 1)),
    st.builds(tasks.Response, texts, texts, datas),
    st.builds(tasks.Error, texts, texts, texts),
    st.just(tasks.Disconnect()),
)


@given(messages, envelopes)
def test_round_trip(message: tasks.Message, envelope: bytes) -> None:
    assert tasks.read(tasks.write(message, envelope)) == (envelope, message)


def test_a_missing_body_is_an_empty_one() -> None:
    _, message = tasks.read(pack([b'{"request":"TASK","type":"REQUEST","service":"echo"}']))
    assert message == tasks.Task("echo", "", tasks.NO_BODY)


def test_a_stamp_in_nanoseconds_comes_back_to_the_last_digit() -> None:
    stamp = b"1763302964123456789"
    ping = tasks.read(pack([b'{"request":"PING","ts":' + stamp + b"}", b""]))[1]
    assert isinstance(ping, tasks.Ping)
    assert b'"ts":' + stamp + b"}" in tasks.write(tasks.Pong(ping.ts))


def test_null_is_nothing() -> None:
    header = b'{"request":"TASK","type":"REQUEST","service":"echo","message_id":null,"worker":null}'
    assert tasks.read(pack([header, b""]))[1] == tasks.Task("echo", "", tasks.NO_BODY)
    assert tasks.read(pack([b'{"request":"PING","type":null}', b""]))[1] == tasks.Ping()
    rest = (
        b'"service":null,"credit":null,"code":null,"reason":null,"priority":null,"timeout_ms":null'
    )
    assert tasks.read(pack([b'{"request":"CONNECT",' + rest + b"}", b""]))[1] == tasks.Connect()
    assert tasks.read(pack([b'{"request":"ERROR",' + rest + b"}", b""]))[1] == tasks.Error("")
    with pytest.raises(RemoteProtocolError, match="request"):
        tasks.read(pack([b'{"request":null,"service":null}', b""]))


def test_space_before_a_header_is_json_too() -> None:
    assert tasks.read(pack([b'\r\n\t {"request":"PING"}', b""])) == (b"", tasks.Ping())
    envelope = pack([b"", b"x"])[:2]
    assert tasks.read(pack([b"", b' {"request":"PING"}', b""])) == (envelope, tasks.Ping())


def test_the_id_of_a_task_that_cannot_be_read_otherwise() -> None:
    known = b'{"request":"TASK","type":"REQUEST","message_id":"mine","timeout_ms":-1}'
    assert tasks.id_of(pack([b"", known, b"body"])) == "mine"
    for unknown in (b"nonsense", b'{"message_id":5}', b'{"message_id":"%s"}' % (b"x" * 256), b"{"):
        assert not tasks.id_of(pack([unknown, b""]))


def test_an_error_always_has_a_reason() -> None:
    error = tasks.read(tasks.write(tasks.Error("no-service", "", "x")))[1]
    assert error == tasks.Error("no-service", "no-service", "x")


@pytest.mark.parametrize("envelope", [b"", prefix([b""]), prefix([b"\x00\x07", b""])])
def test_the_answer_to_nonsense_finds_its_way_back(envelope: bytes) -> None:
    for nonsense in (b"{", b"hello", b'{"request":"DANCE"}', b"{" * 5000):
        assert tasks.envelope_of(envelope + pack([nonsense, b""])) == envelope


def test_unknown_fields_are_skipped() -> None:
    assert tasks.read(pack([b'{"request":"PING","colour":"red"}', b""]))[1] == tasks.Ping()


MALFORMED = {
    "no frames": b"",
    "no header": pack([b"hello", b"x"]),
    "two envelope frames": pack([b"a", b"b", b"{}", b""]),
    "not an object": pack([b"[1]", b""]),
    "broken JSON": pack([b'{"request":', b""]),
    "not UTF-8": pack([b'{"request":"\xff"}', b""]),
    "NaN": pack([b'{"request":"PING","ts":NaN}', b""]),
    "a stamp past 64 bits": pack([b'{"request":"PING","ts":9223372036854775808}', b""]),
    "no request": pack([b"{}", b""]),
    "unknown request": pack([b'{"request":"DANCE"}', b""]),
    "unknown type": pack([b'{"request":"TASK","type":"X","service":"echo"}', b""]),
    "task without service": pack([b'{"request":"TASK","type":"REQUEST"}', b""]),
    "response without id": pack([b'{"request":"TASK","type":"RESPONSE","service":"e"}', b""]),
    "service is a number": pack([b'{"request":"CONNECT","service":7}', b""]),
    "credit 0": pack([b'{"request":"CONNECT","service":"e","credit":0}', b""]),
    "priority 10": pack([b'{"request":"TASK","type":"REQUEST","service":"e","priority":10}', b""]),
    "long header": pack([b'{"request":"PING","x":"' + b"y" * 4096 + b'"}', b""]),
    "long service": pack([b'{"request":"CONNECT","service":"' + b"y" * 256 + b'"}', b""]),
    "deep JSON": pack([b'{"request":"PING","x":' + b"[" * 4000 + b"}", b""]),
    "broken config": pack([b'{"request":"CONFIG"}', b"{}"]),
    "endless config": pack(
        [
            b'{"request":"CONFIG"}',
            b'{"broker":"b","group":[],"heartbeat_ms":1%b,"liveness":3,"max_body":1}'
            % (b"0" * 400),
        ]
    ),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed(name: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        tasks.read(MALFORMED[name])
    assert 0 <= caught.value.offset <= len(MALFORMED[name])


@given(st.binary(max_size=100), st.sampled_from([b"", b"\x01\x00", b"\x01\x14{"]))
def test_any_bytes_give_a_message_or_a_typed_error(tail: bytes, start: bytes) -> None:
    assert (start + tail).startswith(tasks.envelope_of(start + tail))
    try:
        tasks.read(start + tail)
    except WireError as error:
        inside(error, len(start + tail))


def inside(error: WireError, size: int) -> None:
    """An offset points into what was read."""
    assert 0 <= error.offset <= size
