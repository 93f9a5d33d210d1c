"""Turns a registry's ever-growing counts into what happened in the last second. Pure.

A frame holds, by metric and label values (joined with a comma, empty for none): `rates` of the
counters a second, `gauges` as they are, and `times` of what the histograms saw since the frame
before: [how many a second, median, 99th percentile in seconds].
"""

from __future__ import annotations

from collections import deque
from typing import Any

from homing.metrics import Counter, Families, Gauge, Histogram

HISTORY = 300
"""Frames kept for a page that is opened later: five minutes, about 200 KB."""

Frame = dict[str, Any]


class Sampler:
    """One for a node, however many pages look at it."""

    def __init__(self) -> None:
        self.frames: deque[Frame] = deque(maxlen=HISTORY)
        self._counters: dict[tuple[str, str], float] = {}
        self._histograms: dict[tuple[str, str], Histogram] = {}
        self._at: float | None = None

    def sample(self, families: Families, wall: float, now: float) -> Frame:
        """The frame for this moment; it is remembered too."""
        elapsed = 0.0 if self._at is None else max(now - self._at, 1e-6)
        self._at = now
        frame: Frame = {"t": round(wall, 3), "rates": {}, "gauges": {}, "times": {}}
        for metric, children in families.items():
            for labels, child in children.items():
                self._one(frame, metric.name, ",".join(labels), child, elapsed)
        self.frames.append(frame)
        return frame

    def _one(
        self,
        frame: Frame,
        name: str,
        label: str,
        child: Counter | Gauge | Histogram,
        elapsed: float,
    ) -> None:
        key = (name, label)
        if isinstance(child, Gauge):
            frame["gauges"].setdefault(name, {})[label] = child.value
        elif isinstance(child, Counter):
            # A counter seen for the first time counted from the frame before, where it was 0.
            before = self._counters.get(key, 0.0 if elapsed else child.value)
            rate = (child.value - before) / elapsed if elapsed else 0.0
            frame["rates"].setdefault(name, {})[label] = round(max(rate, 0.0), 3)
            self._counters[key] = child.value
        else:
            frame["times"].setdefault(name, {})[label] = self._recent(key, child, elapsed)

    def _recent(self, key: tuple[str, str], child: Histogram, elapsed: float) -> list[float]:
        before = self._histograms.get(key)
        recent = Histogram()
        recent.merge(child)
        self._histograms[key] = recent
        if before is None:
            return [0.0, 0.0, 0.0]
        gained = Histogram()
        for index, count in child.buckets.items():
            more = count - before.buckets.get(index, 0)
            if more > 0:
                gained.buckets[index] = more
                gained.count += more
        rate = gained.count / elapsed if elapsed else 0.0
        return [round(rate, 3), gained.percentile(0.5), gained.percentile(0.99)]
