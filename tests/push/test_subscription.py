"""Fields and attributes: what they accept, what is refused, and that the JSON round-trips."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.errors import SubscriptionError
from homing.push.subscription import (
    MAX_ATTRIBUTES,
    MAX_DEPTH,
    MAX_FIELD_SIZE,
    MAX_FIELDS,
    MAX_NAME,
    MAX_STRING,
    can_match,
    check_attributes,
    describe_field,
    dump_fields,
    parse_attributes,
    parse_field,
    parse_fields,
)
from homing.push.values import NOTHING, Field, Strings, Value, any_of, with_prefix
from tests.push.index.strategies import described_fields, fields, subscriptions, values


def extra(**conditions: object) -> Field:
    return parse_field({"use": 3, "extra": conditions})


@pytest.mark.parametrize(
    ("field", "inside", "outside"),
    [
        ({"use": 1, "strval": "5"}, ["5"], [5, "55", True]),
        ({"use": 2, "low": 1, "high": 3}, [1, 3, 2.5], [0.999, 3.001, "2", True]),
        ({"use": 2, "low": 3, "high": 3}, [3, 3.0], [2.999999, "3"]),
        ({"use": 2, "high": 0}, [-1e308, -0.0, 0], [5e-324, False]),
        ({"use": 2, "low": None, "high": None}, [0, -1e308, 2**63], ["", True]),
        ({"use": 3, "extra": {"in": [1, "a", True]}}, [1, 1.0, "a", True], [0, "b", False]),
        ({"use": 3, "extra": {"not_in": [1, "a", True]}}, [2, "b", False], [1.0, "a", True]),
        ({"use": 3, "extra": {"not_in": []}}, [0, "", False], []),
        ({"use": 3, "extra": {"ne": 1}}, [2, "1", True], [1, 1.0]),
        ({"use": 3, "extra": {"prefix": "ab"}}, ["ab", "abc"], ["a", "b", 1]),
        ({"use": 3, "extra": {"exists": True}}, [0, "", False], []),
        ({"use": 3, "extra": {"gt": 1, "lt": 2}}, [1.5], [1, 2, "1.5"]),
        ({"use": 3, "extra": {"ge": 1, "le": 2, "ne": 1.5}}, [1, 2], [1.5, 3]),
        ({"use": 3, "extra": {"prefix": "a", "not_in": ["ab"]}}, ["a", "abc"], ["ab", "b"]),
        ({"use": 3, "extra": '{"any": [{"lt": 0}, {"in": ["x"]}]}'}, [-1, "x"], [0, "y"]),
    ],
)
def test_what_a_field_accepts(
    field: dict[str, object], inside: list[Value], outside: list[Value]
) -> None:
    parsed = parse_field(field)
    assert [value for value in inside if not parsed.accepts(value)] == []
    assert [value for value in outside if parsed.accepts(value)] == []
    assert not parsed.absent
    assert parse_field(json.dumps(field)) == parsed


def test_absence_satisfies_only_exists_false() -> None:
    assert extra(exists=False).absent
    assert not extra(exists=False).accepts(0)
    assert extra(any=[{"exists": False}, {"gt": 3}]).absent


def test_integers_beyond_the_floats_are_compared_exactly() -> None:
    field = parse_field({"use": 2, "low": 2**53 + 1, "high": 2**62 + 1})
    assert field.accepts(2**53 + 1)
    assert not field.accepts(2**53)
    assert not field.accepts(float(2**53))
    assert field.accepts(2**62 + 1)
    assert not field.accepts(2**62 + 2)


@pytest.mark.parametrize(
    "field",
    [
        b"\xff",
        "{",
        "[]",
        "{}",
        '{"use": true, "strval": "a"}',
        '{"use": 4}',
        '{"use": 1}',
        '{"use": 1, "strval": 5}',
        '{"use": 2, "low": "1"}',
        '{"use": 2, "low": true}',
        '{"use": 2, "low": 1e999}',
        '{"use": 2, "low": NaN}',
        '{"use": 2, "low": 99999999999999999999}',
        '{"use": 3}',
        '{"use": 3, "extra": {}}',
        '{"use": 3, "extra": "{"}',
        '{"use": 3, "extra": {"like": "a"}}',
        '{"use": 3, "extra": {"in": [null]}}',
        '{"use": 3, "extra": {"in": 5}}',
        '{"use": 3, "extra": {"prefix": 5}}',
        '{"use": 3, "extra": {"exists": 1}}',
        '{"use": 3, "extra": {"gt": "5"}}',
        '{"use": 3, "extra": {"any": {}}}',
        '{"use": 3, "extra": {"any": [5]}}',
    ],
)
def test_a_field_without_meaning_is_refused(field: str | bytes) -> None:
    with pytest.raises(SubscriptionError):
        parse_field(field)


@pytest.mark.parametrize("value", ["null", "{}", "[1]"])
def test_what_is_no_value_is_told_what_values_are(value: str) -> None:
    wanted = "must be a number, a string, true or false, not"
    with pytest.raises(SubscriptionError, match=f"`a` {wanted}"):
        parse_attributes(f'{{"a": {value}}}')
    with pytest.raises(SubscriptionError, match=f"`ne` {wanted}"):
        parse_field(f'{{"use": 3, "extra": {{"ne": {value}}}}}')


@pytest.mark.parametrize(
    "field",
    [
        {"use": 2, "low": 2, "high": 1},
        {"use": 3, "extra": {"in": []}},
        {"use": 3, "extra": {"any": []}},
        {"use": 3, "extra": {"any": [{"any": []}, {"in": []}]}},
        {"use": 3, "extra": {"gt": 5, "lt": 5}},
        {"use": 3, "extra": {"exists": False, "ne": 1}},
    ],
)
def test_a_field_that_nothing_satisfies_is_one_all_the_same(field: dict[str, object]) -> None:
    """Whoever draws bounds at random, or fills a list later, is no less right than others."""
    fields = parse_fields({"a": field, "b": {"use": 1, "strval": "x"}})
    assert fields["a"] == NOTHING
    assert not can_match(fields)
    assert parse_fields(dump_fields(fields)) == fields


@pytest.mark.parametrize("value", [nan, inf, -inf, 2**63 + 1, None, [], {}])
def test_a_value_that_cannot_be_matched_is_refused_by_name(value: object) -> None:
    with pytest.raises(SubscriptionError, match="price"):
        check_attributes({"price": value})
    with pytest.raises(SubscriptionError):
        parse_field({"use": 2, "low": value or [], "high": 2})


def test_limits() -> None:
    point = {"use": 2, "low": 1, "high": 1}
    parse_fields({f"a{i}": point for i in range(MAX_FIELDS)})
    with pytest.raises(SubscriptionError, match="at most"):
        parse_fields({f"a{i}": point for i in range(MAX_FIELDS + 1)})
    with pytest.raises(SubscriptionError, match="at most"):
        check_attributes({f"a{i}": 1 for i in range(MAX_ATTRIBUTES + 1)})
    with pytest.raises(SubscriptionError, match="longer"):
        check_attributes({"a": "x" * (MAX_STRING + 1)})
    with pytest.raises(SubscriptionError, match="longer"):
        check_attributes({"x" * (MAX_NAME + 1): 1})
    with pytest.raises(SubscriptionError, match="empty"):
        check_attributes({"": 1})
    with pytest.raises(SubscriptionError, match="at most"):
        extra(**{"in": list(range(MAX_FIELD_SIZE + 1))})
    nested: dict[str, object] = {"gt": 1}
    for _ in range(MAX_DEPTH + 1):
        nested = {"any": [nested]}
    with pytest.raises(SubscriptionError, match="nested"):
        extra(**nested)
    with pytest.raises(SubscriptionError):
        parse_field('{"use": 3, "extra": ' + '{"any":[' * 50_000)


@pytest.mark.parametrize("word", ["in", "not_in"])
@pytest.mark.parametrize("kind", [int, str])
def test_a_field_may_list_as_many_values_as_the_limit_says(
    word: str, kind: Callable[[int], int | str]
) -> None:
    listed = [kind(number) for number in range(MAX_FIELD_SIZE)]
    described = {"use": 3, "extra": {word: listed}}
    fields = parse_fields({"a": described, "b": {"use": 3, "extra": {"any": [{word: listed}]}}})
    assert parse_fields(dump_fields(fields)) == fields
    with pytest.raises(SubscriptionError, match="4096"):
        parse_fields({"a": {"use": 3, "extra": {"any": [{"in": listed}, {"in": ["x", "y", "z"]}]}}})


def test_attributes_are_parsed_and_kept_as_they_are() -> None:
    assert parse_attributes(b'{"a": 1, "b": "x", "c": true, "d": 1.5}') == {
        "a": 1,
        "b": "x",
        "c": True,
        "d": 1.5,
    }
    with pytest.raises(SubscriptionError):
        parse_attributes(b"[]")


def test_equal_meaning_is_equal_form() -> None:
    assert extra(any=[{"in": [1]}, {"gt": 1}]) == parse_field({"use": 2, "low": 1})
    assert extra(not_in=[]) == extra(exists=True)
    assert extra(any=[{"prefix": "a"}, {"prefix": "ab"}]) == extra(prefix="a")
    assert parse_field({"use": 2, "low": 1.0}) == parse_field({"use": 2, "low": 1})
    assert describe_field(extra(ge=1, le=2)) == {"use": 2, "low": 1, "high": 2}
    assert describe_field(extra(ne=1)) == {"use": 3, "extra": {"not_in": [1]}}


@given(subscriptions)
def test_the_canonical_json_means_the_same(subscription: dict[str, Field]) -> None:
    text = dump_fields(subscription)
    assert parse_fields(text) == subscription
    assert dump_fields(parse_fields(text)) == text


@given(fields, fields, values)
def test_sets_of_values_combine_as_sets_do(a: Field, b: Field, value: Value) -> None:
    assert (a | b).accepts(value) == (a.accepts(value) or b.accepts(value))
    assert (a & b).accepts(value) == (a.accepts(value) and b.accepts(value))
    assert (a | b).absent == (a.absent or b.absent)
    assert a | b == b | a
    assert a & b == b & a
    assert a | a == a == a & a
    assert a | NOTHING == a
    assert a & NOTHING == NOTHING


def by_the_letter(described: dict[str, object], value: Value) -> bool:
    """PROTOCOL 5.3 read word by word, for a value that is there."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if described["use"] == 1:
        return isinstance(value, str) and value == described["strval"]
    if described["use"] == 2:
        low, high = described.get("low"), described.get("high")
        return number and (low is None or low <= value) and (high is None or value <= high)  # type: ignore[operator]
    return _extra_by_the_letter(described["extra"], value, number)


