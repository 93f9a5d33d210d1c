"""The service plane under random clients, workers, peers and faults, from one seed each."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from homing.service.pending import DONE, Pending
from homing.service.policy import BrokerPolicy, ServicePolicy
from homing.service.switch import Broker
from homing.testing import (
    Crash,
    Disconnect,
    FaultPlan,
    Partition,
    Pause,
    SimHost,
    Simulation,
    Slow,
    explore,
    seeds,
)
from homing.testing.host import RUNNING
from homing.wire.mdp_messages import Dialect, Ready
from tests.sim.service_roles import HEARTBEAT, Ledger, SimClient, SimWorker

BROKERS = ("a", "b", "c")
SERVICES = [b"echo", b"once", b"rare", b"nobody"]
TIMEOUT = 4.0
GRACE = 0.5  # a tick and the simulator's lateness
FAULTS_END = 16.0
QUIET = 34.0
POLICY = BrokerPolicy(
    heartbeat=HEARTBEAT,
    default=ServicePolicy(timeout=TIMEOUT, absent_grace=1.0, max_waiting=50),
    services={b"once": ServicePolicy(timeout=TIMEOUT, at_most_once=True)},
)
KINDS = (Crash, Pause, Disconnect, Slow, Partition)


def scenario(seed: int, faults: FaultPlan) -> None:
    """Three brokers in a mesh, workers of every dialect, clients at two of them."""
    sim, ledger = Simulation(seed, faults, keep=300), Ledger()
    random = Random(seed)
    for name in BROKERS:
        _add_broker(sim, name)
    for number in range(random.randint(2, 6)):
        _add_worker(sim, ledger, random, number)
    for name in ("a", "b"):
        _add_client(sim, ledger, name)
    watch = Watch()
    sim.always(watch, every=0.5)
    sim.at_end(lambda sim: _all_ended(ledger))
    sim.at_end(lambda sim: _nothing_left(sim))
    sim.at_end(lambda sim: _once_is_once(ledger))
    sim.run(until=QUIET)
    sim.finish()


def _add_broker(sim: Simulation, name: str) -> None:
    peers = {
        other.encode(): (f"tcp://{other}:cloudfe", f"tcp://{other}:statebe")
        for other in BROKERS
        if other != name
    }

    def make(host: SimHost) -> Broker:
        return Broker(name.encode(), host, policy=POLICY, peers=peers, seed=sim.seed + 1)

    plugs = ("localfe", "localbe", "cloudfe", "statebe")
    identities = {f"cloudbe/{other}": name.encode() for other in BROKERS}
    sim.node(
        name,
        make,
        listen={plug: f"tcp://{name}:{plug}" for plug in plugs},
        identities={"cloudfe": name.encode(), **identities},
        same_name={"cloudfe": "replace"},
    )


def _add_worker(sim: Simulation, ledger: Ledger, random: Random, number: int) -> None:
    broker = random.choice(BROKERS)
    dialect = random.choice(list(Dialect))
    service = random.choice([b"echo", b"echo", b"once", b"rare"])
    credit = 1
    if dialect == Dialect.D0X:
        service = random.choice([service, service, b""])
        credit = random.choice((1, 3))
    ready, endpoint = Ready(dialect, service, credit), f"tcp://{broker}:localbe"
    slow = random.choice((0.05, 0.3, 2.0))
    sim.node(f"worker{number}", lambda host: SimWorker(host, endpoint, ledger, ready, slow))


def _add_client(sim: Simulation, ledger: Ledger, broker: str) -> None:
    endpoint = f"tcp://{broker}:localfe"
    sim.node(f"client-{broker}", lambda host: SimClient(host, endpoint, ledger, SERVICES))


class Watch:
    """While a broker runs undisturbed, nothing is open past its deadline and the grace."""

    def __init__(self) -> None:
        self._stalled: dict[str, float] = {}

    def __call__(self, sim: Simulation) -> None:
        for name in BROKERS:
            node = sim.nodes[name]
            if node.host.state != RUNNING:
                self._stalled[name] = sim.now
            elif sim.now - self._stalled.get(name, -9.0) > 1.0:
                for pending in open_requests(node.role):
                    assert sim.now <= pending.deadline + GRACE, f"{name} holds one too long"


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


def _nothing_left(sim: Simulation) -> None:
    for name in BROKERS:
        core = sim.nodes[name].role.core
        assert core.live == 0
        assert core.waiting_bytes == 0
        assert not core._hungry
        assert sum(service.places for service in core.services.values()) == 0
        assert not any(peer.held for peer in core.federation.peers.values())
        assert not any(worker.held for worker in core.roster)
        assert len(core.deadlines) == 0
        assert len(core.services) <= len(SERVICES)


def _plan(seed: int) -> FaultPlan:
    nodes = [*BROKERS, "worker0", "worker1", "client-a"]
    return FaultPlan.random(seed, nodes, FAULTS_END, kinds=KINDS, every=3.0, longest=4.0)


def test_every_request_ends_exactly_once_without_faults() -> None:
    assert explore(scenario, seeds(ci=10, nightly=100)) > 0


def test_every_request_ends_exactly_once_under_faults() -> None:
    assert explore(scenario, seeds(ci=200, nightly=2000), plan=_plan) > 0
