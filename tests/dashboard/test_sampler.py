"""Frames: what happened since the last one."""

from __future__ import annotations

from homing.dashboard.sampler import HISTORY, Sampler
from homing.metrics import Metric, Registry

REQUESTS = Metric("requests_total", "counter", "requests", "Requests.", ("service",))
WAITING = Metric("waiting", "gauge", "requests", "Waiting.")
TIMES = Metric("seconds", "histogram", "seconds", "How long.", ("service",))


def test_counters_become_rates() -> None:
    registry, sampler = Registry(), Sampler()
    echo = registry.counter(REQUESTS, "echo")
    echo.value = 1000
    assert sampler.sample(registry.read(), 1.0, 10.0)["rates"] == {"requests_total": {"echo": 0.0}}
    echo.value += 30
    registry.counter(REQUESTS, "late").value = 4
    frame = sampler.sample(registry.read(), 3.0, 12.0)
    assert frame["rates"] == {"requests_total": {"echo": 15.0, "late": 2.0}}
    assert frame["t"] == 3.0


def test_a_counter_that_starts_anew_is_no_negative_rate() -> None:
    registry, sampler = Registry(), Sampler()
    registry.counter(REQUESTS, "echo").value = 50
    sampler.sample(registry.read(), 1.0, 1.0)
    registry.counter(REQUESTS, "echo").value = 3
    assert sampler.sample(registry.read(), 2.0, 2.0)["rates"]["requests_total"]["echo"] == 0.0


def test_gauges_are_shown_as_they_are() -> None:
    registry, sampler = Registry(), Sampler()
    registry.gauge(WAITING).value = 7
    assert sampler.sample(registry.read(), 1.0, 1.0)["gauges"] == {"waiting": {"": 7}}


def test_times_are_those_since_the_last_frame() -> None:
    registry, sampler = Registry(), Sampler()
    times = registry.histogram(TIMES, "echo")
    for _ in range(1000):
        times.observe(1.0)
    assert sampler.sample(registry.read(), 1.0, 1.0)["times"]["seconds"]["echo"] == [0.0, 0.0, 0.0]
    for _ in range(10):
        times.observe(0.001)
    rate, median, high = sampler.sample(registry.read(), 2.0, 2.0)["times"]["seconds"]["echo"]
    assert rate == 10.0
    assert abs(median - 0.001) < 0.00005
    assert abs(high - 0.001) < 0.00005, "the slow thousand belong to the frame before"


def test_a_service_that_is_new_is_counted_at_once() -> None:
    registry, sampler = Registry(), Sampler()
    sampler.sample(registry.read(), 1.0, 1.0)
    registry.histogram(TIMES, "new").observe(0.5)
    rate, median, _ = sampler.sample(registry.read(), 2.0, 2.0)["times"]["seconds"]["new"]
    assert rate == 1.0
    assert abs(median - 0.5) < 0.01


def test_totals_are_over_all_labels() -> None:
    registry, sampler = Registry(), Sampler()
    sampler.sample(registry.read(), 1.0, 1.0)
    for _ in range(99):
        registry.histogram(TIMES, "quick").observe(0.001)
    registry.histogram(TIMES, "slow").observe(1.0)
    registry.counter(REQUESTS, "quick").value = 99
    registry.counter(REQUESTS, "slow").value = 1
    sampler.sample(registry.read(), 2.0, 2.0)
    totals = sampler.history[-1]
    assert totals["rates"] == {"requests_total": 100.0}
    rate, median, high = totals["times"]["seconds"]
    assert rate == 100.0
    assert median < 0.0011, "a percentile of all requests, not of the services"
    assert high < 0.0011


def test_history_is_bounded() -> None:
    registry, sampler = Registry(), Sampler()
    for second in range(2 * HISTORY):
        sampler.sample(registry.read(), second, second)
    assert len(sampler.history) == HISTORY
    assert sampler.history[-1]["t"] == 2 * HISTORY - 1
