"""What a scraper reads is what was counted."""

from __future__ import annotations

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from homing.metrics import (
    METRICS,
    NODE_LINKS,
    SERVICE_REFUSED,
    SERVICE_REQUESTS,
    SERVICE_SECONDS,
    Registry,
)
from homing.node.metrics import Exposition

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
    registry.counter(SERVICE_REQUESTS, 'e"c\\h\no').value += 3
    registry.gauge(NODE_LINKS, "localfe").source = lambda: 12
    latency = registry.histogram(SERVICE_SECONDS, "echo")
    for seconds in (0.000010, 0.0005, 2.0, 1000.0):
        latency.observe(seconds)
    page, content_type = Exposition(registry).render(accept)
    assert ("openmetrics" in content_type) == (accept == OPENMETRICS)
    samples = _samples(page, accept == OPENMETRICS)
    assert samples["homing_service_requests_total", ('e"c\\h\no',)] == 3
    assert samples["homing_node_links", ("localfe",)] == 12
    name = "homing_service_request_seconds"
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


def test_the_process_and_the_build_are_shown() -> None:
    page, _ = Exposition(Registry()).render()
    assert b"process_resident_memory_bytes" in page
    assert b'homing_build_info{version="' in page


def test_a_scrape_sees_what_was_counted_since_the_last() -> None:
    registry = Registry()
    exposition = Exposition(registry)
    refused = registry.counter(SERVICE_REFUSED, "queue-full")
    for number in (1, 2, 3):
        refused.value += 1
        samples = _samples(exposition.render()[0], False)
        assert samples["homing_service_refused_total", ("queue-full",)] == number
