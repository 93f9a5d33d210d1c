"""The dispatcher: groups by connector, redirects once, keeps order, sends again, never twice."""

from __future__ import annotations

from homing.push import outbox
from homing.push.confirming import BACK_SECONDS, MEET_SECONDS, MEETING
from homing.push.dispatcher import Dispatcher
from homing.push.places import places
from homing.testing import RecordingLink, RecordingPort
from homing.wire import relay
from homing.wire.assembly import Assembler
from tests.push.desk import client_id, message_id

C1, C2, C3 = b"conn0001", b"conn0002", b"conn0003"


class Desk:
    """A dispatcher that owns connector 1, with a peer that owns connector 2, and a matcher."""

    def __init__(self) -> None:
        self.dispatcher = Dispatcher(RecordingPort(), b"disp0001", lambda: 1e9)
        self.matcher = self.joined("nodes", relay.Hello(b"match001", b"matcher"))
        self.connector = self.joined("connectors", relay.Hello(C1, b"connector"))
        hello = relay.Hello(b"disp0002", b"dispatcher", connectors=C2)
        self.peer = self.joined("peers", hello)
        for link in (self.matcher, self.connector, self.peer):
            link.take()

    def joined(self, plug: str, hello: relay.Hello) -> RecordingLink:
        link = RecordingLink(plug)
        self.dispatcher.opened(link, 0.0)
        self.tell(link, hello)
        return link

    def tell(self, link: RecordingLink, message: relay.Relayed) -> None:
        self.dispatcher.receive(link, message.encode(), 0.0)

    def push(self, number: int, *listed: bytes, redirected: bool = False) -> None:
        push = relay.Push(message_id(number), b"p", b"".join(listed), b"{}", redirected)
        self.tell(self.matcher, push)

    def lose(self, link: RecordingLink) -> None:
        self.dispatcher.closed(link, 0.0)


def sent(link: RecordingLink, record: int = relay.PLACE_BYTES) -> list[relay.Relayed]:
    runs = b"".join(link.take())
    return [relay.decode(one, record) for one in Assembler(1).receive(runs, 0.0)]


def numbers(link: RecordingLink, record: int = 12) -> list[bytes]:
    return [one.message_id for one in sent(link, record) if isinstance(one, relay.Push)]


def test_a_push_goes_to_its_connectors_directly_or_through_their_owner() -> None:
    desk = Desk()
    here = places(client_id(1) + client_id(3), C1)
    desk.push(7, places(client_id(2), C2), here)
    assert sent(desk.connector, 12) == [
        relay.Push(message_id(7), b"p", client_id(1) + client_id(3), b"{}", first=True)
    ]
    assert sent(desk.peer) == [
        relay.Push(message_id(7), b"p", places(client_id(2), C2), b"{}", True, first=True)
    ]


def test_acks_go_back_to_whoever_sent_it() -> None:
    desk = Desk()
    desk.push(7, places(client_id(1), C1), places(client_id(2), C2))
    desk.tell(desk.connector, relay.Ack(message_id(7), client_id(1)))
    assert sent(desk.matcher) == [relay.Ack(message_id(7), client_id(1), C1)]
    desk.tell(desk.peer, relay.Ack(message_id(7), client_id(2), C2))
    assert sent(desk.matcher) == [relay.Ack(message_id(7), client_id(2), C2)]
    assert not desk.dispatcher.outboxes


def test_a_redirected_push_is_never_redirected_again() -> None:
    desk = Desk()
    desk.push(7, places(client_id(2), C2), redirected=True)
    assert sent(desk.peer) == []
    [nak] = sent(desk.matcher)
    assert isinstance(nak, relay.Nak)
    assert (nak.connector, nak.reason.split()[0]) == (C2, "no-service")


def test_an_unknown_connector_is_refused_and_then_all_behind_it() -> None:
    desk = Desk()
    desk.push(1, places(client_id(1), C3))
    desk.joined("connectors", relay.Hello(C3, b"connector"))
    desk.push(2, places(client_id(1), C3))  # was under way behind it
    refused = [one.message_id for one in sent(desk.matcher) if isinstance(one, relay.Nak)]
    assert refused == [message_id(1), message_id(2)]
    desk.push(1, places(client_id(1), C3))
    desk.push(2, places(client_id(1), C3))
    assert not [one for one in sent(desk.matcher) if isinstance(one, relay.Nak)]


