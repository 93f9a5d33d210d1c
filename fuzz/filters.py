"""Filters and field JSON: any text is read or refused with a typed error, and reads back."""

from __future__ import annotations

from contextlib import suppress

from homing.errors import SubscriptionError
from homing.push.filters import format_filter, parse_filter
from homing.push.subscription import dump_fields, parse_attributes, parse_fields

SEEDS = (
    b'price in 10..20 and city = "Paris" and tag in ("a","b") and exists(vip)',
    b"(price > 100 or not urgent) and `a b` starts with 'x' or not exists(c) or d != 5",
    b'{"a": {"use": 1, "strval": "x"}, "b": {"use": 2, "low": 1, "high": 2.5}}',
    b'{"a": {"use": 3, "extra": {"any": [{"gt": 1, "ne": 5}, {"prefix": "x"}, {"not_in": [1]}]}}}',
    b'{"price": 12.5, "city": "Paris", "vip": true, "id": 9007199254740993}',
)


def target(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    with suppress(SubscriptionError):
        for fields in parse_filter(text):
            assert parse_filter(format_filter(fields)) == [fields]
    with suppress(SubscriptionError):
        fields = parse_fields(data)
        assert parse_fields(dump_fields(fields)) == fields
    with suppress(SubscriptionError):
        parse_attributes(data)
