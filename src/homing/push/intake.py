"""The publishers' side of a matcher: publications come in, acknowledgements go out (§4.3).

A publication is matched (with the help of others where the plan has it so: homing.push.surveys),
journaled with the clients it is for and handed on. It is acknowledged once that is durable and
the connectors have taken it over: so a publisher that goes on at another matcher, sending again
what was not acknowledged, keeps its order. A connector that is not there delays this by
HAND_ON_SECONDS at most.

The same id coming again (a publisher that lost its link before the ack) is answered as before
and goes nowhere a second time.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Sequence
from hmac import compare_digest
from typing import TYPE_CHECKING, Final

from homing.errors import (
    Denied,
    DiskFull,
    Malformed,
    QueueFull,
    Refused,
    RemoteProtocolError,
    SubscriptionError,
    TooLarge,
)
from homing.journal.events import (
    Event,
    PublicationAccepted,
    PublicationMatched,
    PublicationRefused,
)
from homing.metrics import Histogram
from homing.ports import Link
from homing.push.balance import Balance
from homing.push.handover import MAX_PUBLICATION
from homing.push.links import SILENCE
from homing.push.places import by_connector
from homing.push.subscription import parse_attributes
from homing.wire import publish
from homing.wire.assembly import Assembler
from homing.wire.packet import ACK, NAK, Message

if TYPE_CHECKING:
    from homing.push.matcher import Matcher

MAX_RECENT: Final = 65_536
"""Acknowledged publications remembered, to answer a publisher that asks again."""
MAX_OWED: Final = 100_000
"""Publications taken and not done. A stuck connector must not fill the memory: beyond it
publishers are refused until it moves."""
MAX_OWED_BYTES: Final = 512 << 20
"""The same in bytes, for large payloads."""
HAND_ON_SECONDS: Final = 1.0
"""How long an ack waits for connectors: longer than they take, shorter than publishers mind."""
STORE_SECONDS: Final = 10.0
"""How long the disk may take before a publisher is told that it does: as long as for a subscription."""
ACKS: Final = "acks"
HEARD: Final = "heard"
LONG_AGO: Final = -math.inf


class Publisher:
    """What is known of the publisher at the other end of a link."""

    __slots__ = ("assembler", "come", "heard", "published", "rate", "sent_on", "welcome")

    def __init__(self, welcome: bool, now: float) -> None:
        self.assembler = Assembler(publish.MESSAGE_ID)
        self.heard = now
        self.welcome = welcome
        self.come = False  # it has published something here
        self.published = 0  # since the last beat
        self.rate = 0.0  # publications a second before that
        self.sent_on = False  # it was told of a less busy matcher


class Taken:
    """A publication on its way into the journal, and who waits to be told."""

    __slots__ = ("at", "links", "matched", "places", "publication")

    def __init__(
        self,
        publication: publish.Publish,
        places: bytes,
        matched: int,
        links: list[Link],
        now: float,
    ) -> None:
        self.at = now
        self.publication = publication
        self.places = places
        self.matched = matched
        self.links = links


class Intake:
    """Publishers by link; publications from their arrival to their acknowledgement."""

    def __init__(self, matcher: Matcher, tokens: Sequence[bytes]) -> None:
        """`tokens`: a publisher must know one of them; none lets everybody publish."""
        self._matcher = matcher
        self._tokens = tuple(tokens)
        self._publishers: dict[Link, Publisher] = {}
        self.balance = Balance(matcher, self._publishers)
        self._recent: OrderedDict[bytes, int] = OrderedDict()
        self._taking: dict[bytes, Taken] = {}
        self._unsynced: deque[tuple[int, Taken]] = deque()
        # Answers to connectors that leave behind some of them.
        self._answers: deque[tuple[int, bytes, Link, bytes]] = deque()
        self._handed: dict[bytes, tuple[float, Taken]] = {}  # durable, connectors not done
        # The same for too long: acknowledged when other matchers have heard the status with that number.
        self._late: dict[bytes, tuple[int, Taken]] = {}
        self.taken = 0  # ever, for the metrics
        self.times = Histogram()  # from being taken to being acknowledged

    def __len__(self) -> int:
        return len(self._publishers)

    # Links

    def opened(self, link: Link, now: float) -> None:
        link.state = self._publishers[link] = Publisher(not self._tokens, now)

    def closed(self, link: Link) -> None:
        self._publishers.pop(link, None)
        link.state = None

    def beat(self, now: float) -> None:
        """Close on publishers that have been silent for too long; see who publishes how much."""
        for link, publisher in list(self._publishers.items()):
            publisher.assembler.expire(now)
            if now - publisher.heard > SILENCE:
                self._matcher.hang_up(link, "silent for too long", now)
        self.balance.beat(now)
        self._tell_of_the_disk(now)

    def _tell_of_the_disk(self, now: float) -> None:
        """Refuse what the disk has not taken for long: its publisher would wait for ever.

        It is not undone: the journal still has it in hand, and who sends it again waits for that.
        """
        for _, taken in self._unsynced:
            if now - taken.at < STORE_SECONDS:
                return
            links, taken.links = taken.links, []
            late = "queue-full not on the matcher's disk yet: it may be sent again, with this id"
            for link in links:
                link.send(publish.Refusal(taken.publication.message_id, late).encode())

    def receive(self, link: Link, message: bytes, now: float) -> None:
        publisher: Publisher | None = link.state
        if publisher is None:
            return
        publisher.heard = now
        try:
            whole = publisher.assembler.receive(message, now)
        except RemoteProtocolError as error:
            self._matcher.hang_up(link, str(error), now)
            return
        for one in whole:
            self._one(link, publisher, one, now)
        naks = publisher.assembler.take()
        if naks:
            link.send(naks)

    def _one(self, link: Link, publisher: Publisher, message: Message, now: float) -> None:
        identity = b""
        if message.command in (ACK, NAK):
            return  # an answer is never answered: two confused nodes would not stop
        try:
            typed = publish.from_publisher(message)
            if isinstance(typed, publish.Publish):
                identity = typed.message_id
                if not publisher.welcome:
                    raise Denied("say hello with the publishers' token first")
                if not publisher.come:
                    self._come(publisher, now)
                publisher.published += 1
                self._publish(link, typed, now)
            elif isinstance(typed, publish.Hello):
                known = [compare_digest(typed.token, token) for token in self._tokens]
                publisher.welcome = any(known) or not known
                if not publisher.welcome:
                    raise Denied("wrong token")
                link.send(self.balance.welcome(publisher))
            else:
                link.send(publish.HEARTBEAT)
        except Refused as error:
            self.refuse(link, identity, error, now)

    def _come(self, publisher: Publisher, now: float) -> None:
        """Its first publication here: it may have published elsewhere before. Who only knocks has not."""
        publisher.come = True
        self._matcher.neighbours.come_to(now)

    def refuse(self, link: Link, identity: bytes, error: Refused, now: float) -> None:
        """Tell a publisher why not."""
        event = PublicationRefused(now, identity, link.peer, error.code.encode())
        self._matcher.tell(event)
        link.send(publish.Refusal(identity, f"{error.code} {error}").encode())

    # Publications

    def _publish(self, link: Link, publication: publish.Publish, now: float) -> None:
        """Take one that is new; answer, or have wait, one that is not."""
        identity = publication.message_id
        if identity in self._recent:
            link.send(publish.Accepted(identity, self._recent[identity]).encode())
        elif identity in self._taking:
            self._taking[identity].links.append(link)
        elif survey := self._matcher.surveys.find(identity):
            self._matcher.surveys.join(survey, link)
        else:
            self._match(link, publication, now)

    def _match(self, link: Link, publication: publish.Publish, now: float) -> None:
        """Find whom it is for; here and now if we hold all subscriptions that matter."""
        size = len(publication.payload) + len(publication.attributes)
        if size > MAX_PUBLICATION:
            raise TooLarge(f"{size} bytes, {MAX_PUBLICATION} at most")
        try:
            attributes = parse_attributes(publication.attributes)
        except SubscriptionError as error:
            raise Malformed(str(error)) from error
        if not publication.message_id:
            identity = self._matcher.ids()
            publication = publish.Publish(publication.attributes, publication.payload, identity)
        matcher = self._matcher
        found: tuple[int, bytes] | None = (0, b"")
        if not matcher.elsewhere:
            found = None if link in matcher.surveys else matcher.table.here(attributes)
        if found is None:
            matcher.surveys.start(link, publication, attributes, now)
        else:
            self.take(publication, [link], *found, now)

    def take(
        self,
        publication: publish.Publish,
        links: list[Link],
        matched: int,
        places: bytes,
        now: float,
    ) -> None:
        """Journal one that is matched; `journaled` goes on with it. Refused if that cannot be."""
        owed = self._matcher.owed
        if len(owed) >= MAX_OWED or owed.held >= MAX_OWED_BYTES:
            raise QueueFull("connectors are behind: too much waits for them")
        taken = Taken(publication, places, matched, links, now)
        number = self._journal(taken, now)
        self.taken += 1
        self._taking[publication.message_id] = taken
        self._unsynced.append((number, taken))
        if not number:  # no journal is kept here: nothing to wait for
            self.journaled(0, now)

    def taken_before(self, publication: publish.Publish, places: bytes, matched: int) -> None:
        """An earlier life took it, and owes it: its publisher may not know yet that it is safe."""
        taken = Taken(publication, places, matched, [], LONG_AGO)
        self._recent.pop(publication.message_id, None)
        self._taking[publication.message_id] = taken
        self._late[publication.message_id] = self._matcher.neighbours.hearing.needed, taken
        self._matcher.port.later(0.0, HEARD)

    def _journal(self, taken: Taken, now: float) -> int:
        """Both or neither: one that has only been accepted is nothing to a later life."""
        publication, publisher = taken.publication, taken.links[0].peer
        identity, attributes = publication.message_id, publication.attributes
        journal = self._matcher.port.journal
        try:
            number = journal(
                PublicationAccepted(now, identity, publisher, attributes, publication.payload)
            )
            if not self._matcher.elsewhere:
                number = journal(PublicationMatched(now, identity, taken.places, taken.matched))
        except DiskFull as error:
            raise QueueFull(f"the journal's disk is full: {error}") from error
        return number

    def journaled(self, number: int, now: float) -> None:
        """Durable: hand it on."""
        unsynced, handed = self._unsynced, self._handed
        while unsynced and unsynced[0][0] <= number:
            _, taken = unsynced.popleft()
            publication = taken.publication
            if not handed:
                self._matcher.port.later(now + HAND_ON_SECONDS, ACKS)
            handed[publication.message_id] = (now + HAND_ON_SECONDS, taken)
            self._matcher.owed.owe(publication, by_connector(taken.places), taken.places)

        while self._answers and (not unsynced or self._answers[0][0] <= number):
            _, connector, link, answer = self._answers.popleft()
            self._matcher.owed.answer_behind(connector, link, answer)

    def answer_behind(self, connector: bytes, link: Link, answer: bytes) -> None:
        """Send an answer to a connector when all that is taken now has been handed on to it."""
        if self._unsynced:
            self._answers.append((self._unsynced[-1][0], connector, link, answer))
        else:
            self._matcher.owed.answer_behind(connector, link, answer)

    def done(self, identity: bytes, now: float) -> None:
        """The connectors have taken it over: acknowledge it."""
        handed = self._handed.pop(identity, None) or self._late.pop(identity, None)
        if handed is not None:
            self._acknowledge(identity, handed[1], now)

    def _acknowledge(self, identity: bytes, taken: Taken, now: float) -> None:
        if taken.at != LONG_AGO:
            self.times.observe(now - taken.at)
        del self._taking[identity]
        self.remember(identity, taken.matched)
        answer = publish.Accepted(identity, taken.matched).encode()
        for link in taken.links:
            link.send(answer)

    def wake(self, now: float) -> None:
        """Acknowledge what has waited long enough for its connectors.

        Other matchers hear first which connectors are late, and what was taken when: the publisher may go on there.
        """
        handed, neighbours = self._handed, self._matcher.neighbours
        due: list[tuple[bytes, Taken]] = []
        news = False
        for identity, (at, taken) in handed.items():
            if at > now:
                break
            news |= self._matcher.owed.mark_late(identity, by_connector(taken.places))
            due.append((identity, taken))
        if news:
            neighbours.announce()
            neighbours.hearing.need(now)
            self.balance.keep()
        for identity, taken in due:
            del handed[identity]
            self._late[identity] = neighbours.hearing.needed, taken
        if handed:
            self._matcher.port.later(next(iter(handed.values()))[0], ACKS)
        self.heard(now)

    def heard(self, now: float) -> None:
        """Others have heard something, or had time to: acknowledge what waited for that."""
        hearing = self._matcher.neighbours.hearing
        reached = hearing.reached(now)
        heard: list[tuple[bytes, Taken]] = []
        for identity, (number, taken) in self._late.items():
            if number > reached:
                self._matcher.port.later(hearing.patience(now), HEARD)
                break
            heard.append((identity, taken))
        for identity, taken in heard:
            del self._late[identity]
            self._acknowledge(identity, taken, now)

    def checkpoint(self) -> list[Event]:
        """What was taken, with match counts, and what is on its way into the journal."""
        counts = {i: taken.matched for i, taken in self._taking.items()} | self._recent
        events: list[Event] = [PublicationMatched(0.0, i, b"", n) for i, n in counts.items()]
        handover = self._matcher.owed
        eras = handover.numbers()
        owed = handover.remaining()
        owed += [(taken.publication, taken.places) for _, taken in self._unsynced]
        era = 0
        for publication, listed in owed:
            identity = publication.message_id
            number = eras.get(identity, handover.eras.current.number)
            if number != era:
                era = number
                events.append(self._matcher.standing(era))
            attributes, payload = publication.attributes, publication.payload
            events.append(PublicationAccepted(0.0, identity, b"", attributes, payload))
            events.append(PublicationMatched(0.0, identity, listed, counts.get(identity, 0)))
        if era != handover.eras.current.number:
            events.append(self._matcher.standing(handover.eras.current.number))
        return events

    def remember(self, identity: bytes, matched: int) -> None:
        """This one is taken: answer it alike when it comes again."""
        self._recent[identity] = matched
        if len(self._recent) > MAX_RECENT:
            self._recent.popitem(last=False)
