"""Makes a placement plan from samples of subscriptions and publications.

Every attribute's values are put into bins at quantiles of the publications, so that a sample
becomes small integers and a cut is "bins up to k" against "bins after k". A tree is grown from
the top: of all attributes and k, take the cut whose two halves carry load in proportion to the
tiles they are to become and that needs the fewest copies of subscriptions. A tile's load is
publications in it × subscriptions in it: what its owners will have to match.

With one tree a subscription is copied at every cut on an attribute it leaves open. So there
are two, and a subscription belongs to the one in which it overlaps the fewest tiles. The trees
are found in two stages. *Explore*: grow trees on the subscriptions that chose them, let
subscriptions choose anew, a few times; the attributes that are asked about together end up in
one tree. *Settle*: keep which attribute each cut asks about and move only the pivots and the
trees' prices, so that choices and loads come to rest together.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from homing.errors import Malformed
from homing.push.placement import COPIES, EVERYWHERE, Cut, Plan, Tree
from homing.push.values import Field, Value

BINS = 128
"""Cuts can be made at this many quantiles: finer than a 1 % imbalance."""

MAX_ATTRIBUTES = 48
"""The most asked-for attributes are candidates; a cut on a rare one copies nearly everything."""

EXPLORE, SETTLE = 4, 8
"""Rounds of each stage; more of them change the forecast by less than its sampling noise."""

TOLERANCE = 0.01
"""Halves this close to their share count as balanced; among those, copies decide."""

TREES_FROM = (2, 8, 24)
"""Pairs of matchers from which one, two, three trees pay: each further tree halves the copies
and asks one matcher more for every publication."""

EVEN = 1.05
"""No owner is lent any more once the busiest matcher is this close to the mean."""

LENT = 0.5
"""At most half a further owner for each tile on average: each one is another copy."""

SPREAD_PARTS = 64
"""A tile's load is handed out in so many parts when a plan is weighed."""

Ints = NDArray[np.int64]


class TileLoad(msgspec.Struct, frozen=True):
    """What a tile holds and is asked, in numbers of the sample."""

    subscriptions: int
    events: int

    @property
    def load(self) -> float:
        return float(self.subscriptions) * self.events


class Forecast(msgspec.Struct, frozen=True):
    """What a plan is expected to do, from the samples it was made of."""

    copies: float
    max_over_mean: float
    asked: int


class _Sample:
    """Subscriptions and publications as bins: what the trees are grown on."""

    def __init__(
        self, subscriptions: Sequence[Mapping[str, Field]], events: Sequence[Mapping[str, Value]]
    ) -> None:
        asked = Counter(name for fields in subscriptions for name in fields)
        names = [name for name, _ in asked.most_common(MAX_ATTRIBUTES)]
        self.names: list[str] = []
        self.pivots: list[list[float | int | str]] = []
        events_bins, lows, highs = [], [], []
        for name in names:
            pivots = _pivots([event[name] for event in events if name in event])
            if not pivots:
                continue
            self.names.append(name)
            self.pivots.append(pivots)
            events_bins.append([_bin(event.get(name), pivots) for event in events])
            reach = [_reach(fields.get(name), pivots) for fields in subscriptions]
            lows.append([low for low, _ in reach])
            highs.append([high for _, high in reach])
        self.events = np.array(events_bins, dtype=np.int64).reshape(len(self.names), len(events))
        self.lows = np.array(lows, dtype=np.int64).reshape(len(self.names), len(subscriptions))
        self.highs = np.array(highs, dtype=np.int64).reshape(len(self.names), len(subscriptions))


