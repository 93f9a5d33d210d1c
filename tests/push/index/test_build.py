"""Building blocks: who goes to which page, which boxes are one, what is looked at of many bounds."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.push.index import kernels as compiled
from homing.push.index.building import build_module
from homing.push.index.kernels import layout as at
from homing.push.index.planner import Sample, plan_cuts, plan_weights


@pytest.fixture(scope="module", autouse=True)
def _kernels() -> None:
    compiled.load()


def drawn(
    seed: int, count: int, lanes: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint16], npt.NDArray[np.float64]]:
    """Access lanes, codes and shares as `choose_access` leaves them."""
    chance = np.random.default_rng(seed)
    access = np.zeros((count, 2), np.int32)
    for entry in range(count):
        some = chance.permutation(lanes)[:2]
        access[entry, : some.size] = some
    # Lane 0 stands for none, and is only ever the second.
    access[access[:, 0] == 0] = access[access[:, 0] == 0][:, ::-1]
    low = chance.integers(0, 900, (count, 2))
    high = low + chance.integers(0, 100, (count, 2))
    spans = np.stack([low[:, 0], high[:, 0], low[:, 1], high[:, 1]], axis=1).astype(np.uint16)
    spans[access[:, 0] == 0, :2] = 0
    spans[access[:, 1] == 0, 2:] = 0
    return access, spans, chance.random(count)


@given(st.integers(0, 1000), st.integers(1, 4000), st.integers(1, 7))
def test_every_entry_is_in_one_page_whose_box_holds_it(seed: int, count: int, lanes: int) -> None:
    access, spans, shares = drawn(seed, count, lanes)
    before = [
        {lane: tuple(span) for lane, span in _by_lane(access, spans, e)} for e in range(count)
    ]
    plan = build_module().arrange(access, spans, shares)
    there = plan.entries[plan.entries >= 0]
    assert sorted(there.tolist()) == list(range(count))
    strips = plan.strips.astype(np.int64)
    assert strips[0, 4] == 0
    assert strips[-1, 4] == len(plan.boxes)
    keys = [tuple(lanes) for lanes in strips[:-1, [0, 3]].tolist()]
    assert keys == sorted(keys)
    for (a, low, high, b, first), (*_, last) in pairwise(strips):
        assert first < last
        boxes = plan.boxes[first:last]
        assert (boxes[:, 0].min(), boxes[:, 1].max()) == (low, high)
        for page in range(first, last):
            mine = plan.entries[page * at.SLOTS : (page + 1) * at.SLOTS]
            some = mine[mine >= 0]
            # Full but for the last of a strip, and without gaps.
            assert (mine[: some.size] >= 0).all()
            assert some.size == at.SLOTS or page == last - 1
            assert (access[some] == (a, b)).all()
            assert (spans[some, ::2].min(axis=0) == plan.boxes[page, ::2]).all()
            assert (spans[some, 1::2].max(axis=0) == plan.boxes[page, 1::2]).all()
    for entry in range(count):
        for lane, span in _by_lane(access, spans, entry):
            assert before[entry][lane] == tuple(span)


def _by_lane(
    access: npt.NDArray[np.int32], spans: npt.NDArray[np.uint16], entry: int
) -> list[tuple[int, list[int]]]:
    lanes, codes = access[entry].tolist(), spans[entry].tolist()
    return [(lane, codes[2 * i : 2 * i + 2]) for i, lane in enumerate(lanes) if lane]


box = st.tuples(
    st.lists(
        st.tuples(st.integers(1, 3), st.sampled_from([0.0, 1.0, 2.0])), min_size=1, max_size=3
    ),
    st.sampled_from([at.NO_RESIDUAL, 5]),
    st.integers(1, 2),
)


@given(st.lists(box, min_size=1, max_size=60))
def test_equal_boxes_are_kept_once_with_everybody_s_ids(
    boxes: list[tuple[list[tuple[int, float]], int, int]],
) -> None:
    wanted: dict[object, list[int]] = defaultdict(list)
    first, subs = [0], [0]
    residuals: list[int] = []
    lanes: list[int] = []
    bounds: list[float] = []
    ids: list[int] = []
    for some, residual, subscribers in boxes:
        some = sorted(some)
        for lane, low in some:
            lanes.append(lane)
            bounds += [low, low + 1]
        mine = list(range(len(ids), len(ids) + subscribers))
        wanted[tuple(some), residual] += mine
        ids += mine
        residuals.append(residual)
        first.append(len(lanes))
        subs.append(len(ids))
    build = build_module()
    made = build.joined(
        build.Boxes(
            np.array(first, np.uint32),
            np.array(subs, np.uint32),
            np.array(residuals, np.uint32),
            np.array(lanes, np.uint32),
            np.array(bounds, np.float64),
            np.array(ids, np.uint64),
        )
    )
    found = {}
    for entry, residual in enumerate(made.residual.tolist()):
        its = slice(int(made.first[entry]), int(made.first[entry + 1]))
        lows = made.bound.reshape(-1, 2)[its, 0].tolist()
        key = tuple(zip(made.lane[its].tolist(), lows, strict=True)), residual
        assert key not in found
        found[key] = sorted(made.ids[made.subs[entry] : made.subs[entry + 1]].tolist())
    assert found == wanted


def test_of_very_many_bounds_cuts_are_still_spread_over_all_of_them() -> None:
    values = np.random.default_rng(1).random(200_000)
    bound = np.stack([values, values + 0.01], axis=1).reshape(-1)
    lane = np.ones(values.size, np.uint32)
    cuts = plan_cuts(lane, bound, 2, Sample().by_lane())
    assert cuts.start.tolist() == [0, 0, at.MAX_CUTS]
    shares = np.searchsorted(np.sort(values), cuts.cut) / values.size
    assert shares == pytest.approx(np.linspace(0, 1, at.MAX_CUTS), abs=0.02)


@given(st.lists(st.floats(-10, 10), max_size=50), st.lists(st.floats(-10, 10), max_size=20))
def test_weights_are_the_shares_of_what_was_seen(values: list[float], cuts: list[float]) -> None:
    sample = Sample()
    for value in values:
        sample.add([1], [value])
    cut = np.unique(np.array(cuts, np.float64))
    start = np.array([0, 0, cut.size], np.uint32)
    weight = plan_weights(start, cut, sample.by_lane())
    mine = weight[2:]
    codes = np.searchsorted(cut, values, "right")
    for k in range(cut.size + 2):
        even = 3.2 * k / (cut.size + 1)
        assert mine[k] == pytest.approx((even + (codes < k).sum()) / (len(values) + 32))