def test_a_connector_that_comes_back_gets_what_it_did_not_acknowledge_in_order() -> None:
    desk = Desk()
    for number in range(4):
        desk.push(number, places(client_id(1), C1))
    assert len(numbers(desk.connector)) == 4
    desk.tell(desk.connector, relay.Ack(message_id(1), client_id(1)))
    desk.lose(desk.connector)
    again = desk.joined("connectors", relay.Hello(C1, b"connector"))
    assert numbers(again) == [message_id(0), message_id(2), message_id(3)]


def test_the_same_parcel_again_is_not_sent_twice_but_both_are_told() -> None:
    desk = Desk()
    other = desk.joined("nodes", relay.Hello(b"match002", b"matcher"))
    sent(other)
    desk.push(7, places(client_id(1), C1))
    desk.push(7, places(client_id(1), C1))
    push = relay.Push(message_id(7), b"p", places(client_id(1), C1), b"{}")
    desk.tell(other, push)
    assert numbers(desk.connector) == [message_id(7)]
    sent(desk.matcher)
    desk.tell(desk.connector, relay.Ack(message_id(7), client_id(1)))
    ack = relay.Ack(message_id(7), client_id(1), C1)
    assert sent(desk.matcher) == [ack]
    assert ack in sent(other)


def test_a_stuck_connector_is_refused_and_the_others_notice_nothing() -> None:
    desk = Desk()
    for number in range(70):
        payload = bytes(1 << 20)[: (1 << 20) - 5000]
        push = relay.Push(message_id(number), payload, places(client_id(1), C1), b"{}")
        desk.tell(desk.matcher, push)
    refused = [one for one in sent(desk.matcher) if isinstance(one, relay.Nak)]
    assert len(refused) == 70 - len(desk.dispatcher.outboxes[C1])
    assert desk.dispatcher.outboxes[C1].held <= outbox.MAX_BYTES + (1 << 20)
    desk.push(100, places(client_id(2), C2))
    assert numbers(desk.peer, 20) == [message_id(100)]


def test_a_connector_that_refuses_has_its_parcels_refused_in_turn() -> None:
    desk = Desk()
    desk.push(1, places(client_id(1), C1))
    desk.push(2, places(client_id(1), C1))
    desk.tell(desk.connector, relay.Nak(message_id(1), "queue-full disk"))
    refused = [one for one in sent(desk.matcher) if isinstance(one, relay.Nak)]
    assert [one.message_id for one in refused] == [message_id(1), message_id(2)]
    assert {one.connector for one in refused} == {C1}
    assert not desk.dispatcher.outboxes


def test_who_begins_anew_is_not_kept_waiting_for_what_came_another_way() -> None:
    desk = Desk()
    desk.push(1, places(client_id(1), C1))
    desk.tell(desk.connector, relay.Nak(message_id(1), "queue-full disk"))
    sent(desk.matcher), sent(desk.connector, 12)
    desk.push(2, places(client_id(1), C1))  # the first came by another matcher meanwhile
    [nak] = sent(desk.matcher)
    assert isinstance(nak, relay.Nak)
    push = relay.Push(message_id(2), b"p", places(client_id(1), C1), b"{}", first=True)
    desk.tell(desk.matcher, push)
    assert numbers(desk.connector) == [message_id(2)]
    desk.push(3, places(client_id(1), C1))
    [third] = sent(desk.connector, 12)
    assert isinstance(third, relay.Push)
    assert not third.first


def test_subscriptions_are_confirmed_when_every_matcher_has_them() -> None:
    desk = Desk()
    other = desk.joined("nodes", relay.Hello(b"match002", b"matcher"))
    change = relay.Subscribe(message_id(1), client_id(1), C1, b"default", b"{}")
    sent(desk.connector), sent(other)
    desk.tell(desk.connector, change)
    assert sent(desk.matcher) == [change]
    assert sent(other) == [change]
    desk.tell(desk.matcher, relay.Ack(message_id(1)))
    assert sent(desk.connector) == []
    desk.lose(other)
    assert sent(desk.connector) == [relay.Ack(message_id(1))]


def test_a_connector_speaks_for_itself_only() -> None:
    desk = Desk()
    desk.tell(desk.connector, relay.Unsubscribe(message_id(1), client_id(1), C2))
    desk.tell(desk.connector, relay.Claim(message_id(2), client_id(1), C2, 1))
    assert [type(one) for one in sent(desk.connector)] == [relay.Nak, relay.Nak]
    assert sent(desk.matcher) == []


