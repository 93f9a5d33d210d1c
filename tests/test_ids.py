"""Ids: layout, uniqueness, text form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.errors import Malformed
from homing.ids import ID_BYTES, IdMaker, id_time, parse_id, parse_node_id


def test_layout_is_time_maker_counter() -> None:
    make = IdMaker(lambda: 0x65A1B2C3 + 0.9, bytes.fromhex("0102030405 fffffe"))
    assert make().hex() == "65a1b2c30102030405ffffff"
    assert make().hex() == "65a1b2c30102030405000000", "the counter wraps"


def test_ids_of_one_maker_differ_within_a_second() -> None:
    make = IdMaker(lambda: 1.0, bytes(8))
    assert len({make() for _ in range(10_000)}) == 10_000


@given(st.binary(min_size=ID_BYTES, max_size=ID_BYTES))
def test_text_form_round_trips(identity: bytes) -> None:
    assert parse_id(identity.hex()) == identity
    assert id_time(identity) == int.from_bytes(identity[:4], "big")


@pytest.mark.parametrize("text", ["", "xyz", "0" * 23, "0" * 25, "g" * 24, "ab " * 8])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(Malformed, match="24 hex digits"):
        parse_id(text)


def test_node_ids_have_sixteen_digits() -> None:
    assert parse_node_id("00112233445566ff") == bytes.fromhex("00112233445566ff")
    with pytest.raises(Malformed, match="16 hex digits"):
        parse_node_id("00112233445566")


def test_a_maker_needs_eight_random_bytes() -> None:
    with pytest.raises(ValueError, match="8 bytes"):
        IdMaker(lambda: 0.0, b"short")
