"""Subscriptions in paged blocks by their id: are they there, and be they gone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from homing.push.index import kernels as compiled
from homing.push.index.blocks import bury, dead_of, ids_of
from homing.push.index.reader import View

MAX_ID = 2**64 - 1


def find(view: View, subscription: int, kill: bool) -> int:
    """How many living boxes of a subscription the paged blocks hold; with `kill` they die."""
    if not 0 <= subscription <= MAX_ID:
        return 0
    kernels = compiled.ready()
    if kernels is not None:
        found: int = kernels.build.find(view.paged, subscription, kill)
        return found
    found = 0
    for block in view.blocks[: view.paged.size // 2]:
        here = np.flatnonzero((ids_of(block) == subscription) & (dead_of(block) == 0))
        found += here.size
        if kill:
            bury(block, here)
    return found


def repeat(view: View, removed: Sequence[int], done: int) -> int:
    """Kill what was removed since the first `done` were; returns how many are done then."""
    some = np.array(removed[done:], np.uint64)
    compiled.load().build.kill_all(view.paged, some)
    return done + some.size
