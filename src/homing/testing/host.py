"""One life of a simulated node: the Port its role sees, from start to crash.

A restart is a new SimHost on the same Disk. Whatever was scheduled for a host that died is
dropped; whatever comes for one that is paused waits in `stalled`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from random import Random
from typing import TYPE_CHECKING, Any

from homing.ids import IdMaker
from homing.ports import Link, Role
from homing.testing.clock import EPOCH
from homing.testing.disk import Disk
from homing.testing.journal import SimJournal
from homing.testing.link import SimLink

if TYPE_CHECKING:
    from homing.testing.simulation import Node, Simulation

RUNNING, PAUSED, DEAD = 0, 1, 2


class Dial:
    """A connection that a role asked to be kept."""

    __slots__ = ("attempt", "backoff", "endpoint", "host", "link", "plug", "wanted")

    def __init__(self, host: SimHost, plug: str, endpoint: str, backoff: float) -> None:
        self.host = host
        self.plug = plug
        self.endpoint = endpoint
        self.backoff = backoff
        self.wanted = True
        self.attempt = 0  # tells a late answer to an old attempt from one to this
        self.link: SimLink | None = None


class SimClock:
    """A homing.clock.Clock on virtual time; the wall clock is off by the node's skew."""

    __slots__ = ("_node", "_sim")

    def __init__(self, sim: Simulation, node: Node) -> None:
        self._sim = sim
        self._node = node

    def monotonic(self) -> float:
        """Virtual seconds since the simulation began."""
        return self._sim.now

    def wall(self) -> float:
        """What this node takes for the unix time."""
        return EPOCH + self._sim.now + self._node.skew


