"""Planner: which values publications really have, and what that says about access lanes.

It keeps a sample of recent publications. From it and from the subscriptions' own bounds come the
*cuts* that code each lane (quantiles, so that codes are fine where the action is) and the *weights*
that say how large a share of publications falls below each code. A build then gives every entry
the two lanes that fewest publications pass; `drift` tells when the plan of a built block has become
so much worse than a fresh one that building it again pays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from homing.push.index import kernels as compiled

# Recent publications kept; 512 tell a share of 1 % from one of 3 %.
SAMPLE = 512
# A plan that is this many times as far from the best one as on the day it was made is made again.
TOLERABLE = 1.5

# What long work calls between its steps: others may want the interpreter.
Breathe = Callable[[], object]


class Cuts(NamedTuple):
    """How the values of each lane are coded, and how often publications have which code."""

    start: npt.NDArray[np.uint32]
    cut: npt.NDArray[np.float64]
    weight: npt.NDArray[np.float64]


class Sample:
    """The last SAMPLE publications that were looked at, as (lanes, values)."""

    def __init__(self) -> None:
        self.seen = 0
        self._lanes: list[npt.NDArray[np.int32]] = []
        self._values: list[npt.NDArray[np.float64]] = []

    def __len__(self) -> int:
        return len(self._lanes)

    def add(self, lanes: npt.ArrayLike, values: npt.ArrayLike) -> None:
        """Remember one publication, forgetting the oldest."""
        self._put(np.array(lanes, np.int32), np.array(values, np.float64))

    def add_all(self, lanes: npt.NDArray[np.int32], rows: npt.NDArray[np.float64]) -> None:
        """Remember some rows of a batch; NaN: no value there. Keeps both arrays."""
        there = ~np.isnan(rows)
        if there.all():  # as nearly always
            for row in rows:
                self._put(lanes, row)
            return
        for row, has in zip(rows, there, strict=True):
            if has.all():
                self._put(lanes, row)
            else:
                self._put(lanes[has], row[has])

    def _put(self, lanes: npt.NDArray[np.int32], values: npt.NDArray[np.float64]) -> None:
        if len(self._lanes) < SAMPLE:
            self._lanes.append(lanes)
            self._values.append(values)
        else:
            self._lanes[self.seen % SAMPLE] = lanes
            self._values[self.seen % SAMPLE] = values
        self.seen += 1

    def by_lane(self) -> Seen:
        """All values seen, lane by lane."""
        lanes, values = list(self._lanes), list(self._values)
        count = min(len(lanes), len(values))
        if count == 0:
            return Seen(np.empty(0, np.int64), np.empty(0), 0)
        return Seen.of(
            np.concatenate(lanes[:count]).astype(np.int64), np.concatenate(values[:count]), count
        )


class Seen(NamedTuple):
    """Values grouped by lane, lanes ascending, and how many publications they come from."""

    lane: npt.NDArray[np.int64]
    value: npt.NDArray[np.float64]
    publications: int

    @classmethod
    def of(
        cls, lane: npt.NDArray[np.int64], value: npt.NDArray[np.float64], publications: int
    ) -> Seen:
        order = np.argsort(lane, kind="stable")
        return cls(lane[order], value[order], publications)

    def values(self, lane: int) -> npt.NDArray[np.float64]:
        begin, end = np.searchsorted(self.lane, [lane, lane + 1])
        return self.value[begin:end]


def plan_cuts(
    lane: npt.NDArray[np.uint32], bound: npt.NDArray[np.float64], lanes: int, seen: Seen
) -> Cuts:
    """Cuts and weights for a build, from the entries' bounds and the publications seen."""
    return Cuts(*compiled.load().plan.cut_lanes(lane, bound, lanes, *seen))


def plan_weights(
    start: npt.NDArray[np.uint32], cut: npt.NDArray[np.float64], seen: Seen
) -> npt.NDArray[np.float64]:
    """Fresh weights for cuts that are in use."""
    weights: npt.NDArray[np.float64] = compiled.load().plan.weigh(start, cut, *seen)
    return weights
