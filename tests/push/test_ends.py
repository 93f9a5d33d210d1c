"""Matchers that are away when a session's subscriptions end, and may owe it something: who says so, to whom."""

from __future__ import annotations

import pytest

from homing.push.confirming import BACK_SECONDS, Absent
from homing.push.homes import Homes
from homing.testing import RecordingLink
from homing.wire import relay
from homing.wire.pushed import MAX_WAIT
from homing.wire.session import command
from tests.push import test_dispatcher
from tests.push.desk import NODE, Desk, client_id, message_id
from tests.push.test_dispatcher import C1, C2, C3, M1, M2, Awaiting, sent
from tests.push.test_moves import (
    DURABLE,
    OTHER,
    acknowledge,
    all_but_the_end,
    claim_by_other,
    owing,
)

GONE = relay.Absence(M1, 0)


def end(desk: Awaiting, number: int, name: bytes = b"") -> relay.Unsubscribe:
    change = relay.Unsubscribe(message_id(number), client_id(1), C1, name)
    desk.tell(desk.connector, change)
    return change


def acks(link: RecordingLink) -> list[relay.Relayed]:
    return [one for one in sent(link, 12) if isinstance(one, relay.Ack)]


# At a dispatcher


def test_an_end_waits_for_no_matcher_that_is_away_and_names_it() -> None:
    desk = Awaiting()
    desk.meet(M1, M2)
    other = desk.joined("nodes", relay.Hello(M2, b"matcher"))
    desk.lose(desk.matcher)
    end(desk, 7)
    assert acks(desk.connector) == [], "the other is there and has not answered"
    desk.agree(other, 7)
    assert acks(desk.connector) == [relay.Ack(message_id(7), away=(GONE,))]
    desk.wait(BACK_SECONDS)
    end(desk, 8)
    desk.agree(other, 8)
    assert acks(desk.connector) == [relay.Ack(message_id(8), away=(GONE,))], "it still is"
    end(desk, 9, b"default")
    desk.agree(other, 9)
    assert acks(desk.connector) == [relay.Ack(message_id(9))], "what a client asks for is in force"


def test_an_end_is_answered_though_no_matcher_is_there() -> None:
    desk = Awaiting()
    desk.meet(M1)
    desk.lose(desk.matcher)
    end(desk, 7)
    assert acks(desk.connector) == [relay.Ack(message_id(7), away=(GONE,))]


def test_a_matcher_that_is_back_in_time_is_asked_and_one_that_goes_is_named() -> None:
    desk = Awaiting()
    desk.meet(M1, M2)
    other = desk.joined("nodes", relay.Hello(M2, b"matcher"))
    desk.lose(desk.matcher)
    change = end(desk, 7)
    back = desk.joined("nodes", relay.Hello(M1, b"matcher"))
    assert change in sent(back)
    desk.agree(other, 7)
    assert acks(desk.connector) == []
    desk.agree(back, 7)
    assert acks(desk.connector) == [relay.Ack(message_id(7))]
    end(desk, 8)
    desk.agree(other, 8)
    desk.lose(back)
    assert acks(desk.connector) == [relay.Ack(message_id(8), away=(GONE,))]


def test_matchers_are_away_for_as_long_as_a_session_may_wait_for_them() -> None:
    absent = Absent([M1])
    assert absent.since(3.0) == {M1: 3.0}
    absent.begin(4.0)
    absent.lost(M2, 5.0)  # it is no member any more
    assert absent.since(6.0) == {M1: 4.0, M2: 5.0}
    absent.found(M2)
    absent.late(100.0)
    assert absent.since(4.0 + MAX_WAIT) == {M1: 4.0}
    assert absent.since(5.0 + MAX_WAIT) == {}


@pytest.mark.parametrize("through_a_peer", [False, True])
def test_a_connector_that_says_it_may_owe_something_is_believed_though_it_is_there(
    through_a_peer: bool,
) -> None:
    desk = test_dispatcher.Desk()
    third = desk.joined("connectors", relay.Hello(C3, b"connector"))
    desk.tell(desk.connector, relay.Claim(message_id(2), client_id(1), C1, 2))
    of_c2, of_c3 = (relay.Absence(one, 1000) for one in (C2, C3))
    if through_a_peer:
        desk.tell(third, relay.Ack(message_id(2)))
        desk.tell(desk.peer, relay.Ack(message_id(2), away=(of_c2, of_c3)))
    else:
        desk.tell(desk.peer, relay.Ack(message_id(2), away=(of_c3,)))
        desk.tell(third, relay.Ack(message_id(2), away=(of_c3,)))
    told = of_c2 if through_a_peer else of_c3
    assert acks(desk.connector) == [relay.Ack(message_id(2), away=(told,))]


def test_who_is_lost_before_it_has_answered_a_claim_may_have_had_the_session() -> None:
    desk = test_dispatcher.Desk()
    third = desk.joined("connectors", relay.Hello(C3, b"connector"))
    desk.tell(desk.connector, relay.Claim(message_id(2), client_id(1), C1, 2))
    desk.lose(desk.peer)
    desk.lose(third)
    away = (relay.Absence(C2, 0), relay.Absence(C3, 0))
    assert acks(desk.connector) == [relay.Ack(message_id(2), away=away)]