def _extra_by_the_letter(described: object, value: Value, number: bool) -> bool:
    assert isinstance(described, dict)
    compare: dict[str, Callable[[Any], bool]] = {
        "gt": lambda x: number and value > x,
        "ge": lambda x: number and value >= x,
        "lt": lambda x: number and value < x,
        "le": lambda x: number and value <= x,
        "prefix": lambda s: isinstance(value, str) and value.startswith(s),
        "exists": lambda wanted: wanted,
        "ne": lambda v: not _equal(value, v),
        "in": lambda vs: any(_equal(value, v) for v in vs),
        "not_in": lambda vs: not any(_equal(value, v) for v in vs),
        "any": lambda ds: any(_extra_by_the_letter(d, value, number) for d in ds),
    }
    return all(compare[word](operand) for word, operand in described.items())


def _equal(a: Value, b: Value) -> bool:
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    return isinstance(a, str) == isinstance(b, str) and a == b


@given(described_fields, values)
def test_fields_accept_what_the_protocol_says(described: dict[str, object], value: Value) -> None:
    try:
        accepted = parse_field(described).accepts(value)
    except SubscriptionError:
        accepted = False
    assert accepted == by_the_letter(described, value)


def test_an_integer_too_large_even_for_a_float_is_refused_in_words() -> None:
    digits = "1" + "0" * 400
    with pytest.raises(SubscriptionError, match="1329 bits"):
        parse_attributes(f'{{"a": {digits}}}')
    with pytest.raises(SubscriptionError, match="1329 bits"):
        parse_fields(f'{{"a": {{"use": 2, "low": {digits}}}}}')


