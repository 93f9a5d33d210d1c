"""Hypothesis strategies for subscriptions and publications that often just meet or just miss."""

from __future__ import annotations

from hypothesis import strategies as st

from homing.errors import SubscriptionError
from homing.push.subscription import parse_field
from homing.push.values import Field, Value

NAMES = ("price", "city", "vip", "tag")
EDGES = (-0.0, 0, 1, 2, 2.5, 3, 10, -7, 1e300, 5e-324, 2**53, 2**53 + 1, 2**62 + 1, -(2**63))

names = st.sampled_from(NAMES)
numbers = st.one_of(
    st.sampled_from(EDGES),
    st.integers(-5, 15),
    st.floats(-10, 20, allow_nan=False),
    st.integers(-(2**63), 2**63),
)
texts = st.sampled_from(("", "a", "aa", "ab", "abc", "b", "Paris", "Pau", "é", "ﬀ", "\U0001f54a"))
values: st.SearchStrategy[Value] = st.one_of(numbers, texts, st.booleans())
attributes = st.dictionaries(st.one_of(names, st.just("unknown")), values, max_size=5)


def _conditions(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.fixed_dictionaries({"any": st.lists(inner, min_size=1, max_size=3)})


simple_extras: st.SearchStrategy[object] = st.one_of(
    st.fixed_dictionaries({"in": st.lists(values, min_size=1, max_size=5)}),
    st.fixed_dictionaries({"not_in": st.lists(values, max_size=4)}),
    st.fixed_dictionaries({"prefix": texts}),
    st.fixed_dictionaries({"exists": st.booleans()}),
    st.fixed_dictionaries({"ne": values}),
    st.fixed_dictionaries({}, optional={"gt": numbers, "lt": numbers, "ne": values}),
    st.fixed_dictionaries({}, optional={"ge": numbers, "le": numbers, "prefix": texts}),
).filter(bool)
extras = st.recursive(simple_extras, _conditions, max_leaves=4)

described_fields: st.SearchStrategy[dict[str, object]] = st.one_of(
    st.fixed_dictionaries({"use": st.just(1), "strval": texts}),
    st.fixed_dictionaries(
        {"use": st.just(2)},
        optional={"low": st.none() | numbers, "high": st.none() | numbers},
    ),
    st.fixed_dictionaries({"use": st.just(3), "extra": extras}),
)


def _satisfiable(described: dict[str, object]) -> Field | None:
    try:
        return parse_field(described)
    except SubscriptionError:
        return None


fields: st.SearchStrategy[Field] = described_fields.map(_satisfiable).filter(bool)  # type: ignore[assignment]
subscriptions = st.dictionaries(names, fields, max_size=4)