def test_a_connector_that_comes_while_a_claim_waits_is_asked_as_well() -> None:
    """It may have had the session; the claim was asked of others before it was there, and answered for it too."""
    desk = test_dispatcher.Desk()
    claim = relay.Claim(message_id(2), client_id(1), C1, 2)
    desk.tell(desk.connector, claim)
    late = desk.joined("connectors", relay.Hello(C3, b"connector"))
    assert claim in sent(late)
    desk.tell(desk.peer, relay.Ack(message_id(2)))
    assert acks(desk.connector) == []
    desk.tell(late, relay.Ack(message_id(2)))
    assert acks(desk.connector) == [relay.Ack(message_id(2))]


def test_a_peer_whose_connector_comes_while_a_claim_waits_is_asked_again() -> None:
    desk = test_dispatcher.Desk()
    other = desk.joined("peers", relay.Hello(b"disp0003", b"dispatcher"))
    claim = relay.Claim(message_id(2), client_id(1), C1, 2)
    desk.tell(desk.connector, claim)
    desk.tell(other, relay.Ack(message_id(2)))
    sent(other)
    desk.tell(other, relay.Hello(b"disp0003", b"dispatcher", connectors=C3))
    assert claim in sent(other)
    desk.tell(desk.peer, relay.Ack(message_id(2)))
    assert acks(desk.connector) == []
    desk.tell(other, relay.Ack(message_id(2)))
    assert acks(desk.connector) == [relay.Ack(message_id(2))]


def test_a_peer_that_dials_us_hears_at_once_where_sessions_are() -> None:
    """It may have been started anew, and our own dial may take a second."""
    desk = test_dispatcher.Desk()
    claim = relay.Claim(message_id(2), client_id(1), C1, 2)
    desk.tell(desk.connector, claim)
    caller = desk.joined("nodes", relay.Hello(b"disp0003", b"dispatcher"))
    assert claim in sent(caller)


def test_what_a_peer_knew_of_a_session_before_is_not_asked_once_more() -> None:
    """Its id is out of date: who was asked under it once more took it for another claim, and answered the one that is waited for."""
    desk = test_dispatcher.Desk()
    third = desk.joined("connectors", relay.Hello(C3, b"connector"))
    desk.tell(desk.connector, relay.Claim(message_id(3), client_id(1), C1, 3))
    sent(third)
    desk.tell(desk.peer, relay.Claim(message_id(2), client_id(1), C1, 2, owing=C2))
    assert sent(third) == []
    assert acks(desk.peer) == [relay.Ack(message_id(2))]
    caller = desk.joined("nodes", relay.Hello(b"disp0003", b"dispatcher"))
    assert relay.Claim(message_id(3), client_id(1), C1, 3, owing=C2) in sent(caller)


def test_a_connector_that_a_peer_knew_to_have_a_session_may_owe_it_something() -> None:
    """The peer says so where we have heard of a later claim: one that was started anew did not keep it."""
    desk = test_dispatcher.Desk()
    desk.tell(desk.connector, relay.Claim(message_id(3), client_id(1), C1, 3))
    desk.tell(desk.peer, relay.Claim(message_id(2), client_id(1), C2, 2))
    desk.lose(desk.peer)
    sent(desk.connector, 12)
    desk.tell(desk.connector, relay.Claim(message_id(4), client_id(1), C1, 4))
    assert acks(desk.connector) == [relay.Ack(message_id(4), away=(relay.Absence(C2, 0),))]


# At a connector


def moving(desk: Desk) -> tuple[relay.Claim, relay.Relayed]:
    """Another connector has claimed a session, and has all of it; the end of its subscriptions is not confirmed."""
    desk.sent()
    claim = claim_by_other(desk, 1)
    return claim, all_but_the_end(desk)


def tell(desk: Desk, message: relay.Relayed) -> list[relay.Relayed]:
    desk.connector.receive(desk.dispatcher, message.encode(), desk.now)
    return desk.sent()


def ended_but_for(desk: Desk, ended: relay.Relayed, seconds: float) -> list[relay.Relayed]:
    assert isinstance(ended, relay.Unsubscribe)
    away = (relay.Absence(M2, 60_000), relay.Absence(M1, int(1000 * seconds)))
    return tell(desk, relay.Ack(ended.message_id, away=away))


def test_what_a_matcher_that_is_away_may_owe_is_told_and_handed_over_when_it_is_back() -> None:
    desk, _ = owing(0)
    claim, ended = moving(desk)
    itself = relay.Absence(NODE, 500)
    assert ended_but_for(desk, ended, 0.5) == [relay.Ack(claim.message_id, away=(itself,))]
    asked = tell(desk, relay.Sync(bytes(12), NODE, relay.SYNC_BEGIN))
    assert asked[-1] == ended, "it is back, and answers behind all that it owes"
    desk.push(4, 1)
    late = [one for one in desk.settle() if isinstance(one, relay.Push)]
    assert [one.message_id for one in late] == [message_id(4)]
    assert tell(desk, relay.Ack(ended.message_id)) == []  # type: ignore[union-attr]
    acknowledge(desk, late[0])
    assert desk.sent() == [relay.HandedOver(claim.message_id, client_id(1), OTHER, NODE)]
    asked = tell(desk, relay.Sync(bytes(12), NODE, relay.SYNC_BEGIN))
    assert ended not in asked


