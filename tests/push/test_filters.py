"""The filter language: what it reads, where it points when it cannot, and that it round-trips."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.errors import FilterError, HomingError, SubscriptionError
from homing.push.filters import MAX_SUBSCRIPTIONS, MAX_TEXT, format_filter, parse_filter
from homing.push.index import matches
from homing.push.subscription import describe_field, parse_fields
from homing.push.values import Field, Value
from tests.push.index.strategies import attributes, fields, subscriptions


def described(text: str) -> list[dict[str, object]]:
    return [
        {name: describe_field(field) for name, field in subscription.items()}
        for subscription in parse_filter(text)
    ]


def test_the_example_of_the_documentation() -> None:
    text = 'price in 10..20 and city = "Paris" and tag in ("a","b") and exists(vip)'
    assert described(text) == [
        {
            "price": {"use": 2, "low": 10, "high": 20},
            "city": {"use": 1, "strval": "Paris"},
            "tag": {"use": 3, "extra": {"in": ["a", "b"]}},
            "vip": {"use": 3, "extra": {"exists": True}},
        }
    ]
    assert described("price > 100 or urgent") == [
        {"price": {"use": 3, "extra": {"gt": 100}}},
        {"urgent": {"use": 3, "extra": {"in": [True]}}},
    ]


@pytest.mark.parametrize(
    ("text", "extra"),
    [
        ("a < 5", {"lt": 5}),
        ("a != 'x'", {"not_in": ["x"]}),
        ("a not in (1, true)", {"not_in": [True, 1]}),
        ("not exists(a)", {"exists": False}),
        ("not a", {"in": [False]}),
        ("a = true", {"in": [True]}),
        ('a starts with "x"', {"prefix": "x"}),
        ("a = 1 or a = 2 or a = 'z'", {"in": [1, 2, "z"]}),
        ("a > 1 and a < 2", {"gt": 1, "lt": 2}),
        ("A = 1 OR A = 3", None),
        ("(a >= 1 or a < -1) and a != 5", None),
    ],
)
def test_single_attribute_filters_become_one_subscription(text: str, extra: object) -> None:
    found = parse_filter(text)
    assert len(found) == 1
    if extra is not None:
        assert describe_field(found[0]["a"]) == {"use": 3, "extra": extra}


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("a in 1..2", 1, 2),
        ("a in 1.5..2.5", 1.5, 2.5),
        ("a in 1...5", 1, 0.5),
        ("a in -3 .. -1", -3, -1),
        ("a in 5..", 5, None),
        ("a in ..5", None, 5),
        ("a in 1e3..2e3", 1000.0, 2000.0),
        ("a in +1..9007199254740993", 1, 2**53 + 1),
    ],
)
def test_ranges(text: str, low: float | None, high: float | None) -> None:
    if low is not None and high is not None and low > high:
        with pytest.raises(FilterError, match="no number lies"):
            parse_filter(text)
        return
    bounds = {k: v for k, v in (("low", low), ("high", high)) if v is not None}
    assert described(text) == [{"a": {"use": 2, **bounds}}]


def test_or_distributes_over_and() -> None:
    found = described("(a = 1 or b = 1) and c = 2")
    assert [sorted(subscription) for subscription in found] == [["a", "c"], ["b", "c"]]


def test_names_in_backquotes_and_with_dots() -> None:
    assert list(parse_filter("`in` = 1 and `a b` = 2 and x.y-z = 3 and prix_é = 4")[0]) == [
        "in",
        "a b",
        "x.y-z",
        "prix_é",
    ]


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("", 1, "name of an attribute"),
        ("   ", 4, "name of an attribute"),
        ("price >", 8, "missing"),
        ("price ? 5", 7, "cannot read"),
        ("price > 'x'", 9, "compares numbers"),
        ("price > true", 9, "compares numbers"),
        ("price in", 9, "missing"),
        ("price in 5", 11, "`..`"),
        ("price in 20..10", 10, "no number"),
        ("price in (1,", 13, "missing"),
        ("price in (1 2)", 13, "missing"),
        ("a = 1 b = 2", 7, "`and` or `or`"),
        ("a = 1 and", 10, "name of an attribute"),
        ("(a = 1", 7, "`)`"),
        ("a = 1)", 6, "`and` or `or`"),
        ("and = 1", 1, "backquotes"),
        ("exists a", 8, "`(`"),
        ("a not 5", 7, "`in`"),
        ("a starts 'x'", 10, "`with`"),
        ("a starts with 5", 15, "string"),
        ('a = "x', 5, "cannot read '\"': the string has no end"),
        ("a == 1", 3, "`==` is written `=` here"),
        ("a = 1 && b = 2", 7, "`&&` is written `and` here"),
        ("a = 1 || b = 2", 7, "`||` is written `or` here"),
        ("a <> 1", 3, "`<>` is written `!=` here"),
        ("!a", 1, "`!` is written `not` here"),
        ('a = "\\q"', 5, "not a string"),
        ("a = 1 and a = 2", 1, "no publication"),
        ("a = 99999999999999999999", 5, "64 bits"),
        ("a = 1e999", 5, "inf"),
        ("a = " + "1" * 5000, 5, "64 bits"),
        ("a = `true`", 6, "missing"),
        ("a = \u0663", 5, "cannot read"),
        ('a = 1 and b = "\ud800"', 16, "not a character"),
        ("`\udc80` = 1", 2, "not a character"),
        (" or ".join(f"a = {i}" for i in range(4100)), 1, "4096"),
        (" and ".join(f"a != {i}" for i in range(4100)), 1, "4096"),
        ("b = 1 and `` = 1", 12, "characters"),
        ("a = 1 and (b = 1 or\n c ~ 2)", 24, "cannot read"),
    ],
)
def test_errors_point_at_the_column(text: str, column: int, message: str) -> None:
    with pytest.raises(FilterError, match=re.escape(message)) as caught:
        parse_filter(text)
    assert caught.value.column == column
    assert caught.value.text == text
    assert caught.value.code == "filter"


def test_limits() -> None:
    with pytest.raises(FilterError, match="longer"):
        parse_filter("a = 1 " + " " * MAX_TEXT)
    wide = " or ".join(f"a{i}" for i in range(MAX_SUBSCRIPTIONS))
    assert len(parse_filter(wide)) == MAX_SUBSCRIPTIONS
    with pytest.raises(FilterError, match="more than"):
        parse_filter(wide + " or one_more")
    with pytest.raises(FilterError, match="more than"):
        parse_filter(" and ".join(f"(a{i} or b{i})" for i in range(30)))
    with pytest.raises(FilterError, match="deep"):
        parse_filter("(" * 5000 + "a" + ")" * 5000)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r"""'"\"'""", '""'),
        (r"""'\'\\\''""", "'\\'"),
        (r"""'\u00e9\n\\"'""", 'é\n\\"'),
        (r""" "\"'" """, "\"'"),
    ],
)
def test_strings_are_the_same_in_both_quotes(written: str, meant: str) -> None:
    assert described(f"a = {written}") == [{"a": {"use": 1, "strval": meant}}]


def test_as_many_alternatives_as_a_field_may_have() -> None:
    assert [one["a"].size for one in parse_filter(" or ".join(f"a={i}" for i in range(4095)))] == [
        4096
    ]
    assert len(parse_filter(" and ".join(f"a!={i}" for i in range(2000)))) == 1


@pytest.mark.parametrize("text", ["a\t=\n\n?", "x" * 300 + " = 1 ? " + "y" * 300, "a ? \ud800"])
def test_the_mark_is_below_what_it_points_at(text: str) -> None:
    with pytest.raises(FilterError) as caught:
        parse_filter(text)
    _, line, mark = str(caught.value).split("\n")
    assert mark.split("^")[0].isspace()
    pointed_at = line[mark.index("^")]
    assert pointed_at == "?" or caught.value.text[caught.value.column - 1] == "\ud800"
    assert len(line) < 130
    assert str(caught.value).encode()


def test_what_nothing_satisfies_has_no_filter() -> None:
    with pytest.raises(SubscriptionError, match="nothing"):
        format_filter(parse_fields({"a": {"use": 3, "extra": {"in": []}}}))


def test_a_filter_needs_a_field_and_a_name_without_backquotes() -> None:
    with pytest.raises(SubscriptionError):
        format_filter({})
    with pytest.raises(SubscriptionError, match="backquote"):
        format_filter(parse_fields({"a`b": {"use": 1, "strval": "x"}}))


@given(subscriptions.filter(bool))
def test_every_subscription_can_be_written_and_read(subscription: dict[str, Field]) -> None:
    assert parse_filter(format_filter(subscription)) == [subscription]


names = st.text(st.characters(exclude_characters="`", exclude_categories=["Cs"]), min_size=1)


@given(names.filter(lambda name: len(name) <= 256), fields)
def test_every_name_can_be_written_and_read(name: str, field: Field) -> None:
    assert parse_filter(format_filter({name: field})) == [{name: field}]


@given(
    st.lists(subscriptions.filter(bool), min_size=1, max_size=3),
    st.lists(subscriptions.filter(bool), min_size=1, max_size=3),
    attributes,
)
def test_or_and_and_mean_what_they_say(
    left: list[dict[str, Field]], right: list[dict[str, Field]], publication: dict[str, Value]
) -> None:
    sides = [" or ".join(f"({format_filter(one)})" for one in many) for many in (left, right)]
    expected = [any(matches(one, publication) for one in many) for many in (left, right)]
    either = parse_filter(f"({sides[0]}) or ({sides[1]})")
    assert any(matches(one, publication) for one in either) == any(expected)
    both = read(f"({sides[0]}) and ({sides[1]})", "no publication")
    assert any(matches(one, publication) for one in both) == all(expected)


@given(st.text(st.sampled_from("ab15.()=<>! \"',`andorinexists-\n"), max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    found = read(text, "")
    assert all(parse_filter(format_filter(one)) == [one] for one in found)


def read(text: str, allowed: str) -> list[dict[str, Field]]:
    """The subscriptions; none if the text is refused, which must be for the allowed reason."""
    try:
        return parse_filter(text)
    except HomingError as error:
        refused = error
    assert isinstance(refused, FilterError)
    assert allowed in refused.reason
    assert 1 <= refused.column <= len(text) + 1
    return []
