"""What a scraper reads is what was counted."""

from __future__ import annotations

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from homing.metrics import Metric, Registry, Sample
from homing.node.instruments import METRICS
from homing.node.metrics import Exposition

REQUESTS = Metric("homing_test_requests_total", "counter", "requests", "Requests.", ("service",))
LINKS = Metric("homing_test_links", "gauge", "links", "Links.", ("plug",))
SECONDS = Metric("homing_test_seconds", "histogram", "seconds", "Durations.", ("service",))

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def _samples(page: bytes, openmetrics: bool) -> dict[tuple[str, tuple[str, ...]], float]:
    parse = parse_openmetrics if openmetrics else parse_text
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in parse(page.decode())
        for sample in family.samples
    }


@pytest.mark.parametrize("accept", ["", "text/plain", OPENMETRICS])
def test_counters_gauges_and_histograms_read_back(accept: str) -> None:
    registry = Registry()
    registry.counter(REQUESTS, 'e"c\\h\no').value += 3
    registry.watch(lambda: [Sample(LINKS, ("localfe",), 12)])
    latency = registry.histogram(SECONDS, "echo")
    for seconds in (0.000010, 0.0005, 2.0, 1000.0):
        latency.observe(seconds)
    page, content_type = Exposition(registry).render(accept)
    assert ("openmetrics" in content_type) == (accept == OPENMETRICS)
    samples = _samples(page, accept == OPENMETRICS)
    assert samples["homing_test_requests_total", ('e"c\\h\no',)] == 3
    assert samples["homing_test_links", ("localfe",)] == 12
    name = "homing_test_seconds"
    assert samples[f"{name}_bucket", ("+Inf", "echo")] == samples[f"{name}_count", ("echo",)] == 4
    assert samples[f"{name}_bucket", ("1.6e-05", "echo")] == 1
    assert samples[f"{name}_bucket", ("0.001024", "echo")] == 2
    assert samples[f"{name}_bucket", ("67.1089", "echo")] == 3
    assert samples[f"{name}_sum", ("echo",)] == pytest.approx(1002.00051)


@pytest.mark.parametrize("openmetrics", [False, True])
def test_every_declared_metric_can_be_shown(openmetrics: bool) -> None:
    registry = Registry()
    for metric in METRICS:
        labels = ["x"] * len(metric.labels)
        getattr(registry, metric.kind)(metric, *labels)
    page, _ = Exposition(registry).render(OPENMETRICS if openmetrics else "")
    names = {name for name, _ in _samples(page, openmetrics)}
    for metric in METRICS:
        assert metric.name in names or f"{metric.name}_count" in names


def test_the_process_is_shown() -> None:
    page, _ = Exposition(Registry()).render()
    assert b"process_resident_memory_bytes" in page


def test_a_scrape_sees_what_was_counted_since_the_last() -> None:
    registry = Registry()
    exposition = Exposition(registry)
    requests = registry.counter(REQUESTS, "echo")
    for number in (1, 2, 3):
        requests.value += 1
        samples = _samples(exposition.render()[0], False)
        assert samples["homing_test_requests_total", ("echo",)] == number


def test_declared_names_follow_the_convention() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names) > 15
    for metric in METRICS:
        assert metric.name.startswith("homing_")
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert metric.name.endswith("_seconds") == (metric.kind == "histogram")
        assert metric.help.endswith(".")
