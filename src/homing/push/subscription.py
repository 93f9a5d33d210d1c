"""Subscriptions and publication attributes: parsed from JSON once, checked once, canonical after.

A subscription is a mapping from attribute name to Field; it matches a publication when every
field accepts the publication's attribute (or its absence). Everything that comes from outside
passes through `parse_*` or `check_*` here and raises SubscriptionError with a sentence that says
what is wrong; whatever got through needs no checking again.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, isfinite

import msgspec

from homing.errors import SubscriptionError
from homing.push.values import (
    ABOVE,
    ABSENT,
    BELOW,
    FALSE,
    LEFT_END,
    PRESENT,
    RIGHT_END,
    TRUE,
    Cut,
    Field,
    Number,
    Span,
    Value,
    any_of,
    none_of,
    one_of,
    span,
    with_prefix,
)

Fields = dict[str, Field]
Attributes = dict[str, Value]

# A subscription of 200 attributes is a real one; past that somebody is sending a table.
MAX_FIELDS = 256
# What one publication may carry; at the longest names and values it still fits max_message.
MAX_ATTRIBUTES = 1024
# Names are kept for as long as a subscription uses them, in every matcher.
MAX_NAME = 256
# A longer text belongs into the payload; the index keeps every string that is subscribed to.
MAX_STRING = 4096
# Spans and strings of one field: a list of ids fits, a dictionary of a language does not.
MAX_FIELD_SIZE = 4096
# What `not_in` of so many values comes to: the numbers fall into one span more, strings and the field count too.
_MOST_PARTS = MAX_FIELD_SIZE + 3
# `any` inside `any`: one level says everything, a few are convenient, a thousand are an attack.
MAX_DEPTH = 8
# Integers are compared exactly up to what 64 bits hold; JSON allows more, machines disagree on it.
MAX_INTEGER = 2**63

_COMPARISONS = ("gt", "ge", "lt", "le")


def parse_fields(source: bytes | str | Mapping[str, object]) -> Fields:
    """A whole subscription from a JSON object: attribute name → field (PROTOCOL 5.3)."""
    described = _decoded(source) if isinstance(source, bytes | str) else source
    if not isinstance(described, Mapping):
        raise SubscriptionError("a subscription is an object: attribute name to field")
    fields = {check_name(name): parse_field(field) for name, field in described.items()}
    return check_fields(fields)


def parse_field(source: object) -> Field:
    """One field, from its JSON (bytes or text) or from what that decodes to."""
    described = _decoded(source) if isinstance(source, bytes | str) else source
    if not isinstance(described, Mapping):
        raise SubscriptionError("a field is an object with `use` 1, 2 or 3")
    use = described.get("use")
    if isinstance(use, bool) or use not in (1, 2, 3):
        raise SubscriptionError(f"`use` is 1 (string), 2 (range) or 3 (extra), not {_shown(use)}")
    if use == 1:
        return _text_field(described)
    if use == 2:
        return _range_field(described)
    return _extra_field(described.get("extra"))


def check_fields(fields: Fields) -> Fields:
    """The same fields, once their number and sizes are within the limits."""
    if len(fields) > MAX_FIELDS:
        raise SubscriptionError(f"{len(fields)} fields in one subscription, at most {MAX_FIELDS}")
    for name, field in fields.items():
        if field.size > _MOST_PARTS:
            raise SubscriptionError(f"the field `{name}` lists more than {MAX_FIELD_SIZE} values")
    return fields


def can_match(fields: Mapping[str, Field]) -> bool:
    """Whether there are publications that satisfy it: none lies between 5 and 1, or in []."""
    return all(fields.values())


def parse_attributes(source: bytes | str) -> Attributes:
    """A publication's attributes from a JSON object: name → number, string or boolean."""
    return check_attributes(_decoded(source))


def check_attributes(attributes: object) -> Attributes:
    """The same attributes, once every name and value is one that can be matched."""
    if not isinstance(attributes, dict):
        raise SubscriptionError("attributes are an object: name to number, string or boolean")
    if len(attributes) > MAX_ATTRIBUTES:
        raise SubscriptionError(f"{len(attributes)} attributes, at most {MAX_ATTRIBUTES}")
    for name, value in attributes.items():
        if type(name) is not str or not 0 < len(name) <= MAX_NAME:
            check_name(name)
        kind = type(value)
        if kind is float and isfinite(value):
            continue
        if kind is str:
            if len(value) > MAX_STRING:
                raise SubscriptionError(f"`{name}` is longer than {MAX_STRING} characters")
        elif kind is not bool:
            check_value(value, name)
    return attributes


