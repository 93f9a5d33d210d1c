"""Latencies counted in a list are those of the histogram that people read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.metrics import Histogram
from homing.service.latency import MAX_SECONDS, Latency


@given(st.lists(st.floats(-1.0, MAX_SECONDS)))
def test_it_counts_as_the_histogram_does(durations: list[float]) -> None:
    quick, exact = Latency(), Histogram()
    for seconds in durations:
        quick.observe(seconds)
        exact.observe(seconds)
    found = quick.histogram()
    assert (found.buckets, found.count) == (exact.buckets, exact.count)
    assert found.total == pytest.approx(exact.total)


def test_the_list_is_bounded_whatever_is_counted() -> None:
    latency = Latency()
    for seconds in (1e-6, 1e5, 1e9, 1e300):
        latency.observe(seconds)
    assert len(latency.counts) <= 1024
    assert latency.histogram().count == 4


def test_what_nobody_asked_for_takes_no_room() -> None:
    assert Latency().counts == []
    assert Latency().histogram().percentile(0.99) == 0.0
