"""How long requests took, counted on the hot path: one shift, one index, one addition.

The same buckets as homing.metrics.Histogram, in a list instead of a dict: a compiled broker adds
to a list many times faster, and the list grows only as far as the slowest answer, a few KB.
"""

from __future__ import annotations

from typing import Final

from homing.metrics import Histogram

MAX_SECONDS: Final = ((1 << 36) - 1) / 1e6
"""19 hours, longer than any deadline; longer ones count as that. Bounds the list at 8 KB."""


class Latency:
    """Durations by bucket, and their sum."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts: list[int] = []
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration; a negative one (a clock that jumped) counts as zero."""
        if not 0.0 <= seconds <= MAX_SECONDS:
            seconds = MAX_SECONDS if seconds > 0.0 else 0.0
        self.total += seconds
        # homing.metrics.bucket_of, written out: a call would cost more than all of it.
        index = int(seconds * 1e6)
        if index >= 64:
            shift = index.bit_length() - 6
            index = shift * 32 + (index >> shift)
        counts = self.counts
        if index >= len(counts):
            counts.extend([0] * (index + 1 - len(counts)))
        counts[index] += 1

    def histogram(self) -> Histogram:
        """What was counted so far, for people."""
        found = Histogram()
        found.buckets = {index: count for index, count in enumerate(self.counts) if count}
        found.count = sum(found.buckets.values())
        found.total = self.total
        return found
