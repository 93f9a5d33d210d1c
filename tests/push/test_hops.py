"""Clients that leave connectors again before all of their sessions has come: message by message."""

from __future__ import annotations

from homing.push.moves import RETRY_SECONDS
from homing.push.shared import Shared, in_order
from homing.wire import relay
from tests.push.desk import NODE, Desk, client_id, message_id
from tests.push.test_matcher import C1, C2, EVERY_N
from tests.push.test_matcher import Desk as Matching
from tests.push.test_moves import (
    DURABLE,
    acknowledge,
    all_but_the_end,
    claim_by_other,
    move_away,
    owing,
)


def test_of_two_that_hand_a_session_to_each_other_the_one_with_the_later_claim_stays() -> None:
    """Started again, it had forgotten its claim; each took what the other had for what it had now. Simulated with seed 30128."""
    desk, _ = owing(1)
    desk = Desk(recovered=list(desk.port.events))
    given_in_to = claim_by_other(desk, 1)
    [ours] = [one for one in desk.sent() if isinstance(one, relay.Push)]
    later = given_in_to.time + 1
    theirs = relay.Push(ours.message_id, b"hello", client_id(1), b'{"n":1}', moved=later)
    desk.connector.receive(desk.dispatcher, theirs.encode(), desk.now)
    desk.settle()
    acknowledge(desk, ours)
    session = desk.connector.durable[client_id(1)]
    assert (len(session), session.move) == (1, None)


def test_what_came_late_and_mixed_is_in_order_when_the_client_is_back() -> None:
    """Two connectors sent it while the client was at neither, and have nothing more to send when it comes."""
    desk = Desk()
    link = desk.subscribed(1, **DURABLE)
    desk.connector.closed(link, desk.now)
    for number in (4, 1, 3):
        moved = relay.Push(message_id(number), b"", client_id(1), b'{"n":%d}' % number, moved=7)
        desk.connector.receive(desk.dispatcher, moved.encode(), desk.now)
    desk.push(2, 1)
    desk.settle()
    assert desk.ids(desk.auth_resumed(1)) == [1, 2, 3, 4]


def test_what_waits_is_in_order_after_a_restart_amid_a_move() -> None:
    desk = Desk()
    desk.subscribed(1, **DURABLE)
    desk.push(3, 1)
    for number in (1, 2):
        moved = relay.Push(message_id(number), b"", client_id(1), b'{"n":%d}' % number, moved=7)
        desk.connector.receive(desk.dispatcher, moved.encode(), desk.now)
    desk.settle()
    again = Desk(list(desk.port.events))
    assert again.ids(again.auth_resumed(1)) == [1, 2, 3]


def test_a_move_is_over_when_what_is_on_its_way_to_the_disk_has_gone_too() -> None:
    """The matchers say that the subscription has ended; what they sent before is here and not yet on disk."""
    desk, _ = owing(0)
    claim = claim_by_other(desk, 1)
    ended = all_but_the_end(desk)
    desk.push(1, 1)
    acknowledge(desk, ended)
    assert desk.sent() == [], "it is not over"
    desk.connector.journaled(len(desk.port.events), desk.now)
    [late, *_] = [one for one in desk.sent() if isinstance(one, relay.Push)]
    assert late.message_id == message_id(1)
    acknowledge(desk, late)
    assert relay.Ack(claim.message_id) in desk.sent()


def test_a_subscription_that_comes_after_its_client_has_gone_on_is_refused_for_a_moment() -> None:
    desk, _ = owing(0)
    move_away(desk)
    told = relay.Subscribe(message_id(5), client_id(1), NODE, b"default", b'{"n":{"use":2}}')
    desk.connector.receive(desk.dispatcher, told.encode(), desk.now)
    [nak] = desk.sent()
    assert isinstance(nak, relay.Nak)
    assert not desk.connector.durable[client_id(1)].subscriptions
    desk.now += RETRY_SECONDS + 1
    desk.connector.receive(desk.dispatcher, told.encode(), desk.now)
    assert desk.connector.durable[client_id(1)].subscriptions, (
        "who never hears of it is not kept waiting"
    )


def test_ids_whose_count_begins_anew_within_a_second_arein_order() -> None:
    counts = (0xFFFFFE, 0xFFFFFF, 0, 1)
    ids = [b"time" + b"maker" + count.to_bytes(3, "big") for count in counts]
    assert list(in_order({one: Shared(one, b"", b"{}") for one in (*ids[2:], *ids[:2])})) == ids


def test_what_moved_and_has_ended_since_is_not_in_force_again() -> None:
    """Its own connector said so before the former one's dispatcher told of it."""
    desk = Matching()
    desk.tell(relay.Subscribe(bytes(12), client_id(1), C2, b"default", EVERY_N))
    desk.tell(relay.Unsubscribe(bytes(12), client_id(1), C2))
    desk.tell(relay.Subscribe(bytes(12), client_id(1), C2, b"default", EVERY_N, True))
    assert len(desk.matcher.table) == 0


def test_what_moved_is_gone_with_a_sync_that_does_not_name_it() -> None:
    desk = Matching(ready=False)
    desk.hello(C1, C2)
    desk.tell(relay.Sync(bytes(12), C2, relay.SYNC_BEGIN))
    desk.tell(relay.Subscribe(bytes(12), client_id(1), C2, b"default", EVERY_N, True))
    assert len(desk.matcher.table) == 1
    desk.tell(relay.Sync(bytes(12), C2, relay.SYNC_END))
    assert len(desk.matcher.table) == 0


def test_an_end_is_confirmed_behind_what_waits_for_the_connector() -> None:
    """It was away, and what it is owed goes to it a moment after it said that a subscription has ended."""
    desk = Matching()
    desk.tell(relay.Subscribe(bytes(12), client_id(1), C1, b"default", EVERY_N))
    desk.send(1)
    desk.sync_journal()
    desk.tell(relay.Nak(message_id(1), "no-service it is away", C1))
    desk.relayed()
    desk.tell(relay.Unsubscribe(message_id(7), client_id(1), C1))
    assert desk.relayed() == []
    desk.matcher.wake(C1, 1.0)
    [push] = desk.relayed()
    assert isinstance(push, relay.Push)
    desk.tell(relay.Ack(message_id(1), client_id(1), C1))
    assert desk.relayed() == [relay.Ack(message_id(7))]
