"""A whole push plane in simulation: what the tests of it put together."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import cycle

import msgspec

from homing.errors import HomingError
from homing.journal.events import PublicationMatched
from homing.ports import Port
from homing.push.connector import Connector
from homing.push.dispatcher import Dispatcher
from homing.push.index.oracle import Oracle
from homing.push.matcher import Matcher
from homing.push.placement import Plan
from homing.push.publishing import Publishing
from homing.push.subscribing import Subscribing
from homing.push.subscription import Fields, parse_fields
from homing.push.tokens import Keyring
from homing.testing import Conditions, FaultPlan, RecordingPort, SimHost, Simulation
from homing.wire.pushed import Auth, Gap, Push

Maker = Callable[[SimHost, Port, Sequence[object]], Connector | Matcher]

KEYS = Keyring([b"a shared secret"], ttl=1e6)
# Slow disks: the time between an event and its sync is when a crash shows who promised too soon.
CONDITIONS = Conditions(backoff=(0.05, 1.0), sync=0.05)


def node_id(kind: int, number: int) -> bytes:
    return bytes((kind, 0, 0, 0, 0, 0, 0, number))


class SimPublisher(Publishing):
    """Publishes `{"n": number}` at a steady pace from a first one; remembers how each ended."""

    def __init__(
        self, host: SimHost, matchers: list[str], count: int, every: float, first: int = 0
    ) -> None:
        super().__init__(host, host.ids, matchers, self._ended)
        self.host = host
        self.results: dict[int, int | HomingError] = {}
        self._numbers: dict[bytes, int] = {}
        self._end = first + count
        self._every = every
        self._next_number = first
        host.later(host.now + 3.0, "publish")

    def wake(self, key: Hashable, now: float) -> None:
        if key != "publish":
            super().wake(key, now)
            return
        if self._next_number < self._end:
            attributes = msgspec.json.encode({"n": self._next_number})
            identity = self.publish(attributes, b"payload %d" % self._next_number)
            self._numbers[identity] = self._next_number
            self._next_number += 1
            self.host.later(now + self._every, "publish")

    def _ended(self, identity: bytes, result: int | HomingError) -> None:
        self.results[self._numbers[identity]] = result

    @property
    def accepted(self) -> list[int]:
        return sorted(n for n, result in self.results.items() if isinstance(result, int))


def move_on(role: SimPublisher | SimSubscriber, now: float) -> None:
    """To the next of its list, if it is anywhere."""
    link = role._link
    if link is not None:
        link.close("on to the next")
        role.closed(link, now)
        role._next(now)


class SimChanger(SimPublisher):
    """A publisher that goes from one matcher to the next, a second or more at each, until then."""

    def __init__(
        self,
        host: SimHost,
        matchers: list[str],
        count: int,
        every: float,
        first: int,
        until: float,
    ) -> None:
        super().__init__(host, matchers, count, every, first)
        self._until = until
        host.later(host.now + 3.0, "change")

    def wake(self, key: Hashable, now: float) -> None:
        if key != "change":
            super().wake(key, now)
        elif now < self._until:
            move_on(self, now)
            self.host.later(now + self.host.random.uniform(0.5, 4.0), "change")


class SimSubscriber(Subscribing):
    """Subscribes once and keeps what comes."""

    def __init__(
        self,
        host: SimHost,
        connectors: list[str],
        client: bytes,
        fields: Fields,
        durable: bool,
        wait: float | None = None,
    ) -> None:
        self.host = host
        self.client = client
        self.wait = wait
        self.durable = durable
        self.got: list[int] = []
        self.gaps: list[Gap] = []
        self.doubled: list[int] = []  # came a second time without being flagged
        self.confirmed = False
        super().__init__(host, connectors, self._auth, self._arrived)
        self.subscribe(fields, settled=self._settled)

    def _pushed(self, arrived: Push | Gap) -> None:
        """Below the recognition of what comes again: what the connector really sent."""
        if isinstance(arrived, Push) and arrived.id in self._seen and not arrived.redelivered:
            self.doubled.append(int(arrived.attrs["n"]))
        super()._pushed(arrived)

    def _auth(self) -> Auth:
        name, stamp = self.client.hex(), int(self.host.clock.wall())
        token = KEYS.issue(name, stamp)
        return Auth(name, stamp, token, ack=self.durable, resume=self.durable, wait=self.wait)

    def _arrived(self, arrived: Push | Gap) -> None:
        if isinstance(arrived, Push):
            number = int(arrived.attrs["n"])
            assert arrived.body == b"payload %d" % number
            self.got.append(number)
        else:
            self.gaps.append(arrived)

    def _settled(self, error: HomingError | None) -> None:
        assert error is None, error
        self.confirmed = True


class SimFidgeter(SimSubscriber):
    """Changes what it asks for, in turns, at a steady pace."""

    def __init__(
        self,
        host: SimHost,
        connectors: list[str],
        client: bytes,
        turns: Sequence[Fields],
        every: float,
    ) -> None:
        super().__init__(host, connectors, client, turns[0], durable=True)
        self._turns = cycle([*turns[1:], turns[0]])
        self._every = every
        host.later(host.now + 3.0, "change")

    def wake(self, key: Hashable, now: float) -> None:
        if key != "change":
            super().wake(key, now)
            return
        self.subscribe(next(self._turns))
        self.host.later(now + self._every, "change")


class SimHopper(SimSubscriber):
    """A subscriber that goes from one connector to the next, often before it has all from the one before."""

    def __init__(
        self, host: SimHost, connectors: list[str], client: bytes, fields: Fields, until: float
    ) -> None:
        super().__init__(host, connectors, client, fields, durable=True)
        self._until = until
        host.later(host.now + 3.0, "hop")

    def wake(self, key: Hashable, now: float) -> None:
        if key != "hop":
            super().wake(key, now)
        elif now < self._until:
            move_on(self, now)
            self.host.later(now + self.host.random.uniform(0.02, 0.5), "hop")


class Fabric:
    """Matchers, dispatchers and connectors, each connector owned by one dispatcher."""

    def __init__(
        self,
        seed: int,
        faults: FaultPlan,
        *,
        matchers: int = 2,
        dispatchers: int = 2,
        connectors: int = 2,
        plan: Plan | None = None,
        ghosts: Sequence[bytes] = (),
        wait: float | None = None,
    ) -> None:
        """`ghosts`: matchers that are members and never there. `wait`: what wanderers say of it, if anything."""
        self.sim = Simulation(seed, faults, CONDITIONS)
        self.plan = plan
        self._wait = wait
        self._members = [*[node_id(1, n) for n in range(matchers)], *ghosts]
        self.matchers = [f"matcher-{n}" for n in range(matchers)]
        self.dispatchers = [f"dispatcher-{n}" for n in range(dispatchers)]
        self.connectors = [f"connector-{n}" for n in range(connectors)]
        for number, name in enumerate(self.connectors):
            listen = {"dispatchers": f"{name}:7004", "subscribers": f"{name}:7005"}
            self.sim.node(name, self._connector(number), listen=listen)
        for number, name in enumerate(self.dispatchers):
            self.sim.node(name, self._dispatcher(number), listen={"nodes": f"{name}:7003"})
        for number, name in enumerate(self.matchers):
            listen = {"publishers": f"{name}:7001", "status": f"{name}:7002"}
            self.sim.node(name, self._matcher(number), listen=listen)

    @property
    def servers(self) -> list[str]:
        return [*self.matchers, *self.dispatchers, *self.connectors]

    def publisher(self, name: str, count: int, every: float, first: int = 0) -> None:
        endpoints = [f"{matcher}:7001" for matcher in self.matchers]
        self.sim.node(name, lambda host: SimPublisher(host, endpoints, count, every, first))

    def changer(self, name: str, count: int, every: float, first: int, until: float) -> None:
        """A publisher that stays at no matcher, until then."""
        ends = [f"{matcher}:7001" for matcher in self.matchers]
        self.sim.node(name, lambda host: SimChanger(host, ends, count, every, first, until))

    def subscriber(self, number: int, connector: int, fields: bytes, durable: bool) -> str:
        return self.wanderer(number, [self.connectors[connector]], fields, durable)

    def fidgeter(self, number: int, connector: int, fields: Sequence[bytes], every: float) -> str:
        """A subscriber that asks for something else again and again."""
        name, where = f"subscriber-{number}", [f"{self.connectors[connector]}:7005"]
        client, turns = number.to_bytes(12, "big"), [parse_fields(one) for one in fields]
        self.sim.node(name, lambda host: SimFidgeter(host, where, client, turns, every))
        return name

    def wanderer(self, number: int, connectors: list[str], fields: bytes, durable: bool) -> str:
        """A subscriber that goes to the next of these when one is gone."""
        name = f"subscriber-{number}"
        where = [f"{connector}:7005" for connector in connectors]
        client, parsed = number.to_bytes(12, "big"), parse_fields(fields)
        self.sim.node(
            name, lambda host: SimSubscriber(host, where, client, parsed, durable, self._wait)
        )
        return name

    def hopper(self, number: int, fields: bytes, until: float) -> str:
        """A subscriber that stays at no connector, until then."""
        name, where = f"subscriber-{number}", [f"{connector}:7005" for connector in self.connectors]
        where = [*where[number:], *where[:number]]
        client, parsed = number.to_bytes(12, "big"), parse_fields(fields)
        self.sim.node(name, lambda host: SimHopper(host, where, client, parsed, until))
        return name

    def _connector(self, number: int) -> Callable[[SimHost], Connector]:
        def make(host: SimHost, port: Port, recovered: Sequence[object]) -> Connector:
            return Connector(
                port,
                node_id(3, number),
                host.clock.wall,
                host.ids,
                KEYS,
                tokens=[b"fabric"],
                recovered=recovered,
            )

        return lambda host: make(host, host, self._remembered(host, make))

    def _dispatcher(self, number: int) -> Callable[[SimHost], Dispatcher]:
        count = len(self.dispatchers)
        own = [f"{c}:7004" for n, c in enumerate(self.connectors) if n % count == number]
        peers = [f"{d}:7003" for n, d in enumerate(self.dispatchers) if n != number]
        return lambda host: Dispatcher(
            host,
            node_id(2, number),
            host.clock.wall,
            connectors=own,
            peers=peers,
            matchers=self._members,
            tokens=[b"fabric"],
        )

    def _matcher(self, number: int) -> Callable[[SimHost], Matcher]:
        def make(host: SimHost, port: Port, recovered: Sequence[object]) -> Matcher:
            matcher = Matcher(
                port,
                node_id(1, number),
                host.clock.wall,
                host.ids,
                Oracle,
                dispatchers=[f"{d}:7003" for d in self.dispatchers],
                matchers=[f"{m}:7002" for n, m in enumerate(self.matchers) if n != number],
                tokens=[b"fabric"],
                recovered=recovered,
                plan=self.plan if number == 0 else None,  # the others hear of it
            )
            matcher.neighbours.publishers = f"{self.matchers[number]}:7001"
            return matcher

        return lambda host: make(host, host, self._remembered(host, make))

    def _remembered(self, host: SimHost, make: Maker) -> Sequence[object]:
        """What a node starts from: its journal or, with odd seeds, a checkpoint of half of it
        and the journal from there, which must come to the same."""
        if self.sim.seed % 2 == 0:
            return host.recovered
        half = len(host.recovered) // 2
        if half and isinstance(host.recovered[half], PublicationMatched):
            half -= 1  # a matcher tells both in one go: no checkpoint falls between them
        before = make(host, RecordingPort(), host.recovered[:half])
        return [*before.checkpoint(), *host.recovered[half:]]
