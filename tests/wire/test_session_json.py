"""Pushes, gaps and auth: payloads of any bytes arrive unharmed, anything else is Malformed."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.errors import Malformed
from homing.wire import pushed
from homing.wire.session import AnswerStream

MSG = bytes.fromhex("650000000102030405000001")
scalars = st.one_of(
    st.booleans(),
    st.integers(-(2**53), 2**53),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
)


def received(data: bytes) -> pushed.Push | pushed.Gap | pushed.Wait:
    [json] = AnswerStream().receive(data)
    assert isinstance(json, bytes)
    return pushed.decode(json)


@given(
    st.binary(max_size=200) | st.text(max_size=100).map(str.encode),
    st.dictionaries(st.text(max_size=10), scalars, max_size=4),
    st.lists(st.text(max_size=10), max_size=3),
    st.booleans(),
)
def test_any_push_round_trips(
    payload: bytes, attrs: dict[str, pushed.Scalar], subs: list[str], redelivered: bool
) -> None:
    data = pushed.push(MSG, payload, msgspec.json.encode(attrs), subs, redelivered)
    got = received(data)
    assert isinstance(got, pushed.Push)
    assert got.body == payload
    assert (got.id, got.subs, got.redelivered) == (MSG.hex(), subs, redelivered)
    assert got.attrs.keys() == attrs.keys()
    for name, value in attrs.items():
        same = got.attrs[name]
        assert same == value or math.isclose(float(same), float(value))


def test_a_push_says_only_what_it_must() -> None:
    data = pushed.push(MSG, b"caf\xc3\xa9\r\n", b'{"a":1}', ["default"])
    assert data == (
        b'#106\r\n{"type":"push","id":"650000000102030405000001",'
        b'"payload":"caf\xc3\xa9\\r\\n","attrs":{"a":1},"subs":["default"]}\r\n'
    )


def test_a_payload_that_is_not_text_is_base64() -> None:
    got = received(pushed.push(MSG, b"\xff\x00\r\n", b"{}", []))
    assert isinstance(got, pushed.Push)
    assert (got.encoding, got.payload, got.body) == ("base64", "/wANCg==", b"\xff\x00\r\n")


def test_a_gap_round_trips() -> None:
    assert received(pushed.gap(7, MSG, bytes(12))) == pushed.Gap(7, MSG.hex(), "0" * 24)


@pytest.mark.parametrize(
    "json",
    [
        b"",
        b"{}",
        b"[]",
        b'{"type":"push"}',
        b'{"type":"other"}',
        b'{"type":"push","id":1,"payload":"","attrs":{},"subs":[]}',
        b'{"type":"push","id":"","payload":"\xff","attrs":{},"subs":[]}',
        b'{"type":"push","id":"","payload":"","attrs":' + b"[" * 100_000,
    ],
)
def test_what_is_no_push_is_malformed(json: bytes) -> None:
    with pytest.raises(Malformed):
        pushed.decode(json)


def test_bad_base64_is_malformed() -> None:
    got = pushed.Push("", "%%%", {}, [], "base64")
    with pytest.raises(Malformed, match="base64"):
        got.body


def test_auth() -> None:
    auth = pushed.decode_auth(b'{"client_id":"aa","timestamp":12,"token":"bb","ack":true,"x":1}')
    assert auth == pushed.Auth("aa", 12, "bb", ack=True, resume=False)


@pytest.mark.parametrize(
    "json",
    [b"", b"null", b"{}", b'{"client_id":"a","timestamp":"x","token":"t"}', b"[" * 200_000],
)
def test_what_is_no_auth_is_malformed(json: bytes) -> None:
    with pytest.raises(Malformed):
        pushed.decode_auth(json)
