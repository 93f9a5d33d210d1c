"""What a node counts: every metric declared once, with its unit. Pure.

Two ways in. Who has figures already gives the registry a source to ask at the moment of a scrape,
which costs a hot path nothing:

    registry.watch(lambda: [Sample(SERVICE_REQUESTS, (), record.accepts)])

Who has none asks for a child once and adds to it:

    latency = registry.histogram(ROUND_TRIPS, "echo")
    latency.observe(0.00042)

homing.node.instruments declares homing's metrics and where each is read; homing.node.metrics gives
them to Prometheus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple

# Label values come from outside (service names, codes): past this many per metric the rest
# share one child, labelled OVERFLOW, so that neither a node nor its scraper can be flooded.
MAX_CHILDREN = 1000
OVERFLOW = "(other)"

# A histogram splits each power of two into this many buckets: a value is known to 1/32, so a
# percentile read from the middle of a bucket is at most 1.6 % off.
_SPLITS = 32
_SPLIT_BITS = 5
EXPOSED_EXPONENTS = range(4, 27)  # 16 µs to 67 s: what a scraper sees, past it is +Inf
_MAX_MICROSECONDS = (1 << 42) - 1  # 50 days; longer ones count as that

Kind = Literal["counter", "gauge", "histogram"]


class Metric(NamedTuple):
    """A declared metric; `labels` are the names of its children's labels."""

    name: str
    kind: Kind
    unit: str
    help: str
    labels: tuple[str, ...] = ()


class Sample(NamedTuple):
    """A counter's or gauge's value, or a histogram, as a source tells it."""

    metric: Metric
    labels: tuple[str, ...]
    value: float | Histogram


Source = Callable[[], Iterable[Sample]]


class Counter:
    """Only grows; add to `value`."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0


class Gauge:
    """Goes up and down; set `value`."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0


class Histogram:
    """How long things took: counts in buckets 1/32 of a power of two wide, from 1 µs up."""

    __slots__ = ("buckets", "count", "total")

    def __init__(self) -> None:
        self.buckets: dict[int, int] = {}
        self.count = 0
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration; a negative one (a clock that jumped) counts as zero."""
        index = bucket_of(seconds)
        self.buckets[index] = self.buckets.get(index, 0) + 1
        self.count += 1
        self.total += seconds if seconds > 0 else 0.0

    def percentile(self, share: float) -> float:
        """The duration that `share` (0 to 1) of those counted did not exceed; 0 if none."""
        left = max(1, round(share * self.count))
        for index in sorted(self.buckets):
            left -= self.buckets[index]
            if left <= 0:
                low, high = bucket_bounds(index)
                return (low + high) / 2
        return 0.0

    def merge(self, other: Histogram) -> None:
        """Add another one's counts, as if all had been observed here."""
        for index, count in other.buckets.items():
            self.buckets[index] = self.buckets.get(index, 0) + count
        self.count += other.count
        self.total += other.total

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """(bound in seconds, how many are below it), at the same powers of two every time."""
        counts = sorted(self.buckets.items())
        below = at = 0
        for exponent in EXPOSED_EXPONENTS:
            bound = (1 << exponent) / 1e6
            while at < len(counts) and bucket_bounds(counts[at][0])[1] <= bound:
                below += counts[at][1]
                at += 1
            yield bound, below


def bucket_of(seconds: float) -> int:
    """The number of the bucket that a duration falls into."""
    micros = int(seconds * 1e6)
    if micros < 0:
        micros = 0
    elif micros > _MAX_MICROSECONDS:
        micros = _MAX_MICROSECONDS
    shift = micros.bit_length() - _SPLIT_BITS - 1
    return micros if shift <= 0 else shift * _SPLITS + (micros >> shift)


def bucket_bounds(index: int) -> tuple[float, float]:
    """[low, high) of a histogram's bucket, in seconds."""
    shift = max(0, index // _SPLITS - 1)
    low = (index - shift * _SPLITS) << shift
    return low / 1e6, (low + (1 << shift)) / 1e6


Child = Counter | Gauge | Histogram
Families = dict[Metric, dict[tuple[str, ...], Child]]
_KINDS: dict[Kind, type[Counter] | type[Gauge] | type[Histogram]] = {
    "counter": Counter,
    "gauge": Gauge,
    "histogram": Histogram,
}


class Registry:
    """The metrics of one node; asking twice for the same labels gives the same child."""

    def __init__(self) -> None:
        self._families: dict[Metric, dict[tuple[str, ...], Child]] = {}
        self._sources: list[Source] = []

    def watch(self, source: Source) -> None:
        """Ask `source` for its samples at every reading."""
        self._sources.append(source)

    def counter(self, metric: Metric, *labels: str) -> Counter:
        child = _child(self._families, metric, labels)
        assert isinstance(child, Counter), f"{metric.name} is a {metric.kind}"
        return child

    def gauge(self, metric: Metric, *labels: str) -> Gauge:
        child = _child(self._families, metric, labels)
        assert isinstance(child, Gauge), f"{metric.name} is a {metric.kind}"
        return child

    def histogram(self, metric: Metric, *labels: str) -> Histogram:
        child = _child(self._families, metric, labels)
        assert isinstance(child, Histogram), f"{metric.name} is a {metric.kind}"
        return child

    def read(self) -> Families:
        """Every metric in use, with its children by label values.

        Samples of the same metric and labels add up; a metric is told or counted, never both.
        """
        told: Families = {}
        for source in self._sources:
            for metric, labels, value in source():
                child = _child(told, metric, labels)
                if isinstance(child, Histogram):
                    assert isinstance(value, Histogram), f"{metric.name} is no single value"
                    child.merge(value)
                else:
                    assert not isinstance(value, Histogram), f"{metric.name} is a single value"
                    child.value += value
        assert not told.keys() & self._families.keys()
        return {**self._families, **told}


def _child(families: Families, metric: Metric, labels: tuple[str, ...]) -> Child:
    if len(labels) != len(metric.labels):
        raise ValueError(f"{metric.name} takes labels {metric.labels}, got {labels}")
    children = families.setdefault(metric, {})
    child = children.get(labels)
    if child is None:
        if len(children) >= MAX_CHILDREN:
            labels = (OVERFLOW,) * len(labels)
        child = children.setdefault(labels, _KINDS[metric.kind]())
    return child
