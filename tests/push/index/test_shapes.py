"""Shapes: a publication encoded by its shape is the one encoded attribute by attribute."""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.errors import SubscriptionError
from homing.push.index import kernels as compiled
from homing.push.index.kernels.layout import ALWAYS, NONE
from homing.push.index.lanes import Vocabulary
from homing.push.index.shapes import MAX_SEEN, MAX_SHAPES, Rows, Shapes, shape_of
from homing.push.subscription import parse_fields
from homing.push.values import Field, Value
from tests.push.index.strategies import attributes, subscriptions


@pytest.fixture(scope="module", autouse=True)
def _kernels() -> None:
    compiled.load()


def by_lane(row: Rows) -> dict[int, float]:
    return dict(zip(row.lanes.tolist(), row.values[0, NONE + 1 :].tolist(), strict=True))


def vocabulary_of(*many: dict[str, Field]) -> Vocabulary:
    vocabulary = Vocabulary()
    for fields in many:
        vocabulary.boxes(fields)
    return vocabulary


PLAIN = parse_fields(
    {
        "price": {"use": 2, "low": 1, "high": 9},
        "city": {"use": 1, "strval": "Paris"},
        "vip": {"use": 3, "extra": {"in": [True]}},
        "tag": {"use": 3, "extra": {"exists": True}},
    }
)


@given(st.lists(subscriptions, max_size=4), st.lists(attributes, min_size=1, max_size=6))
def test_shapes_encode_as_the_vocabulary_does(
    many: list[dict[str, Field]], rows: list[dict[str, Value]]
) -> None:
    vocabulary = vocabulary_of(*many)
    shapes = Shapes()
    for row in rows * 3:
        lanes, values = vocabulary.row(row)
        expected = dict(zip(lanes, map(float, values), strict=True))
        assert by_lane(shapes.row(row, vocabulary)) == expected


def test_the_third_of_a_kind_is_encoded_in_place() -> None:
    vocabulary, shapes = vocabulary_of(PLAIN), Shapes()
    rows: list[dict[str, Value]] = [
        {"price": price, "city": "Paris", "vip": True, "tag": 1, "unknown": 7}
        for price in (1, 2.5, 3)
    ]
    first, second, third = (shapes.row(row, vocabulary) for row in rows)
    assert first is not second
    assert third is second
    assert by_lane(third)[vocabulary.attributes["price"].number] == 3


@pytest.mark.parametrize("odd", ["7", True, 2**53 + 1, -1e300, 10**15 + 0.5])
def test_a_value_of_another_kind_goes_the_slow_way(odd: Value) -> None:
    vocabulary, shapes = vocabulary_of(PLAIN), Shapes()
    usual = [shapes.row({"price": 1, "city": "Paris"}, vocabulary) for _ in range(3)][-1]
    lanes, values = vocabulary.row({"price": odd, "city": "Paris"})
    found = shapes.row({"price": odd, "city": "Paris"}, vocabulary)
    assert by_lane(found) == dict(zip(lanes, map(float, values), strict=True))
    assert shapes.row({"price": 2, "city": "Paris"}, vocabulary) is usual


@pytest.mark.parametrize("bad", [nan, inf, -inf, 2**64, pytest.param(10**400, id="huge")])
def test_what_has_no_meaning_is_refused_with_and_without_a_shape(bad: Value) -> None:
    vocabulary, shapes = vocabulary_of(PLAIN), Shapes()
    for price in (bad, 1, 1, bad):
        if price == 1:
            shapes.row({"price": price}, vocabulary)
        else:
            with pytest.raises(SubscriptionError):
                shapes.row({"price": price}, vocabulary)


def test_a_new_lane_is_seen_at_once() -> None:
    vocabulary, shapes = vocabulary_of(PLAIN), Shapes()
    row: dict[str, Value] = {"price": 1, "colour": "red"}
    before = [shapes.row(row, vocabulary) for _ in range(3)][-1]
    vocabulary.boxes(parse_fields({"colour": {"use": 1, "strval": "red"}}))
    after = shapes.row(row, vocabulary)
    assert len(after.lanes) == len(before.lanes) + 1
    assert (
        by_lane(after)[vocabulary.attributes["colour"].token] == vocabulary.register.numbers["red"]
    )


