"""Matchers among each other: questions, answers, refusals, silence, order, plans passed on."""

from __future__ import annotations

from collections.abc import Sequence

from homing.journal.events import PublicationMatched
from homing.push.hearing import PATIENCE as HEARING
from homing.push.neighbours import PLACE
from homing.push.placement import Cut, Plan, Tree, dump_plan, name_of
from homing.push.precedence import GRACE
from homing.push.ring import vnode_hashes
from homing.push.surveys import MAX_BYTES, PATIENCE
from homing.testing import RecordingLink
from homing.wire import inquiry, packet, publish, relay, status
from homing.wire.assembly import Assembler
from homing.wire.inquiry import Answer, Question
from homing.wire.packet import Message
from tests.push.test_holdings import HIGH, LOW
from tests.push.test_matcher import C1, C2, Desk, client_id, message_id

ME, OTHER, THIRD = (name.hex() for name in (b"match001", b"match002", b"match003"))
PLAN = Plan(1, (Tree((Cut("n", 5, ~0, ~1),), ((ME, OTHER), (OTHER, THIRD))),))
NAME = name_of(PLAN)


class Others(Desk):
    """A matcher that holds the low tile, and others that say they hold the high one."""

    def __init__(self, *nodes: bytes, number: int = 0) -> None:
        """`number`: of their first statuses; 0: they do not count them, nor confirm ours."""
        super().__init__(ready=False)
        self.number = number
        self.matcher.neighbours.follow(PLAN, 0.0)
        self.hello(C1, C2)
        for connector in (C1, C2):
            self.sync(connector)
        assert self.matcher.ready
        self.subscribe(1, fields=LOW)
        self.links = {node: self.join(node) for node in nodes}

    def join(self, node: bytes, late: bytes = b"") -> RecordingLink:
        link = RecordingLink("status", node)
        self.matcher.opened(link, 0.0)
        self.matcher.receive(link, relay.Hello(node, b"matcher").encode(), 0.0)
        self.say(link, node, {NAME: [(0, 1)]}, late, number=self.number)
        link.take()
        return link

    def say(
        self,
        link: RecordingLink,
        node: bytes,
        held: dict[bytes, list[inquiry.Tile]],
        late: bytes = b"",
        eras: Sequence[int] = (),
        number: int = 0,
    ) -> None:
        name, hashes = node.hex().encode(), vnode_hashes(node.hex().encode())
        told = status.Status(
            name, vnodes=hashes, holdings=held, late=late, eras=list(eras), number=number
        )
        self.matcher.receive(link, told.encode(), 0.0)

    def hear(self, node: bytes, number: int) -> None:
        """Another confirms a status of ours."""
        self.matcher.receive(self.links[node], status.confirm(number), 0.0)

    def come(self) -> RecordingLink:
        """Another publisher, or the same one again."""
        link = RecordingLink("publishers", b"p2")
        self.matcher.opened(link, 0.0)
        return link

    def wake(self, now: float) -> None:
        for key in self.port.due(now):
            self.matcher.wake(key, now)

    def heard(self, node: bytes) -> list[Message]:
        return Assembler(1).receive(b"".join(self.links[node].take()), 0.0)

    def questions(self, node: bytes) -> list[Question]:
        asked = [one for one in self.heard(node) if one.command == packet.PUSH]
        return [inquiry.decode_question(one) for one in asked]

    def reply(self, node: bytes, message: Answer | relay.Nak, now: float = 0.0) -> None:
        self.matcher.receive(self.links[node], message.encode(), now)

    def matched(self) -> list[tuple[bytes, bytes]]:
        self.sync_journal()
        return [(p.message_id, p.clients) for p in self.relayed() if isinstance(p, relay.Push)]


B, C = b"match002", b"match003"


def test_a_publication_in_anothers_tile_is_asked_for_and_goes_on_from_here() -> None:
    desk = Others(B)
    desk.send(9)
    [question] = desk.questions(B)
    assert (question.plan, question.tiles, question.attributes) == (NAME, [(0, 1)], b'{"n":9}')
    assert desk.matched() == []
    desk.reply(B, Answer(question.question_id, 1, client_id(7) + C2))
    assert desk.matched() == [(message_id(9), client_id(7) + C2)]


