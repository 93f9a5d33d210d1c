"""What is decoded by type is what the long way parses, and nothing else is taken."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.errors import SubscriptionError
from homing.pipeline.match import taking
from homing.pipeline.parsing import all_attributes_of, attributes_of, fields_of
from homing.push.subscription import (
    MAX_ATTRIBUTES,
    MAX_FIELDS,
    MAX_NAME,
    MAX_STRING,
    Fields,
    can_match,
    parse_fields,
)

ATTRIBUTES = [
    "{}",
    '{"a": 1, "b": -2.5, "c": "x", "d": true}',
    '{"a": -0.0}',
    '{"a": 9223372036854775808}',
    '{"a": 9223372036854775809}',
    '{"a": -9223372036854775808}',
    '{"a": 1e999}',
    '{"a": NaN}',
    '{"a": null}',
    '{"a": [1]}',
    '{"": 1}',
    '{"a": 1, "a": 2}',
    '{"a": 1} {"b": 2}',
    "[]",
    "7",
    "not json",
    "",
    None,
    f'{{"{"n" * MAX_NAME}": 1}}',
    f'{{"{"n" * (MAX_NAME + 1)}": 1}}',
    f'{{"a": "{"é" * MAX_STRING}"}}',
    f'{{"a": "{"é" * (MAX_STRING + 1)}"}}',
    "{" + ",".join(f'"a{i}":1' for i in range(MAX_ATTRIBUTES)) + "}",
    "{" + ",".join(f'"a{i}":1' for i in range(MAX_ATTRIBUTES + 1)) + "}",
]

RANGES = [
    "{}",
    '{"a": {"use": 2, "low": 1, "high": 2.5}}',
    '{"a": {"use": 2}}',
    '{"a": {"use": 2, "low": -0.0, "high": -0.0}}',
    '{"a": {"use": 2, "low": null, "high": 3, "strval": "ignored"}}',
    '{"a": {"use": 2.0, "low": 1}}',
    '{"a": {"use": true, "low": 1}}',
    '{"a": {"use": 2, "low": true}}',
    '{"a": {"use": 2, "low": "1"}}',
    '{"a": {"use": 2, "low": 2, "high": 1}}',
    '{"a": {"use": 3, "extra": {"in": []}}, "b": {"use": 1, "strval": "x"}}',
    '{"a": {"use": 2, "high": 9223372036854775808}}',
    '{"a": {"use": 2, "high": 9223372036854775809}}',
    '{"a": {"use": 1, "strval": "x"}, "b": {"use": 2, "low": 1}}',
    '{"a": {"use": 4}}',
    '{"": {"use": 2}}',
    '{"a": 1}',
    "[]",
    "",
    None,
    "{" + ",".join(f'"a{i}":{{"use":2,"low":1}}' for i in range(MAX_FIELDS)) + "}",
    "{" + ",".join(f'"a{i}":{{"use":2,"low":1}}' for i in range(MAX_FIELDS + 1)) + "}",
]


@pytest.mark.parametrize("text", ATTRIBUTES)
def test_attributes(text: str | None) -> None:
    [one] = all_attributes_of([text])
    assert repr(one) == repr(attributes_of(text))


def test_one_that_is_refused_costs_the_others_nothing() -> None:
    assert [repr(each) for each in all_attributes_of(ATTRIBUTES)] == [
        repr(attributes_of(text)) for text in ATTRIBUTES
    ]


def the_long_way(text: str | None) -> Fields | None:
    try:
        fields = parse_fields(text or "")
    except SubscriptionError:
        return None
    return fields if can_match(fields) else None


@pytest.mark.parametrize("text", RANGES)
def test_fields(text: str | None) -> None:
    assert repr(fields_of(text)) == repr(the_long_way(text))


ends = st.one_of(st.none(), st.integers(-3, 3), st.integers(-(2**65), 2**65), st.floats(-3, 3))
asked = st.fixed_dictionaries(
    {"use": st.sampled_from([2, 2, 2, 2, 1, 4])}, optional={"low": ends, "high": ends}
)


@given(st.dictionaries(st.sampled_from(["", "a", "b", "c"]), asked))
def test_any_ranges(fields: dict[str, dict[str, object]]) -> None:
    text = msgspec.json.encode(fields).decode()
    assert repr(fields_of(text)) == repr(the_long_way(text))


@pytest.mark.parametrize(
    "texts",
    [["ab", "cd", "ef", "gh"], ["a", "bc", "", "d"], ["", "", "", ""], ["é", "è", "x1", "à"]],
)
def test_texts_are_taken_by_their_places(texts: list[str]) -> None:
    import numpy as np

    whole = pa.array(["zz", *texts])
    for array, wanted in (
        (pa.array(texts), texts),
        (whole.slice(1), texts),
        (whole.slice(2), texts[1:]),
    ):
        places = np.array([2, 0, 0, 1], np.int64)
        found = taking(array)(places)
        found.validate(full=True)
        assert found.to_pylist() == [wanted[place] for place in places]
    assert taking(pa.array([], pa.string()))(np.empty(0, np.int64)).to_pylist() == []
