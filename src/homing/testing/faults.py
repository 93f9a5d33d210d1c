"""Fault plans: what goes wrong, where and when, as data.

A plan is a value: write it by hand, generate it from a seed, keep it as JSON beside a bug
report, drop parts of it while the bug still shows.

    plan = FaultPlan((Crash(at=3.0, node="broker-a", down=1.5), Partition(at=9.0, lasts=4.0,
                      left=("broker-a",), right=("broker-b", "broker-c"))))
    plan = FaultPlan.random(seed=7, nodes=["broker-a", "broker-b"], until=60.0)
    assert FaultPlan.from_json(plan.to_json()) == plan

Times are virtual seconds from the start of the simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Literal

import msgspec


class Fault(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="fault", forbid_unknown_fields=True
):
    """Anything that goes wrong; begins `at`."""

    at: float

    def nodes(self) -> tuple[str, ...]:
        """The nodes it speaks of."""
        return ()


class _OnNode(Fault, frozen=True, kw_only=True):
    node: str

    def nodes(self) -> tuple[str, ...]:
        return (self.node,)


class _OnPair(Fault, frozen=True, kw_only=True):
    left: str
    right: str

    def nodes(self) -> tuple[str, ...]:
        return (self.left, self.right)


Moment = Literal["", "opened", "receive", "closed", "wake", "journal", "journaled"]


class Crash(_OnNode, frozen=True, kw_only=True, tag="crash"):
    """The process dies, unsynced bytes are lost or torn; it starts again after `down` seconds.

    `down=None`: never. `silent`: the machine died with it, so that peers are not told and
    notice only by silence, or when it is back. `after`: not at once but right after the node's next step of that
    kind, which hits the moments that matter (an event written and not yet safe, a message
    taken and not yet answered) far more often than a time does.
    """

    down: float | None = 1.0
    silent: bool = False
    after: Moment = ""


class Pause(_OnNode, frozen=True, kw_only=True, tag="pause"):
    """The process stalls (swap, a long GC, SIGSTOP); afterwards everything comes at once."""

    lasts: float


class Skew(_OnNode, frozen=True, kw_only=True, tag="skew"):
    """The node's wall clock jumps by `seconds`, either way."""

    seconds: float


class FullDisk(_OnNode, frozen=True, kw_only=True, tag="full-disk"):
    """Nothing more can be written."""

    lasts: float


class SlowDisk(_OnNode, frozen=True, kw_only=True, tag="slow-disk"):
    """Every sync takes `delay` seconds longer."""

    lasts: float
    delay: float


class Disconnect(_OnPair, frozen=True, kw_only=True, tag="disconnect"):
    """Every link between the two is reset; of what was under way a prefix arrives."""


class Duplicate(_OnPair, frozen=True, kw_only=True, tag="duplicate"):
    """The side that dialled loses the link and dials anew; the other, unaware, holds both."""


class Slow(_OnPair, frozen=True, kw_only=True, tag="slow"):
    """Links between the two get `delay` more seconds each way and carry `bandwidth` bytes/s."""

    lasts: float
    delay: float = 0.0
    bandwidth: float | None = None


class Partition(Fault, frozen=True, kw_only=True, tag="partition"):
    """Nothing gets from `left` to `right`, nor back unless `one_way`; lost if it lasts too long.

    Links survive a short one, as TCP does: what was sent waits and arrives after the heal.
    """

    lasts: float
    left: tuple[str, ...]
    right: tuple[str, ...]
    one_way: bool = False

    def nodes(self) -> tuple[str, ...]:
        return (*self.left, *self.right)


AnyFault = Crash | Pause | Skew | FullDisk | SlowDisk | Disconnect | Duplicate | Slow | Partition


