"""The planner: codes follow the data, access lanes follow the publications, plans are renewed."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.push.index import Index, Oracle
from homing.push.index import kernels as compiled
from homing.push.index.index import REPLAN_EVERY
from homing.push.index.kernels.layout import MAX_CUTS
from homing.push.index.merge import FANOUT, Size, choose_merge, tier
from homing.push.index.planner import SAMPLE, Sample, plan_cuts
from homing.push.index.tail import ENTRIES
from homing.push.subscription import parse_fields
from homing.push.values import Value


@pytest.fixture(scope="module", autouse=True)
def _kernels() -> None:
    compiled.load()


def two_lanes(index: Index, oracle: Oracle, count: int) -> None:
    """Subscriptions that bound both `a` and `b` to a narrow range around 0.5."""
    chance = random.Random(1)
    for number in range(count):
        bounds = {}
        for name in "ab":
            low = 0.48 + chance.random() / 50
            bounds[name] = {"use": 2, "low": low, "high": low + 0.02}
        fields = parse_fields(bounds)
        index.add(number, fields)
        oracle.add(number, fields)


def told_by(name: str, chance: random.Random) -> dict[str, Value]:
    """A publication with anything for one attribute and always 0.5 for the other."""
    return {"a": 0.5, "b": 0.5, name: chance.random()}


def pages_per_event(index: Index, rows: list[dict[str, Value]]) -> float:
    before = index.stats()
    index.match_batch(rows)
    after = index.stats()
    total = after.pages_per_event * after.publications
    total -= before.pages_per_event * before.publications
    return total / len(rows)


def test_the_plan_follows_the_publications() -> None:
    index, oracle = Index(background=False), Oracle()
    two_lanes(index, oracle, 8000)
    chance = random.Random(2)
    index.match_batch([told_by("a", chance) for _ in range(REPLAN_EVERY)])
    index.compact()
    usual = pages_per_event(index, [told_by("a", chance) for _ in range(2000)])
    shifted = [told_by("b", chance) for _ in range(REPLAN_EVERY + 16 * SAMPLE)]
    worse = pages_per_event(index, shifted)
    assert worse > 2 * usual
    while index.maintain():
        pass
    assert pages_per_event(index, shifted) < worse / 2
    for row in shifted[:3]:
        assert sorted(index.match(row).tolist()) == oracle.match(row)


def test_a_plan_that_fits_is_left_alone() -> None:
    index, oracle = Index(background=False), Oracle()
    two_lanes(index, oracle, 2000)
    chance = random.Random(2)
    index.match_batch([told_by("a", chance) for _ in range(REPLAN_EVERY)])
    index.compact()
    index.match_batch([told_by("a", chance) for _ in range(2 * REPLAN_EVERY)])
    assert not index.maintain()


def test_statistics_tell_selective_attributes_from_others() -> None:
    index, oracle = Index(background=False), Oracle()
    two_lanes(index, oracle, 3000)
    chance = random.Random(3)
    index.match_batch([told_by("b", chance) for _ in range(8192)])
    stats = index.stats()
    by_name = {attribute.name: attribute for attribute in stats.attributes}
    assert by_name["a"].bounds == by_name["b"].bounds == 3000
    assert by_name["a"].selectivity > 0.9
    assert by_name["b"].selectivity == pytest.approx(0.02, abs=0.015)
    assert stats.subscriptions == 3000
    assert stats.publications == 8192
    assert stats.false_candidates_per_event <= stats.candidates_per_event


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=3000), st.integers(0, 5))
def test_cuts_are_few_sorted_and_weights_add_up(values: list[float], seen: int) -> None:
    sample = Sample()
    for value in values[:seen]:
        sample.add([1], [value])
    bound = np.repeat(np.array(values), 2)
    lane = np.ones(len(values), np.uint32)
    cuts = plan_cuts(lane, bound, 2, sample.by_lane())
    mine = cuts.cut[cuts.start[1] : cuts.start[2]]
    assert mine.size <= MAX_CUTS
    assert (np.diff(mine) > 0).all()
    weight = cuts.weight[cuts.start[1] + 2 :]
    assert weight[0] == 0
    assert (np.diff(weight) >= 0).all()
    assert weight[-1] <= 1.2


def test_a_sample_forgets_the_oldest() -> None:
    sample = Sample()
    for number in range(3 * SAMPLE):
        sample.add([1], [float(number)])
    values = sample.by_lane().values(1)
    assert len(values) == SAMPLE
    assert values.min() == 2 * SAMPLE


@given(st.lists(st.integers(1, 200), max_size=200))
def test_merging_keeps_blocks_few_and_rewrites_rarely(arrivals: list[int]) -> None:
    sizes: list[int] = []
    written = 0
    for tails in arrivals:
        waiting = tails * ENTRIES
        chosen = choose_merge(waiting, [Size(size, 0) for size in sizes])
        assert chosen is not None
        merged = waiting + sum(sizes[i] for i in chosen)
        sizes = [size for i, size in enumerate(sizes) if i not in chosen] + [merged]
        written += merged
        while (more := choose_merge(0, [Size(size, 0) for size in sizes])) is not None:
            merged = sum(sizes[i] for i in more)
            sizes = [size for i, size in enumerate(sizes) if i not in more] + [merged]
            written += merged
    total = sum(arrivals) * ENTRIES
    assert sum(sizes) == total
    levels = tier(max(total, 1)) + 1
    assert len(sizes) <= FANOUT * levels
    assert written <= total * (2 * levels + 2)


def test_worn_blocks_are_written_anew() -> None:
    assert choose_merge(0, [Size(1000, 100)]) is None
    assert choose_merge(0, [Size(1000, 300)]) == [0]
    assert choose_merge(0, []) is None