class Watched(str):
    """A string that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Watched.compared += 1
        return str.__eq__(self, other)

    def __lt__(self, other: str) -> bool:
        Watched.compared += 1
        return str.__lt__(self, other)

    __hash__ = str.__hash__


def test_of_a_long_list_few_strings_are_compared() -> None:
    listed = tuple(Watched(f"{i:04d}") for i in range(4000))
    sets = (
        Strings(plus=listed),
        Strings(prefixes=listed),
        Strings(prefixes=("",), minus=listed),
    )
    for strings, inside in zip(sets, (True, True, False), strict=True):
        Watched.compared = 0
        assert (Watched("3999") in strings) is inside
        assert Watched.compared < 50


@pytest.mark.parametrize("word", ["in", "not_in", "prefix", "gt"])
def test_a_long_list_of_alternatives_is_joined_two_by_two(
    monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    """A list that fits one message must not keep a matcher busy for minutes."""
    handled = 0
    either = Field.__or__

    def counted(left: Field, right: Field) -> Field:
        nonlocal handled
        handled += left.size + right.size
        return either(left, right)

    monkeypatch.setattr(Field, "__or__", counted)
    operands: dict[str, list[object]] = {
        "in": [[f"{i}", i] for i in range(2000)],
        "not_in": [[f"{i}", i] for i in range(2000)],
        "prefix": [f"{i:04d}" for i in range(2000)],
        "gt": [*range(2000)],
    }
    alternatives = [{word: operand} for operand in operands[word]]
    field = parse_field({"use": 3, "extra": {"any": alternatives}})
    assert handled < 2000 * 5 * 12
    assert field.accepts(1999 if word in ("in", "not_in", "gt") else "1999x")


def test_whether_an_any_is_too_long_does_not_depend_on_its_order() -> None:
    even: list[object] = [{"in": [*range(begin, begin + 8000, 2)]} for begin in (0, 8000)]
    everything: list[object] = [{"ge": 0}]
    for alternatives in (everything + even, even + everything):
        field = parse_field({"use": 3, "extra": {"any": alternatives}})
        assert field == parse_field({"use": 2, "low": 0})
    with pytest.raises(SubscriptionError, match="more than"):
        parse_field({"use": 3, "extra": {"any": even}})


@given(
    st.lists(st.text("ab", max_size=4), max_size=6),
    st.lists(st.text("ab", max_size=4), max_size=6),
    st.text("ab", max_size=6),
)
def test_prefixes_cover_what_starts_with_one(left: list[str], right: list[str], text: str) -> None:
    one, other = (any_of([with_prefix(p) for p in many]) for many in (left, right))
    assert one.accepts(text) == text.startswith(tuple(left))
    assert (one & other).accepts(text) == (
        text.startswith(tuple(left)) and text.startswith(tuple(right))
    )


def test_of_a_long_list_few_numbers_are_compared() -> None:
    compared = 0

    class Counted(float):
        def __lt__(self, other: float) -> bool:
            nonlocal compared
            compared += 1
            return float.__lt__(self, other)

        def __gt__(self, other: float) -> bool:
            nonlocal compared
            compared += 1
            return float.__gt__(self, other)

    field = parse_field({"use": 3, "extra": {"in": [*range(0, 8000, 2)]}})
    assert not field.accepts(Counted(7001))
    assert field.accepts(Counted(7998.0))
    assert compared < 50
