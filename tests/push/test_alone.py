"""Sessions that come while a dispatcher is dead, or knows nobody yet: message by message."""

from __future__ import annotations

from homing.push.awaiting import HOLD_SECONDS
from homing.push.confirming import MEET_SECONDS
from homing.push.dispatcher import Dispatcher
from homing.push.move import REFUSED_SECONDS
from homing.push.places import places
from homing.testing import RecordingLink, RecordingPort
from homing.wire import relay
from tests.push.desk import Desk, client_id, message_id
from tests.push.test_dispatcher import C1, C2, sent
from tests.push.test_dispatcher import Desk as Dispatching
from tests.push.test_moves import (
    DURABLE,
    OTHER,
    acknowledge,
    all_but_the_end,
    claim_by_other,
    owing,
)

WAIT = 5.0


def come_alone(desk: Desk) -> RecordingLink:
    """A durable client whose connector has lost its dispatcher."""
    desk.connector.closed(desk.dispatcher, desk.now)
    link = desk.visit()
    desk.say(link, b"auth", desk.credentials(1, **DURABLE))
    return link


def come_back(desk: Desk) -> relay.Claim:
    """The dispatcher is there again; what it is asked."""
    desk.dispatcher = RecordingLink("dispatchers")
    desk.connector.opened(desk.dispatcher, desk.now)
    hello = relay.Hello(b"disp0001", b"dispatcher").encode()
    desk.connector.receive(desk.dispatcher, hello, desk.now)
    [claim] = [one for one in desk.sent() if isinstance(one, relay.Claim)]
    return claim


def moved(desk: Desk, number: int) -> None:
    push = relay.Push(message_id(number), b"", client_id(1), b'{"n":%d}' % number, moved=7)
    desk.connector.receive(desk.dispatcher, push.encode(), desk.now)
    desk.settle()


def older_comes_first(desk: Desk, link: RecordingLink, claim: relay.Claim) -> None:
    desk.push(2, 1)
    moved(desk, 1)
    assert desk.ids(link) == []
    desk.connector.receive(desk.dispatcher, relay.Ack(claim.message_id).encode(), desk.now)
    assert desk.ids(link) == [1, 2]


def test_who_comes_while_no_dispatcher_is_there_waits_for_one() -> None:
    desk = Desk()
    link = come_alone(desk)
    desk.wake(WAIT - 1)
    older_comes_first(desk, link, come_back(desk))


def test_after_its_wait_it_gets_what_is_here_and_waits_again_when_one_comes() -> None:
    desk, link = owing(1)
    desk.connector.closed(link, desk.now)
    link = come_alone(desk)
    assert desk.ids(link) == []
    desk.wake(WAIT + 1)
    assert desk.ids(link) == [1]
    claim = come_back(desk)
    desk.push(3, 1)
    moved(desk, 2)
    assert desk.ids(link) == []
    desk.connector.receive(desk.dispatcher, relay.Ack(claim.message_id).encode(), desk.now)
    assert desk.ids(link) == [2, 3]


def test_who_comes_when_they_have_been_gone_for_long_does_not_wait() -> None:
    desk, link = owing(1)
    desk.connector.closed(link, desk.now)
    desk.connector.closed(desk.dispatcher, desk.now)
    desk.wake(WAIT)
    link = desk.visit()
    desk.say(link, b"auth", desk.credentials(1, **DURABLE))
    assert desk.connector.durable[client_id(1)].early is None


def test_a_claim_whose_dispatcher_dies_is_made_anew_at_the_next() -> None:
    desk = Desk()
    link = desk.visit()
    desk.say(link, b"auth", desk.credentials(1, **DURABLE))
    [claim] = [one for one in desk.sent() if isinstance(one, relay.Claim)]
    desk.connector.closed(desk.dispatcher, desk.now)
    desk.wake(HOLD_SECONDS + 1)
    again = come_back(desk)
    assert again == claim
    older_comes_first(desk, link, again)


def test_a_move_that_begins_anew_is_not_over_before_its_subscriptions_are() -> None:
    """The same claim comes once more, over another way, while the matchers have not answered."""
    desk, _ = owing(0)
    claim = claim_by_other(desk, 1)
    ended = all_but_the_end(desk)
    assert isinstance(ended, relay.Unsubscribe)
    desk.connector.receive(desk.dispatcher, claim.encode(), desk.now)
    desk.connector.journaled(len(desk.port.events), desk.now)
    [again] = desk.sent()
    assert isinstance(again, relay.Unsubscribe)
    acknowledge(desk, again)
    assert relay.Ack(claim.message_id) in desk.sent()