def _pivots(values: Sequence[Value]) -> list[float | int | str]:
    """Cut points for one attribute, of the type that most of its values have."""
    texts = sorted(value for value in values if isinstance(value, str))
    numbers = sorted(v for v in values if not isinstance(v, str | bool))
    ordered: Sequence[float | int | str] = numbers if len(numbers) >= len(texts) else texts
    if not ordered:
        return []
    quantiles = {ordered[len(ordered) * k // BINS] for k in range(1, BINS)}
    return sorted(quantiles - {ordered[0]})


def _bin(value: Value | None, pivots: Sequence[float | int | str]) -> int:
    """How many cut points are not above the value; 0 for what goes low everywhere."""
    if value is None or isinstance(value, bool):
        return 0
    if isinstance(value, str) != isinstance(pivots[0], str):
        return 0
    return bisect_right(pivots, value)


def _reach(field: Field | None, pivots: Sequence[float | int | str]) -> tuple[int, int]:
    """The first and last bin in which a value can satisfy the field."""
    if field is None:
        return 0, len(pivots)
    elsewhere = field.absent or bool(field.booleans)
    if isinstance(pivots[0], str):
        low, high = _reach_of_strings(field, pivots)
        elsewhere = elsewhere or bool(field.numbers)
    elif field.numbers:
        low = _bin(_finite(field.numbers[0][0][0], pivots), pivots)
        (last, side) = field.numbers[-1][1]
        last = _finite(last, pivots)
        high = bisect_right(pivots, last) if side > 0 else bisect_left(pivots, last)
        elsewhere = elsewhere or bool(field.strings)
    else:
        low, high, elsewhere = len(pivots), 0, True
    return (0 if elsewhere else low), high


def _finite(bound: float, pivots: Sequence[float | int | str]) -> float:
    return min(max(bound, float(pivots[0]) - 1), float(pivots[-1]) + 1)


def _reach_of_strings(field: Field, pivots: Sequence[float | int | str]) -> tuple[int, int]:
    strings = field.strings
    starts = [*strings.plus, *strings.prefixes]
    ends = [*strings.plus, *(prefix + "\U0010ffff" for prefix in strings.prefixes)]
    if not starts:
        return 0, 0
    return bisect_right(pivots, min(starts)), bisect_right(pivots, max(ends))


class _Grown:
    """One tree under construction; `asked` is the attribute that each way down asks about."""

    def __init__(
        self, sample: _Sample, allowed: Sequence[int], like: _Grown | None, price: float
    ) -> None:
        self._sample = sample
        self._allowed = allowed
        self._like = like.asked if like is not None else {}
        self.asked: dict[str, int] = {}
        self.cuts: list[Cut] = []
        self.tiles = 0
        self.price = price

    def grow(self, subs: Ints, events: Ints, tiles: int, way: str = "") -> int:
        """Divide into so many tiles; the index of the cut made, or ~tile."""
        best = self._best(subs, events, tiles, way) if tiles > 1 else None
        if best is None:
            self.tiles += 1
            return ~(self.tiles - 1)
        attribute, k, low_tiles = best
        number = len(self.cuts)
        sample = self._sample
        self.asked[way] = attribute
        self.cuts.append(Cut("", 0, 0, 0))
        bins = sample.events[attribute, events]
        below, above = sample.lows[attribute, subs] <= k, sample.highs[attribute, subs] > k
        low = self.grow(subs[below], events[bins <= k], low_tiles, way + "l")
        high = self.grow(subs[above], events[bins > k], tiles - low_tiles, way + "h")
        pivot = sample.pivots[attribute][k]
        self.cuts[number] = Cut(sample.names[attribute], pivot, low, high)
        return number

    def _best(self, subs: Ints, events: Ints, tiles: int, way: str) -> tuple[int, int, int] | None:
        """The attribute and bin to cut at, and how many of the tiles lie on the low side."""
        low_tiles = tiles // 2
        wanted = low_tiles / tiles
        best: tuple[float, float, int, int] | None = None
        for attribute in (self._like[way],) if way in self._like else self._allowed:
            option = self._cut(attribute, subs, events, wanted)
            if option is not None and (best is None or option[:2] < best[:2]):
                best = (*option, attribute)
        return None if best is None else (best[3], best[2], low_tiles)

    def _cut(
        self, attribute: int, subs: Ints, events: Ints, wanted: float
    ) -> tuple[float, float, int] | None:
        """The most balanced cut on one attribute: (imbalance, copies, bin)."""
        bins = len(self._sample.pivots[attribute])
        sample = self._sample
        at_low = np.cumsum(np.bincount(sample.lows[attribute, subs], minlength=bins + 1))[:-1]
        at_high = np.cumsum(np.bincount(sample.highs[attribute, subs], minlength=bins + 1))[:-1]
        seen = np.cumsum(np.bincount(sample.events[attribute, events], minlength=bins + 1))[:-1]
        low_load = seen * at_low.astype(np.float64)
        high_load = (len(events) - seen) * (len(subs) - at_high).astype(np.float64)
        total = low_load + high_load
        usable = (low_load > 0) & (high_load > 0)
        if not usable.any():
            return None
        share = np.where(usable, low_load / np.maximum(total, 1), -1.0)
        k = int(np.argmin(np.abs(share - wanted)))
        imbalance = abs(float(share[k]) - wanted)
        copies = float(at_low[k] + len(subs) - at_high[k]) / max(len(subs), 1)
        return (0.0 if imbalance <= TOLERANCE else imbalance), copies, k


def make_plan(
    epoch: int,
    matchers: Sequence[str],
    subscriptions: Sequence[Mapping[str, Field]],
    events: Sequence[Mapping[str, Value]],
    *,
    trees: int | None = None,
) -> tuple[Plan, Forecast]:
    """A plan for these matchers, and what it is expected to do."""
    if not matchers:
        raise Malformed("a placement plan needs at least one matcher")
    places = len(matchers) // COPIES
    if trees is None:
        trees = sum(places >= least for least in TREES_FROM)
    if places < max(2, 2 * trees) or not subscriptions or not events:
        plan = msgspec.structs.replace(EVERYWHERE, epoch=epoch)
        return plan, Forecast(float(len(matchers)), 1.0, 1)
    trees_found, tiles = _find_trees(_Sample(subscriptions, events), trees, places)
    nodes = sorted(matchers)
    owners, busy = _lend([nodes[COPIES * n :][:COPIES] for n in range(len(tiles))], tiles)
    built, at = [], 0
    for grown in trees_found:
        own = tuple(tuple(nodes_of) for nodes_of in owners[at : at + grown.tiles])
        built.append(Tree(tuple(grown.cuts), own, grown.price))
        at += grown.tiles
    held = sum(t.subscriptions * len(own) for t, own in zip(tiles, owners, strict=True))
    return Plan(epoch, tuple(built)), Forecast(held / len(subscriptions), busy, len(built))


def _lend(owners: list[list[str]], tiles: Sequence[TileLoad]) -> tuple[list[list[str]], float]:
    """Give busy tiles further owners among the quiet, for as long as the busiest gains by it.

    A tile's publications go to whichever of its owners is least busy, so load spreads over them
    like water. But an owner of two tiles searches the subscriptions of both every time.
    """
    best, best_busy = owners, spread(owners, tiles)
    busy = best_busy
    for _ in range(int(LENT * len(owners))):
        worst = max(busy, key=lambda node: busy[node])
        mine = [number for number, nodes in enumerate(owners) if worst in nodes]
        tile = max(mine, key=lambda number: tiles[number].load)
        others = [node for node in busy if node not in owners[tile]]
        if not others or busy[worst] <= EVEN * _mean(busy):
            break
        quiet = min(others, key=lambda node: (busy[node], node))
        owners = [[*nodes, quiet] if n == tile else nodes for n, nodes in enumerate(owners)]
        busy = spread(owners, tiles)
        if max(busy.values()) < max(best_busy.values()):
            best, best_busy = owners, busy
    return best, max(best_busy.values()) / _mean(best_busy)


def _mean(busy: Mapping[str, float]) -> float:
    return max(sum(busy.values()) / len(busy), 1e-9)


def spread(owners: Sequence[Sequence[str]], tiles: Sequence[TileLoad]) -> dict[str, float]:
    """How busy each matcher is once every tile's publications went to its least busy owners."""
    held = dict.fromkeys((node for nodes in owners for node in nodes), 0.0)
    for tile, nodes in zip(tiles, owners, strict=True):
        for node in nodes:
            held[node] += tile.subscriptions
    busy = dict.fromkeys(held, 0.0)
    for part in range(SPREAD_PARTS):
        for number in sorted(range(len(owners)), key=lambda n: (n * 7 + part) % len(owners)):
            node = min(owners[number], key=lambda node: busy[node] + held[node])
            busy[node] += held[node] * tiles[number].events / SPREAD_PARTS
    return busy


def _find_trees(sample: _Sample, trees: int, places: int) -> tuple[list[_Grown], list[TileLoad]]:
    """The most even trees of all rounds, and their tiles."""
    attributes = range(len(sample.names))
    everything = np.arange(sample.events.shape[1], dtype=np.int64)
    chosen = np.arange(sample.lows.shape[1], dtype=np.int64) % trees
    prices = [1.0] * trees
    grown: list[_Grown] = []
    found: list[tuple[list[_Grown], list[TileLoad]]] = []
    for number in range(EXPLORE + SETTLE):
        settling = number >= EXPLORE
        previous, grown = grown, []
        for tree in range(trees):
            allowed = attributes if number else attributes[tree::trees] or attributes
            like = previous[tree] if settling else None
            grown.append(_Grown(sample, allowed, like, prices[tree]))
            tiles = (places + tree) // trees
            grown[-1].grow(np.flatnonzero(chosen == tree), everything, tiles)
        chosen, by_tree = _weigh(sample, grown)
        prices = _prices(prices, by_tree)
        if settling:
            found.append((grown, [tile for own in by_tree for tile in own]))
    return min(found, key=lambda option: max(tile.load for tile in option[1]))


def _prices(prices: Sequence[float], by_tree: Sequence[Sequence[TileLoad]]) -> list[float]:
    """Dearer where tiles are busier than elsewhere; the root keeps it from swinging."""
    busy = [sum(tile.load for tile in tiles) / len(tiles) for tiles in by_tree]
    mean = max(sum(busy) / len(busy), 1e-9)
    return [
        price * float(max(own / mean, 0.1) ** 0.5) for price, own in zip(prices, busy, strict=True)
    ]


def _weigh(sample: _Sample, grown: Sequence[_Grown]) -> tuple[Ints, list[list[TileLoad]]]:
    """Who chooses which tree, and what every tile then holds."""
    leaves = [list(_leaves(sample, tree)) for tree in grown]
    counts = np.zeros((len(grown), sample.lows.shape[1]))
    for number, tiles in enumerate(leaves):
        for subs, _ in tiles:
            counts[number, subs] += grown[number].price
    chosen: Ints = np.argmin(counts, axis=0)
    return chosen, [
        [TileLoad(int(np.count_nonzero(chosen[subs] == number)), events) for subs, events in tiles]
        for number, tiles in enumerate(leaves)
    ]


def _leaves(sample: _Sample, tree: _Grown) -> Iterator[tuple[Ints, int]]:
    """Every tile's subscriptions, and how many publications lie in it."""
    all_subs = np.arange(sample.lows.shape[1], dtype=np.int64)
    all_events = np.arange(sample.events.shape[1], dtype=np.int64)
    ways = [(0 if tree.cuts else ~0, all_subs, all_events)]
    while ways:
        at, subs, events = ways.pop()
        if at < 0:
            yield subs, len(events)
            continue
        cut = tree.cuts[at]
        attribute = sample.names.index(cut.attribute)
        k = sample.pivots[attribute].index(cut.pivot)
        bins = sample.events[attribute, events]
        ways.append((cut.low, subs[sample.lows[attribute, subs] <= k], events[bins <= k]))
        ways.append((cut.high, subs[sample.highs[attribute, subs] > k], events[bins > k]))