def test_a_new_matcher_makes_connectors_tell_everything() -> None:
    desk = Desk()
    desk.joined("nodes", relay.Hello(b"match002", b"matcher"))
    [ask] = sent(desk.connector)
    assert isinstance(ask, relay.Sync)
    more = relay.Sync(message_id(1), b"match001", relay.SYNC_BEGIN)
    desk.tell(desk.matcher, more)
    assert sent(desk.connector) == []  # asked, and not begun yet: late enough for both
    desk.tell(desk.connector, relay.Sync(message_id(2), C1, relay.SYNC_BEGIN))
    desk.tell(desk.matcher, more)
    assert sent(desk.connector) == [ask]


def test_matchers_learn_which_connectors_are_ours() -> None:
    desk = Desk()
    desk.joined("connectors", relay.Hello(C3, b"connector"))
    [hello] = sent(desk.matcher)
    assert isinstance(hello, relay.Hello)
    assert hello.connectors == C1 + C3


class Started:
    """A dispatcher that dials two connectors, and a matcher that hears what it owns."""

    def __init__(self, connectors: tuple[str, ...] | None = ("c:1", "c:2")) -> None:
        self.port = RecordingPort()
        self.dispatcher = Dispatcher(self.port, b"disp0001", lambda: 1e9, connectors=connectors)
        self.matcher = RecordingLink("nodes")
        self.beat(0.0)
        self.join(self.matcher, relay.Hello(b"match001", b"matcher"))

    def beat(self, now: float) -> None:
        for key in self.port.due(now):
            self.dispatcher.wake(key, now)

    def join(self, link: RecordingLink, hello: relay.Hello) -> None:
        self.dispatcher.opened(link, 1.0)
        self.dispatcher.receive(link, hello.encode(), 1.0)

    def told(self) -> list[tuple[bytes, bool]]:
        """Connectors, and whether there may be more."""
        hellos = [one for one in sent(self.matcher) if isinstance(one, relay.Hello)]
        return [(one.connectors, one.more) for one in hellos]


def test_there_may_be_more_until_all_connectors_have_been_met() -> None:
    desk = Started()
    for node in (C1, C2):
        desk.join(RecordingLink("connectors"), relay.Hello(node, b"connector"))
    assert desk.told() == [(b"", True), (C1, True), (C1 + C2, False)]


def test_a_connector_that_does_not_come_has_its_time() -> None:
    desk = Started()
    desk.join(RecordingLink("connectors"), relay.Hello(C1, b"connector"))
    desk.beat(MEET_SECONDS)
    assert desk.told() == [(b"", True), (C1, True), (C1, False)]


def test_who_has_not_heard_of_any_member_may_own_some() -> None:
    desk = Started(connectors=None)
    desk.dispatcher.meet({}, {}, [], 2.0)
    assert desk.told() == [(b"", True), (b"", False)]
    assert Started(connectors=()).told() == [(b"", False)]


def test_a_second_link_of_the_same_node_replaces_the_first() -> None:
    desk = Desk()
    desk.push(1, places(client_id(1), C1))
    again = desk.joined("connectors", relay.Hello(C1, b"connector"))
    assert desk.connector.reason == "replaced by a newer link"
    assert numbers(again) == [message_id(1)]


def test_a_node_keeps_its_id() -> None:
    """One that said hello under another was known under both, and under the first for ever."""
    desk = Desk()
    desk.tell(desk.connector, relay.Hello(C3, b"connector"))
    [nak] = sent(desk.connector, 12)
    assert isinstance(nak, relay.Nak)
    assert nak.reason.startswith("malformed")
    desk.lose(desk.connector)
    assert desk.dispatcher.connectors == {}


def test_a_refused_question_is_refused_in_turn_and_costs_no_parcel() -> None:
    desk = Desk()
    desk.push(1, places(client_id(1), C1))
    desk.connector.take()
    told = relay.Subscribe(message_id(2), client_id(1), C1, b"default", b"{}")
    desk.tell(desk.peer, told)
    assert sent(desk.connector) == [told]
    desk.tell(desk.connector, relay.Nak(message_id(2), "queue-full disk", C1))
    assert sent(desk.peer) == [relay.Nak(message_id(2), "queue-full disk", C1)]
    assert sent(desk.matcher) == []
    desk.tell(desk.peer, told)  # asked anew
    assert sent(desk.connector) == [told]


def test_a_visit_is_told_to_all_other_connectors_and_not_answered() -> None:
    desk = Desk()
    third = desk.joined("connectors", relay.Hello(C3, b"connector"))
    for link in (third, desk.peer, desk.matcher):
        link.take()
    visit = relay.Claim(message_id(1), client_id(1), C1, 5, durable=False)
    desk.tell(desk.connector, visit)
    assert sent(third) == sent(desk.peer) == [visit]
    desk.tell(desk.peer, relay.Claim(message_id(2), client_id(1), C2, 6, durable=False))
    assert [len(sent(link)) for link in (third, desk.connector, desk.peer)] == [1, 1, 0]
    assert sent(desk.matcher) == []


