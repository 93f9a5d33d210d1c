"""What a node counts: every metric declared once, with its unit; hot paths just add. Pure.

    requests = registry.counter(SERVICE_REQUESTS, "echo")     # once, where the service is made
    requests.value += 1                                       # on the hot path
    latency = registry.histogram(SERVICE_SECONDS, "echo")
    latency.observe(0.00042)

homing.node.metrics gives the registry to Prometheus; docs/reference/metrics.md is written
from the table at the end of this file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


class Counter:
    """Only grows; add to `value`."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Gauge:
    """Goes up and down; set `value`, or give a `source` to be asked when read."""

    __slots__ = ("source", "value")

    def __init__(self) -> None:
        self.value: float = 0
        self.source: Callable[[], float] | None = None

    def read(self) -> float:
        return self.value if self.source is None else self.source()


class Histogram:
    """How long things took: counts in buckets 1/32 of a power of two wide, from 1 µs up."""

    __slots__ = ("buckets", "count", "total")

    def __init__(self) -> None:
        self.buckets: dict[int, int] = {}
        self.count = 0
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration; a negative one (a clock that jumped) counts as zero."""
        micros = int(seconds * 1e6)
        if micros < 0:
            micros = 0
        elif micros > _MAX_MICROSECONDS:
            micros = _MAX_MICROSECONDS
        shift = micros.bit_length() - _SPLIT_BITS - 1
        index = micros if shift <= 0 else shift * _SPLITS + (micros >> shift)
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


def bucket_bounds(index: int) -> tuple[float, float]:
    """[low, high) of a histogram's bucket, in seconds."""
    shift = max(0, index // _SPLITS - 1)
    low = (index - shift * _SPLITS) << shift
    return low / 1e6, (low + (1 << shift)) / 1e6


Child = Counter | Gauge | Histogram
_KINDS: dict[Kind, type[Counter] | type[Gauge] | type[Histogram]] = {
    "counter": Counter,
    "gauge": Gauge,
    "histogram": Histogram,
}


class Registry:
    """The metrics of one node; asking twice for the same labels gives the same child."""

    def __init__(self) -> None:
        self._families: dict[Metric, dict[tuple[str, ...], Child]] = {}

    def counter(self, metric: Metric, *labels: str) -> Counter:
        child = self._child(metric, labels)
        assert isinstance(child, Counter), f"{metric.name} is a {metric.kind}"
        return child

    def gauge(self, metric: Metric, *labels: str) -> Gauge:
        child = self._child(metric, labels)
        assert isinstance(child, Gauge), f"{metric.name} is a {metric.kind}"
        return child

    def histogram(self, metric: Metric, *labels: str) -> Histogram:
        child = self._child(metric, labels)
        assert isinstance(child, Histogram), f"{metric.name} is a {metric.kind}"
        return child

    def forget(self, metric: Metric, *labels: str) -> None:
        """Drop a child whose subject is gone, such as a peer; unknown ones are ignored."""
        self._families.get(metric, {}).pop(labels, None)

    def families(self) -> Iterator[tuple[Metric, dict[tuple[str, ...], Child]]]:
        """Every metric in use, with its children by label values."""
        yield from self._families.items()

    def _child(self, metric: Metric, labels: tuple[str, ...]) -> Child:
        if len(labels) != len(metric.labels):
            raise ValueError(f"{metric.name} takes labels {metric.labels}, got {labels}")
        children = self._families.setdefault(metric, {})
        child = children.get(labels)
        if child is None:
            if len(children) >= MAX_CHILDREN:
                labels = (OVERFLOW,) * len(labels)
            child = children.setdefault(labels, _KINDS[metric.kind]())
        return child


# The declared metrics, by plane: `homing_<room>_<what>_<unit>`, counters end in _total.
NODE_BUILD = Metric(
    "homing_build_info", "gauge", "", "Always 1; the version is a label.", ("version",)
)
NODE_LINKS = Metric("homing_node_links", "gauge", "links", "Open links.", ("plug",))
NODE_REFUSED = Metric(
    "homing_node_refused_links_total",
    "counter",
    "links",
    "Links closed at once for a limit.",
    ("plug",),
)
NODE_TURNS = Metric(
    "homing_node_turn_seconds", "histogram", "seconds", "Length of a turn of the loop."
)

SERVICE_REQUESTS = Metric(
    "homing_service_requests_total", "counter", "requests", "Requests accepted.", ("service",)
)
SERVICE_ANSWERED = Metric(
    "homing_service_answered_total", "counter", "requests", "Reports sent to clients.", ("service",)
)
SERVICE_REFUSED = Metric(
    "homing_service_refused_total",
    "counter",
    "requests",
    "Requests refused, by NAK code.",
    ("code",),
)
SERVICE_REPOSTED = Metric(
    "homing_service_reposted_total", "counter", "requests", "Requests handed to a peer.", ("peer",)
)
SERVICE_WAITING = Metric(
    "homing_service_waiting", "gauge", "requests", "Requests without a worker.", ("service",)
)
SERVICE_WORKERS = Metric(
    "homing_service_workers", "gauge", "workers", "Workers known.", ("service",)
)
SERVICE_SECONDS = Metric(
    "homing_service_request_seconds",
    "histogram",
    "seconds",
    "Request in to report out.",
    ("service",),
)

PUSH_PUBLICATIONS = Metric(
    "homing_push_publications_total", "counter", "publications", "Publications accepted."
)
PUSH_MATCHES = Metric(
    "homing_push_matches_total", "counter", "subscriptions", "Subscriptions matched."
)
PUSH_MATCH_SECONDS = Metric(
    "homing_push_match_seconds", "histogram", "seconds", "Time to match one publication."
)
PUSH_SUBSCRIPTIONS = Metric(
    "homing_push_subscriptions", "gauge", "subscriptions", "Subscriptions in the index."
)
PUSH_SUBSCRIBERS = Metric("homing_push_subscribers", "gauge", "clients", "Subscribers connected.")
PUSH_DELIVERIES = Metric("homing_push_deliveries_total", "counter", "pushes", "Pushes sent.")
PUSH_REDELIVERIES = Metric(
    "homing_push_redeliveries_total", "counter", "pushes", "Pushes sent again after a resume."
)
PUSH_DROPPED = Metric(
    "homing_push_dropped_total", "counter", "pushes", "Pushes dropped for slow subscribers."
)

JOURNAL_EVENTS = Metric("homing_journal_events_total", "counter", "events", "Events appended.")
JOURNAL_BYTES = Metric("homing_journal_written_bytes_total", "counter", "bytes", "Bytes written.")
JOURNAL_COMMITS = Metric(
    "homing_journal_commit_seconds", "histogram", "seconds", "Write and sync of one group."
)

METRICS: tuple[Metric, ...] = tuple(
    value for value in list(globals().values()) if type(value) is Metric
)
