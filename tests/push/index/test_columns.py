"""A batch as columns gives what the same batch gives as rows."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from homing.errors import SubscriptionError
from homing.push.index import Index, Oracle
from homing.push.index import kernels as compiled
from homing.push.subscription import parse_field, parse_fields
from homing.push.values import Value
from tests.push.index.test_index import churn

KINDS = {"a": "int", "b": "float", "c": "text", "d": "bool", "e": "float", "f": "text"}


@pytest.fixture(scope="module")
def filled() -> tuple[Index, Oracle]:
    compiled.load()
    index, oracle = Index(background=False), Oracle()
    churn(index, oracle, random.Random(1), 2500, 2000)
    big = parse_fields({"a": {"use": 2, "low": 2**53 + 1}})
    index.add(9000, big)
    oracle.add(9000, big)
    index.compact()
    churn(index, oracle, random.Random(2), 200, 2000)
    return index, oracle


def columns(chance: random.Random, count: int) -> dict[str, list[Value | None]]:
    def value(kind: str) -> Value | None:
        if chance.random() < 0.1:
            return None
        if kind == "int":
            return chance.choice([chance.randint(0, 120), 2**53 + chance.randint(0, 2)])
        if kind == "float":
            return round(chance.random() * 120, 2)
        return f"s{chance.randint(0, 25)}" if kind == "text" else chance.random() < 0.5

    return {name: [value(kind) for _ in range(count)] for name, kind in KINDS.items()}


def masked(values: list[Value | None]) -> object:
    filler = next(value for value in values if value is not None)
    return np.ma.masked_array(
        np.array([filler if value is None else value for value in values]),
        [value is None for value in values],
    )


@pytest.mark.parametrize("form", ["list", "arrow", "masked"])
def test_columns_answer_as_rows(filled: tuple[Index, Oracle], form: str) -> None:
    index, oracle = filled
    plain = columns(random.Random(3), 50)
    turn = {"list": list, "arrow": pa.array, "masked": masked}[form]
    offsets, ids = index.match_columns({name: turn(column) for name, column in plain.items()})
    for i in range(50):
        row = {name: column[i] for name, column in plain.items()}
        there = {name: value for name, value in row.items() if value is not None}
        assert sorted(ids[offsets[i] : offsets[i + 1]].tolist()) == oracle.match(there)


def test_more_than_a_chunk_and_chunked_arrow_arrays(filled: tuple[Index, Oracle]) -> None:
    index, _ = filled
    plain = columns(random.Random(4), 2500)
    rows = [
        {name: value for name, column in plain.items() if (value := column[i]) is not None}
        for i in range(2500)
    ]
    halves = {
        name: pa.chunked_array([pa.array(column[:1000]), pa.array(column[1000:])])
        for name, column in plain.items()
    }
    offsets, ids = index.match_columns(halves)
    expected_offsets, expected = index.match_batch(rows)
    assert offsets.tolist() == expected_offsets.tolist()
    for i in range(0, 2500, 50):
        here = slice(offsets[i], offsets[i + 1])
        assert sorted(ids[here].tolist()) == sorted(expected[here].tolist())


@pytest.mark.parametrize(
    "bad",
    [
        {"a": [1.0, float("nan")]},
        {"a": np.array([1.0, np.inf])},
        {"a": [1, "x"]},
        {"a": [True, 1]},
        {"a": [1, 2], "b": [1]},
        {"a": [[1], [2]]},
    ],
)
def test_columns_without_meaning_are_refused(
    filled: tuple[Index, Oracle], bad: dict[str, object]
) -> None:
    with pytest.raises(SubscriptionError):
        filled[0].match_columns(bad)


def test_no_columns_and_no_rows(filled: tuple[Index, Oracle]) -> None:
    forms: list[dict[str, object]] = [{}, {"a": []}, {"c": pa.array([], pa.string())}]
    for empty in forms:
        offsets, ids = filled[0].match_columns(empty)
        assert offsets.tolist() == [0]
        assert ids.tolist() == []


def test_rows_of_strings_answer_as_columns_and_one_by_one(filled: tuple[Index, Oracle]) -> None:
    """Attributes with and without prefix subscriptions, and strings that nobody named."""
    index, oracle = filled
    chance = random.Random(5)
    rows: list[dict[str, Value]] = [
        {name: f"s{chance.randint(0, 40)}" for name in "abcdef"} for _ in range(40)
    ]
    offsets, ids = index.match_batch(rows)
    for i, row in enumerate(rows):
        assert sorted(ids[offsets[i] : offsets[i + 1]].tolist()) == oracle.match(row)
    mixed: list[dict[str, Value]] = [{"c": "s1"}, {"c": 2}, {"c": True}]
    offsets, ids = index.match_batch(mixed)
    for i, row in enumerate(mixed):
        assert sorted(ids[offsets[i] : offsets[i + 1]].tolist()) == oracle.match(row)


def test_large_integers_in_columns_are_exact_or_refused() -> None:
    index = Index(background=False)
    for number, extra in enumerate(
        ({"in": [2**53 + 1]}, {"ge": 2**63}, {"le": 1.5e19}, {"gt": 1.5e19}, {"in": [2**53, 0.5]})
    ):
        index.add(number, {"a": parse_field({"use": 3, "extra": extra})})
    columns: list[list[int | float]] = [
        [2**53 + 1, 2**63, 2**53],
        [1e300, 0.5, 4],
        [-(2**63), 2**53, 2**53 + 1],
    ]
    forms: list[tuple[object, list[int | float]]] = [(column, column) for column in columns]
    forms.append((np.array(columns[0], np.uint64), columns[0]))
    for column, values in forms:
        offsets, ids = index.match_columns({"a": column})
        for i, value in enumerate(values):
            expected = index.match({"a": value})
            assert sorted(ids[offsets[i] : offsets[i + 1]]) == sorted(expected)


@pytest.mark.parametrize(
    "bad",
    [
        [2**53 + 1, 1.5],
        [2**70, 1.5],
        [10**400, 1.5],
        [2**70],
        [-1, 2**63],
        np.array([2**63 + 1], np.uint64),
        np.array([1.5], np.longdouble),
    ],
    ids=repr,
)
def test_numbers_that_a_column_would_round_are_refused(bad: object) -> None:
    index = Index(background=False)
    index.add(1, {"a": parse_field({"use": 3, "extra": {"in": [2**53 + 1]}})})
    with pytest.raises(SubscriptionError):
        index.match_columns({"a": bad})


def test_arrow_columns_of_nothing_and_of_numbers_into_a_dictionary(
    filled: tuple[Index, Oracle],
) -> None:
    index, oracle = filled
    words = ["s1", None, "s2", "s1"]
    forms: list[tuple[object, list[Value | None]]] = [
        (pa.nulls(3), [None, None, None]),
        (pa.array(words).dictionary_encode(), [*words]),
        (pa.array([5, None, 7, 5]).dictionary_encode(), [5, None, 7, 5]),
    ]
    for column, values in forms:
        offsets, ids = index.match_columns({"c": column, "a": column})
        for i, value in enumerate(values):
            expected = oracle.match({} if value is None else {"a": value, "c": value})
            assert sorted(ids[offsets[i] : offsets[i + 1]].tolist()) == expected


@pytest.mark.parametrize("column", [[[1], None], [b"x", None]], ids=["lists", "octets"])
def test_arrow_columns_of_other_types_are_refused(column: list[object]) -> None:
    with pytest.raises(SubscriptionError, match="no numbers, strings or booleans"):
        Index(background=False).match_columns({"a": pa.array(column)})
