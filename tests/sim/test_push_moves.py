"""Durable sessions that follow their clients to other connectors, while connectors come and go."""

from __future__ import annotations

from random import Random

from homing.push.connector import Connector
from homing.testing import Crash, Disconnect, FaultPlan, Partition, explore, seeds
from tests.sim.push_fabric import Fabric, SimPublisher, SimSubscriber
from tests.sim.test_push import CALM, COUNT, EVERY, check_complete, check_once, check_order, plan

ALL = b'{"n":{"use":2,"low":0}}'


def wander(fabric: Fabric, until: float) -> tuple[SimPublisher, list[str]]:
    """Durable subscribers that know both connectors."""
    durable = [
        fabric.wanderer(
            n, [fabric.connectors[n % 2], fabric.connectors[(n + 1) % 2]], ALL, durable=True
        )
        for n in range(3)
    ]
    fabric.publisher("publisher", COUNT, EVERY)
    fabric.sim.run(until=until)
    return fabric.sim.nodes["publisher"].role, durable


def sessions(fabric: Fabric) -> dict[str, list[bytes]]:
    """Who is at which connector; sessions that only forward are not counted."""
    found: dict[str, list[bytes]] = {}
    for name in fabric.connectors:
        role: Connector = fabric.sim.nodes[name].role
        found[name] = sorted(client for client, one in role.durable.items() if one.move is None)
    return found


def test_a_session_goes_where_its_client_is() -> None:
    down = Crash(at=8.0, node="connector-0", down=6.0)
    fabric = Fabric(2, FaultPlan((down,)))
    publisher, durable = wander(fabric, 40.0)
    first, second, third = (n.to_bytes(12, "big") for n in range(3))
    assert sessions(fabric) == {"connector-0": [], "connector-1": [first, second, third]}
    roles = [fabric.sim.nodes[name].role for name in fabric.connectors]
    assert [role.moves.departures for role in roles] == [2, 0]
    for name in durable:
        subscriber: SimSubscriber = fabric.sim.nodes[name].role
        # What the dead connector held comes when it is back, behind what was published meanwhile.
        assert sorted(subscriber.got) == list(range(COUNT)) == publisher.accepted
    fabric.sim.run(until=120.0)
    assert roles[0].durable == {}, "the old connector has forgotten them"
    assert len(roles[0].moves) == 0
    fabric.sim.finish()


def any_faults(seed: int, faults: FaultPlan) -> None:
    fabric = Fabric(seed, faults)
    publisher, durable = wander(fabric, CALM + 90.0)
    check_complete(fabric, publisher, durable)
    check_once(fabric, durable)
    held = [client for clients in sessions(fabric).values() for client in clients]
    assert len(held) == len(set(held)) == 3, "a session is at one connector"
    fabric.sim.finish()


def cut_off(seed: int) -> FaultPlan:
    """Every few seconds a subscriber does not reach one of the connectors, which all live on."""
    random = Random(f"wander/{seed}")
    faults: list[Disconnect | Partition] = []
    for begin in (5.0, 12.0, 19.0, 26.0):
        at = begin + random.random()
        client, connector = f"subscriber-{random.randrange(3)}", f"connector-{random.randrange(2)}"
        cut = Partition(at=at, left=(client,), right=(connector,), lasts=random.uniform(3.0, 6.0))
        faults += (cut, Disconnect(at=at + 0.01, left=client, right=connector))
    return FaultPlan(tuple(faults))


def in_order(seed: int, faults: FaultPlan) -> None:
    fabric = Fabric(seed, faults, matchers=1)
    publisher, durable = wander(fabric, CALM + 90.0)
    check_complete(fabric, publisher, durable)
    check_once(fabric, durable)
    check_order(fabric, durable)
    fabric.sim.finish()


def test_nothing_is_lost_on_the_way() -> None:
    assert explore(any_faults, seeds(ci=60, nightly=1000), plan) > 0


def test_order_is_kept_when_the_client_moves() -> None:
    assert explore(in_order, seeds(ci=40, nightly=500), cut_off) > 0
