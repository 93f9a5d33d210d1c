"""The registry of homing.metrics as Prometheus reads it: `/metrics`."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from homing.metrics import Child, Counter, Gauge, Histogram, Metric, Registry


class Exposition:
    """What one node shows to a scraper: its registry and its process."""

    def __init__(self, registry: Registry) -> None:
        self._all = CollectorRegistry(auto_describe=False)
        self._all.register(_Collector(registry))
        ProcessCollector(registry=self._all)
        PlatformCollector(registry=self._all)
        GCCollector(registry=self._all)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """The page and its content type, in the format that an Accept header asks for."""
        encode, content_type = choose_encoder(accept)
        return encode(self._all), content_type


class _Collector(Collector):
    """Turns homing's metrics into prometheus-client's, at the moment of a scrape."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Family]:
        for metric, children in self._registry.read().items():
            yield _family(metric, children)


def _family(metric: Metric, children: dict[tuple[str, ...], Child]) -> Family:
    """One family with all its children; the text formats want counters without `_total`."""
    if metric.kind == "histogram":
        return _histograms(metric, children)
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.name.removesuffix("_total"), metric.help, labels=metric.labels)
    for labels, child in children.items():
        assert isinstance(child, Counter | Gauge)  # Registry made it of the metric's own kind
        family.add_metric(labels, child.value)
    return family


def _histograms(metric: Metric, children: dict[tuple[str, ...], Child]) -> Family:
    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, child in children.items():
        assert isinstance(child, Histogram)
        buckets = [(f"{bound:g}", float(below)) for bound, below in child.cumulative()]
        family.add_metric(labels, [*buckets, ("+Inf", float(child.count))], child.total)
    return family
