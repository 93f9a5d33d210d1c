"""Batches that go through MessagePack to the matrix: as publications by themselves do, or not at all."""

from __future__ import annotations

from datetime import date
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.push.index import kernels as compiled
from homing.push.index.kernels.layout import NONE
from homing.push.index.lanes import Vocabulary
from homing.push.index.shapes import Shapes
from homing.push.subscription import parse_fields
from homing.push.values import Value


@pytest.fixture(scope="module", autouse=True)
def _kernels() -> None:
    compiled.load()


def vocabulary_for(texts: list[str], numbers: tuple[str, ...] = ("x", "y")) -> Vocabulary:
    vocabulary = Vocabulary()
    for name in numbers:
        vocabulary.boxes(parse_fields({name: {"use": 2, "low": 1}}))
    for text in texts:
        vocabulary.boxes(parse_fields({"t": {"use": 1, "strval": text}}))
    vocabulary.boxes(parse_fields({"b": {"use": 3, "extra": {"in": [True]}}}))
    return vocabulary


def check(rows: list[dict[str, Value]], vocabulary: Vocabulary) -> None:
    """All rows are of one shape, and their values are where each one's own encoding has them."""
    shaped = Shapes().matrix(rows, vocabulary)
    assert shaped is not None
    lanes, matrix = shaped
    for row, values in zip(rows, matrix[:, NONE + 1 :].tolist(), strict=True):
        wanted, expected = vocabulary.row(row)
        assert dict(zip(lanes.tolist(), values, strict=True)) == dict(
            zip(wanted, map(float, expected), strict=True)
        )


ordinary = st.integers(-(2**51), 2**51) | st.floats(-1e15, 1e15)
written = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@given(
    st.lists(
        st.tuples(ordinary, ordinary, st.booleans(), written, written | ordinary | st.booleans()),
        min_size=1,
        max_size=40,
    )
)
def test_ordinary_values_of_every_kind(many: list[tuple[Value, ...]]) -> None:
    rows = [dict(zip(("x", "b2", "b", "t", "unasked"), each, strict=True)) for each in many]
    check(rows, vocabulary_for([str(row["t"]) for row in rows[::2]]))


@pytest.mark.parametrize("bits", [0, 5, 6, 7, 8, 14, 15, 16, 17, 30, 31, 32, 33, 50, 51])
def test_integers_of_every_length(bits: int) -> None:
    whole = [sign * (2**bits + more) for sign in (1, -1) for more in (-1, 0, 1)]
    check([{"x": number, "y": -number, "unasked": number} for number in whole], vocabulary_for([]))


@pytest.mark.parametrize("size", [0, 1, 31, 32, 255, 256, 65535, 65536])
def test_texts_of_every_length(size: int) -> None:
    texts = ["a" * size, "a" * size + "b", "é" * (size // 2), "nobody's"]
    check(
        [{"t": text, "unasked": text} for text in texts],
        vocabulary_for([text for text in texts[:-1] if len(text) < 4096]),
    )


@pytest.mark.parametrize("count", [1, 14, 15, 16, 17, 300])
def test_as_many_rows_and_names_as_there_are(count: int) -> None:
    names = tuple(f"n{i}" for i in range(count))
    vocabulary = vocabulary_for([], names)
    rows: list[dict[str, Value]] = [dict.fromkeys(names, i) for i in range(count)]
    check(rows, vocabulary)
    for fewer in (dict(list(rows[-1].items())[1:]), {**rows[-1], "more": 1}):
        assert Shapes().matrix([*rows, fewer], vocabulary) is None


def test_more_texts_than_there_are_cells() -> None:
    rows: list[dict[str, Value]] = [{"t": f"text {i % 9000}"} for i in range(20_000)]
    check(rows, vocabulary_for([f"text {i}" for i in range(0, 9000, 7)]))


def test_what_is_in_no_dictionary_or_cannot_be_written_goes_the_slow_way() -> None:
    vocabulary, shapes = vocabulary_for(["a"]), Shapes()
    good: dict[str, Value] = {"x": 1, "t": "a"}
    assert shapes.matrix([good, good], vocabulary) is not None
    assert shapes.matrix([good, MappingProxyType(good)], vocabulary) is None
    for odd in ("\ud800", 2**70, object(), np.float32(1), None, [1], b"a", date(2026, 1, 1)):
        for name in ("x", "t"):
            assert shapes.matrix([good, {**good, name: odd}], vocabulary) is None  # type: ignore[dict-item]
    assert shapes.matrix([{}, {}], vocabulary) is None


def test_a_value_that_nobody_asks_for_may_be_missing() -> None:
    vocabulary = vocabulary_for([])
    rows: list[dict[str, Value]] = [{"x": 1, "unasked": 2}, {"x": 2, "unasked": None}]  # type: ignore[dict-item]
    shaped = Shapes().matrix(rows, vocabulary)
    assert shaped is not None
    assert shaped[1][:, NONE + 1].tolist() == [1.0, 2.0]
