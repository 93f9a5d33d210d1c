"""Publications at a connector: each kept once for all who are owed it; the order of what several connectors sent."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from homing.ids import maker
from homing.push.subscription import Fields, parse_attributes
from homing.wire import pushed

COUNTS: Final = 1 << 24
"""Ids that a maker has within a second."""


class Shared:
    """One publication at a connector: its payload once, its encoded push once per set of names."""

    __slots__ = ("_attrs", "_images", "arrival", "attributes", "message_id", "payload", "size")

    def __init__(
        self, message_id: bytes, payload: bytes, attributes: bytes, arrival: int = 0
    ) -> None:
        """`arrival`: counts what this connector was given, so that a checkpoint keeps order."""
        self.arrival = arrival
        self.message_id = message_id
        self.payload = payload
        self.attributes = attributes
        self.size = len(payload) + len(attributes)
        self._images: dict[tuple[str, ...], bytes] = {}
        self._attrs: pushed.Attributes | None = None

    def image(self, names: tuple[str, ...]) -> bytes:
        """The push as it travels to everybody for whom these subscriptions matched."""
        image = self._images.get(names)
        if image is None:
            image = pushed.push(self.message_id, self.payload, self.attributes, names)
            self._images[names] = image
        return image

    def again(self, names: tuple[str, ...]) -> bytes:
        """The same, flagged as redelivered; rare, so not kept."""
        return pushed.push(self.message_id, self.payload, self.attributes, names, redelivered=True)

    def forget_images(self) -> None:
        """The fan-out is over: who is still owed it gets it encoded anew."""
        self._images = {}

    def satisfies(self, fields: Fields) -> bool:
        """Whether a subscription matches it; the index is the matcher's, and heavy."""
        if self._attrs is None:
            self._attrs = parse_attributes(self.attributes)
        attrs = self._attrs
        return all(
            field.accepts(attrs[name]) if name in attrs else field.absent
            for name, field in fields.items()
        )


def in_order(owed: dict[bytes, Shared]) -> OrderedDict[bytes, Shared]:
    """What each publisher sent in the order of its ids, in the places that it has among all.

    Several connectors may have sent it, each in order, and nobody knows which of theirs is older; ids do:
    a publisher's are the same but for the time in front and a count at the end.
    """
    counts: dict[
        bytes, int
    ] = {}  # of a maker in one second: the first, as counts begin anew after the last

    def place(identity: bytes) -> tuple[bytes, int]:
        count = int.from_bytes(identity[9:], "big")
        from_first = count - counts.setdefault(identity[:9], count)
        return identity[:4], (from_first + COUNTS // 2) % COUNTS

    left: dict[bytes, list[bytes]] = {}
    for identity in sorted(owed, key=place, reverse=True):
        left.setdefault(maker(identity), []).append(identity)
    ids = [left[maker(identity)].pop() for identity in owed]
    return OrderedDict([(identity, owed[identity]) for identity in ids])
