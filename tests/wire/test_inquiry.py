"""Questions and answers between matchers, and what they hold: out and back, and hostile forms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.errors import Malformed
from homing.wire import inquiry, packet, relay, status
from homing.wire.assembly import Assembler
from homing.wire.inquiry import Answer, Question
from homing.wire.packet import Message

ids = st.binary(min_size=12, max_size=12)
plans = st.binary(min_size=16, max_size=16)
tiles = st.lists(st.tuples(st.integers(0, 0xFFFF), st.integers(0, 0xFFFF)), min_size=1, max_size=9)


def messages(data: bytes) -> list[Message]:
    return Assembler(relay.MESSAGE_ID).receive(data, 0.0)


@given(ids, plans, tiles, st.binary(max_size=5000))
def test_a_question_arrives_as_it_was_asked(
    identity: bytes, plan: bytes, asked: list[inquiry.Tile], attributes: bytes
) -> None:
    question = Question(identity, plan, asked, attributes)
    assert [inquiry.decode_question(m) for m in messages(question.encode())] == [question]


@given(ids, st.integers(0, 2**32 - 1), st.integers(0, 300))
def test_an_answer_arrives_as_it_was_given(identity: bytes, count: int, places: int) -> None:
    answer = Answer(identity, count, bytes(places * 20), 3)
    assert [inquiry.decode_answer(m) for m in messages(answer.encode())] == [answer]


def test_more_places_than_fit_go_in_several_answers() -> None:
    places = b"".join(number.to_bytes(20, "big") for number in range(120_000))
    parts = inquiry.answers(bytes(12), 7, places)
    assert [part.left for part in parts] == [2, 1, 0]
    heard = [inquiry.decode_answer(m) for part in parts for m in messages(part.encode())]
    assert b"".join(answer.places for answer in heard) == places
    assert inquiry.answers(bytes(12), 0, b"") == [Answer(bytes(12), 0)]


@pytest.mark.parametrize(
    "items",
    [
        {},
        {1: bytes(12), 15: bytes(16)},
        {1: bytes(12), 15: bytes(15), 16: bytes(4)},
        {1: bytes(12), 15: bytes(16), 16: bytes(5)},
        {1: bytes(11), 15: bytes(16), 16: bytes(4)},
    ],
)
def test_malformed_questions(items: dict[int, bytes]) -> None:
    with pytest.raises(Malformed):
        inquiry.decode_question(Message(packet.PUSH, items))


@pytest.mark.parametrize(
    "items",
    [
        {1: bytes(12)},
        {1: bytes(12), 17: bytes(4), 18: bytes(3)},
        {1: bytes(12), 17: bytes(4), 18: bytes(4), 3: bytes(19)},
        {17: bytes(4), 18: bytes(4)},
    ],
)
def test_malformed_answers(items: dict[int, bytes]) -> None:
    with pytest.raises(Malformed):
        inquiry.decode_answer(Message(packet.ACK, items))


@given(st.dictionaries(plans, tiles, max_size=3), st.integers(0, 50))
def test_a_status_tells_what_is_held(
    holdings: dict[bytes, list[inquiry.Tile]], connectors: int
) -> None:
    told = status.Status(
        b"m-1", vnodes=bytes(20), holdings=holdings, plan=b"{}", connectors=bytes(8 * connectors)
    )
    assert [status.decode(m) for m in messages(told.encode())] == [told]


@pytest.mark.parametrize(
    "added",
    [
        {status.HOLDINGS: bytes(19)},
        {status.HOLDINGS: bytes(16) + b"\xff\xff\xff\xff"},
        {status.HOLDINGS: b"".join(bytes([n]) * 16 + bytes(4) for n in range(9))},
        {status.CONNECTORS: bytes(9)},
    ],
)
def test_malformed_holdings(added: dict[int, bytes]) -> None:
    with pytest.raises(Malformed):
        status.decode(Message(packet.STATUS, {1: b"h", **added}))
