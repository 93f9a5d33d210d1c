"""What the kernel reads is what the decoder says, and what it cannot read it leaves alone."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.pipeline.parsing import attributes_of
from homing.pipeline.spelling import WORTH, Alike, Mixed, attributes_in, read, spelling_of
from homing.push.subscription import MAX_STRING

NUMBERS = [
    *("0", "-0", "-0.0", "7", "-12", "0.5", "123.456001", "1e5", "1E-05", "9.8e-05", "1e+22"),
    *("9007199254740991", "0.1", "0.30000000000000004", "1.7976931348623157"),
    *("0.12345678901234567", "123456789012345678e-2", "0.00012345678901234567"),
]
# Between two floats, of which every way of rounding but the right one takes the other.
HALVES = ["9007199254740993.0", "9007199254740995.0", "900719925474099.25", "4503599627370496.5"]
BEYOND = ["9007199254740992", "1e23", "1e-23", "0.1234567890123456789", "1" * 30, "1e999", "1e-999"]
# Nineteen digits that 64 bits do not hold.
BEYOND += ["9223372036854775808", "-9223372036854775809", "9" * 19, "9.999999999999999999"]
NO_NUMBERS = [
    "01",
    "1.",
    ".5",
    "-",
    "+1",
    "1e",
    "1e+",
    "--1",
    "0x1",
    "NaN",
    "Infinity",
    "1 2",
    "",
    "null",
]


def columns_as_rows(columns: dict[str, Any], size: int) -> list[dict[str, Any]]:
    lists = {name: column.tolist() for name, column in columns.items()}
    return [{name: values[i] for name, values in lists.items()} for i in range(size)]


def taken(like: str, texts: list[str | None]) -> dict[int, dict[str, Any]]:
    """Which of the texts are read as spelled like the first, and as what."""
    spelling = spelling_of(like)
    assert spelling is not None
    rows, columns = read(spelling, pa.array(texts, pa.string()))
    return dict(zip(rows.tolist(), columns_as_rows(columns, len(rows)), strict=True))


def same(one: Any, other: Any) -> bool:
    """Equal, and of one kind: 1 is 1.0, but neither `true` nor "1"."""
    kinds = [
        bool if isinstance(each, bool) else str if isinstance(each, str) else float
        for each in (one, other)
    ]
    return bool(one == other) and kinds[0] is kinds[1]


def check(found: dict[int, dict[str, Any]], texts: list[str | None]) -> None:
    for row, attributes in found.items():
        expected = attributes_of(texts[row])
        assert expected is not None
        assert list(attributes) == list(expected)
        assert all(same(attributes[name], expected[name]) for name in expected), texts[row]


@pytest.mark.parametrize("number", NUMBERS)
def test_numbers_are_read_exactly(number: str) -> None:
    texts: list[str | None] = [f'{{"a":{number}}}', f'{{"a":-{number.removeprefix("-")}}}']
    found = taken('{"a":1}', texts)
    assert list(found) == [0, 1]
    check(found, texts)
    assert "-0.0}" not in repr(found)  # as everywhere


@pytest.mark.parametrize("number", [*BEYOND, *NO_NUMBERS])
def test_what_is_not_so_plain_is_left_alone(number: str) -> None:
    assert not taken('{"a":1}', [f'{{"a":{number}}}', None, ""])


@pytest.mark.parametrize("number", HALVES)
def test_halves_are_rounded_right_or_left_alone(number: str) -> None:
    texts: list[str | None] = [f'{{"a":{number}}}']
    check(taken('{"a":1}', texts), texts)


@given(st.lists(st.floats(1e-5, 1e9, exclude_max=True), min_size=1))
def test_ordinary_floats_are_plain(numbers: list[float]) -> None:
    texts: list[str | None] = [f'{{"a":{number}}}' for number in numbers]
    found = taken('{"a":1}', texts)
    check(found, texts)
    assert len(found) == len(texts)


@given(
    st.lists(st.floats() | st.integers() | st.floats(-1, 1).map(lambda x: round(x, 6)), min_size=1)
)
def test_any_numbers(numbers: list[float]) -> None:
    texts: list[str | None] = [f'{{"a": {json.dumps(number)}, "b": true}}' for number in numbers]
    check(taken('{"a": 1, "b": true}', texts), texts)


@given(
    st.lists(st.from_regex(r"-?[0-9]{0,20}\.?[0-9]{0,20}([eE][+-]?[0-9]{0,3})?", fullmatch=True))
)
def test_anything_like_a_number(numbers: list[str]) -> None:
    texts: list[str | None] = [f'{{"a":{number}}}' for number in numbers]
    check(taken('{"a":1}', texts), texts)


@given(st.lists(st.text(max_size=8)), st.booleans(), st.booleans())
def test_any_texts(values: list[str], ascii: bool, flag: bool) -> None:
    rows = [{"x": value, "y": flag, "z": value} for value in values]
    texts: list[str | None] = [json.dumps(row, ensure_ascii=ascii) for row in rows]
    found = taken('{"x": "", "y": false, "z": "é"}', texts)
    check(found, texts)
    plain = [i for i, text in enumerate(texts) if text is not None and "\\" not in text]
    assert list(found) == plain


@given(
    st.text(alphabet='{}":,abtrue01.-e \\\n', max_size=30),
    st.sampled_from(['{"a":1}', '{"a":"b"}', '{"a" :true }']),
)
def test_anything_at_all(text: str, like: str) -> None:
    check(
        taken(like, [text, like, like[:-1], like + "}", like + " "]),
        [text, like, like[:-1], like + "}", like + " "],
    )


def test_long_texts_are_left_to_who_counts_characters() -> None:
    texts: list[str | None] = [f'{{"a":"{"n" * size}"}}' for size in (MAX_STRING, MAX_STRING + 1)]
    assert list(taken('{"a":""}', texts)) == [0]


@pytest.mark.parametrize(
    "text",
    [None, "", "[]", "{}", '{"a": 1, "a": 2}', '{"a": null}', '{"a": [1]}', '{"a": 1e999}', "{"],
)
def test_what_has_no_spelling(text: str | None) -> None:
    assert spelling_of(text) is None


def test_names_may_be_escaped() -> None:
    like = '{"\\u0061\\"b": 1, "c\\\\": "x"}'
    found = taken(like, [like])
    assert found == {0: {'a"b': 1.0, "c\\": "x"}}


@pytest.mark.parametrize("seed", range(20))
def test_a_batch_of_several_spellings(seed: int) -> None:
    chance = random.Random(seed)
    publishers: list[Callable[[], str]] = [
        lambda: json.dumps({"price": chance.random(), "city": chance.choice(["Oslo", "Zürich"])}),
        lambda: json.dumps({"price": chance.randrange(99)}, separators=(",", ":")),
        lambda: json.dumps({"stock": chance.random() < 0.5, "name": "a" * chance.randrange(9)}),
        lambda: chance.choice(["", "[1]", '{"price": 1e999}', '{"price": 1', '{"x": "\\n"}']),
        lambda: json.dumps({f"n{chance.randrange(99)}": 1}),
    ]
    some_of_them = chance.sample(publishers, chance.randint(1, 5))
    size = chance.choice([0, 1, WORTH, 500])
    texts: list[str | None] = [chance.choice(some_of_them)() for _ in range(size)]
    texts[3:4] = [None]
    array = pa.array(["{}", *texts], chance.choice([pa.string(), pa.large_string()])).slice(1)
    found: dict[int, dict[str, Any]] = {}
    for some in attributes_in(array):
        for part in some.parts(100):
            rows = (
                part.attributes
                if isinstance(part, Mixed)
                else columns_as_rows(dict(part.columns), len(part.places))
            )
            assert len(part.places) == len(rows) <= 100
            assert found.keys().isdisjoint(part.places.tolist())
            found |= dict(zip(part.places.tolist(), rows, strict=True))
    check(found, texts)
    assert sorted(found) == [i for i, text in enumerate(texts) if attributes_of(text) is not None]


def test_a_publisher_s_batch_is_alike() -> None:
    texts = [json.dumps({"a": i / 7, "b": i, "c": f"s{i}"}) for i in range(1000)]
    [some] = attributes_in(pa.array(texts))
    assert isinstance(some, Alike)
    assert len(some.places) == 1000
