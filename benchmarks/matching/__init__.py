"""Matching: which of many subscriptions does a publication satisfy

Run with `python -m benchmarks matching`. Every answer that is timed is first held against brute
force; the peers run in the same process on the same core.
"""

from __future__ import annotations

from benchmarks.harness import Report


def run(report: Report) -> None:
    """All workloads, the peers on W1, growth from 10 k to 5 M subscriptions, the goals."""
    from benchmarks.matching import measure

    measure.run(report)