def test_after_a_restart_a_session_without_subscriptions_ends_them_once_more() -> None:
    """Whether all matchers had heard of their end when it died nobody knows."""
    desk, _ = owing(0)
    claim_by_other(desk, 1)
    for message in desk.sent():
        acknowledge(desk, message)
    again = Desk(list(desk.port.events))
    claim = claim_by_other(again, 1)
    again.connector.journaled(len(again.port.events), again.now)
    [ended] = again.sent()
    assert isinstance(ended, relay.Unsubscribe)
    acknowledge(again, ended)
    assert relay.Ack(claim.message_id) in again.sent()


def test_a_claim_that_comes_again_is_served_soon_though_the_move_was_refused_often() -> None:
    desk, _ = owing(1)
    claim = claim_by_other(desk, 1)
    for _ in range(5):
        nak = relay.Nak(message_id(1), "no-service nobody holds that connector", OTHER)
        desk.connector.receive(desk.dispatcher, nak.encode(), desk.now)
        desk.wake(desk.now + 4.0)
    desk.connector.receive(desk.dispatcher, claim.encode(), desk.now)
    nak = relay.Nak(message_id(1), "no-service nobody holds that connector", OTHER)
    desk.connector.receive(desk.dispatcher, nak.encode(), desk.now)
    desk.sent()
    desk.wake(desk.now + REFUSED_SECONDS)
    assert [one for one in desk.sent() if isinstance(one, relay.Push)]


# --- dispatchers --------------------------------------------------------------------------------


class Young:
    """A dispatcher that has just started, has met its connector and not its peer."""

    def __init__(self) -> None:
        self.port = RecordingPort()
        peers = ["d2:7003"]
        self.dispatcher = Dispatcher(self.port, b"disp0001", lambda: 1e9, peers=peers)
        self.wake(0.0)
        self.connector = self.joined("connectors", relay.Hello(C1, b"connector"))
        self.claim = relay.Claim(message_id(1), client_id(1), C1, 5)
        self.dispatcher.receive(self.connector, self.claim.encode(), 0.0)

    def joined(self, plug: str, hello: relay.Hello) -> RecordingLink:
        link = RecordingLink(plug)
        self.dispatcher.opened(link, 0.0)
        self.dispatcher.receive(link, hello.encode(), 0.0)
        return link

    def wake(self, until: float) -> None:
        for key in self.port.due(until):
            self.dispatcher.wake(key, until)

    def answers(self, link: RecordingLink) -> list[relay.Relayed]:
        return [one for one in sent(link, 12) if isinstance(one, relay.Ack)]


def test_a_dispatcher_that_has_just_started_answers_a_claim_when_its_peers_have() -> None:
    desk = Young()
    assert desk.answers(desk.connector) == []
    peer = desk.joined("peers", relay.Hello(b"disp0002", b"dispatcher", connectors=C2))
    assert desk.claim in sent(peer)
    assert desk.answers(desk.connector) == []
    desk.dispatcher.receive(peer, relay.Ack(message_id(1)).encode(), 0.0)
    assert desk.answers(desk.connector) == [relay.Ack(message_id(1))]


def test_it_waits_for_peers_for_a_moment_only() -> None:
    desk = Young()
    desk.wake(MEET_SECONDS)
    assert desk.answers(desk.connector) == [relay.Ack(message_id(1))]


def test_a_claim_that_a_peer_told_of_before_it_asks_is_answered_when_it_is_done() -> None:
    desk = Young()
    claim = relay.Claim(message_id(2), client_id(1), C2, 6)
    hello = relay.Hello(b"disp0002", b"dispatcher", connectors=C2)
    peer, asking = desk.joined("peers", hello), desk.joined("nodes", hello)
    for link in (peer, asking):
        desk.dispatcher.receive(link, claim.encode(), 0.0)
    assert desk.answers(asking) == []
    desk.dispatcher.receive(desk.connector, relay.Ack(message_id(2)).encode(), 0.0)
    assert desk.answers(asking) == [relay.Ack(message_id(2))]


def test_what_another_matcher_sends_for_other_clients_is_refused_until_the_first_is_there() -> None:
    """It would be answered for those of the first, and be owed for ever."""
    desk = Dispatching()
    desk.push(7, places(client_id(1) + client_id(2), C1))
    other = desk.joined("nodes", relay.Hello(b"match002", b"matcher"))
    other.take()
    push = relay.Push(message_id(7), b"p", places(client_id(1), C1), b"{}")
    desk.tell(other, push)
    [nak] = sent(other)
    assert isinstance(nak, relay.Nak)
    desk.tell(desk.connector, relay.Ack(message_id(7), client_id(1) + client_id(2)))
    desk.tell(other, push)
    desk.tell(desk.connector, relay.Ack(message_id(7), client_id(1)))
    assert sent(other) == [relay.Ack(message_id(7), client_id(1), C1)]
