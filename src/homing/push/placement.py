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

A plan is JSON, in files and between matchers (`dump_plan`, `load_plan`):

    {"epoch": 7, "trees": [{"cuts": [["price", 12.5, -1, -2]],
                            "owners": [["00…01", "00…02"], ["00…03", "00…04"]], "price": 1.0}]}
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from homing.errors import Malformed
from homing.push.ring import Ring
from homing.push.values import Field, Value

COPIES = 2
"""Owners a tile has at least: a matcher that dies takes no subscription with it."""

MAX_TILES = 4096
"""In one tree. Cuts are walked for every publication and sent to every matcher: plans stay small."""

MAX_TREES = 8
"""Each is one matcher more to ask for every publication; three is the most that ever paid."""

MAX_PLAN_BYTES: Final = 256 << 10
"""As JSON: it travels in one status message, beside what a matcher holds of it."""

Tile = tuple[int, int]
"""One tile of a plan: the tree's number and the tile's in it."""


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

    def holders(self, fields: Mapping[str, Field], ring: Ring) -> set[str]:
        """The matchers that hold a subscription."""
        tree, tiles = self.tiles_for(fields)
        return {owner for tile in tiles for owner in self.owners((tree, tile), ring)}

    def asked(self, attributes: Mapping[str, Value]) -> list[Tile]:
        """The tile of each tree that a publication lies in."""
        return [(number, tree.tile(attributes)) for number, tree in enumerate(self.trees)]

    @property
    def tiles(self) -> list[Tile]:
        """Every tile of every tree."""
        return [(n, tile) for n, tree in enumerate(self.trees) for tile in range(tree.tiles)]

    def planned(self, node: str) -> set[Tile]:
        """The tiles that a matcher owns whoever else is there."""
        return {
            (number, tile)
            for number, tile in self.tiles
            if node in self.trees[number].owners[tile] or self._is_everybodys((number, tile))
        }

    def owners(self, tile: Tile, ring: Ring) -> tuple[str, ...]:
        """A tile's owners on the ring, others standing in so that there are COPIES of them.

        The tile hashes onto the ring; who comes next there stands in. So a matcher that dies,
        joins or leaves moves only its own share.
        """
        if self._is_everybodys(tile):
            return ring.names
        planned = [name for name in self.trees[tile[0]].owners[tile[1]] if name in ring]
        if len(planned) < COPIES:
            walk = ring.owners(b"%d/%d" % tile, COPIES + len(planned))
            stand_ins = [name for key in walk if (name := key.decode()) not in planned]
            planned += stand_ins[: COPIES - len(planned)]
        return tuple(planned)

    def _is_everybodys(self, tile: Tile) -> bool:
        tree = self.trees[tile[0]]
        return not tree.cuts and not tree.owners[tile[1]]


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


def dump_plan(plan: Plan) -> bytes:
    """The plan as JSON, as it lies in a file and travels between matchers."""
    return msgspec.json.encode(plan)


def name_of(plan: Plan) -> bytes:
    """16 bytes that order plans: the epoch, then what tells two of one epoch apart."""
    digest = hashlib.sha1(dump_plan(plan), usedforsecurity=False).digest()
    return plan.epoch.to_bytes(8, "big") + digest[:8]


def load_plan(source: bytes) -> Plan:
    """A plan from JSON, refused unless its trees are trees and every tile is reached once."""
    if len(source) > MAX_PLAN_BYTES:
        raise Malformed(f"a placement plan has at most {MAX_PLAN_BYTES} bytes, got {len(source)}")
    try:
        plan = msgspec.json.decode(source, type=Plan)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Malformed(f"not a placement plan: {error}") from None
    if not 0 <= plan.epoch < 1 << 63 or not 1 <= len(plan.trees) <= MAX_TREES:
        raise Malformed(f"a placement plan has an epoch and 1 to {MAX_TREES} trees")
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
