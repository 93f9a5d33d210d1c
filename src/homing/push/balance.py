"""Publishers where there is least to do: a busy matcher tells some of them of one that is less so.

Any matcher takes any publication, so what one takes is decided by who publishes there. Publishers
choose at random when they come; from then on matchers tell each other how many publications a second
they take, and with every beat the busier one sends on as many publishers as make both alike. One that
comes to a busy matcher is told at once.

Nobody is sent on while a connector is late (homing.push.neighbours): what is still owed to it must
reach it before what its publishers publish elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from homing.ports import Link
from homing.wire import publish

if TYPE_CHECKING:
    from homing.push.intake import Publisher
    from homing.push.matcher import Matcher
    from homing.push.neighbours import Neighbour

BUSY: Final = 20.0
"""Publications a second below which nothing is gained: a thousandth of what a matcher takes."""
QUIET: Final = 1.0
"""The same of a publisher: with less it may stay where it is."""
MARGIN: Final = 0.8
"""Another matcher must have this share of our load or less, with who goes there: rates are known
for the past five seconds only, and nobody should be sent to and fro."""

Who = TypeVar("Who")


def is_better_off(load: float, theirs: float, rate: float) -> bool:
    """Whether a publisher with this rate should leave a matcher for another."""
    return load >= BUSY and theirs + rate <= MARGIN * load


def choose(load: float, rates: Mapping[Who, float], theirs: float, matchers: int) -> list[Who]:
    """Whom to send on from a matcher to one with the load `theirs`, of publishers by their rates.

    All others see the same one, so each fills its part of the gap.
    """
    active = [who for who in rates if rates[who] >= QUIET]
    falling = sorted(active, key=rates.__getitem__, reverse=True)
    if not falling or not is_better_off(load, theirs, rates[falling[-1]]):
        return []
    chosen = []
    left = (load - theirs) / matchers
    for who in falling:
        if rates[who] <= left:
            chosen.append(who)
            left -= rates[who]
    return chosen or falling[-1:]


class Balance:
    """What each publisher publishes here, and who has been told to go elsewhere."""

    def __init__(self, matcher: Matcher, publishers: Mapping[Link, Publisher]) -> None:
        self._matcher = matcher
        self._publishers = publishers
        self._at = 0.0
        self.load = 0.0  # publications a second
        self.sent_on = 0  # publishers ever, for the metrics

    def beat(self, now: float) -> None:
        """Measure what came from whom, and spread it."""
        elapsed, self._at = now - self._at, now
        if elapsed > 0:
            self._measure(elapsed)
            self._spread()

    def welcome(self, publisher: Publisher) -> bytes:
        """Our hello to one that has come; it may be better off elsewhere."""
        other = self._least_busy()
        rate = self.load / len(self._publishers)  # it will be like the others
        if other is None or not is_better_off(self.load, other.load, rate):
            return publish.Hello().encode()
        return self._send_on(publisher, other, rate)

    def keep(self) -> None:
        """A connector is late: whoever has not gone yet stays."""
        for link, publisher in self._publishers.items():
            if publisher.sent_on:
                publisher.sent_on = False
                link.send(publish.Hello().encode())

    def _measure(self, elapsed: float) -> None:
        """The mean of this beat and what was known before: bursts count, but not for long."""
        for publisher in self._publishers.values():
            fresh = publisher.published / elapsed
            publisher.rate = (publisher.rate + fresh) / 2 if publisher.rate else fresh
            publisher.published = 0
        self.load = sum([publisher.rate for publisher in self._publishers.values()])

    def _spread(self) -> None:
        other = self._least_busy()
        if other is None:
            return
        rates = {link: one.rate for link, one in self._publishers.items() if not one.sent_on}
        for link in choose(self.load, rates, other.load, len(self._matcher.ring)):
            self.load -= rates[link]
            link.send(self._send_on(self._publishers[link], other, rates[link]))

    def _least_busy(self) -> Neighbour | None:
        if self._matcher.owed.late:
            return None
        return self._matcher.neighbours.least_busy()

    def _send_on(self, publisher: Publisher, other: Neighbour, rate: float) -> bytes:
        """The hello that does it. Until we hear more we take it for done: others come after it."""
        publisher.sent_on = True
        self.sent_on += 1
        other.load += rate
        return publish.Hello(elsewhere=other.publishers).encode()
