"""Publications whose subscribers are being found, here and at other matchers.

A survey asks, for every tile that its publication lies in, a matcher that holds the tile; we
answer ourselves where we can. All answers of one survey are of one plan. When somebody asked
refuses, goes away or takes too long, the survey starts over with whoever is left; when nobody
holds a tile it waits until somebody does: better late than a subscriber that is missed.

A publisher's publications go on in the order they came, whatever order the answers come in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from homing.errors import QueueFull, Refused
from homing.ports import Link
from homing.push.placement import Tile
from homing.push.places import once
from homing.push.share import Share
from homing.push.values import Value
from homing.wire import publish
from homing.wire.inquiry import Answer, Question

if TYPE_CHECKING:
    from homing.push.matcher import Matcher

MAX_BYTES: Final = 64 << 20
"""Publications whose subscribers are being found, all together: seconds of a busy matcher."""
COST: Final = 512
"""What keeping one costs beside its content: many small ones count too."""
PATIENCE: Final = 1.0
"""Seconds for an answer; a matcher that is well needs a hundredth of it."""
SURVEYS: Final = "surveys"


class Survey:
    """One publication on its way to a whole answer, and who waits to be told."""

    __slots__ = (
        "attributes",
        "avoided",
        "count",
        "links",
        "open",
        "places",
        "publication",
        "state",
    )

    def __init__(self, publication: publish.Publish, attributes: Mapping[str, Value]) -> None:
        self.publication = publication
        self.attributes = attributes
        self.links: list[Link] = []
        self.state = "open"  # then "answered", then "taken"
        self.open: set[bytes] = set()  # questions
        self.count = 0
        self.places: list[bytes] = []
        self.avoided: set[str] = set()  # matchers that did not answer in time

    @property
    def size(self) -> int:
        return len(self.publication.payload) + len(self.publication.attributes) + COST


class Asked:
    """A question under way."""

    __slots__ = ("due", "name", "plan", "survey", "tiles")

    def __init__(
        self, survey: Survey, name: str, plan: bytes, tiles: list[Tile], due: float
    ) -> None:
        self.survey = survey
        self.name = name
        self.plan = plan
        self.tiles = tiles
        self.due = due


class Surveys:
    """Surveys by publication and by publisher's link; questions by id, oldest first."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._surveys: dict[bytes, Survey] = {}
        self._queues: dict[Link, deque[Survey]] = {}
        self._questions: dict[bytes, Asked] = {}
        self._stuck: dict[bytes, Survey] = {}  # nobody holds one of their tiles
        self._bytes = 0
        self.asks = 0  # questions ever sent, for the metrics

    def __len__(self) -> int:
        return len(self._surveys)

    def __contains__(self, link: Link) -> bool:
        """Whether something of this publisher's is under way."""
        return link in self._queues

    # Publications

    def find(self, identity: bytes) -> Survey | None:
        """The survey of a publication, if it is under way."""
        return self._surveys.get(identity)

    def start(
        self,
        link: Link,
        publication: publish.Publish,
        attributes: Mapping[str, Value],
        now: float,
    ) -> None:
        """Find out whom it concerns; `Intake.take` goes on with it."""
        survey = Survey(publication, attributes)
        if self._bytes + survey.size > MAX_BYTES:
            raise QueueFull("too many publications wait until it is known whom they are for")
        self._bytes += survey.size
        self._surveys[publication.message_id] = survey
        self.join(survey, link)
        self._ask(survey, now)

    def join(self, survey: Survey, link: Link) -> None:
        """The publisher waits here too; what it sends next goes on after this."""
        survey.links.append(link)
        self._queues.setdefault(link, deque()).append(survey)

    def look(self, now: float) -> None:
        """Somebody holds more than before, or is gone: try again what nobody could answer."""
        stuck, self._stuck = self._stuck, {}
        for survey in stuck.values():
            survey.avoided.clear()
            self._ask(survey, now)

    # Questions

    def _ask(self, survey: Survey, now: float) -> None:
        for share in reversed(self._matcher.table.shares):
            ways = self._ways(survey, share)
            if ways is not None:
                self._send(survey, share, ways, now)
                return
        self._stuck[survey.publication.message_id] = survey

    def _ways(self, survey: Survey, share: Share) -> dict[str, list[Tile]] | None:
        """Whom to ask for which tiles, "" being ourselves; None if somebody is missing."""
        ways: dict[str, list[Tile]] = {}
        for tile in share.plan.asked(survey.attributes):
            name = ""
            if tile not in share.held:
                chosen = self._matcher.neighbours.choose(share.name, tile, survey.avoided)
                if chosen is None:
                    return None
                name = chosen
            ways.setdefault(name, []).append(tile)
        return ways

    def _send(self, survey: Survey, share: Share, ways: dict[str, list[Tile]], now: float) -> None:
        own = ways.pop("", None)
        if own:
            count, places = share.match(own, survey.attributes)
            survey.count += count
            survey.places.append(places)
        for name, tiles in ways.items():
            identity = self._matcher.ids()
            if not self._questions:
                self._matcher.port.later(now + PATIENCE, SURVEYS)
            self._questions[identity] = Asked(survey, name, share.name, tiles, now + PATIENCE)
            survey.open.add(identity)
            self.asks += 1
            question = Question(identity, share.name, tiles, survey.publication.attributes)
            self._matcher.neighbours.send(name, question.encode())
        if not survey.open:
            self._answered(survey, now)

    def answered(self, answer: Answer, now: float) -> None:
        """A matcher told some of the places; with the last of them the survey may be complete."""
        asked = self._questions.get(answer.question_id)
        if asked is None:
            return  # too late: somebody else was asked
        survey = asked.survey
        survey.places.append(answer.places)
        if answer.left:
            return
        survey.count += answer.count
        self._close(answer.question_id)
        survey.open.discard(answer.question_id)
        if not survey.open:
            self._answered(survey, now)

    def refused(self, question_id: bytes, now: float) -> None:
        """A matcher does not hold what it said it does: ask others."""
        asked = self._questions.get(question_id)
        if asked is not None:
            self._matcher.neighbours.doubt(asked.name, asked.plan, asked.tiles)
            self._start_over(asked.survey, now)

    def lost(self, name: str, now: float) -> None:
        """A matcher is gone: ask others what it was asked."""
        for survey in {id(a.survey): a.survey for a in self._of(name)}.values():
            self._start_over(survey, now)
        self.look(now)

    def _of(self, name: str) -> list[Asked]:
        return [asked for asked in self._questions.values() if asked.name == name]

    def wake(self, now: float) -> None:
        """Ask others what has not been answered in time."""
        for identity, asked in list(self._questions.items()):
            if asked.due > now:
                break
            if identity in self._questions:  # its survey may have started over just now
                asked.survey.avoided.add(asked.name)
                self._start_over(asked.survey, now)
        if self._questions:
            first = next(iter(self._questions.values()))
            self._matcher.port.later(first.due, SURVEYS)
        self.look(now)

    def _start_over(self, survey: Survey, now: float) -> None:
        for identity in survey.open:
            self._close(identity)
        survey.open.clear()
        survey.count = 0
        survey.places.clear()
        self._ask(survey, now)

    def _close(self, identity: bytes) -> None:
        asked = self._questions.pop(identity)
        self._matcher.neighbours.answered(asked.name)

    # Answers

    def _answered(self, survey: Survey, now: float) -> None:
        """All is known: go on with it as soon as it is its publisher's turn."""
        survey.state = "answered"
        for link in list(survey.links):
            self._advance(link, now)

    def _advance(self, link: Link, now: float) -> None:
        queue = self._queues.get(link)
        while queue and queue[0].state != "open":
            survey = queue.popleft()
            if survey.state == "answered":
                survey.state = "taken"
                self._take(survey, now)
        if queue is not None and not queue:
            self._queues.pop(link, None)

    def _take(self, survey: Survey, now: float) -> None:
        del self._surveys[survey.publication.message_id]
        self._bytes -= survey.size
        intake = self._matcher.intake
        places = once(survey.places)
        try:
            intake.take(survey.publication, survey.links, survey.count, places, now)
        except Refused as error:
            for link in survey.links:
                intake.refuse(link, survey.publication.message_id, error, now)
