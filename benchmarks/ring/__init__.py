"""Ring: what a placement plan costs: publications matched here and asked for, shares that move.

Two matchers in one process, joined without sockets: the figures are the roles' own CPU time. A
publication in the first one's tile is matched there; one in the second's is asked for.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Hashable
from statistics import median

from benchmarks.harness import Cell, Report
from homing.node.push import NumberedIndex
from homing.push.index import kernels
from homing.push.matcher import Matcher
from homing.push.placement import EVERYWHERE, Cut, Plan, Tree
from homing.push.places import by_connector
from homing.testing import RecordingLink
from homing.wire import publish

CONNECTOR = b"conn0001"
NODES = (b"match001", b"match002")
NAMES = tuple(node.hex() for node in NODES)
SPAN = 1000.0
TILED = Plan(1, (Tree((Cut("x", SPAN / 2, ~0, ~1),), ((NAMES[0],), (NAMES[1],))),))
WHERE = {"everywhere": (EVERYWHERE, 0.0), "held here": (TILED, 0.0), "asked for": (TILED, 0.5)}


class Quiet:
    """A port that keeps nothing: no journal, no timers, nobody to dial."""

    def connect(self, plug: str, endpoint: str) -> None: ...

    def disconnect(self, plug: str, endpoint: str) -> None: ...

    def later(self, deadline: float, key: Hashable) -> None: ...

    def cancel(self, key: Hashable) -> None: ...

    def journal(self, event: object) -> int:
        return 0


class Pair:
    """Two matchers that know each other, with so many subscriptions told to both."""

    def __init__(self, plan: Plan, subscriptions: int) -> None:
        counter = itertools.count(1)
        ids: Callable[[], bytes] = lambda: next(counter).to_bytes(12, "big")  # noqa: E731
        self.matchers = [
            Matcher(Quiet(), node, time.time, ids, NumberedIndex, dispatchers=(), plan=plan)
            for node in NODES
        ]
        self.told = self._tell(subscriptions)
        self.links = [RecordingLink("ring"), RecordingLink("status")]
        for matcher, link in zip(self.matchers, self.links, strict=True):
            matcher.opened(link, 0.0)
        self.carry()
        self.spent = 0.0  # CPU seconds
        self.publisher = RecordingLink("publishers")
        self.matchers[0].opened(self.publisher, 0.0)

    def _tell(self, subscriptions: int) -> float:
        """Every subscription to both, as a sync would; CPU seconds for each matcher."""
        rng = random.Random(7)
        began = time.thread_time()
        for number in range(subscriptions):
            low = rng.uniform(0, SPAN - 1)
            fields = b'{"x":{"use":2,"low":%.3f,"high":%.3f},"y":{"use":2,"low":%d}}' % (
                low,
                low + SPAN * 20 / subscriptions,
                rng.randrange(2),
            )
            client = number.to_bytes(12, "big")
            for matcher in self.matchers:
                matcher.table.set(client, CONNECTOR, b"default", fields)
        return (time.thread_time() - began) / len(self.matchers)

    def carry(self) -> None:
        """Messages between the two, until there are no more."""
        first, second = self.links
        while first.sent or second.sent:
            for out, receiver, at in ((first, 1, second), (second, 0, first)):
                for message in out.take():
                    self.matchers[receiver].receive(at, message, 0.0)

    def publish(self, number: int, x: float) -> int:
        """One publication until it is on its way, which is timed, and then taken over."""
        matcher = self.matchers[0]
        identity = b"p" + number.to_bytes(11, "big")
        image = publish.Publish(b'{"x":%.3f,"y":1}' % x, b"payload", identity).encode()
        began = time.thread_time()
        matcher.receive(self.publisher, image, 0.0)
        self.carry()
        self.spent += time.thread_time() - began
        found = 0
        for publication, listed in matcher.owed.remaining():
            for connector, clients in by_connector(listed).items():
                found += len(clients) // 12
                matcher.owed.acked(publication.message_id, clients, connector)
        if not self.publisher.take():
            raise AssertionError("a publication was not acknowledged")
        return found


def run(report: Report) -> None:
    """CPU µs a publication and a told subscription, by plan and number of subscriptions."""
    kernels.load()  # not what is measured
    rows: list[list[Cell]] = []
    publications = 500 if report.quick else 5_000
    for subscriptions in (10_000,) if report.quick else (10_000, 100_000, 300_000):
        report.say(f"{subscriptions} subscriptions")
        for name, (plan, base) in WHERE.items():
            rows.append([subscriptions, name, *measure(plan, base, subscriptions, publications)])
    report.note(
        "`everywhere` is the plan without cuts. `asked for` counts both matchers, question and answer "
        "included. `told` is what one subscription of a sync costs a matcher, half of which it keeps under the plan."
    )
    columns = ["subscriptions", "plan", "CPU µs a publication", "clients each", "CPU µs told"]
    report.table("Publications and syncs", columns, rows)
    here, asked = (row for row in rows[-2:])
    assert isinstance(here[2], float)
    assert isinstance(asked[2], float)
    report.goal("asking costs, in publications matched here", asked[2] / here[2], 4.0)


def measure(
    plan: Plan, base: float, subscriptions: int, publications: int
) -> tuple[float, float, float]:
    """CPU µs a publication, clients it reached, CPU µs a told subscription."""
    pair = Pair(plan, subscriptions)
    rng = random.Random(11)
    costs, found = [], 0
    for batch in range(5):
        xs = [rng.uniform(base * SPAN, (base + 0.5) * SPAN) for _ in range(publications // 5)]
        for number in range(20 if batch == 0 else 0):  # kernels and caches
            pair.publish(10_000_000 + number, base * SPAN + number)
        pair.spent = 0.0
        for number, x in enumerate(xs):
            found += pair.publish(batch * publications + number, x)
        costs.append(pair.spent / len(xs) * 1e6)
    for matcher in pair.matchers:
        for share in matcher.table.shares:
            share.close()
    return median(costs), found / publications, pair.told / subscriptions * 1e6
