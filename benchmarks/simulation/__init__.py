"""Simulation: events a second on one core

Three loads on homing.testing: messages alone, messages with a journal, and messages under a
dense fault plan. The roles do next to nothing, so what is measured is the simulator.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

from benchmarks.harness import Report
from homing.ports import Link
from homing.testing import FaultPlan, SimHost, Simulation

SERVER = "tcp://server:1"
CLIENTS = 20
IN_FLIGHT = 10


class Echo:
    """Sends back what it gets; with a journal, writes each down first."""

    def __init__(self, host: SimHost, journal: bool = False) -> None:
        self._host = host
        self._journal = journal

    def opened(self, link: Link, now: float) -> None: ...

    def receive(self, link: Link, message: bytes, now: float) -> None:
        if self._journal:
            self._host.journal(message)
        link.send(message)

    def closed(self, link: Link, now: float) -> None: ...

    def wake(self, key: Hashable, now: float) -> None: ...

    def journaled(self, number: int, now: float) -> None: ...


class Pinger(Echo):
    """Keeps ten messages going round."""

    def __init__(self, host: SimHost) -> None:
        super().__init__(host)
        host.connect("server", SERVER)

    def opened(self, link: Link, now: float) -> None:
        for number in range(IN_FLIGHT):
            link.send(b"message %d of 64 bytes %40d" % (number, number))


def build(seed: int, faults: FaultPlan, journal: bool) -> Simulation:
    """One echo server, twenty pingers."""
    sim = Simulation(seed, faults)
    sim.node("server", lambda host: Echo(host, journal), listen={"clients": SERVER})
    for number in range(CLIENTS):
        sim.node(f"client-{number}", Pinger)
    return sim


def messages(until: float) -> Simulation:
    """Nothing but messages."""
    return build(1, FaultPlan(), journal=False)


def journaled(until: float) -> Simulation:
    """Each message written down on the simulated disk."""
    return build(2, FaultPlan(), journal=True)


def faulty(until: float) -> Simulation:
    """Something goes wrong every 20 virtual milliseconds."""
    names = ["server", *(f"client-{number}" for number in range(CLIENTS))]
    plan = FaultPlan.random(3, names, until=until, every=0.02, longest=0.2)
    return build(3, plan, journal=False)


LOADS: tuple[Callable[[float], Simulation], ...] = (messages, journaled, faulty)


def run(report: Report) -> None:
    """Events a second of CPU for each load; the goal is the slowest one's."""
    until = 1.0 if report.quick else 10.0
    rows = []
    for load in LOADS:
        report.say(f"simulating: {load.__name__}")
        rows.append((load.__doc__ or "", report.median(lambda load=load: rate(load, until))))  # type: ignore[misc]
    report.table("Events a second", ["load", "events/s"], rows)
    report.goal("events/s, slowest load", min(rate for _, rate in rows), 100_000, at_least=True)


def rate(load: Callable[[float], Simulation], until: float) -> float:
    """Events per second of this process's CPU time."""
    sim = load(until)
    began = time.process_time()
    sim.run(until)
    return sim.events / (time.process_time() - began)