def test_prefixes_have_no_shape() -> None:
    vocabulary = vocabulary_of(parse_fields({"city": {"use": 3, "extra": {"prefix": "Pa"}}}))
    assert shape_of({"city": "Paris"}, vocabulary) is None
    assert shape_of({"town": "Paris"}, vocabulary) is not None


def test_shapes_are_few_however_many_kinds_there_are() -> None:
    vocabulary, shapes = vocabulary_of(PLAIN), Shapes()
    for number in range(3 * MAX_SEEN):
        for _ in range(2):
            row = shapes.row({"price": 1, f"n{number}": 2}, vocabulary)
            assert row.values.dtype == np.float64
    assert len(shapes._shapes) <= MAX_SHAPES
    assert len(shapes._seen) <= MAX_SEEN


@given(st.lists(subscriptions, max_size=4), attributes, st.lists(attributes, max_size=4))
def test_batches_of_one_shape_are_encoded_as_each_of_them_is(
    many: list[dict[str, Field]], like: dict[str, Value], others: list[dict[str, Value]]
) -> None:
    vocabulary = vocabulary_of(*many)
    # Others with the same names, as far as they have values for them, in their own order.
    rows = [like, *({**other, **like} for other in others), *others]
    for batch in (rows, [like, like], [like, dict(reversed(like.items()))]):
        shaped = Shapes().matrix(batch, vocabulary)
        if shaped is None:
            continue
        lanes, matrix = shaped
        assert matrix[:, ALWAYS].tolist() == [0.0] * len(batch)
        assert np.isnan(matrix[:, NONE]).all()
        for row, values in zip(batch, matrix[:, NONE + 1 :].tolist(), strict=True):
            wanted, expected = vocabulary.row(row)
            assert dict(zip(lanes.tolist(), values, strict=True)) == dict(
                zip(wanted, map(float, expected), strict=True)
            )


def test_which_batches_have_one_shape() -> None:
    vocabulary = vocabulary_of(PLAIN)
    like: dict[str, Value] = {"price": 2.5, "city": "Paris", "vip": True, "tag": 1}
    good: list[Value] = [3, 2.5, 2**51]
    bad: list[Value] = ["3", True, nan, inf, 2**53, 10**400]
    for price in good:
        shaped = Shapes().matrix([like, {**like, "price": price}], vocabulary)
        assert shaped is not None
        column = NONE + 1 + shaped[0].tolist().index(vocabulary.attributes["price"].number)
        assert shaped[1][:, column].tolist() == [2.5, price]
    for price in bad:
        assert Shapes().matrix([like, {**like, "price": price}], vocabulary) is None
    for other in ({**like, "city": 1}, {**like, "vip": 1}, {"price": 1}, {**like, "more": 1}):
        assert Shapes().matrix([like, other], vocabulary) is None


def test_a_batch_that_differs_in_a_name_that_only_some_have_is_not_of_one_shape() -> None:
    """Nobody asks for `other`, but somebody does for `vip`, which stands in its place."""
    vocabulary = vocabulary_of(PLAIN, parse_fields({"vip": {"use": 3, "extra": {"exists": True}}}))
    rows: list[dict[str, Value]] = [{"price": 1, "other": 1}, {"price": 1, "vip": True}]
    for batch in (rows, rows[::-1]):
        assert Shapes().matrix(batch, vocabulary) is None


def test_batches_of_many_kinds_leave_few_shapes() -> None:
    vocabulary, shapes = vocabulary_of(PLAIN), Shapes()
    for number in range(3 * MAX_SHAPES):
        assert shapes.matrix([{"price": 1, f"n{number}": 2}] * 2, vocabulary) is not None
    assert len(shapes._shapes) <= MAX_SHAPES
    assert len(shapes._seen) <= MAX_SEEN
