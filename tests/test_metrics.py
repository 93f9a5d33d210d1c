"""Counting is exact, percentiles are within their stated error, labels are bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.metrics import (
    MAX_CHILDREN,
    OVERFLOW,
    Counter,
    Gauge,
    Histogram,
    Metric,
    Registry,
    Sample,
    bucket_bounds,
)

REQUESTS = Metric("homing_test_requests_total", "counter", "requests", "Requests.", ("service",))
DEPTH = Metric("homing_test_depth", "gauge", "requests", "Waiting.")
SECONDS = Metric("homing_test_seconds", "histogram", "seconds", "How long.")

DURATIONS = st.floats(0, 1e5, allow_nan=False)


def test_the_same_labels_give_the_same_child() -> None:
    registry = Registry()
    registry.counter(REQUESTS, "echo").value += 2
    registry.counter(REQUESTS, "echo").value += 1
    registry.counter(REQUESTS, "other").value += 5
    assert registry.counter(REQUESTS, "echo").value == 3


def test_a_source_is_asked_at_every_reading() -> None:
    queue = [1, 2, 3]
    registry = Registry()
    registry.watch(lambda: [Sample(DEPTH, (), len(queue))])
    for left in (2, 1, 0):
        queue.pop()
        child = registry.read()[DEPTH][()]
        assert isinstance(child, Gauge)
        assert child.value == left


def test_sources_add_up() -> None:
    registry = Registry()
    registry.watch(lambda: [Sample(REQUESTS, ("echo",), 10), Sample(REQUESTS, ("other",), 5)])
    registry.watch(lambda: [Sample(REQUESTS, ("echo",), 100)])
    for _ in range(2):
        values = {
            labels[0]: child.value
            for labels, child in registry.read()[REQUESTS].items()
            if isinstance(child, Counter)
        }
        assert values == {"echo": 110, "other": 5}


def test_wrong_labels_and_wrong_kinds_are_programming_errors() -> None:
    registry = Registry()
    with pytest.raises(ValueError, match="takes labels"):
        registry.counter(REQUESTS)
    with pytest.raises(AssertionError, match="is a gauge"):
        registry.counter(DEPTH)


def test_labels_from_outside_cannot_grow_without_bound() -> None:
    registry = Registry()
    for number in range(3 * MAX_CHILDREN):
        registry.counter(REQUESTS, f"service-{number}").value += 1
    assert len(registry.read()[REQUESTS]) == MAX_CHILDREN + 1
    assert registry.counter(REQUESTS, OVERFLOW).value == 2 * MAX_CHILDREN


@given(DURATIONS)
def test_a_duration_lies_in_its_bucket(seconds: float) -> None:
    histogram = Histogram()
    histogram.observe(seconds)
    ((index, count),) = histogram.buckets.items()
    low, high = bucket_bounds(index)
    micros = int(seconds * 1e6)
    assert count == 1
    assert round(low * 1e6) <= micros < round(high * 1e6)
    assert high - low <= max(1e-6, low / 32) * 1.0001


@given(st.lists(DURATIONS, min_size=1, max_size=200), st.floats(0, 1))
def test_percentiles_are_within_their_error(durations: list[float], share: float) -> None:
    histogram = Histogram()
    for seconds in durations:
        histogram.observe(seconds)
    exact = sorted(durations)[max(1, round(share * len(durations))) - 1]
    assert histogram.percentile(share) == pytest.approx(exact, rel=0.016, abs=1e-6)
    assert histogram.count == len(durations)
    assert histogram.total == pytest.approx(sum(durations))


@given(st.lists(DURATIONS, max_size=50), st.lists(DURATIONS, max_size=50))
def test_merging_is_observing_both(first: list[float], second: list[float]) -> None:
    one, other, both = Histogram(), Histogram(), Histogram()
    for seconds in first:
        one.observe(seconds)
        both.observe(seconds)
    for seconds in second:
        other.observe(seconds)
        both.observe(seconds)
    one.merge(other)
    assert (one.buckets, one.count) == (both.buckets, both.count)
    assert one.total == pytest.approx(both.total)


@given(st.lists(DURATIONS, max_size=100))
def test_cumulative_counts_are_exact_at_their_bounds(durations: list[float]) -> None:
    histogram = Histogram()
    for seconds in durations:
        histogram.observe(seconds)
    rows = list(histogram.cumulative())
    for bound, below in rows:
        assert below == sum(int(seconds * 1e6) < round(bound * 1e6) for seconds in durations)
    assert [bound for bound, _ in rows] == [bound for bound, _ in Histogram().cumulative()]


def test_odd_durations_are_counted_not_refused() -> None:
    histogram = Histogram()
    histogram.observe(-1.0)
    histogram.observe(1e12)
    assert histogram.count == 2
    assert histogram.percentile(0.5) < 1e-6 < histogram.percentile(1.0)
    assert Histogram().percentile(0.99) == 0.0


def test_histograms_of_several_sources_add_up() -> None:
    registry, one, other = Registry(), Histogram(), Histogram()
    registry.watch(lambda: [Sample(SECONDS, (), one)])
    registry.watch(lambda: [Sample(SECONDS, (), other)])
    one.observe(0.5)
    other.observe(2.0)
    for _ in range(2):
        child = registry.read()[SECONDS][()]
        assert isinstance(child, Histogram)
        assert (child.count, child.total) == (2, 2.5)
    with pytest.raises(AssertionError):
        _telling(Sample(SECONDS, (), 1.0)).read()
    with pytest.raises(AssertionError):
        _telling(Sample(DEPTH, (), one)).read()


def _telling(sample: Sample) -> Registry:
    registry = Registry()
    registry.watch(lambda: [sample])
    return registry
