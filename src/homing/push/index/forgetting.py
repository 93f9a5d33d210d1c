"""Forgetting: lanes, strings and checks that no subscription mentions any more are dropped.

It goes on beside matching and changes: what the blocks mention is looked up without the lock, and
what they do not is dropped in slices, so that nobody waits long. Merging must wait, so that whatever
is not in the blocks looked at was used since, which the vocabulary remembers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from homing.push.index.blocks import Words, bounds_of, entries_of, expanded
from homing.push.index.kernels import layout as at
from homing.push.index.lanes import NO_LANE, Vocabulary

Flags = npt.NDArray[np.bool_]

# Bounds looked at in one go: numpy keeps the interpreter to itself for less than a millisecond.
_STEP = 1 << 16
# Strings, checks and names forgotten under one hold of the lock, well below a millisecond.
SLICE = 512


class Mentions(NamedTuple):
    """Which lanes and which strings, by number, are in use, and which residual checks."""

    lanes: Flags
    tokens: Flags
    residuals: set[int]

    def add(self, blocks: Sequence[Words], vocabulary: Vocabulary) -> None:
        """Whatever any entry of these blocks uses; what has come since `nothing_mentioned` is left out."""
        is_text = np.zeros(self.lanes.size, np.bool_)
        for known in list(vocabulary.attributes.values()):
            for lane in (known.token, *known.prefixes.values()):
                if NO_LANE < lane < is_text.size:
                    is_text[lane] = True
        for block in blocks:
            lanes, bounds = bounds_of(block)
            for begin in range(0, len(lanes), _STEP):
                self._add(lanes[begin : begin + _STEP], bounds[begin : begin + _STEP], is_text)
            checks = entries_of(block)[:-1, 2]
            for begin in range(0, len(checks), _STEP):
                some = checks[begin : begin + _STEP]
                self.residuals.update(np.unique(some[some != at.NO_RESIDUAL]).tolist())

    def _add(
        self, lane: npt.NDArray[np.uint64], bound: npt.NDArray[np.float64], is_text: Flags
    ) -> None:
        plain = (lane & np.uint64(at.LANE_MASK)).astype(np.int64)
        known = plain < self.lanes.size
        self.lanes[plain[known]] = True
        text = np.zeros(plain.size, np.bool_)
        text[known] = is_text[plain[known]]
        text &= np.isfinite(bound[:, 1]) & (bound[:, 1] < self.tokens.size)
        low, high = bound[text].astype(np.int64).T
        self.tokens[expanded(low, high - low + 1)] = True


def forget_unused(
    vocabulary: Vocabulary,
    blocks: Callable[[], Sequence[Words]],
    lock: AbstractContextManager[object],
    breathe: Callable[[], object],
    change_tail: Callable[[], object],
) -> None:
    """Drop what the blocks do not mention."""
    with lock:
        seen, names, checks = blocks(), list(vocabulary.attributes), list(vocabulary.residuals)
        used = nothing_mentioned(vocabulary)
        vocabulary.begin_forgetting()
    try:
        used.add(seen, vocabulary)
        for forget in _slices(vocabulary, used, names, checks):
            with lock:
                forget()
            breathe()
    finally:
        with lock:
            # Whoever reads by the old lanes and numbers sees this tail, but never the next one.
            change_tail()
            vocabulary.end_forgetting()


def _slices(
    vocabulary: Vocabulary, used: Mentions, names: list[str], checks: list[int]
) -> Iterator[Callable[[], None]]:
    for begin in range(0, len(used.tokens), SLICE):
        unused = np.flatnonzero(~used.tokens[begin : begin + SLICE]) + begin
        yield partial(vocabulary.register.forget, unused.tolist())
    for begin in range(0, len(checks), SLICE):
        gone = [n for n in checks[begin : begin + SLICE] if n not in used.residuals]
        yield partial(vocabulary.forget_residuals, gone)
    alive = used.lanes.tobytes()
    for begin in range(0, len(names), SLICE):
        yield partial(vocabulary.forget_lanes, names[begin : begin + SLICE], alive)


def nothing_mentioned(vocabulary: Vocabulary) -> Mentions:
    """No mention yet of what the vocabulary holds now."""
    tokens = len(vocabulary.register.texts)
    return Mentions(np.zeros(vocabulary.lanes, np.bool_), np.zeros(tokens, np.bool_), set())
