"""Turns a registry's ever-growing counts into what happened in the last second. Pure.

A frame holds, by metric and label values (joined with a comma, empty for none): `rates` of the
counters a second, `gauges` as they are, and `times` of what the histograms saw since the frame
before: [how many a second, median, 99th percentile in seconds]. Its totals, over all labels, are
what is kept for charts: a thousand services make a large frame, and five minutes of them too many.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from homing.metrics import Counter, Families, Gauge, Histogram

HISTORY = 300
"""Totals kept for a page that is opened later: five minutes, about 500 KB."""

Frame = dict[str, Any]


class Sampler:
    """One for a node, however many pages look at it."""

    def __init__(self) -> None:
        self.history: deque[Frame] = deque(maxlen=HISTORY)
        self._counters: dict[tuple[str, str], float] = {}
        self._histograms: dict[tuple[str, str], Histogram] = {}
        self._at: float | None = None

    def sample(self, families: Families, wall: float, now: float) -> Frame:
        """The frame for this moment; its totals are remembered."""
        elapsed = 0.0 if self._at is None else max(now - self._at, 1e-6)
        self._at = now
        frame, totals = _empty(wall), _empty(wall)
        for metric, children in families.items():
            if metric.kind == "histogram":
                self._times(frame, totals, metric.name, children, elapsed)
                continue
            kind = "rates" if metric.kind == "counter" else "gauges"
            shown = {
                ",".join(labels): self._value(metric.name, ",".join(labels), child, elapsed)
                for labels, child in children.items()
            }
            frame[kind][metric.name] = shown
            totals[kind][metric.name] = round(sum(shown.values()), 3)
        self.history.append(totals)
        return frame

    def _value(
        self, name: str, label: str, child: Counter | Gauge | Histogram, elapsed: float
    ) -> float:
        assert not isinstance(child, Histogram)
        if isinstance(child, Gauge):
            return child.value
        key = (name, label)
        # A counter seen for the first time counted from the frame before, where it was 0.
        before = self._counters.get(key, 0.0 if elapsed else child.value)
        rate = (child.value - before) / elapsed if elapsed else 0.0
        self._counters[key] = child.value
        return round(max(rate, 0.0), 3)

    def _times(
        self,
        frame: Frame,
        totals: Frame,
        name: str,
        children: dict[tuple[str, ...], Any],
        elapsed: float,
    ) -> None:
        together = Histogram()
        shown = {}
        for labels, child in children.items():
            gained = self._gained((name, ",".join(labels)), child, elapsed)
            together.merge(gained)
            shown[",".join(labels)] = _summary(gained, elapsed)
        frame["times"][name] = shown
        totals["times"][name] = _summary(together, elapsed)

    def _gained(self, key: tuple[str, str], child: Histogram, elapsed: float) -> Histogram:
        """What a histogram counted since the frame before; nothing in the first one."""
        before = self._histograms.get(key)
        kept = self._histograms[key] = Histogram()
        kept.merge(child)
        gained = Histogram()
        if not elapsed:
            return gained
        for index, count in child.buckets.items():
            more = count - (before.buckets.get(index, 0) if before is not None else 0)
            if more > 0:
                gained.buckets[index] = more
                gained.count += more
        return gained


def _empty(wall: float) -> Frame:
    return {"t": round(wall, 3), "rates": {}, "gauges": {}, "times": {}}


def _summary(gained: Histogram, elapsed: float) -> list[float]:
    rate = gained.count / elapsed if elapsed else 0.0
    return [round(rate, 3), gained.percentile(0.5), gained.percentile(0.99)]