def test_a_publishers_order_holds_whatever_order_answers_come_in() -> None:
    desk = Others(B, C)
    for number in (8, 9, 1):
        desk.send(number)
    [first], [second] = desk.questions(B), desk.questions(C)  # the least asked is asked
    desk.reply(C, Answer(second.question_id, 1, client_id(7) + C1))
    assert desk.matched() == []
    desk.send(8)  # sent again over the same link: no second question
    assert desk.questions(B) == []
    desk.reply(B, Answer(first.question_id, 2, client_id(6) + C1, left=1))
    assert desk.matched() == []
    desk.reply(B, Answer(first.question_id, 2, client_id(8) + C1))
    assert desk.matched() == [
        (message_id(8), client_id(6) + C1 + client_id(8) + C1),
        (message_id(9), client_id(7) + C1),
        (message_id(1), client_id(1) + C1),
    ]
    assert len(desk.matcher.surveys) == 0


def test_another_publisher_is_not_kept_waiting() -> None:
    desk = Others(B)
    desk.send(9)
    desk.publisher = RecordingLink("publishers", b"p2")
    desk.matcher.opened(desk.publisher, 0.0)
    desk.send(1)
    assert [identity for identity, _ in desk.matched()] == [message_id(1)]


def test_who_refuses_is_not_asked_again_until_it_says_that_it_holds_it() -> None:
    desk = Others(B)
    desk.send(9)
    [question] = desk.questions(B)
    desk.reply(B, relay.Nak(question.question_id, "no-service"))
    assert desk.questions(B) == []
    desk.say(desk.links[B], B, {NAME: [(0, 1)]})
    [again] = desk.questions(B)
    desk.reply(B, Answer(question.question_id, 1, client_id(3) + C1))  # too late, and wrong
    assert desk.matched() == []
    desk.reply(B, Answer(again.question_id, 0))
    desk.sync_journal()
    assert desk.answers() == [publish.Accepted(message_id(9), 0)]


def test_who_is_lost_or_silent_is_replaced() -> None:
    desk = Others(B, C)
    desk.send(9)
    [question] = desk.questions(B)
    desk.matcher.closed(desk.links[B], 0.1)
    [again] = desk.questions(C)
    desk.links[B] = desk.join(B)
    for key in desk.port.due(PATIENCE + 0.2):
        desk.matcher.wake(key, PATIENCE + 0.2)
    [third] = desk.questions(B)
    assert len({question.question_id, again.question_id, third.question_id}) == 3
    desk.reply(B, Answer(third.question_id, 0), 1.5)
    desk.sync_journal()
    assert desk.answers() == [publish.Accepted(message_id(9), 0)]


