"""A subscription that is confirmed is in force at matchers that have just heard of its connector."""

from __future__ import annotations

from homing.push.confirming import MEET_SECONDS
from homing.push.dispatcher import Dispatcher
from homing.push.matcher import Matcher
from homing.testing import Disconnect, FaultPlan, Slow, explore, seeds
from homing.testing.disk import Disk
from tests.sim.push_fabric import Fabric, SimPublisher, SimSubscriber, node_id

ALL = b'{"n":{"use":2,"low":0}}'
HERE, THERE = node_id(2, 0), node_id(2, 1)
ENDS = {HERE: "dispatcher-0:7003", THERE: "dispatcher-1:7003"}
COUNT = 20


def publish_once_confirmed(fabric: Fabric, subscriber: str) -> None:
    """At the first matcher, from the very moment; every one that is accepted arrives."""
    sim = fabric.sim
    role: SimSubscriber = sim.nodes[subscriber].role
    while not role.confirmed:
        assert sim.now < 20.0, "never confirmed"
        sim.run(until=sim.now + 0.01)
    fabric.matchers = fabric.matchers[:1]
    fabric.publisher("publisher", COUNT, 0.05)
    publisher: SimPublisher = sim.nodes["publisher"].role
    publisher.wake("publish", sim.now)
    sim.run(until=sim.now + 30.0)
    assert publisher.accepted == list(range(COUNT)) == role.got
    sim.finish()


def late_news(seed: int, faults: FaultPlan) -> None:
    """The dispatcher knows the matcher; that one hears of the dispatcher later, and dials it then."""
    fabric = Fabric(seed, faults)
    sim = fabric.sim
    matcher: Matcher = sim.nodes["matcher-0"].role
    neighbours = {node_id(1, 1): "matcher-1:7002"}
    matcher.meet({HERE: ENDS[HERE]}, neighbours, {HERE}, 0.0)
    name = fabric.subscriber(0, 1, ALL, durable=True)
    heard = sim.random.uniform(0.05, 1.5)
    sim.run(until=heard)
    assert matcher.ready or heard < 0.5, "it answers for all it knows"
    matcher.meet(ENDS, neighbours, set(ENDS), sim.now)
    publish_once_confirmed(fabric, name)


def test_a_matcher_that_a_dispatcher_has_not_met_yet_is_waited_for() -> None:
    explore(late_news, seeds(ci=20, nightly=300), lambda seed: FaultPlan())


def broken_link(seed: int, faults: FaultPlan) -> None:
    """A link between the two breaks for a moment, and the subscription is made in that moment."""
    fabric = Fabric(seed, faults)
    fabric.sim.run(until=4.1)
    publish_once_confirmed(fabric, fabric.subscriber(0, 1, ALL, durable=True))


def break_link(seed: int) -> FaultPlan:
    """It breaks whenever it is back, for some tenths of a second."""
    times = [4.0 + n / 100 for n in range(20 + seed % 30)]
    return FaultPlan(
        tuple(Disconnect(at=at, left="matcher-0", right="dispatcher-1") for at in times)
    )


def test_a_matcher_whose_link_broke_is_waited_for_and_told() -> None:
    explore(broken_link, seeds(ci=20, nightly=300), break_link)


def test_a_matcher_that_does_not_come_is_not_waited_for_for_ever() -> None:
    fabric = Fabric(3, FaultPlan(), ghosts=[node_id(1, 9)])
    fabric.sim.run(until=6.0)
    dispatcher: Dispatcher = fabric.sim.nodes["dispatcher-1"].role
    assert dispatcher.met
    name = fabric.subscriber(0, 1, ALL, durable=True)
    fabric.sim.run(until=7.0)
    assert fabric.sim.nodes[name].role.confirmed


def all_anew(seed: int, faults: FaultPlan) -> None:
    """The dispatcher starts again beside a matcher that knows nothing: it says what it owns before it can know."""
    fabric = Fabric(seed, faults, matchers=1, dispatchers=1 + seed % 2, connectors=2)
    sim = fabric.sim
    name = fabric.subscriber(0, 0, ALL, durable=True)
    sim.run_until(lambda: sim.nodes[name].role.confirmed, 20.0)
    again = ["dispatcher-0", "matcher-0"]
    for node in again:
        sim.crash(node)
    sim.nodes["matcher-0"].disk = Disk()
    sim.run(until=10.0)
    sim.random.shuffle(again)
    for node in again:
        sim.run(until=sim.now + sim.random.uniform(0.0, 0.1))
        sim.restart(node)
    publish_once_confirmed(fabric, name)


def slow_links(seed: int) -> FaultPlan:
    """Those to the connectors, so that they are met last."""
    pairs = [(f"dispatcher-{n % (1 + seed % 2)}", f"connector-{n}") for n in range(2)]
    delay = seed % 20 / 40  # four of these and a pause before dialling are within MEET_SECONDS
    return FaultPlan(
        tuple(Slow(at=9.9, lasts=20.0, left=one, right=two, delay=delay) for one, two in pairs)
    )


def test_a_dispatcher_that_has_just_started_says_that_it_has_more_connectors_to_meet() -> None:
    explore(all_anew, seeds(ci=20, nightly=300), slow_links)


def test_a_connector_that_does_not_come_is_not_waited_for_for_ever() -> None:
    fabric = Fabric(4, FaultPlan(), matchers=1, dispatchers=1)
    fabric.sim.crash("connector-1")
    name = fabric.subscriber(0, 0, ALL, durable=True)
    fabric.sim.run(until=MEET_SECONDS + 0.5)
    matcher: Matcher = fabric.sim.nodes["matcher-0"].role
    assert matcher.ready
    publish_once_confirmed(fabric, name)
