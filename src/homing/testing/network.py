"""The simulated network: who can reach whom, how fast, and which links there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING, Any

from homing.testing.conditions import Line, transit
from homing.testing.faults import Slow
from homing.testing.host import DEAD, Dial, SimHost, identity_of
from homing.testing.link import SimLink

if TYPE_CHECKING:
    from homing.testing.simulation import Node, Simulation


_Attempt = tuple[Dial, int]


class Network:
    """Dials, cuts, slows and resets; all by the simulation's seed."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self._listeners: dict[str, tuple[Node, str]] = {}  # endpoint -> node and plug
        self._cuts: Counter[tuple[str, str]] = Counter()  # from, to -> partitions that cut it
        self._slow: list[Slow] = []
        self._made = 0

    def listen(self, endpoint: str, node: Node, plug: str) -> None:
        """An endpoint that can be dialled while its node is up."""
        if endpoint in self._listeners:
            raise ValueError(f"{endpoint} is taken by {self._listeners[endpoint][0].name}")
        self._listeners[endpoint] = (node, plug)

    def dial(self, dial: Dial) -> None:
        """One attempt: refused at once by a dead node, no answer through a cut."""
        host = dial.host
        found = self._listeners.get(dial.endpoint)
        if found is None or found[0].host.state == DEAD:
            self._refused(dial, None)
            return
        node, plug = found
        attempt = (dial, dial.attempt)
        self._sim.push(
            self._sim.now + self._sim.conditions.dial_timeout, host, self._no_answer, attempt
        )
        if not self._apart(host, node):
            # Three messages of a handshake before the listening side knows its peer.
            delay = 3 * transit(self.line(host.name, node.name), host.random)
            self._sim.push(self._sim.now + delay, node.host, self._accept, attempt, plug)

    def _no_answer(self, attempt: _Attempt, _: Any) -> None:
        dial, number = attempt
        host = dial.host
        if dial.wanted and dial.link is None and dial.attempt == number:
            host.trace("no answer", f"{dial.plug} {dial.endpoint}")
            host.redial(dial)

    def _accept(self, attempt: _Attempt, plug: str) -> None:
        dial, number = attempt
        host = dial.host
        node = self._listeners[dial.endpoint][0]
        stale = not dial.wanted or dial.link is not None or dial.attempt != number
        if stale or host.state == DEAD or self._apart(host, node):
            return
        if not self._named(dial, node.host, plug):
            self._sim.push(self._sim.now, host, self._refused, dial)
            return
        near, far = self._pair(dial, node.host, plug)
        line = self.line(node.name, host.name)
        opens = self._sim.now + transit(line, host.random)
        far.established(line, opens)
        self._sim.push(opens, host, self._established, near)
        node.host.accept(far)

    def _named(self, dial: Dial, to: SimHost, plug: str) -> bool:
        """What a ROUTER does with a name it has: turns the newcomer away, or the older one."""
        rule, name = to.node.same_name.get(plug), dial.host.node.identities.get(dial.plug)
        if rule is None or name is None:
            return True
        for link in [link for link in to.links if link.plug == plug and link.peer == name]:
            if rule == "refuse":
                return False
            link.drop("replaced by a newer connection with its name")
        return True

    def _refused(self, dial: Dial, _: Any) -> None:
        """An attempt that got an answer: no."""
        host = dial.host
        host.trace("refused", f"{dial.plug} {dial.endpoint}")
        host.redial(dial)

    def _apart(self, host: SimHost, node: Node) -> bool:
        return (host.name, node.name) in self._cuts or (node.name, host.name) in self._cuts

    def _pair(self, dial: Dial, to: SimHost, plug: str) -> tuple[SimLink, SimLink]:
        host = dial.host
        self._made += 1
        number = self._made
        random = Random(f"{self._sim.seed}/link/{number}")
        there = identity_of(to.node.identities, plug, 2 * number)
        here = identity_of(host.node.identities, dial.plug, 2 * number + 1)
        near = SimLink(host, dial.plug, there, "", f"{dial.plug}>{to.name}#{number}", random)
        user = host.node.users.get(dial.plug, "")
        far = SimLink(to, plug, here, user, f"{plug}<{host.name}#{number}", random)
        near.other, far.other = far, near
        near.dial = dial
        dial.link = near
        host.links[near] = None
        to.links[far] = None
        return near, far

    def _established(self, near: SimLink, _: Any) -> None:
        dial = near.dial
        if near.over or dial is None:
            return
        dial.backoff = self._sim.conditions.backoff[0]
        near.established(self.line(near.host.name, near.other.host.name), self._sim.now)
        near.host.accept(near)

    def line(self, left: str, right: str) -> Line:
        """The way from `left` to `right` as it is now."""
        line = self._sim.conditions.line
        for slow in self._slow:
            if {slow.left, slow.right} == {left, right}:
                limits = [rate for rate in (line.bandwidth, slow.bandwidth) if rate is not None]
                line = Line(line.delay + slow.delay, line.jitter, min(limits, default=None))
        return line

    # What faults do

    def cut(self, left: str, right: str) -> None:
        """Nothing gets from `left` to `right`; links over it are given up when patience ends."""
        self._cuts[left, right] += 1
        now = self._sim.now
        for link in self._between(left, right):
            if not link.cut:
                link.sever(now)
                self._sim.push(now + self._patience(link), None, self._give_up, link, now)

    def heal(self, left: str, right: str) -> None:
        """One partition less; what waited arrives when it was the last."""
        self._cuts[left, right] -= 1
        if self._cuts[left, right] <= 0:
            del self._cuts[left, right]
            for link in self._between(left, right):
                link.release()

    def slow(self, fault: Slow) -> None:
        """A line gets slower."""
        self._slow.append(fault)
        self._reroute(fault)

    def quicken(self, fault: Slow) -> None:
        """And back."""
        self._slow.remove(fault)
        self._reroute(fault)

    def reset(self, link: SimLink, reason: str) -> None:
        """Both ends find the connection gone, each in its own time."""
        for end in (link, link.other):
            line = self.line(end.other.host.name, end.host.name)
            self._find_out(end, reason, transit(line, self._sim.random))

    def disconnect(self, left: str, right: str) -> None:
        """Reset every connection between two nodes."""
        for link in self._between(left, right):
            self.reset(link, "connection reset")

    def duplicate(self, left: str, right: str) -> None:
        """Whoever dialled loses the link and dials anew; the other notices much later."""
        for link in self._between(right, left) + self._between(left, right):
            if link.dial is not None:
                self._find_out(link, "lost", 0.0)
                self._find_out(link.other, "silent", self._patience(link))

    def orphan(self, host: SimHost, silent: bool) -> None:
        """The peers of a host that died find out: soon, or only by its silence."""
        for link in list(host.links):
            link.vanish()
            line = self._sim.conditions.line
            wait = self._patience(link) if silent else transit(line, self._sim.random)
            self._find_out(link.other, "silent" if silent else "connection reset", wait)

    def returned(self, name: str) -> None:
        """A machine is back: peers of its former life are told when they next send something."""
        for node in self._sim.nodes.values():
            for link in self._between(name, node.name):
                if link.other.over:
                    wait = self._sim.random.random() * self._sim.conditions.patience / 5
                    self._find_out(link, "connection reset", wait)

    def _find_out(self, end: SimLink, reason: str, after: float) -> None:
        self._sim.push(self._sim.now + after, end.host, _drop, end, reason)

    def _give_up(self, link: SimLink, cut_at: float) -> None:
        if link.cut and link.cut_at == cut_at:
            self.reset(link, "silent")

    def _patience(self, link: SimLink) -> float:
        return self._sim.conditions.patience * (1 + link.host.random.random() / 3)

    def _between(self, sender: str, receiver: str) -> list[SimLink]:
        """The receiving ends at `receiver` of connections with `sender`."""
        return list(self._ends(sender, receiver))

    def _ends(self, sender: str, receiver: str) -> Iterator[SimLink]:
        for link in self._sim.nodes[receiver].host.links:
            if link.other.host.name == sender:
                yield link

    def _reroute(self, fault: Slow) -> None:
        for left, right in ((fault.left, fault.right), (fault.right, fault.left)):
            for link in self._between(left, right):
                link.reroute(self.line(right, left))


def _drop(end: SimLink, reason: str) -> None:
    end.drop(reason)