class FaultPlan(msgspec.Struct, frozen=True):
    """Faults in any order; a value."""

    faults: tuple[AnyFault, ...] = ()

    def to_json(self) -> str:
        """One line of JSON."""
        return msgspec.json.encode(self.faults).decode()

    @staticmethod
    def from_json(text: str | bytes) -> FaultPlan:
        """The plan back; ValueError says what is wrong and where."""
        return FaultPlan(msgspec.json.decode(text, type=tuple[AnyFault, ...]))

    def without(self, index: int) -> FaultPlan:
        """The same plan but for one fault."""
        return FaultPlan(self.faults[:index] + self.faults[index + 1 :])

    @staticmethod
    def random(
        seed: int,
        nodes: Sequence[str],
        until: float,
        *,
        kinds: Sequence[type[Fault]] = (),
        every: float = 4.0,
        longest: float = 8.0,
    ) -> FaultPlan:
        """A plan in which something goes wrong about `every` seconds, and all is well by `until`.

        `kinds` picks fault classes (default: all), `longest` bounds how long one lasts.
        """
        random = Random(f"faults/{seed}")
        makers = [_MAKERS[kind] for kind in (kinds or tuple(_MAKERS))]
        faults: list[AnyFault] = []
        at = random.uniform(0.0, 2 * every)
        while at < until:
            lasts = min(longest * random.random() ** 2, until - at)
            faults.append(random.choice(makers)(random, nodes, round(at, 3), round(lasts, 3)))
            at += random.uniform(0.0, 2 * every)
        return FaultPlan(tuple(faults))


# Where a crash hurts: between taking something on and having it safe or told.
_MOMENTS: tuple[Moment, ...] = ("receive", "journal", "journal", "journaled", "opened")
_Maker = Callable[[Random, Sequence[str], float, float], AnyFault]


def _crash(random: Random, nodes: Sequence[str], at: float, lasts: float) -> Crash:
    after = random.choice(_MOMENTS) if random.random() < 0.4 else ""
    silent = random.random() < 0.25
    return Crash(at=at, node=random.choice(nodes), down=lasts, silent=silent, after=after)


def _pause(random: Random, nodes: Sequence[str], at: float, lasts: float) -> Pause:
    return Pause(at=at, node=random.choice(nodes), lasts=lasts)


def _skew(random: Random, nodes: Sequence[str], at: float, _lasts: float) -> Skew:
    seconds = random.choice((1, -1)) * 10 ** random.uniform(-2, 4)
    return Skew(at=at, node=random.choice(nodes), seconds=round(seconds, 3))


def _full_disk(random: Random, nodes: Sequence[str], at: float, lasts: float) -> FullDisk:
    return FullDisk(at=at, node=random.choice(nodes), lasts=lasts)


def _slow_disk(random: Random, nodes: Sequence[str], at: float, lasts: float) -> SlowDisk:
    delay = round(random.uniform(0.01, 1.0), 3)
    return SlowDisk(at=at, node=random.choice(nodes), lasts=lasts, delay=delay)


def _disconnect(random: Random, nodes: Sequence[str], at: float, _lasts: float) -> Disconnect:
    left, right = _pair(random, nodes)
    return Disconnect(at=at, left=left, right=right)


def _duplicate(random: Random, nodes: Sequence[str], at: float, _lasts: float) -> Duplicate:
    left, right = _pair(random, nodes)
    return Duplicate(at=at, left=left, right=right)


def _slow(random: Random, nodes: Sequence[str], at: float, lasts: float) -> Slow:
    left, right = _pair(random, nodes)
    bandwidth = 10 ** random.uniform(2, 6) if random.random() < 0.5 else None
    delay = round(random.uniform(0.01, 0.5), 3)
    return Slow(at=at, left=left, right=right, lasts=lasts, delay=delay, bandwidth=bandwidth)


def _partition(random: Random, nodes: Sequence[str], at: float, lasts: float) -> Partition:
    shuffled = list(nodes)
    random.shuffle(shuffled)
    cut = random.randrange(1, len(shuffled)) if len(shuffled) > 1 else 1
    left, right = sorted(shuffled[:cut]), sorted(shuffled[cut:])
    one_way = random.random() < 0.3
    return Partition(at=at, lasts=lasts, left=tuple(left), right=tuple(right), one_way=one_way)


def _pair(random: Random, nodes: Sequence[str]) -> tuple[str, str]:
    left = random.choice(nodes)
    return left, random.choice([name for name in nodes if name != left] or [left])


_MAKERS: dict[type[Fault], _Maker] = {
    Crash: _crash,
    Pause: _pause,
    Skew: _skew,
    FullDisk: _full_disk,
    SlowDisk: _slow_disk,
    Disconnect: _disconnect,
    Duplicate: _duplicate,
    Slow: _slow,
    Partition: _partition,
}