def check_name(name: object) -> str:
    """An attribute's or subscription's name: 1 to MAX_NAME characters of text."""
    if not isinstance(name, str) or not name:
        raise SubscriptionError("an attribute's name is text and not empty")
    if len(name) > MAX_NAME:
        raise SubscriptionError(f"the name `{name[:20]}…` is longer than {MAX_NAME} characters")
    return name


def check_number(value: object, name: str) -> Number:
    """A finite number that compares exactly; -0.0 becomes 0.0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SubscriptionError(f"`{name}` must be a number, not {_shown(value)}")
    if isinstance(value, int):
        if not -MAX_INTEGER <= value <= MAX_INTEGER:
            raise SubscriptionError(
                f"`{name}` is an integer of {value.bit_length()} bits; 64 bits, with its sign, are the most"
            )
        return value
    if not isfinite(value):
        raise SubscriptionError(f"`{name}` is {value}: NaN and infinities match nothing")
    return value + 0.0


def check_value(value: object, name: str) -> Value:
    """A string, a boolean or a number, within its limits."""
    if isinstance(value, str):
        if len(value) > MAX_STRING:
            raise SubscriptionError(f"`{name}` is longer than {MAX_STRING} characters")
        return value
    if isinstance(value, bool):
        return value
    if not isinstance(value, int | float):
        wanted = "a number, a string, true or false"
        raise SubscriptionError(f"`{name}` must be {wanted}, not {_shown(value)}")
    return check_number(value, name)


# --- JSON to field -------------------------------------------------------------------------


def _decoded(source: bytes | str) -> object:
    try:
        return msgspec.json.decode(source)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise SubscriptionError(f"not JSON: {error}") from None


def _shown(value: object) -> str:
    """What was sent, short enough for an error message."""
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "…"


def _text_field(described: Mapping[str, object]) -> Field:
    text = described.get("strval")
    if not isinstance(text, str):
        raise SubscriptionError(f"`strval` must be a string, not {_shown(text)}")
    return one_of([check_value(text, "strval")])


def _range_field(described: Mapping[str, object]) -> Field:
    low, high = described.get("low"), described.get("high")
    return span(
        LEFT_END if low is None else (check_number(low, "low"), BELOW),
        RIGHT_END if high is None else (check_number(high, "high"), ABOVE),
    )


def _extra_field(extra: object) -> Field:
    described = _decoded(extra) if isinstance(extra, bytes | str) else extra
    return _extra(described, 0)


def _extra(described: object, depth: int) -> Field:
    """The field that satisfies every member of the object."""
    if not isinstance(described, Mapping) or not described:
        raise SubscriptionError(f"`extra` is an object with a condition, not {_shown(described)}")
    if depth > MAX_DEPTH:
        raise SubscriptionError(f"`any` is nested more than {MAX_DEPTH} deep")
    field: Field | None = None
    for word, operand in described.items():
        condition = _condition(word, operand, depth)
        field = condition if field is None else field & condition
    assert field is not None
    return field


def _condition(word: object, operand: object, depth: int) -> Field:
    if word in _COMPARISONS:
        return comparison(str(word), check_number(operand, str(word)))
    match word:
        case "in":
            return one_of(_values(operand, "in"))
        case "not_in":
            return none_of(_values(operand, "not_in"))
        case "ne":
            return none_of([check_value(operand, "ne")])
        case "prefix":
            if not isinstance(operand, str):
                raise SubscriptionError(f"`prefix` must be a string, not {_shown(operand)}")
            return with_prefix(str(check_value(operand, "prefix")))
        case "exists":
            if not isinstance(operand, bool):
                raise SubscriptionError(f"`exists` is true or false, not {_shown(operand)}")
            return PRESENT if operand else ABSENT
        case "any":
            return _any(operand, depth)
        case _:
            raise SubscriptionError(f"`extra` knows no `{_shown(word)}`")


def comparison(word: str, bound: Number) -> Field:
    """Numbers on one side of a bound: `gt`, `ge`, `lt` or `le`."""
    if word[0] == "g":
        return span((bound, ABOVE if word == "gt" else BELOW), RIGHT_END)
    return span(LEFT_END, (bound, BELOW if word == "lt" else ABOVE))


def _values(operand: object, word: str) -> list[Value]:
    if not isinstance(operand, list | tuple):
        raise SubscriptionError(f"`{word}` takes a list, not {_shown(operand)}")
    if len(operand) > MAX_FIELD_SIZE:
        raise SubscriptionError(f"`{word}` lists {len(operand)} values, at most {MAX_FIELD_SIZE}")
    return [check_value(value, word) for value in operand]


def _any(operand: object, depth: int) -> Field:
    if not isinstance(operand, list | tuple):
        raise SubscriptionError(f"`any` takes a list of conditions, not {_shown(operand)}")
    if len(operand) > MAX_FIELD_SIZE:
        raise SubscriptionError(f"`any` lists {len(operand)} conditions, at most {MAX_FIELD_SIZE}")
    field = any_of([_extra(described, depth + 1) for described in operand])
    if field.size > _MOST_PARTS:
        raise SubscriptionError(f"`any` lists more than {MAX_FIELD_SIZE} values")
    return field


# --- field to JSON -------------------------------------------------------------------------


def dump_fields(fields: Mapping[str, Field]) -> bytes:
    """The canonical JSON of a subscription: names sorted, each field in its plainest spelling."""
    return msgspec.json.encode({name: describe_field(fields[name]) for name in sorted(fields)})


def describe_field(field: Field) -> dict[str, object]:
    """The field as PROTOCOL 5.3 writes it; `parse_field` of it gives the same field back."""
    strings = field.strings
    if not field.absent and not field.booleans:
        if not field.numbers and not strings.prefixes and len(strings.plus) == 1:
            return {"use": 1, "strval": strings.plus[0]}
        if not strings and len(field.numbers) == 1 and _is_closed(field.numbers[0]):
            (low, _), (high, _) = field.numbers[0]
            return {"use": 2, **_bound("low", low), **_bound("high", high)}
    parts = _parts(field)
    return {"use": 3, "extra": parts[0] if len(parts) == 1 else {"any": parts}}


def _is_closed(ends: Span) -> bool:
    (_, low_side), (_, high_side) = ends
    return low_side == BELOW and high_side == ABOVE


def _bound(word: str, bound: Number) -> dict[str, object]:
    return {} if bound in (-inf, inf) else {word: bound}


def _parts(field: Field) -> list[dict[str, object]]:
    """Conditions of which one must hold; all but the last few lines pick the shortest words."""
    parts: list[dict[str, object]] = [{"exists": False}] if field.absent else []
    excluded = excluded_values(field)
    if excluded is not None:
        return [*parts, {"not_in": excluded} if excluded else {"exists": True}]
    listed: list[Value] = [bool(bit == TRUE) for bit in (FALSE, TRUE) if field.booleans & bit]
    for low, high in field.numbers:
        if low[0] == high[0]:
            listed.append(low[0])
        else:
            parts.append(_span_words(low, high))
    listed.extend(field.strings.plus)
    if listed or not field:
        parts.append({"in": listed})
    for prefix in field.strings.prefixes:
        missing = [text for text in field.strings.minus if text.startswith(prefix)]
        parts.append({"prefix": prefix, **({"not_in": missing} if missing else {})})
    return parts


def excluded_values(field: Field) -> list[Value] | None:
    """The values that a field made by `not_in` leaves out; None for any other field."""
    spans, strings = field.numbers, field.strings
    if not spans or strings.prefixes != ("",):
        return None
    if spans[0][0] != LEFT_END or spans[-1][1] != RIGHT_END:
        return None
    gaps = [(spans[i][1][0], spans[i + 1][0][0]) for i in range(len(spans) - 1)]
    if any(left != right for left, right in gaps):
        return None
    missing: list[Value] = [bool(bit == TRUE) for bit in (FALSE, TRUE) if not field.booleans & bit]
    return [*missing, *(left for left, _ in gaps), *strings.minus]


def _span_words(low: Cut, high: Cut) -> dict[str, object]:
    words = _bound("ge" if low[1] == BELOW else "gt", low[0])
    words.update(_bound("le" if high[1] == ABOVE else "lt", high[0]))
    # Every number and nothing else: two halves that touch say it without an infinity.
    return words or {"any": [{"ge": 0}, {"lt": 0}]}