def test_a_matcher_that_is_still_away_is_asked_for_with_the_next_that_comes() -> None:
    desk, _ = owing(0)
    claim, ended = moving(desk)
    ended_but_for(desk, ended, 0.5)
    for _ in range(2):
        desk.now += 1.0
        assert tell(desk, relay.Sync(bytes(12), NODE, relay.SYNC_BEGIN))[-1] == ended
        assert ended_but_for(desk, ended, 0.5 + desk.now) == []
    tell(desk, relay.Sync(bytes(12), NODE, relay.SYNC_BEGIN))
    handed = relay.HandedOver(claim.message_id, client_id(1), OTHER, NODE)
    assert tell(desk, relay.Ack(ended.message_id)) == [handed]  # type: ignore[union-attr]


def test_who_claims_next_is_told_as_well() -> None:
    desk, _ = owing(0)
    _, ended = moving(desk)
    ended_but_for(desk, ended, 0.5)
    stamp = int((desk.connector.wall() + 2.0) * 1e6)
    claim = relay.Claim(message_id(901), client_id(1), C3, stamp)
    tell(desk, claim)
    desk.connector.journaled(len(desk.port.events), desk.now)
    [again] = desk.sent()
    itself = relay.Absence(NODE, 700)
    assert ended_but_for(desk, again, 0.7) == [relay.Ack(claim.message_id, away=(itself,))]


def test_peers_are_told_who_owed_a_session_something_when_it_moved() -> None:
    """One that was started anew knows of none, and whom it asks may die before it has answered."""
    desk = test_dispatcher.Desk()
    third = desk.joined("connectors", relay.Hello(C3, b"connector"))
    desk.tell(third, relay.Claim(message_id(1), client_id(1), C3, 1))
    desk.lose(third)
    desk.tell(desk.connector, relay.Claim(message_id(2), client_id(1), C1, 2))
    caller = desk.joined("nodes", relay.Hello(b"disp0003", b"dispatcher"))
    [told] = [one for one in sent(caller) if isinstance(one, relay.Claim)]
    assert told == relay.Claim(message_id(2), client_id(1), C1, 2, owing=C3)
    other = Homes()
    other.settle(told)
    assert other.away(told, lambda connector: connector == C1, 5.0) == {C3: 0.0}


def test_what_a_peer_says_of_who_owes_is_kept_until_all_of_them_have_answered() -> None:
    """We reach that one through the peer, which has not asked it, and is gone when the client's connector asks us."""
    desk = test_dispatcher.Desk()
    desk.tell(desk.peer, relay.Claim(message_id(2), client_id(1), C1, 2, owing=C2))
    desk.lose(desk.peer)
    desk.tell(desk.connector, relay.Claim(message_id(3), client_id(1), C1, 3))
    assert relay.Ack(message_id(3), away=(relay.Absence(C2, 0),)) in acks(desk.connector)


def test_a_connector_that_was_started_again_claims_since_when_it_had_a_session() -> None:
    """With 0 the former one would take the session for its own, and say that it owes nothing."""
    desk = test_dispatcher.Desk()
    desk.tell(desk.connector, relay.Claim(message_id(2), client_id(1), C1, 2))
    sent(desk.peer)
    again = relay.Claim(message_id(3), client_id(1), C1, 0)
    desk.tell(desk.connector, again)
    assert sent(desk.peer) == [relay.Claim(message_id(3), client_id(1), C1, 2)]


@pytest.mark.parametrize("back", [False, True])
def test_what_is_found_late_stands_before_what_moved_though_its_client_was_gone_meanwhile(
    back: bool,
) -> None:
    """What moved had been put beside the rest when the client was gone, and what came then was taken for newer."""
    desk = Desk()
    link = desk.visit()
    words = [b"auth", desk.credentials(1, **DURABLE)]
    desk.say(link, *words)
    desk.connector.receive(link, command([b"sub", b"n", b'{"use":2}']), desk.now)
    [first, *_] = desk.settle()
    moved = relay.Push(message_id(3), b"", client_id(1), b'{"n":3}', moved=7)
    desk.connector.receive(desk.dispatcher, moved.encode(), desk.now)
    desk.settle()
    desk.connector.closed(link, desk.now)
    if back:
        link = desk.visit()
        desk.say(link, *words)
        [first, *_] = desk.sent()
    desk.push(2, 1)  # by a matcher that was away when the client came
    desk.settle()
    assert isinstance(first, relay.Claim)
    desk.connector.receive(desk.dispatcher, relay.Ack(first.message_id).encode(), desk.now)
    assert desk.ids(link if back else desk.auth_resumed(1)) == [2, 3]
