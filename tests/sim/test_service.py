"""The service plane under random clients, workers, peers and faults, from one seed each."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import partial
from random import Random

from msgspec.structs import replace

from homing.journal.events import WorkerLeft
from homing.service.beats import SLACK
from homing.service.federation import Peer
from homing.service.pending import DONE, Pending
from homing.service.policy import BrokerPolicy, ServicePolicy
from homing.service.switch import Broker
from homing.service.worker_pool import Worker
from homing.testing import (
    Crash,
    Disconnect,
    Duplicate,
    FaultPlan,
    FullDisk,
    Partition,
    Pause,
    SimHost,
    Simulation,
    Skew,
    Slow,
    SlowDisk,
    explore,
    seeds,
)
from homing.testing.host import RUNNING
from homing.wire.mdp_messages import Dialect, Ready
from tests.sim.service_roles import HEARTBEAT, LIVENESS, Ledger, SimClient, SimWorker

NAMES = ("a", "b", "c", "d", "e")
SERVICES = [b"echo", b"once", b"rare", b"nobody"]
TIMEOUT = 4.0
GRACE = 0.5  # a tick and the simulator's lateness
FAULTS_END = 16.0
QUIET = 34.0
POLICY = BrokerPolicy(
    heartbeat=HEARTBEAT,
    idle_beats=0.5,  # two workers at a broker, and they are asked to beat more slowly
    default=ServicePolicy(timeout=TIMEOUT, absent_grace=1.0, max_waiting=50),
    services={b"once": ServicePolicy(timeout=TIMEOUT, at_most_once=True)},
)
KINDS = (Crash, Pause, Skew, FullDisk, SlowDisk, Disconnect, Duplicate, Slow, Partition)


def scenario(seed: int, faults: FaultPlan) -> None:
    """Two to five brokers in a full mesh, workers of every dialect, clients at two of them."""
    sim, ledger = Simulation(seed, faults, keep=300), Ledger()
    random = Random(seed)
    brokers = brokers_of(seed)
    for name in brokers:
        _add_broker(sim, name, brokers, ledger)
    for number in range(random.randint(2, 6)):
        _add_worker(sim, ledger, random, number, brokers)
    for name in ("a", "b"):
        _add_client(sim, ledger, name)
    watch = Watch(brokers)
    sim.always(watch, every=0.5)
    sim.at_end(lambda sim: _all_ended(ledger))
    sim.at_end(lambda sim: _nothing_left(sim, brokers))
    sim.at_end(lambda sim: _once_is_once(ledger))
    sim.run(until=QUIET)
    sim.finish()


def rush(seed: int, faults: FaultPlan) -> None:
    """Many requests at once at one broker, quick workers at two others: they are sent ahead."""
    sim, ledger = Simulation(seed, faults, keep=300), Ledger()
    brokers = NAMES[: 2 + seed % 2]
    for name in brokers:
        _add_broker(sim, name, brokers, ledger)
    for number in range(4):
        ready = Ready((Dialect.D0X, Dialect.D01)[number % 2], b"echo", 1)
        endpoint = f"tcp://{brokers[1 + number % (len(brokers) - 1)]}:localbe"
        quick = partial(SimWorker, endpoint=endpoint, ledger=ledger, ready=ready, slow=0.002)
        sim.node(f"worker{number}", quick)
    sim.node(
        "client-a",
        lambda host: SimClient(host, "tcp://a:localfe", ledger, [b"echo"], (1, 20, 40)),
    )
    most = Most()
    sim.always(Watch(brokers), every=0.5)
    sim.always(most, every=0.005)
    sim.always(partial(_one_hop, brokers), every=0.005)
    sim.at_end(lambda sim: _all_ended(ledger))
    sim.at_end(lambda sim: _nothing_left(sim, brokers))
    sim.run(until=QUIET)
    sim.finish()
    assert most.ahead > 0, "nothing was sent ahead"


class Most:
    """How many requests were ahead at one moment."""

    def __init__(self) -> None:
        self.ahead = 0

    def __call__(self, sim: Simulation) -> None:
        if sim.nodes["a"].host.state == RUNNING:
            peers = sim.nodes["a"].role.federation.peers.values()
            self.ahead = max(self.ahead, *(peer.ahead for peer in peers))


def _one_hop(brokers: tuple[str, ...], sim: Simulation) -> None:
    """What one broker holds for another is never with a third."""
    for node in (sim.nodes[name] for name in brokers):
        if node.host.state == RUNNING:
            held = [pending for peer in peers_of(node.role) for pending in peer.held.values()]
            assert not any(pending.asker.origin for pending in held), "a second hop"


def peers_of(broker: Broker) -> list[Peer]:
    return list(broker.federation.peers.values())


def brokers_of(seed: int) -> tuple[str, ...]:
    """How large a federation this seed has."""
    return NAMES[: (3, 2, 3, 5)[seed % 4]]


def _add_broker(
    sim: Simulation,
    name: str,
    brokers: tuple[str, ...],
    ledger: Ledger,
    policy: BrokerPolicy = POLICY,
) -> None:
    peers = {
        other.encode(): (f"tcp://{other}:cloudfe", f"tcp://{other}:statebe")
        for other in brokers
        if other != name
    }

    def make(host: SimHost) -> Broker:
        write = host.journal

        def journal(event: object) -> int:
            if isinstance(event, WorkerLeft) and event.reason == b"expired":
                ledger.expired.append((host.now, event.worker))
            return write(event)

        host.journal = journal  # type: ignore[method-assign]
        return Broker(name.encode(), host, policy=policy, peers=peers, seed=sim.seed + 1)

    plugs = ("localfe", "localbe", "cloudfe", "statebe")
    identities = {f"cloudbe/{other}": name.encode() for other in brokers}
    sim.node(
        name,
        make,
        listen={plug: f"tcp://{name}:{plug}" for plug in plugs},
        identities={"cloudfe": name.encode(), **identities},
        same_name={"cloudfe": "replace"},
    )


def _add_worker(
    sim: Simulation, ledger: Ledger, random: Random, number: int, brokers: tuple[str, ...]
) -> None:
    broker = random.choice(brokers)
    dialect = random.choice(list(Dialect))
    service = random.choice([b"echo", b"echo", b"once", b"rare"])
    credit = 1
    if dialect == Dialect.D0X:
        service = random.choice([service, service, b""])
        credit = random.choice((1, 3))
    slowest = (30_000, 0, 4_000)[number % 3] if dialect == Dialect.D0X else 0
    ready, endpoint = Ready(dialect, service, credit, slowest), f"tcp://{broker}:localbe"
    slow = random.choice((0.05, 0.3, 2.0))
    sim.node(f"worker{number}", lambda host: SimWorker(host, endpoint, ledger, ready, slow))


def _add_client(sim: Simulation, ledger: Ledger, broker: str) -> None:
    endpoint = f"tcp://{broker}:localfe"
    sim.node(f"client-{broker}", lambda host: SimClient(host, endpoint, ledger, SERVICES))


def fleet(seed: int, faults: FaultPlan) -> None:
    """Many workers at one broker come and go; only who stalls is taken for dead, or takes the broker for it."""
    sim, ledger = Simulation(seed, faults, keep=300), Ledger()
    _add_broker(sim, "a", ("a",), ledger, dataclasses.replace(POLICY, idle_beats=2.0))
    for number in range(FLEET):
        ready = Ready(Dialect.D0X, b"echo", 1 + number % 2, (30_000, 5_000, 0)[number % 3])
        slow = (0.05, 3.0)[number % 2]
        work = partial(SimWorker, endpoint="tcp://a:localbe", ledger=ledger, ready=ready, slow=slow)
        sim.node(f"worker{number}", work)
    _add_client(sim, ledger, "a")
    slowest = Slowest()
    sim.always(Watch(("a",)), every=0.1)
    sim.always(slowest, every=0.5)
    sim.at_end(lambda sim: _all_ended(ledger))
    sim.run(until=QUIET)
    sim.finish()
    stalls = [fault for fault in faults.faults if isinstance(fault, Pause)]
    for now, _ in ledger.expired:  # one that is back may say so only with its next heartbeat
        ends = [(stall.at, stall.at + stall.lasts + HEARTBEAT + GRACE) for stall in stalls]
        assert any(at < now < end for at, end in ends), now
    assert {name for _, name in ledger.left} <= {stall.node for stall in stalls}
    assert {pace for pace in slowest.paces if pace > HEARTBEAT}, "nobody was slow"


FLEET = 14


class Slowest:
    """At which paces a broker beat."""

    def __init__(self) -> None:
        self.paces: set[float] = set()

    def __call__(self, sim: Simulation) -> None:
        if sim.nodes["a"].host.state == RUNNING:
            self.paces |= {worker.pace for worker in sim.nodes["a"].role.core.roster}


class Watch:
    """While a broker runs undisturbed, nothing is open past its deadline and the grace, and no worker that hangs over a request is kept."""

    def __init__(self, brokers: tuple[str, ...]) -> None:
        self._brokers = brokers
        self._stalled: dict[str, float] = {}

    def __call__(self, sim: Simulation) -> None:
        for name in self._brokers:
            node = sim.nodes[name]
            if node.host.state != RUNNING:
                self._stalled[name] = sim.now
            elif sim.now - self._stalled.get(name, -9.0) > 1.0:
                for pending in open_requests(node.role):
                    assert sim.now <= pending.deadline + GRACE, f"{name} holds one too long"
                for worker in node.role.core.roster:
                    assert sim.now <= _expected(worker) + GRACE, f"{worker.name!r} hangs"


def _expected(worker: Worker) -> float:
    """Until when a word of a worker must have come, or it is sent away."""
    begun = [pending.handed for pending in worker.held.values()]
    if begun:
        return max(worker.seen, min(begun)) + HEARTBEAT * (LIVENESS + 1 + SLACK)
    silent = worker.seen + worker.pace * LIVENESS
    return max(silent, worker.spared) + worker.pace * (1 + SLACK)


def open_requests(broker: Broker) -> Iterator[Pending]:
    """Every request that a broker has not ended."""
    core = broker.core
    for service in core.services.values():
        for lane in service._lanes.values():
            yield from (pending for pending in lane if pending.state != DONE)
    for holder in (*core.roster, *core.federation.peers.values()):
        yield from (pending for pending in holder.held.values() if pending.state != DONE)


def _all_ended(ledger: Ledger) -> None:
    assert not ledger.open_requests()
    assert ledger.asked, "the scenario asked nothing"


def _once_is_once(ledger: Ledger) -> None:
    twice = [body for body, runs in ledger.runs.items() if runs > 1 and body.startswith(b"once ")]
    assert not twice


def _nothing_left(sim: Simulation, brokers: tuple[str, ...]) -> None:
    for name in brokers:
        core = sim.nodes[name].role.core
        assert core.live == 0
        assert core.waiting_bytes == 0
        assert not core._hungry
        assert sum(service.places for service in core.services.values()) == 0
        assert not any(peer.held or peer.ahead for peer in core.federation.peers.values())
        assert not any(worker.held for worker in core.roster)
        assert len(core.deadlines) == 0
        assert len(core.services) <= len(SERVICES)


def _plan(seed: int) -> FaultPlan:
    nodes = [*brokers_of(seed), "worker0", "worker1", "client-a"]
    return FaultPlan.random(seed, nodes, FAULTS_END, kinds=KINDS, every=3.0, longest=4.0)


def test_every_request_ends_exactly_once_without_faults() -> None:
    assert explore(scenario, seeds(ci=10, nightly=100)) > 0


def test_split_brain_and_heal() -> None:
    """Five brokers fall apart into two and three for longer than any patience, and heal."""

    def split(seed: int) -> FaultPlan:
        left, right = NAMES[:2], NAMES[2:]
        return FaultPlan((Partition(at=3.0 + seed % 3, lasts=8.0, left=left, right=right),))

    fives = [seed for seed in seeds(ci=40, nightly=400) if len(brokers_of(seed)) == 5]
    assert explore(scenario, fives, plan=split) == len(fives)


def test_every_request_ends_exactly_once_under_faults() -> None:
    assert explore(scenario, seeds(ci=200, nightly=2000), plan=_plan) > 0


def test_what_is_sent_ahead_ends_exactly_once_under_faults() -> None:
    def plan(seed: int) -> FaultPlan:
        nodes = [*NAMES[: 2 + seed % 2], "worker0", "worker1", "client-a"]
        drawn = FaultPlan.random(seed, nodes, FAULTS_END, kinds=KINDS, every=3.0, longest=4.0)
        # Slow, but not narrow: the answers to a rush would be under way when all is to be quiet.
        return FaultPlan(
            tuple(replace(f, bandwidth=None) if isinstance(f, Slow) else f for f in drawn.faults)
        )

    assert explore(rush, seeds(ci=40, nightly=1000), plan=plan) > 0


def test_a_fleet_on_slow_heartbeats_loses_nobody() -> None:
    """Workers and the broker crash and links are reset, so that the interval changes time and again; some hang."""

    def plan(seed: int) -> FaultPlan:
        workers = [f"worker{number}" for number in range(FLEET)]
        random = Random(seed)
        gone = tuple(
            Crash(at=random.uniform(0.5, FAULTS_END), node=node, down=random.uniform(0.1, 8.0))
            for node in (*random.sample(workers, 9), "a")
        )
        reset = tuple(
            Disconnect(at=random.uniform(0.5, FAULTS_END), left="a", right=node)
            for node in random.sample(workers, 4)
        )
        hang = tuple(
            Pause(at=random.uniform(0.5, FAULTS_END), node=node, lasts=random.uniform(3.0, 16.0))
            for node in random.sample(workers, seed % 4)
        )
        return FaultPlan((*gone, *reset, *hang))

    assert explore(fleet, seeds(ci=10, nightly=200)) > 0
    assert explore(fleet, seeds(ci=40, nightly=1000), plan=plan) > 0