def test_what_waits_for_a_holder_is_bounded() -> None:
    desk = Others()
    payload = bytes(900_000)
    for number in range(100, 100 + MAX_BYTES // len(payload) + 1):
        desk.send(number, b'{"n":9}', payload)
    refused = [one for one in desk.answers() if isinstance(one, publish.Refusal)]
    assert refused
    assert {one.reason.split()[0] for one in refused} == {"queue-full"}


def test_a_question_is_answered_for_what_is_held_and_refused_otherwise() -> None:
    desk = Others(B)
    link = desk.links[B]
    for tiles in ([(0, 0)], [(0, 1)], [(0, 0), (0, 1)]):
        question = Question(message_id(1), NAME, tiles, b'{"n":2}')
        desk.matcher.receive(link, question.encode(), 0.0)
    unknown = Question(message_id(1), bytes(16), [(0, 0)], b'{"n":2}')
    nonsense = Question(message_id(1), NAME, [(0, 0)], b'{"n":[]}')
    desk.matcher.receive(link, unknown.encode() + nonsense.encode(), 0.0)
    answer, *naks = [one for one in desk.heard(B) if one.command != packet.STATUS]
    assert inquiry.decode_answer(answer) == Answer(message_id(1), 1, client_id(1) + C1)
    codes = [one.items[packet.REASON].split()[0] for one in naks]
    assert codes == [b"no-service", b"no-service", b"no-service", b"malformed"]


def test_a_plan_is_passed_on_to_whoever_has_an_older_one() -> None:
    desk = Others(B)
    desk.say(desk.links[B], B, {bytes(16): [(0, 0)]})
    [told] = [status.decode(one) for one in desk.heard(B) if one.command == packet.STATUS]
    assert told.plan == dump_plan(PLAN)
    assert told.holdings[NAME] == [(0, 0)]
    newer = Plan(2, PLAN.trees)
    name = B.hex().encode()
    message = status.Status(name, vnodes=vnode_hashes(name), plan=dump_plan(newer))
    desk.matcher.receive(desk.links[B], message.encode(), 0.0)
    assert desk.matcher.table.newest.plan == newer


def test_a_connector_that_is_late_is_told_before_its_publisher_is() -> None:
    desk = Others(B)
    desk.send(1)
    desk.sync_journal()
    desk.heard(B)
    for key in desk.port.due(1.0):
        desk.matcher.wake(key, 1.0)
    assert desk.answers() == [publish.Accepted(message_id(1), 1)]
    told = [status.decode(one) for one in desk.heard(B) if one.command == packet.STATUS]
    assert C1 in {one.late for one in told}
    [push] = [one for one in desk.relayed() if isinstance(one, relay.Push)]
    desk.take_over(push)
    [told_again] = [status.decode(one) for one in desk.heard(B) if one.command == packet.STATUS]
    assert told_again.late == b""


def test_a_lost_matcher_that_is_late_goes_first_when_it_is_back() -> None:
    desk = Others(B)
    desk.send(1)
    desk.say(desk.links[B], B, {}, late=C1)
    assert [identity for identity, _ in desk.matched()] == [message_id(1)]  # it lives: no matter
    desk.matcher.closed(desk.links[B], 1.0)
    desk.send(2)
    assert desk.matched() == []
    desk.matcher.wake(C1, 1.25)
    assert desk.matched() == []
    assert desk.port.timers[C1] == 1.5
    desk.links[B] = desk.join(B, late=C1)  # back, and not done yet
    desk.matcher.wake(C1, 100.0)
    assert desk.matched() == []
    desk.say(desk.links[B], B, {})
    desk.matcher.wake(C1, 100.5)
    assert [identity for identity, _ in desk.matched()] == [message_id(1), message_id(2)]


def test_a_matcher_that_lives_and_is_late_goes_first_when_a_publisher_comes() -> None:
    """It may come from that one; the connector is away, so nobody knows how long it will take."""
    desk = Others(B)
    desk.say(desk.links[B], B, {}, late=C1)
    desk.heard(B)
    desk.send(1)
    [told] = [status.decode(one) for one in desk.heard(B) if one.command == packet.STATUS]
    assert told.waits == [(C1, B.hex())]
    assert desk.matched() == []
    desk.say(desk.links[B], B, {})
    desk.matcher.wake(C1, 1.0)
    assert [identity for identity, _ in desk.matched()] == [message_id(1)]


def test_what_was_taken_before_the_publisher_came_does_not_wait() -> None:
    """It went to the other matcher and back: what it left here goes first, then what it left there."""
    desk = Others(B)
    desk.send(1)
    desk.matched()
    desk.wake(1.0)  # acknowledged
    desk.say(desk.links[B], B, {}, late=C1, eras=[1, 1])
    desk.publisher = desk.come()
    desk.send(2)
    desk.matcher.receive(desk.dispatcher, relay.Nak(message_id(1), "no-service", C1).encode(), 1.0)
    assert desk.matched() == []
    desk.matcher.wake(C1, 2.0)
    [first] = [one for one in desk.relayed() if isinstance(one, relay.Push)]
    assert first.message_id == message_id(1)
    desk.wake(2.25)  # acknowledged too
    assert desk.matched() == [], "sent already, or not yet"
    desk.take_over(first)
    desk.say(desk.links[B], B, {}, late=C1, eras=[3, 3])
    desk.matcher.wake(C1, 2.5)
    assert [identity for identity, _ in desk.matched()] == [message_id(2)]


def test_others_hear_of_an_era_before_anything_of_it_is_acknowledged_and_when_it_is_handed_over() -> (
    None
):
    desk = Others(B)
    desk.send(1)
    desk.sync_journal()
    [first] = [one for one in desk.relayed() if isinstance(one, relay.Push)]
    desk.wake(1.0)
    desk.say(desk.links[B], B, {}, late=C2, eras=[4, 4])
    desk.publisher = desk.come()
    desk.send(2)
    desk.sync_journal()
    desk.wake(2.5)
    told = [status.decode(one) for one in desk.heard(B) if one.command == packet.STATUS]
    assert [one.eras for one in told if one.late] == [[0, 0], [0, 0], [5, 0]]
    desk.take_over(first)
    told = [status.decode(one) for one in desk.heard(B) if one.command == packet.STATUS]
    assert [one.eras for one in told] == [[5, 5]]


def an_earlier_life() -> list[object]:
    """What a matcher wrote that owed something, and was come to while another was late."""
    desk = Others(B)
    desk.send(1)
    desk.wake(1.0)
    desk.say(desk.links[B], B, {}, late=C1, eras=[1, 1])
    desk.publisher = desk.come()
    desk.send(2)
    return [*desk.port.events]


def eras_told(link: RecordingLink) -> list[list[int]]:
    told = Assembler(1).receive(b"".join(link.take()), 0.0)
    return [status.decode(one).eras for one in told if one.command == packet.STATUS]


def test_a_matcher_that_is_started_again_knows_what_it_took_when() -> None:
    events = an_earlier_life()
    checkpoint: list[object] = [*Desk(events, ready=False).matcher.checkpoint()]
    for recovered in (events, checkpoint):
        desk = Desk(recovered, ready=False)
        desk.hello(C1, C2)
        link = RecordingLink("status", B)
        [push] = [one for one in desk.relayed() if isinstance(one, relay.Push)]
        assert push.message_id == message_id(1), "the other is not heard of yet, and may go first"
        desk.matcher.opened(link, 0.0)
        desk.matcher.receive(link, relay.Hello(B, b"matcher").encode(), 0.0)
        assert eras_told(link)[-1] == [2, 0]
        name, hashes = B.hex().encode(), vnode_hashes(B.hex().encode())
        told = status.Status(name, vnodes=hashes, late=C1, eras=[1, 1])
        desk.matcher.receive(link, told.encode(), 0.0)
        desk.matcher.wake(C1, 0.5)
        assert [one.message_id for one in desk.relayed() if isinstance(one, relay.Push)] == [
            message_id(1)
        ]
        desk.matcher.receive(link, status.Status(name, vnodes=hashes).encode(), 0.5)
        desk.matcher.wake(C1, 0.75)
        [push] = [one for one in desk.relayed() if isinstance(one, relay.Push)]
        assert push.message_id == message_id(2)


def test_wherever_a_checkpoint_falls_a_later_life_knows_the_same() -> None:
    """Also where nothing was owed then: what was taken behind it had the era of its first publication."""
    events = an_earlier_life()
    whole = Desk(events, ready=False).matcher
    assert whole.neighbours.awaited == {B.hex()}
    assert whole.owed.numbers() == {message_id(1): 0, message_id(2): 2}
    for at, event in enumerate(events):
        if isinstance(event, PublicationMatched):
            continue  # told in one go with what is before it
        checkpoint = Desk(events[:at], ready=False).matcher.checkpoint()
        again = Desk([*checkpoint, *events[at:]], ready=False).matcher
        assert again.owed.numbers() == whole.owed.numbers()
        assert again.owed.eras.current.number == whole.owed.eras.current.number
        assert again.neighbours.awaited == whole.neighbours.awaited


def test_others_that_an_earlier_life_knew_are_not_waited_for_for_long() -> None:
    desk = Desk(an_earlier_life(), ready=False)
    desk.hello(C1, C2)
    assert [one.message_id for one in desk.relayed() if isinstance(one, relay.Push)] == [
        message_id(1)
    ]
    desk.matcher.wake(C1, HEARING)
    assert [one.message_id for one in desk.relayed() if isinstance(one, relay.Push)] == [
        message_id(2)
    ]


def test_who_only_knocks_at_the_publishers_door_is_no_publisher() -> None:
    """A probe of a load balancer used to make a matcher that is back wait for those that wait for it."""
    desk = Others(B)
    desk.send(1)
    desk.matched()
    desk.say(desk.links[B], B, {}, late=C1)
    desk.heard(B)
    probe = RecordingLink("publishers")
    desk.matcher.opened(probe, 0.0)
    desk.matcher.receive(probe, publish.Hello().encode(), 0.0)
    assert desk.heard(B) == []
    desk.send(2)
    assert [identity for identity, _ in desk.matched()] == [message_id(2)]


def test_a_lost_matcher_is_not_waited_for_for_ever() -> None:
    desk = Others(B)
    desk.say(desk.links[B], B, {}, late=C1)
    desk.matcher.closed(desk.links[B], 1.0)
    desk.send(1)
    assert desk.matched() == []
    desk.matcher.wake(C1, 1.0 + GRACE)
    assert [identity for identity, _ in desk.matched()] == [message_id(1)]


def test_a_lost_matchers_share_moves_only_when_it_stays_away() -> None:
    desk = Others(B, C)
    desk.port.due(10.0)
    for link in desk.links.values():
        desk.matcher.closed(link, 10.0)
    assert desk.port.timers[PLACE] == 13.0
    assert desk.matcher.table.newest.wanted == {(0, 0)}
    desk.relayed()
    desk.matcher.wake(PLACE, 13.0)
    assert desk.matcher.table.newest.wanted == {(0, 0), (0, 1)}
    [ask] = [one for one in desk.relayed() if isinstance(one, relay.Sync)]
    assert ask.phase == relay.SYNC_BEGIN
    desk.send(9)
    for connector in (C1, C2):
        desk.tell(relay.Sync(bytes(12), connector, relay.SYNC_BEGIN))
        if connector == C1:
            desk.tell(relay.Subscribe(bytes(12), client_id(1), C1, b"default", LOW))
            desk.tell(relay.Subscribe(bytes(12), client_id(4), C1, b"default", HIGH))
        assert desk.matched() == []
        desk.tell(relay.Sync(bytes(12), connector, relay.SYNC_END))
    assert desk.matched() == [(message_id(9), client_id(4) + C1)]


def test_a_subscription_has_ended_when_what_was_found_for_it_is_on_its_way() -> None:
    """A session that has moved is waited for until its former connector can get nothing more."""
    desk = Others()
    desk.relayed()
    desk.send(1)
    ended = relay.Unsubscribe(message_id(50), client_id(1), C1)
    desk.matcher.receive(desk.dispatcher, ended.encode(), 0.0)
    assert desk.relayed() == []
    desk.sync_journal()
    assert [type(one) for one in desk.relayed()] == [relay.Push, relay.Ack]
    again = relay.Unsubscribe(message_id(51), client_id(1), C1)
    desk.matcher.receive(desk.dispatcher, again.encode(), 0.0)
    assert desk.relayed() == [relay.Ack(message_id(51))]


def test_an_answer_is_never_answered() -> None:
    """A publisher that answers a refusal with another would go on for ever, and so would we."""
    desk = Others()
    publisher = RecordingLink("publishers")
    desk.matcher.opened(publisher, 0.0)
    for said in (publish.Refusal(message_id(1), "malformed"), publish.Accepted(message_id(1), 0)):
        desk.matcher.receive(publisher, said.encode(), 0.0)
    assert publisher.take() == []