MOVING = relay.Subscribe(message_id(9), client_id(1), C2, b"default", b'{"n":{"use":2}}')


def test_what_moves_comes_over_a_dispatcher_that_has_the_new_connectors_id() -> None:
    """The roles of one process share an id, and either may own the other's connector."""
    desk = Desk()
    beside = desk.joined("nodes", relay.Hello(C1, b"dispatcher"))
    told = relay.Subscribe(message_id(9), client_id(1), C1, b"default", b"{}")
    desk.tell(beside, told)
    assert told in sent(desk.connector)
    assert not [one for one in sent(beside) if isinstance(one, relay.Nak)]


def test_our_matchers_hear_of_a_subscription_that_moved_before_the_old_one_ends() -> None:
    desk = Desk()
    desk.tell(desk.connector, MOVING)
    assert sent(desk.peer) == [MOVING]
    assert sent(desk.matcher) == []
    desk.tell(desk.peer, relay.Ack(MOVING.message_id))
    [told] = sent(desk.matcher)
    assert isinstance(told, relay.Subscribe)
    assert told.moved
    assert (told.client, told.connector, told.fields) == (client_id(1), C2, MOVING.fields)
    assert sent(desk.connector) == [relay.Ack(MOVING.message_id)]


def test_a_subscription_whose_new_connector_is_lost_on_the_way_stays_where_it_is() -> None:
    desk = Desk()
    desk.tell(desk.connector, MOVING)
    desk.lose(desk.peer)
    [nak] = sent(desk.connector)
    assert isinstance(nak, relay.Nak)
    assert (nak.message_id, nak.connector) == (MOVING.message_id, C2)
    assert sent(desk.matcher) == []


# --- matchers that should be there --------------------------------------------------------------

M1, M2 = b"match001", b"match002"


class Awaiting(Desk):
    """The same, in a fabric that is told who its matchers are."""

    def meet(self, *matchers: bytes, now: float = 0.0) -> None:
        self.dispatcher.meet({C1: "c1:7004"}, {}, matchers, now)

    def subscribe(self, number: int) -> relay.Subscribe:
        change = relay.Subscribe(message_id(number), client_id(1), C1, b"default", b"{}")
        self.tell(self.connector, change)
        return change

    def agree(self, link: RecordingLink, number: int) -> None:
        self.tell(link, relay.Ack(message_id(number)))

    def confirmed(self) -> list[bytes]:
        acks = sent(self.connector, 12)
        return [one.message_id for one in acks if isinstance(one, relay.Ack)]

    def wait(self, until: float) -> None:
        port = self.dispatcher.port
        assert isinstance(port, RecordingPort)
        for key in port.due(until):
            self.dispatcher.wake(key, until)


def changes(link: RecordingLink) -> list[relay.Relayed]:
    return [one for one in sent(link) if isinstance(one, relay.Subscribe)]


def test_a_subscription_waits_for_a_matcher_that_is_a_member_and_is_told_to_it() -> None:
    desk = Awaiting()
    desk.meet(M1, M2)
    before = desk.dispatcher.met
    change = desk.subscribe(7)
    desk.agree(desk.matcher, 7)
    assert desk.confirmed() == []
    other = desk.joined("nodes", relay.Hello(M2, b"matcher"))
    assert changes(other) == [change]
    assert (before, desk.dispatcher.met) == (False, True)
    desk.agree(other, 7)
    assert desk.confirmed() == [message_id(7)]
    desk.subscribe(8)
    assert len(changes(other)) == 1, "from now on it is one of them"


def test_a_matcher_that_does_not_come_or_is_no_member_any_more_is_not_waited_for() -> None:
    desk = Awaiting()
    desk.meet(M1, M2)
    desk.subscribe(7)
    desk.agree(desk.matcher, 7)
    desk.wait(MEET_SECONDS - 0.1)
    assert desk.confirmed() == []
    desk.wait(MEET_SECONDS)
    assert desk.confirmed() == [message_id(7)]
    desk.meet(M1, M2, b"match003", now=10.0)
    desk.subscribe(8)
    desk.agree(desk.matcher, 8)
    assert desk.confirmed() == [], "the new one is waited for, the other was in vain"
    desk.meet(M1, M2, now=10.1)
    assert desk.confirmed() == [message_id(8)]


