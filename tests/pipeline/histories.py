"""Random histories of a fabric, as its nodes might have recorded them.

Time is true time in steps of 1/64 s, which floats hold exactly; each node writes by a clock of its own.
Requests and publications go well, or wrong in one of the ways that an audit looks for.
"""

from __future__ import annotations

import heapq
import json
import random
from collections.abc import Callable
from itertools import count
from typing import Any

from homing.journal import events as E
from homing.journal.events import Event

BROKERS, MATCHERS = (b"broker01", b"broker02"), (b"matcher1", b"matcher2")
CONNECTORS = (b"connect1", b"connect2", b"connect3")
CLIENTS = [bytes([97 + i]) * 12 for i in range(8)]
SERVICES = [b"echo", "größe".encode(), b"resize"]
CITIES = ["Paris", "Łódź", 'a "quoted"', ""]
HOUR = 3600.0
Story = dict[bytes, list[Event]]


class History:
    """What happens, in the order of true time; `told` is what each node wrote of it."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        nodes = (*BROKERS, *MATCHERS, *CONNECTORS)
        self.told: Story = {node: [] for node in nodes}
        self.clocks = {node: self.chance.randrange(-64 * 20, 64 * 20) / 64 for node in nodes}
        self.open: dict[bytes, set[int]] = {node: set() for node in BROKERS}
        self.at_home = {client: self.chance.choice(CONNECTORS) for client in CLIENTS}
        self._order = count()
        self._coming: list[tuple[float, int, Callable[[float], object]]] = []

    def later(self, at: float, what: Callable[[float], object]) -> None:
        heapq.heappush(self._coming, (at, next(self._order), what))

    def write(self, node: bytes, at: float, kind: Callable[..., Event], *rest: object) -> int:
        """An event by the node's own clock; its number."""
        self.told[node].append(kind(at + self.clocks[node], *rest))
        return len(self.told[node])

    def soon(self, most: float) -> float:
        return self.chance.randrange(1, max(2, int(most * 64))) / 64

    def live(self) -> Story:
        """Two busy spells with a pause between them that is longer than usual is long."""
        for node in self.told:
            self.later(0.0, lambda at, node=node: self.write(node, at, E.NodeStarted, b"x"))  # type: ignore[misc]
        moments = [HOUR + self.soon(0.4 * HOUR) for _ in range(150)]
        moments += [2.5 * HOUR + self.soon(0.3 * HOUR) for _ in range(100)]
        for at in moments:
            self.later(
                at,
                self.chance.choices([self.request, self.publication, self.subscription], [5, 3, 2])[
                    0
                ],
            )
        self.later(1.2 * HOUR, lambda at: self.restart(self.chance.choice(BROKERS), at))
        self.later(1.3 * HOUR, lambda at: self.gap(self.chance.choice(MATCHERS), at))
        while self._coming:
            at, _, what = heapq.heappop(self._coming)
            what(at)
        for node in self.told:
            # Some say nothing any more at the end, some are read up to a moment ago.
            if self.chance.random() < 0.5:
                self.write(node, 2.9 * HOUR, E.NodeStopped)
        return self.told

    def restart(self, node: bytes, at: float) -> None:
        self.write(node, at, E.NodeStarted, b"broker")
        self.open[node].clear()

    def gap(self, node: bytes, at: float) -> None:
        self.write(node, at, E.Gap, 7)

    # The service plane

    def request(self, at: float) -> None:
        node, service = self.chance.choice(BROKERS), self.chance.choice(SERVICES)
        what = self.chance.random()
        if what < 0.06:
            code = self.chance.choice([b"queue-full", b"denied", b""])
            self.write(node, at, E.RequestRefused, 0, code, service, b"c", 5)
        elif what < 0.09:  # of nobody's: the number is that of its beginning
            self.write(node, at, E.RequestAnswered, 1, b"w", 9, 0.5)
        elif what < 0.11:  # its acceptance could not be written
            self.write(node, at, E.RequestAnswered, 0, b"w", 9, 0.5)
        else:
            self.accepted(node, service, at)

    def accepted(self, node: bytes, service: bytes, at: float, origin: bytes = b"") -> None:
        number = self.write(
            node, at, E.RequestAccepted, service, b"c%d" % len(self.told[node]), 7, origin
        )
        self.open[node].add(number)
        wait, what = self.soon(4), self.chance.random()
        ends = 0 if what < 0.05 else 2 if what < 0.1 else 1
        if not origin and self.chance.random() < 0.2:
            peer = next(each for each in BROKERS if each != node)
            self.write(node, at, E.RequestReposted, number, peer)
            self.later(at + 1 / 64, lambda then: self.accepted(peer, service, then, node))
        elif self.chance.random() < 0.2:
            self.later(
                at + wait / 2,
                lambda then: self.if_open(node, number, then, E.RequestRequeued, b"w"),
            )
        for i in range(ends):
            self.later(at + (1 + i) * wait, lambda then, i=i: self.end(node, number, then, i))  # type: ignore[misc]

    def if_open(
        self, node: bytes, number: int, at: float, kind: Callable[..., Event], *rest: object
    ) -> None:
        if number in self.open[node]:
            self.write(node, at, kind, number, *rest)

    def end(self, node: bytes, number: int, at: float, time: int) -> None:
        if number not in self.open[node]:
            return  # the node was restarted, and knows nothing of it
        if self.chance.random() < 0.8:
            self.write(
                node, at, E.RequestAnswered, number, b"w", 64, self.chance.randrange(64) / 64, 2
            )
        else:
            code = self.chance.choice([b"timeout", b"worker-lost"])
            self.write(node, at, E.RequestRefused, number, code)

    # The push plane

    def attributes(self) -> bytes:
        found: dict[str, Any] = {}
        some = [
            ("price", self.chance.choice([0, -3, 7.5, 12, 40.25, 1e18])),
            ("city", self.chance.choice(CITIES)),
        ]
        some += [
            ("vip", self.chance.random() < 0.5),
            ("tag", self.chance.choice(["a", 1, True, 1.0])),
        ]
        found = dict(self.chance.sample(some, self.chance.randrange(5)))
        whole = json.dumps(found, ensure_ascii=self.chance.random() < 0.5).encode()
        return self.chance.choices([whole, b"[1]", b'{"a": {}}', b"{broken"], [20, 1, 1, 1])[0]

    def publication(self, at: float) -> None:
        identity, node = self.chance.randbytes(12), self.chance.choice(MATCHERS)
        what = self.chance.random()
        if what < 0.05:
            self.write(node, at, E.PublicationRefused, identity, b"p", b"queue-full")
            return
        attributes = self.attributes()
        self.write(node, at, E.PublicationAccepted, identity, b"p", attributes, b"x")
        if what > 0.95:
            return  # never matched
        those = self.chance.sample(CLIENTS, self.chance.randrange(4))
        self.later(at + 1 / 64, lambda then: self.matched(node, identity, those, then))
        if what > 0.85:  # its publisher heard nothing, and went on at the other
            other = next(each for each in MATCHERS if each != node)
            self.later(
                at + 5,
                lambda then: self.write(
                    other, then, E.PublicationAccepted, identity, b"p", attributes, b"x"
                ),
            )
            self.later(at + 5, lambda then: self.matched(other, identity, those, then, again=True))

    def matched(
        self, node: bytes, identity: bytes, those: list[bytes], at: float, again: bool = False
    ) -> None:
        places = b"".join(client + self.at_home[client] for client in those)
        kind = E.PublicationMatched
        self.write(node, at, kind, identity, places, len(those), 1 / 64)
        if again:
            return
        for client in those:
            self.delivery(identity, client, self.at_home[client], at)
        if self.chance.random() < 0.05:  # to somebody it was not for
            other = self.chance.choice([each for each in CLIENTS if each not in those])
            self.later(
                at + 1,
                lambda then: self.write(self.at_home[other], then, E.Delivered, identity, other),
            )

    def delivery(self, identity: bytes, client: bytes, node: bytes, at: float) -> None:
        """One of the ways in which a delivery ends; most are acknowledged, some acknowledgements are lost."""
        quick, slow = self.soon(10), 100 + self.soon(60)
        ways: list[list[tuple[float, Any]]] = [
            [(quick, E.Delivered)],
            [(slow, E.Delivered)],
            [(quick, E.Delivered), (quick + 5, E.Redelivered)],
            [(quick, E.Delivered), (quick + 5, E.Delivered)],
            [(quick, E.DeliveryQueued), (slow, E.Delivered)],
            [(quick, E.DeliveryQueued)],
            [(quick, E.Redelivered)],
            [(quick, E.Dropped)],
            [],
        ]
        steps = self.chance.choices(ways, [30, 3, 4, 2, 3, 2, 1, 3, 3])[0]
        if self.chance.random() < 0.6:
            steps = [*steps, (quick + 6, E.Acknowledged)]
        more = {E.Dropped: (b"slow",), E.DeliveryQueued: (b"{}", b"x")}
        for wait, kind in steps:
            self.later(
                at + wait,
                lambda then, kind=kind: self.write(
                    node, then, kind, identity, client, *more.get(kind, ())
                ),  # type: ignore[misc]
            )

    def subscription(self, at: float) -> None:
        client, name = self.chance.choice(CLIENTS), self.chance.choice([b"s", b"t", b""])
        node = self.at_home[client]
        what = self.chance.random()
        if what < 0.15:  # it moves: the connector it comes to has what it had, or is asked anew
            former = node
            self.at_home[client] = node = self.chance.choice(CONNECTORS)
            if former != node:  # and the one it was at lets go of all that it had
                self.later(
                    at + self.soon(5),
                    lambda then: self.write(
                        former, then, E.SubscriptionRemoved, client, former, b""
                    ),
                )
        if what < 0.75:
            fields = json.dumps(self.fields()).encode()
            self.write(node, at, E.SubscriptionSet, client, node, name, fields)
            matcher = self.chance.choice(MATCHERS)  # records a copy, a moment later
            self.later(
                at + 1,
                lambda then: self.write(
                    matcher, then, E.SubscriptionSet, client, node, name, fields
                ),
            )
        else:
            self.write(node, at, E.SubscriptionRemoved, client, node, name if what < 0.95 else b"")

    def fields(self) -> dict[str, Any]:
        low = self.chance.randrange(-5, 30)
        city, tag = self.chance.choice(CITIES), self.chance.choice(["a", 1, True])
        extras: list[tuple[str, Any]] = [
            ("city", {"in": [city, 5]}),
            ("city", {"not_in": [city]}),
            ("city", {"prefix": city[:1]}),
            ("tag", {"ne": tag}),
            ("vip", {"exists": self.chance.random() < 0.5}),
            ("price", {"gt": low}),
            ("price", {"le": low + 0.5}),
            ("tag", {"any": [{"in": [tag]}, {"exists": False}]}),
        ]
        name, extra = self.chance.choice(extras)
        given = extra if self.chance.random() < 0.7 else json.dumps(extra)
        found = [
            (name, {"use": 3, "extra": given}),
            ("price", {"use": 2, "low": self.chance.choice([None, low]), "high": low + 20}),
            ("city", {"use": 1, "strval": city}),
        ]
        return dict(self.chance.sample(found, self.chance.randint(1, 2)))
