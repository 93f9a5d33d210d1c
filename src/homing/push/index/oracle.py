"""Brute force: the page of obvious code that every faster index is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from homing.push.values import Field, Value


def matches(fields: Mapping[str, Field], attributes: Mapping[str, Value]) -> bool:
    """Whether a publication satisfies a subscription; one without fields matches nothing."""
    return bool(fields) and all(
        field.accepts(attributes[name]) if name in attributes else field.absent
        for name, field in fields.items()
    )


class Oracle:
    """The index's interface, answered by asking every subscription."""

    def __init__(self) -> None:
        self._fields: dict[int, dict[str, Field]] = {}

    def __len__(self) -> int:
        return len(self._fields)

    def __contains__(self, subscription: int) -> bool:
        return subscription in self._fields

    def add(self, subscription: int, fields: Mapping[str, Field]) -> None:
        """Add a subscription under an id that is not in use."""
        if subscription in self._fields:
            raise KeyError(subscription)
        self._fields[subscription] = dict(fields)

    def remove(self, subscription: int) -> None:
        """Remove a subscription that is there."""
        del self._fields[subscription]

    def replace(self, subscription: int, fields: Mapping[str, Field]) -> None:
        """Set what a subscription asks for, whether it was there or not."""
        self._fields[subscription] = dict(fields)

    def match(self, attributes: Mapping[str, Value]) -> list[int]:
        """The ids of all subscriptions that the attributes satisfy, sorted."""
        return sorted(i for i, fields in self._fields.items() if matches(fields, attributes))

    def match_batch(self, rows: Sequence[Mapping[str, Value]]) -> list[list[int]]:
        """The answer of `match` for each row."""
        return [self.match(row) for row in rows]

    def close(self) -> None:
        """As an index with threads has it."""
