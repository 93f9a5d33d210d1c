"""Serf's RPC codec against msgspec's MessagePack and against bytes cut anywhere."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.errors import RemoteProtocolError, TooLargeOnWire, WireError
from homing.wire.serf import Answer, Decoder, decode, encode

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=300),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(), inner, max_size=20),
    max_leaves=40,
)


@given(values)
def test_reads_what_another_implementation_writes(value: object) -> None:
    data = msgspec.msgpack.encode(value)
    assert decode(data) == (value, len(data))
    for cut in range(len(data)):
        assert decode(data[:cut]) is None


@given(st.binary(max_size=200))
def test_any_bytes_give_values_or_a_wire_error(data: bytes) -> None:
    with contextlib.suppress(WireError):
        assert isinstance(Decoder().receive(data), list)


def test_raw_bytes_in_old_text_survive() -> None:
    text, _ = decode(b"\xa4\x7f\x00\xff\x01") or (None, 0)
    assert isinstance(text, str)
    assert text.encode("utf-8", "surrogateescape") == b"\x7f\x00\xff\x01"


@given(st.data())
def test_answers_and_stream_records_in_any_chunking(data: st.DataObject) -> None:
    pack = msgspec.msgpack.encode
    stream = b"".join(
        [
            pack({"Seq": 0, "Error": ""}),
            pack({"Seq": 1, "Error": ""}) + pack({"Members": []}),
            pack({"Seq": 2, "Error": ""}),
            pack({"Seq": 2, "Error": ""}) + pack({"Event": "member-join"}),
            pack({"Seq": 3, "Error": "no"}),
        ]
    )
    decoder = Decoder()
    for seq, command in enumerate(["handshake", "members", "stream", "join"]):
        decoder.expect(seq, command)
    answers = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        answers += decoder.receive(stream[:size])
        stream = stream[size:]
    assert answers == [
        Answer(0, "", {}),
        Answer(1, "", {"Members": []}),
        Answer(2, "", {}),
        Answer(2, "", {"Event": "member-join"}),
        Answer(3, "no", {}),
    ]


def test_requests_are_header_then_body() -> None:
    request = encode("handshake", 7, {"Version": 1})
    header, end = decode(request) or (None, 0)
    assert header == {"Command": "handshake", "Seq": 7}
    assert decode(request, end) == ({"Version": 1}, len(request))


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\xc1", RemoteProtocolError),
        (b"\xdb\xff\xff\xff\xff", TooLargeOnWire),
        (b"\x91" * 40, RemoteProtocolError),
        (b"\x01", RemoteProtocolError),
        (b"\x81\x01\x02", RemoteProtocolError),
        (b"\x80", RemoteProtocolError),
    ],
)
def test_malformed_forms(data: bytes, kind: type[WireError]) -> None:
    with pytest.raises(kind):
        Decoder().receive(data)
