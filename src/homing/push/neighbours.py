"""A matcher among the others: the ring, who holds which tiles, and the plan they all follow.

Matchers tell each other in status messages: that they are there, which tiles they can answer
for, the newest plan they know. A link that opens or closes changes the ring at once, so who is
asked follows within a round trip. Shares move slowly: only when the ring has been at rest for
STEADY seconds does anybody stand in for a matcher that is gone, so a restart moves nothing.

They also tell which connectors are late, and for whom they wait there (homing.push.precedence), how busy they are
and where publishers find them (homing.push.balance).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from homing.errors import Malformed, SubscriptionError
from homing.ports import Link
from homing.push.hearing import PATIENCE, Hearing
from homing.push.links import Peer
from homing.push.placement import EVERYWHERE, Plan, Tile, dump_plan, load_plan
from homing.push.places import node_ids
from homing.push.precedence import Precedence
from homing.push.ring import Ring, vnode_hashes
from homing.push.subscription import parse_attributes
from homing.wire import inquiry, relay, status
from homing.wire.packet import ACK, NAK, PUSH, STATUS, Message

if TYPE_CHECKING:
    from homing.push.matcher import Matcher

STEADY: Final = 3.0
"""Seconds the ring must be at rest before shares move: longer than a restart takes."""
SWEEP_PAUSE: Final = 0.01
"""Between two goes at dropping what was given up."""
MAX_CONFIRMING: Final = 4096
"""Confirmations that wait for the disk: a later one stands for those before it."""
PLACE: Final = "place"
SWEEP: Final = "sweep"


class Neighbour:
    """Another matcher: the links to it, what it says it holds, what it was asked."""

    __slots__ = ("asked", "holds", "late", "links", "load", "publishers")

    def __init__(self) -> None:
        self.links: list[Link] = []
        self.holds: set[tuple[bytes, Tile]] = set()
        self.late: set[bytes] = set()  # connectors
        self.asked = 0  # questions under way: the least asked is asked next
        self.load = 0.0  # publications a second that it takes
        self.publishers = ""  # where it takes them; empty: not told


class Neighbours:
    """Other matchers by name, the ring, and our own part in the plan."""

    def __init__(self, matcher: Matcher, address: str) -> None:
        """`address`: our own, as others are told it."""
        self._matcher = matcher
        self._me = matcher.node.hex()
        self._address = address.encode()
        self._others: dict[str, Neighbour] = {}
        self._told: dict[tuple[bytes, Tile], set[str]] = {}
        self.awaited: set[str] = set()  # matchers an earlier life knew, not heard of yet
        self._patience = math.inf  # until then
        self.ring = Ring([self._me])
        self.precedence = Precedence(self._me)
        self.hearing = Hearing()
        # Confirmations, each behind what the journal has in hand.
        self._confirming: deque[tuple[int, Link, bytes]] = deque(maxlen=MAX_CONFIRMING)
        self._begun = False
        self.publishers = ""  # where publishers reach us, once that is known
        self.answers = 0  # questions ever answered, for the metrics

    # Links

    def joined(self, link: Link, peer: Peer, now: float) -> None:
        """A matcher is there: tell it all."""
        name = peer.node.hex()
        neighbour = self._others.setdefault(name, Neighbour())
        if link not in neighbour.links:
            neighbour.links.append(link)
        self.hearing.joined(name, now)
        link.send(self._status(plan=True))

    def left(self, link: Link, peer: Peer, now: float) -> None:
        """A link is gone; with its last link the matcher is."""
        name = peer.node.hex()
        neighbour = self._others.get(name)
        if neighbour is None or link not in neighbour.links:
            return
        neighbour.links.remove(link)
        if not neighbour.links:
            del self._others[name]
            self.hearing.left(name, now)
            self.precedence.lost(name, neighbour.late, now)
            for connector in neighbour.late:
                self._matcher.stall(connector, now)
            self._hear(name, set(), neighbour.holds)
            if self.ring.forget(name.encode()):
                self._ring_changed(now)
        # What was asked over this link is not answered any more, whatever others there are.
        self._matcher.surveys.lost(name, now)

    def taken(self, link: Link, message: Message, now: float) -> bool:
        """Whether a message is of those that only matchers have for each other."""
        if message.command == STATUS:
            self._heard(link, status.decode(message), now)
        elif message.command == PUSH:
            self._question(link, inquiry.decode_question(message))
        elif message.command == ACK and (number := status.confirmed(message)) is not None:
            self.hearing.confirmed(self._matcher.peers[link].node.hex(), number)
            self._matcher.intake.heard(now)
        elif message.command == ACK:
            self._matcher.surveys.answered(inquiry.decode_answer(message), now)
        elif message.command == NAK and relay.MESSAGE_ID in message.items:
            self._matcher.surveys.refused(relay.id_of(message.items), now)
        else:
            return False
        return True

    def _question(self, link: Link, question: inquiry.Question) -> None:
        share = self._matcher.table.share(question.plan)
        if share is None or not share.held.issuperset(question.tiles):
            link.send(relay.Nak(question.question_id, "no-service that is not held here").encode())
            return
        try:
            attributes = parse_attributes(question.attributes)
        except SubscriptionError as error:
            raise Malformed(str(error)) from error
        count, places = share.match(question.tiles, attributes)
        self.answers += 1
        for part in inquiry.answers(question.question_id, count, places):
            link.send(part.encode())

    # Who holds what

    def choose(self, plan: bytes, tile: Tile, avoided: set[str]) -> str | None:
        """The least asked of those that hold a tile."""
        names = self._told.get((plan, tile), set()) - avoided
        others = self._others
        return min(names, key=lambda name: (others[name].asked, name)) if names else None

    def least_busy(self) -> Neighbour | None:
        """The matcher that takes the fewest publications, of those that can take more."""
        able = [one for one in self._others.values() if one.publishers and one.holds]
        return min(able, key=lambda one: one.load, default=None)

    def send(self, name: str, message: bytes) -> None:
        """Ask a matcher something."""
        neighbour = self._others[name]
        neighbour.asked += 1
        neighbour.links[-1].send(message)

    def answered(self, name: str) -> None:
        """A question to it is over."""
        if name in self._others:
            self._others[name].asked -= 1

    def doubt(self, name: str, plan: bytes, tiles: list[Tile]) -> None:
        """It does not hold these, whatever it said before; it may say so again."""
        neighbour = self._others.get(name)
        if neighbour is not None:
            self._hear(name, neighbour.holds - {(plan, tile) for tile in tiles}, neighbour.holds)

    def _heard(self, link: Link, told: status.Status, now: float) -> None:
        name = self._matcher.peers[link].node.hex()
        if told.hostname != name.encode():
            raise Malformed("a matcher tells of itself only")
        moved = self.ring.learn(told)
        neighbour = self._others[name]
        late = node_ids(told.late)
        neighbour.late = set(late)
        news = bool(told.eras) and self._matcher.owed.eras.heard(told.eras[0])
        number = self._matcher.tell_standing(now) if news else 0
        self._confirm(link, name, told.number, number)
        awaited = name in self.awaited
        self.awaited.discard(name)
        fresh = self._let_go(name, neighbour.late) if awaited else ()
        neighbour.load = told.load
        neighbour.publishers = told.rpc_address.decode("utf-8", "replace")
        self.precedence.heard(
            name, neighbour.late, told.waits, dict(zip(late, told.eras[1:], strict=False))
        )
        for connector in fresh:
            self._matcher.stall(connector, now)
        holds = {(plan, tile) for plan, tiles in told.holdings.items() for tile in tiles}
        self._hear(name, holds, neighbour.holds)
        if told.plan:
            self.follow(load_plan(told.plan), now)
        elif told.holdings and max(told.holdings) < self._matcher.table.newest.name:
            link.send(self._status(plan=True))
        self._matcher.know(node_ids(told.connectors), now)
        if moved:
            self._ring_changed(now)
        self.review(now)
        self._matcher.surveys.look(now)

    def _confirm(self, link: Link, name: str, heard: int, number: int) -> None:
        """Say that we have heard a status, once a later life would know of it too."""
        if not heard:
            self.hearing.excuse(name)
        elif number or self._confirming:
            self._confirming.append((number, link, status.confirm(heard)))
        else:
            link.send(status.confirm(heard))

    def journaled(self, number: int) -> None:
        """What we were told is durable up to there."""
        waiting = self._confirming
        while waiting and waiting[0][0] <= number:
            _, link, confirmation = waiting.popleft()
            link.send(confirmation)

    def _hear(
        self, name: str, holds: set[tuple[bytes, Tile]], before: set[tuple[bytes, Tile]]
    ) -> None:
        for key in before - holds:
            names = self._told.get(key, set())
            names.discard(name)
            if not names:
                self._told.pop(key, None)
        for key in holds - before:
            self._told.setdefault(key, set()).add(name)
        if name in self._others:
            self._others[name].holds = holds

    def come_to(self, now: float) -> None:
        """A publisher has come: what another matcher owes may be its, and older than what it brings."""
        eras = self._matcher.owed.eras
        before = eras.current.number
        eras.begin()
        if eras.current.number > before:
            self._matcher.tell_standing(now)
        for name, neighbour in self._others.items():
            self._let_go(name, neighbour.late)
        for connector, _ in self.precedence.waits():
            self._matcher.hold(connector, now)

    def expect(self, names: Iterable[str]) -> None:
        """An earlier life knew these matchers: what they owe may be older than what comes here."""
        self.awaited = {name for name in names if name != self._me}
        self.hearing.expect(self.awaited)

    def awaits(self, now: float) -> bool:
        """Whether one of them may still tell that it goes first."""
        if self.awaited:
            self._patience = min(self._patience, now + PATIENCE)
            if now >= self._patience:
                self.awaited.clear()
        return bool(self.awaited)

    def _let_go(self, name: str, late: set[bytes]) -> list[bytes]:
        fresh = self.precedence.let_go(name, late)
        if fresh:
            self.announce()  # for whom we wait
        return fresh

    # Our part

    def follow(self, plan: Plan, now: float) -> bool:
        """Follow a newer plan, and pass it on; False if ours is as new."""
        if not self._matcher.table.follow(plan, self._told):
            return False
        self._matcher.place(None, now)
        self._matcher.port.later(now + STEADY, PLACE)
        self.announce(plan=True)
        return True

    def announce(self, *, plan: bool = False) -> None:
        """Tell all others what we hold now."""
        self.hearing.told += 1
        message = self._status(plan=plan)
        for neighbour in self._others.values():
            neighbour.links[-1].send(message)

    def review(self, now: float) -> None:
        """Give up what others have taken over."""
        table = self._matcher.table
        if table.review(self.ring, self._told):
            self._matcher.place(None, now)
            self._matcher.port.later(now + STEADY, PLACE)
            self._matcher.tell_standing(now)
            self.announce(plan=True)

    def beat(self, now: float) -> None:
        """Say again what we hold: of two links to a matcher one may have told it too late."""
        self.awaits(now)
        if not self._begun:
            self._begun = True
            self._matcher.port.later(now + STEADY, PLACE)
        self.announce()

    def wake(self, key: object, now: float) -> None:
        """The ring is at rest, or there is more to drop."""
        if key == PLACE:
            self._matcher.place(self.ring, now)
            self.review(now)
            self._matcher.port.later(now + SWEEP_PAUSE, SWEEP)
        elif self._matcher.table.sweep():
            self._matcher.port.later(now + SWEEP_PAUSE, SWEEP)

    def _ring_changed(self, now: float) -> None:
        self._matcher.port.later(now + STEADY, PLACE)
        self._matcher.tell_standing(now)

    def _status(self, *, plan: bool) -> bytes:
        table = self._matcher.table
        newest, owed = table.newest.plan, self._matcher.owed
        name = self._me.encode()
        return status.Status(
            name,
            self._address,
            self.publishers.encode(),
            vnodes=vnode_hashes(name),
            holdings={share.name: sorted(share.held) for share in table.shares},
            plan=dump_plan(newest) if plan and newest != EVERYWHERE else b"",
            connectors=b"".join(table.connectors),
            late=b"".join(owed.late),
            load=round(self._matcher.intake.balance.load),
            waits=self.precedence.waits(),
            eras=[owed.eras.newest, *owed.lowest] if owed.late else [],
            number=self.hearing.told,
        ).encode()
