"""Which matchers hold a subscription, and which of them a publication is matched by. Pure.

A plan cuts the space of attributes into *tiles* with one or more k-d trees. A publication lies
in exactly one tile of each tree. A subscription belongs to one tree, the one in which it
overlaps the fewest tiles (counted at the tree's price, which evens out how much the trees
hold), and is held by the owners of those tiles. So a publication asked of one owner of its
tile in every tree finds every subscription exactly once:

    complete      the tile of the publication is among the tiles of a subscription it satisfies
    no broadcast  as many matchers are asked as there are trees (one or two)
    never twice   a subscription is in one tree, and one owner of a tile is asked

A plan without cuts is one tile that everybody owns: every subscription on every matcher, any
of which may be asked. That is where a fabric starts; `homing.push.planner` makes larger ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from homing.errors import Malformed
from homing.push.values import Field, Value

COPIES = 2
"""Owners a tile has at least: a matcher that dies takes no subscription with it."""

MAX_TILES = 4096
"""Cuts are walked for every publication and sent in status packets: a plan stays small."""


class Cut(msgspec.Struct, frozen=True, array_like=True):
    """One question of a tree: does `attribute` lie below `pivot`? Anything else goes low.

    `low` and `high` are indices of further cuts, or `~tile`.
    """

    attribute: str
    pivot: int | float | str
    low: int
    high: int


class Tree(msgspec.Struct, frozen=True):
    """A division of the whole attribute space into tiles; the first cut is its root."""

    cuts: tuple[Cut, ...] = ()
    owners: tuple[tuple[str, ...], ...] = ((),)
    price: float = 1.0

    @property
    def tiles(self) -> int:
        """How many there are: one more than cuts."""
        return len(self.cuts) + 1

    def tile(self, attributes: Mapping[str, Value]) -> int:
        """The one tile that a publication lies in."""
        at = 0 if self.cuts else ~0
        while at >= 0:
            cut = self.cuts[at]
            at = cut.high if _is_high(attributes.get(cut.attribute), cut.pivot) else cut.low
        return ~at

    def overlapped(self, fields: Mapping[str, Field]) -> list[int]:
        """Every tile in which a publication could satisfy these fields."""
        found: list[int] = []
        ways = [0] if self.cuts else [~0]
        while ways:
            at = ways.pop()
            if at < 0:
                found.append(~at)
                continue
            cut = self.cuts[at]
            field = fields.get(cut.attribute)
            low, high = (True, True) if field is None else sides(field, cut.pivot)
            if high:
                ways.append(cut.high)
            if low:
                ways.append(cut.low)
        return found


class Plan(msgspec.Struct, frozen=True):
    """A placement that matchers follow from an epoch on."""

    epoch: int
    trees: tuple[Tree, ...]

    def tiles_for(self, fields: Mapping[str, Field]) -> tuple[int, list[int]]:
        """The tree a subscription belongs to, and its tiles there."""
        options = [(number, tree.overlapped(fields)) for number, tree in enumerate(self.trees)]
        return min(options, key=lambda it: (len(it[1]) * self.trees[it[0]].price, it[0]))

    def holders(self, fields: Mapping[str, Field], alive: Sequence[str]) -> set[str]:
        """The matchers that hold a subscription."""
        tree, tiles = self.tiles_for(fields)
        return {owner for tile in tiles for owner in self.owners(tree, tile, alive)}

    def choices(
        self, attributes: Mapping[str, Value], alive: Sequence[str]
    ) -> list[tuple[str, ...]]:
        """For each tree the matchers of which any one answers for this publication."""
        return [
            self.owners(number, tree.tile(attributes), alive)
            for number, tree in enumerate(self.trees)
        ]

    def owners(self, tree: int, tile: int, alive: Sequence[str]) -> tuple[str, ...]:
        """A tile's owners that are alive, others standing in so that there are COPIES of them.

        Who stands in depends on the tile and the node alone (highest hash first), so a node
        that dies, joins or leaves moves only its own share.
        """
        there = frozenset(alive)
        planned = self.trees[tree].owners[tile]
        if not self.trees[tree].cuts and not planned:
            return tuple(sorted(there))
        kept = tuple(node for node in planned if node in there)
        missing = COPIES - len(kept)
        if missing <= 0:
            return kept
        stand_ins = sorted(there.difference(kept), key=lambda node: _rank(tree, tile, node))
        return kept + tuple(stand_ins[:missing])


EVERYWHERE = Plan(0, (Tree(),))


def sides(field: Field, pivot: float | str) -> tuple[bool, bool]:
    """Whether a value that the field accepts may go low, and whether one may go high."""
    low = field.absent or bool(field.booleans)
    if isinstance(pivot, str):
        strings = field.strings
        texts = (*strings.prefixes, *strings.plus)
        low = low or bool(field.numbers) or any(text < pivot for text in texts)
        high = any(text >= pivot for text in strings.plus)
        # A prefix reaches high if it is not below the pivot, or if the pivot continues it.
        high = high or any(p >= pivot or pivot.startswith(p) for p in strings.prefixes)
        return low, high
    numbers = field.numbers
    below = (pivot, -1)
    low = low or bool(field.strings) or (bool(numbers) and numbers[0][0] < below)
    return low, bool(numbers) and numbers[-1][1] > below


def _is_high(value: Value | None, pivot: float | str) -> bool:
    if isinstance(pivot, str):
        return isinstance(value, str) and value >= pivot
    if value is None or isinstance(value, str | bool):
        return False
    return value >= pivot


def _rank(tree: int, tile: int, node: str) -> bytes:
    return hashlib.sha1(f"{tree}/{tile}/{node}".encode(), usedforsecurity=False).digest()


def dump_plan(plan: Plan) -> bytes:
    """The plan as JSON, as it lies in a file and travels between matchers."""
    return msgspec.json.encode(plan)


def load_plan(source: bytes) -> Plan:
    """A plan from JSON, refused unless its trees are trees and every tile is reached once."""
    try:
        plan = msgspec.json.decode(source, type=Plan)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Malformed(f"not a placement plan: {error}") from None
    if plan.epoch < 0 or not plan.trees:
        raise Malformed("a placement plan has an epoch and at least one tree")
    for tree in plan.trees:
        _check_tree(tree)
    return plan


def _check_tree(tree: Tree) -> None:
    if tree.tiles > MAX_TILES:
        raise Malformed(f"{tree.tiles} tiles in one tree, at most {MAX_TILES}")
    if len(tree.owners) != tree.tiles:
        raise Malformed(f"{tree.tiles} tiles, but owners for {len(tree.owners)}")
    seen: list[int] = [0] if tree.cuts else []
    for number, cut in enumerate(tree.cuts):
        seen += _ends_after(number, (cut.low, cut.high))
    expected = [*range(len(tree.cuts)), *(~tile for tile in range(tree.tiles))]
    if tree.cuts and sorted(seen) != sorted(expected):
        raise Malformed("the cuts of a placement plan do not form a tree")


def _ends_after(number: int, ends: Iterable[int]) -> list[int]:
    ends = list(ends)
    if any(0 <= end <= number for end in ends):
        raise Malformed(f"cut {number} of a placement plan leads back")
    return ends