def test_a_matcher_whose_link_broke_is_told_when_it_is_back() -> None:
    desk = Awaiting()
    desk.meet(M1)
    change = desk.subscribe(7)
    desk.lose(desk.matcher)
    assert desk.confirmed() == []
    back = desk.joined("nodes", relay.Hello(M1, b"matcher"))
    assert changes(back) == [change]
    desk.agree(back, 7)
    assert desk.confirmed() == [message_id(7)]


def test_what_no_matcher_has_is_never_said_to_be_in_force() -> None:
    desk = Awaiting()
    desk.meet(M1)
    desk.lose(desk.matcher)
    desk.subscribe(7)
    desk.wait(BACK_SECONDS)
    assert desk.confirmed() == []
    back = desk.joined("nodes", relay.Hello(M1, b"matcher"))
    assert [one.phase for one in sent(desk.connector) if isinstance(one, relay.Sync)]
    assert changes(back) == [], "the sync tells it"


def test_matchers_named_at_the_start_have_their_time_from_the_first_beat() -> None:
    dispatcher = Dispatcher(RecordingPort(), b"disp0001", lambda: 1e9, matchers=[M1])
    port = dispatcher.port
    assert isinstance(port, RecordingPort)
    for key in port.due(100.0):
        dispatcher.wake(key, 100.0)
    assert port.timers[MEETING] == 100.0 + MEET_SECONDS
    before = dispatcher.met
    dispatcher.wake(MEETING, 100.0 + MEET_SECONDS)
    assert (before, dispatcher.met) == (False, True)


def test_a_session_that_moves_there_again_is_not_answered_for_by_the_move_before() -> None:
    """The connector has handed it back since: what is on its way now is another parcel."""
    desk = Desk()
    first, second = (
        relay.Push(message_id(1), b"p", places(client_id(1), C1), b"{}", moved=number)
        for number in (1000, 2000)
    )
    desk.tell(desk.peer, first)
    desk.tell(desk.peer, second)
    pushed = [one.moved for one in sent(desk.connector, 12) if isinstance(one, relay.Push)]
    assert pushed == [1000, 2000]
    for number in pushed:
        desk.tell(desk.connector, relay.Ack(message_id(1), client_id(1), moved=number))
    assert sent(desk.peer) == [relay.Ack(message_id(1), client_id(1), C1, 2000)]


def test_a_session_that_is_not_there_costs_no_other_one_its_parcels() -> None:
    desk = Desk()
    for number, client, moved in ((1, 1, 1000), (1, 2, 1000), (2, 2, 1000), (3, 1, 2000)):
        where = places(client_id(client), C1)
        desk.tell(desk.peer, relay.Push(message_id(number), b"p", where, b"{}", moved=moved))
    desk.push(4, places(client_id(3), C1))
    gone = relay.Nak(message_id(1), "gone", b"", client_id(1), 1000)
    late = relay.Nak(message_id(3), "gone", b"", client_id(1), 1000)
    for nak in (gone, gone, late):
        desk.tell(desk.connector, nak)
    assert sent(desk.peer) == [relay.Nak(message_id(1), "gone", C1, client_id(1), 1000)]
    assert sent(desk.matcher) == []
    left = [(one.message_id, one.clients) for one in desk.dispatcher.outboxes[C1]]
    due = ((1, 2), (2, 2), (3, 1), (4, 3))
    assert left == [(message_id(number), client_id(client)) for number, client in due]


def test_a_claim_is_answered_with_who_had_the_session_and_is_away() -> None:
    """And that one's word that it has handed over goes to who claimed."""
    desk, third = Desk(), b"conn0003"
    other = RecordingLink("connectors")
    desk.dispatcher.opened(other, 0.0)
    desk.tell(other, relay.Hello(third, b"connector"))
    desk.tell(other, relay.Claim(message_id(1), client_id(1), third, 1))
    desk.dispatcher.closed(other, 0.0)
    sent(desk.connector, 12)
    desk.tell(desk.connector, relay.Claim(message_id(2), client_id(1), C1, 2))
    desk.tell(desk.peer, relay.Ack(message_id(2)))
    acks = [one for one in sent(desk.connector, 12) if isinstance(one, relay.Ack)]
    assert acks[-1] == relay.Ack(message_id(2), away=(relay.Absence(third, 0),))
    back = RecordingLink("connectors")
    desk.dispatcher.opened(back, 0.0)
    desk.tell(back, relay.Hello(third, b"connector"))
    handed = relay.HandedOver(message_id(2), client_id(1), C1, third)
    desk.tell(back, handed)
    assert handed in sent(desk.connector, 12)
