"""Attributes and fields by the hundred thousand: common forms decoded by type, in one step.

homing.push.subscription looks at every member to say what is wrong with it. Here nobody is told,
so msgspec checks the same limits as it decodes; whatever it does not take is parsed the long way.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from homing.errors import SubscriptionError
from homing.push.subscription import (
    MAX_ATTRIBUTES,
    MAX_FIELDS,
    MAX_INTEGER,
    MAX_NAME,
    MAX_STRING,
    Attributes,
    Fields,
    can_match,
    parse_attributes,
    parse_fields,
)
from homing.push.values import ABOVE, BELOW, LEFT_END, RIGHT_END, Field

_Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
_Integer: TypeAlias = Annotated[int, Meta(ge=-MAX_INTEGER, le=MAX_INTEGER - 1)]
_Text: TypeAlias = Annotated[str, Meta(max_length=MAX_STRING)]


class _Range(msgspec.Struct):
    use: Literal[2]
    low: _Integer | float | None = None
    high: _Integer | float | None = None


_attributes = msgspec.json.Decoder(
    Annotated[dict[_Name, bool | _Integer | float | _Text], Meta(max_length=MAX_ATTRIBUTES)]
)
_ranges = msgspec.json.Decoder(Annotated[dict[_Name, _Range], Meta(max_length=MAX_FIELDS)])


def attributes_of(text: str | None) -> Attributes | None:
    """None for what a matcher would have refused."""
    try:
        return parse_attributes(text or "")
    except SubscriptionError:
        return None


def all_attributes_of(texts: Sequence[str | None]) -> Sequence[Attributes | None]:
    """The same for many."""
    decode = _attributes.decode
    try:
        return [decode(text or "") for text in texts]
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return [attributes_of(text) for text in texts]


def fields_of(text: str | None) -> Fields | None:
    """None for what a matcher would have refused, and for what no publication satisfies."""
    try:
        found = _ranges.decode(text or "")
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        with suppress(SubscriptionError):
            if can_match(parsed := parse_fields(text or "")):
                return parsed
        return None
    # Their number was limited by type and each is one span: only whether it is empty is left.
    fields: Fields = {}
    for name, asked in found.items():
        # Adding 0 makes 0.0 of -0.0, as everywhere, and leaves integers what they are.
        low = LEFT_END if asked.low is None else (asked.low + 0, BELOW)
        high = RIGHT_END if asked.high is None else (asked.high + 0, ABOVE)
        if low >= high:
            return None
        fields[name] = Field(numbers=((low, high),))
    return fields
