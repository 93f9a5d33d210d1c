"""The six seeded workloads: who subscribes to what, and what is published.

W1–W4, W6: ten numeric attributes a0…a9 on [0, 1000], three to five of them bounded by each
subscription, every fifth subscription also asks for one of 1 000 strings with Zipf frequencies.
W5: thirty string attributes, three to eight equalities each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from homing.push.values import ABOVE, BELOW, Field, Value, one_of

NUMERIC = 10
TEXTS = 1000
TEXT_ATTRIBUTES = 30
SPAN = 1000.0
BLOCK = 10_000


class Workload(NamedTuple):
    """How many subscriptions, and how they are drawn."""

    name: str
    subscriptions: int
    low_width: float = 0.05
    high_width: float = 0.20
    skewed: bool = False
    equality: bool = False

    def sized(self, subscriptions: int) -> Workload:
        """The same drawing with another number of subscriptions."""
        return self._replace(subscriptions=subscriptions)


W1 = Workload("W1", 100_000)
W2 = Workload("W2", 1_000_000)
W3 = Workload("W3", 100_000, skewed=True)
W4 = Workload("W4", 100_000, low_width=0.001, high_width=0.01)
W5 = Workload("W5", 100_000, equality=True)
W6 = Workload("W6", 10_000_000, low_width=0.001, high_width=0.01)
ALL = (W1, W2, W3, W4, W5, W6)


class Ranges(NamedTuple):
    """Numeric subscriptions in columns: row i bounds attributes[i, j] where used[i, j]."""

    attributes: npt.NDArray[np.int64]
    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]
    used: npt.NDArray[np.bool_]
    text: npt.NDArray[np.int64]


def zipf() -> npt.NDArray[np.float64]:
    """The frequencies of the 1 000 strings."""
    weights = 1.0 / np.arange(1, TEXTS + 1)
    frequencies: npt.NDArray[np.float64] = weights / weights.sum()
    return frequencies


def ranges(workload: Workload, seed: int, count: int) -> Ranges:
    """`count` numeric subscriptions; text is -1 for those without a string."""
    chance = np.random.default_rng((1, seed))
    attributes = np.argsort(chance.random((count, NUMERIC)), axis=1)[:, :5]
    widths = chance.uniform(workload.low_width, workload.high_width, (count, 5)) * SPAN
    if workload.skewed:
        centres = np.clip(chance.normal(SPAN / 2, SPAN / 8, (count, 5)), 0, SPAN)
    else:
        centres = chance.uniform(0, SPAN, (count, 5))
    used = np.arange(5) < chance.integers(3, 6, count)[:, None]
    text = np.where(chance.random(count) < 0.2, chance.choice(TEXTS, count, p=zipf()), np.int64(-1))
    return Ranges(attributes, centres - widths / 2, centres + widths / 2, used, text)


def subscriptions(workload: Workload) -> Iterator[tuple[int, dict[str, Field]]]:
    """All of a workload's subscriptions, with ids from 0; made in blocks, never all at once."""
    texts = [one_of([f"text {i}"]) for i in range(TEXTS)]
    for seed, begin in enumerate(range(0, workload.subscriptions, BLOCK)):
        count = min(BLOCK, workload.subscriptions - begin)
        made = (
            _equalities(texts, seed, count)
            if workload.equality
            else _ranged(workload, texts, seed, count)
        )
        yield from enumerate(made, begin)


def _ranged(
    workload: Workload, texts: list[Field], seed: int, count: int
) -> Iterator[dict[str, Field]]:
    drawn = ranges(workload, seed, count)
    names = [f"a{i}" for i in range(NUMERIC)]
    columns = zip(*(column.tolist() for column in drawn), strict=True)
    for attributes, low, high, used, text in columns:
        fields = {
            names[attributes[j]]: Field(numbers=(((low[j], BELOW), (high[j], ABOVE)),))
            for j in range(5)
            if used[j]
        }
        if text >= 0:
            fields["text"] = texts[text]
        yield fields


def _equalities(texts: list[Field], seed: int, count: int) -> Iterator[dict[str, Field]]:
    chance = np.random.default_rng((2, seed))
    attributes = np.argsort(chance.random((count, TEXT_ATTRIBUTES)), axis=1)[:, :8]
    values = chance.choice(TEXTS, (count, 8), p=zipf())
    sizes = chance.integers(3, 9, count)
    for row, picked, size in zip(attributes.tolist(), values.tolist(), sizes.tolist(), strict=True):
        yield {f"s{row[j]}": texts[picked[j]] for j in range(size)}


def publications(workload: Workload, count: int) -> list[dict[str, Value]]:
    """What is published: every attribute present, skewed as the subscriptions are."""
    chance = np.random.default_rng((3, workload.skewed))
    if workload.equality:
        picked = chance.choice(TEXTS, (count, TEXT_ATTRIBUTES), p=zipf())
        return [{f"s{j}": f"text {n}" for j, n in enumerate(row)} for row in picked.tolist()]
    numbers = numeric_publications(workload, count)
    texts = chance.choice(TEXTS, count, p=zipf()).tolist()
    return [
        {**{f"a{j}": x for j, x in enumerate(row)}, "text": f"text {text}"}
        for row, text in zip(numbers.tolist(), texts, strict=True)
    ]


def numeric_publications(workload: Workload, count: int) -> npt.NDArray[np.float64]:
    """The numeric attributes of the same publications."""
    chance = np.random.default_rng((4, workload.skewed))
    if workload.skewed:
        return np.clip(chance.normal(SPAN / 2, SPAN / 8, (count, NUMERIC)), 0, SPAN)
    return chance.uniform(0, SPAN, (count, NUMERIC))