class SimHost:
    """A homing.ports.Port, and the rest of what a role factory may need: see the attributes."""

    def __init__(self, sim: Simulation, node: Node, life: int) -> None:
        self.sim = sim
        self.node = node
        self.name = node.name
        self.life = life  # 1 at first, one more after each crash
        self.state = RUNNING
        self.stalled: list[tuple[Any, Any, Any]] = []
        self.links: dict[SimLink, None] = {}
        self.disk: Disk = node.disk
        self.random = Random(f"{sim.seed}/{node.name}/{life}")
        self.clock = SimClock(sim, node)
        self.ids = IdMaker(self.clock.wall, self.random.randbytes(8))
        self.role: Role = _Unborn()
        self._journal = SimJournal(self)
        self._dials: dict[tuple[str, str], Dial] = {}
        self._timers: dict[Hashable, float] = {}
        self._armed: dict[Hashable, float] = {}  # key -> the earliest wake-up under way for it

    @property
    def now(self) -> float:
        """The moment it is."""
        return self.sim.now

    @property
    def recovered(self) -> list[object]:
        """The journal's events that survived earlier lives, in order."""
        return self._journal.recovered

    # What a role asks for (homing.ports.Port)

    def connect(self, plug: str, endpoint: str) -> None:
        """Dial until the endpoint answers, and again whenever the link is lost."""
        if (plug, endpoint) in self._dials:
            return
        dial = Dial(self, plug, endpoint, self.sim.conditions.backoff[0])
        self._dials[plug, endpoint] = dial
        self.sim.push(self.now, self, self._dial, dial)

    def disconnect(self, plug: str, endpoint: str) -> None:
        """Stop dialling; close the link if there is one."""
        dial = self._dials.pop((plug, endpoint), None)
        if dial is not None:
            dial.wanted = False
            if dial.link is not None:
                dial.link.give_up()

    def later(self, deadline: float, key: Hashable) -> None:
        """Wake the role at or soon after `deadline`."""
        self._timers[key] = deadline
        armed = self._armed.get(key)
        if armed is None or deadline < armed:
            self._arm(deadline, key)

    def cancel(self, key: Hashable) -> None:
        """Forget a `later`."""
        self._timers.pop(key, None)

    def journal(self, event: object) -> int:
        """Append to the journal on the simulated disk; `journaled` follows after a sync."""
        return self._journal.append(event)

    # Timers

    def _arm(self, deadline: float, key: Hashable) -> None:
        """A moved timer costs nothing: its old wake-up finds it early and arms again."""
        self._armed[key] = deadline
        late = self.random.random() * self.sim.conditions.lateness
        self.sim.push(max(deadline, self.now) + late, self, self._wake, key, deadline)

    def _wake(self, key: Hashable, armed: float) -> None:
        if self._armed.get(key) != armed:
            return  # an earlier wake-up was armed since, and has this timer
        del self._armed[key]
        deadline = self._timers.get(key)
        if deadline is None:
            return
        if deadline > self.now:
            self._arm(deadline, key)
            return
        del self._timers[key]
        self.trace("wake", str(key))
        self.role.wake(key, self.now)

    # Dialling and links

    def _dial(self, dial: Dial, _: Any) -> None:
        if dial.wanted and dial.link is None:
            dial.attempt += 1
            self.sim.network.dial(dial)

    def redial(self, dial: Dial) -> None:
        """Try again after a back-off that doubles."""
        pause = dial.backoff * (0.5 + self.random.random())
        dial.backoff = min(dial.backoff * 2, self.sim.conditions.backoff[1])
        self.sim.push(self.now + pause, self, self._dial, dial)

    def accept(self, link: SimLink) -> None:
        """A connection is there for the role to use."""
        self.trace("opened", link.title)
        self.role.opened(link, self.now)

    def forget(self, link: SimLink) -> None:
        """A link of this node is closed; what was dialled is dialled again."""
        self.links.pop(link, None)
        dial = link.dial
        if dial is not None:
            dial.link = None
            if dial.wanted:
                self.redial(dial)

    def gone(self, link: SimLink, reason: str) -> None:
        """A link of this node was lost; the role is told."""
        self.trace("closed", link.title, reason.encode())
        self.forget(link)
        self.role.closed(link, self.now)

    def lose(self, link: SimLink, reason: str) -> None:
        """Break a connection: both ends find out, each in its own time."""
        self.sim.network.reset(link, reason)

    # The life itself

    def die(self) -> None:
        """The process is no more: nothing scheduled for it happens."""
        self.state = DEAD
        self.stalled.clear()

    def stall(self) -> None:
        """Stop answering; what comes waits."""
        if self.state == RUNNING:
            self.state = PAUSED

    def resume(self) -> None:
        """Work off all that came meanwhile, in order."""
        if self.state != PAUSED:
            return
        self.state = RUNNING
        stalled, self.stalled = self.stalled, []
        for action, first, second in stalled:
            action(first, second)

    def catch_up(self, held: list[tuple[Any, Any]]) -> None:
        """What waited behind a cut arrives, in its order.

        That holds in a pause too: what came over the link since the pause began came later.
        """
        if self.state == PAUSED:
            self.stalled[:0] = [(action, argument, None) for action, argument in held]
            return
        for action, argument in held:
            self.sim.dispatch(self, action, argument)

    def trace(self, verb: str, about: str, data: bytes = b"") -> None:
        """One line of the simulation's trace, and what waits for such a step."""
        self.sim.trace.note(self.sim.now, self.name, verb, about, data)
        if self.node.traps:
            self.sim.spring(self.node, verb)


def identity_of(names: Mapping[str, bytes], plug: str, number: int) -> bytes:
    """The routing id that a plug tells its peers; made up, with a leading zero, if it has none."""
    return names.get(plug) or b"\0" + number.to_bytes(4, "big")


class _Unborn:
    """Stands in while the factory runs: nothing can come yet, so nothing is lost."""

    def opened(self, link: Link, now: float) -> None: ...
    def receive(self, link: Link, message: bytes, now: float) -> None: ...
    def closed(self, link: Link, now: float) -> None: ...
    def wake(self, key: Hashable, now: float) -> None: ...
    def journaled(self, number: int, now: float) -> None: ...
