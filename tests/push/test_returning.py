"""Clients that come back to a connector where a matcher that is away owes them something from before they went."""

from __future__ import annotations

import pytest

from homing.push.returning import Returning
from homing.push.sessions import Limits
from homing.testing import RecordingLink
from homing.wire import relay
from tests.push.desk import NODE, Desk, client_id, message_id
from tests.push.test_moves import (
    DURABLE,
    OTHER,
    acknowledge,
    all_but_the_end,
    claim_by_other,
    owing,
)

PATIENCE = Limits().wait
MATCHER = b"match001"


def back(desk: Desk, away_for: float | None) -> tuple[RecordingLink, relay.Unsubscribe, bytes]:
    """A client went elsewhere and is back: what asks the matchers, and the claim.

    When it went a matcher was away, for so long, or nobody had confirmed the end.
    """
    claim_by_other(desk, 1)
    ended = all_but_the_end(desk)
    assert isinstance(ended, relay.Unsubscribe)
    if away_for is not None:
        answer(desk, ended.message_id, away_for)
    desk.now += 2.0
    link = desk.visit()
    desk.say(link, b"auth", desk.credentials(1, **DURABLE))
    told = desk.sent()
    [asked] = questions(told)
    [claim] = [one.message_id for one in told if isinstance(one, relay.Claim)]
    return link, asked, claim


def questions(told: list[relay.Relayed]) -> list[relay.Unsubscribe]:
    """The ends of nothing among them."""
    ends = [one for one in told if isinstance(one, relay.Unsubscribe) and not one.name]
    assert all(one.connector == NODE for one in ends)
    return [one for one in ends if one.client != client_id(1)]


def answer(desk: Desk, identity: bytes, away_for: float | None = None) -> None:
    """The matchers confirm an end, or a claim is answered; one may be away."""
    away = () if away_for is None else (relay.Absence(MATCHER, int(away_for * 1000)),)
    ack = relay.Ack(identity, away=away)
    desk.connector.receive(desk.dispatcher, ack.encode(), desk.now)


def a_matcher_is_back(desk: Desk) -> relay.Unsubscribe:
    sync = relay.Sync(bytes(12), NODE, relay.SYNC_BEGIN)
    desk.connector.receive(desk.dispatcher, sync.encode(), desk.now)
    [asked] = questions(desk.sent())
    return asked


@pytest.mark.parametrize("away_for", [0.0, None])
def test_a_client_that_is_back_waits_for_what_a_matcher_owes_it_there(
    away_for: float | None,
) -> None:
    """Simulated with seed 9422: it had gone elsewhere and come back while the matcher was away."""
    desk, _ = owing(0)
    link, asked, claim = back(desk, away_for)
    answer(desk, asked.message_id, away_for=2.0)
    answer(desk, claim)
    desk.push(5, 1)
    desk.settle()
    assert desk.ids(link) == []
    again = a_matcher_is_back(desk)
    desk.push(4, 1)
    answer(desk, again.message_id)
    assert desk.ids(link) == [], "what came is not on disk"
    desk.settle()
    assert desk.ids(link) == [4, 5]
    assert a_sync_asks_nothing(desk)


def a_sync_asks_nothing(desk: Desk) -> bool:
    sync = relay.Sync(bytes(12), NODE, relay.SYNC_BEGIN)
    desk.connector.receive(desk.dispatcher, sync.encode(), desk.now)
    return not questions(desk.sent())


def test_it_waits_for_as_long_as_it_says_from_when_the_matcher_went() -> None:
    desk, _ = owing(0)
    link, asked, claim = back(desk, away_for=1.0)
    answer(desk, claim)
    answer(desk, asked.message_id, away_for=3.0)
    desk.push(5, 1)
    desk.settle()
    desk.wake(PATIENCE - 1.1)
    assert desk.ids(link) == []
    desk.wake(PATIENCE - 0.9)
    assert desk.ids(link) == [5]


@pytest.mark.parametrize("away_for", [3.0, PATIENCE + 1.0])
def test_a_matcher_that_has_long_been_away_is_waited_for_no_longer_than_others(
    away_for: float,
) -> None:
    """Nobody had told when it went."""
    desk, _ = owing(0)
    link, asked, claim = back(desk, None)
    desk.push(5, 1)
    desk.settle()
    answer(desk, claim)
    answer(desk, asked.message_id, away_for)
    desk.wake(desk.now + PATIENCE - min(away_for, PATIENCE) + 0.1)
    assert desk.ids(link) == [5]


def test_a_client_that_everybody_has_let_go_waits_for_nobody() -> None:
    desk, _ = owing(0)
    claim_by_other(desk, 1)
    acknowledge(desk, all_but_the_end(desk))
    desk.now += 2.0
    desk.auth_resumed(1)
    assert questions(desk.sent()) == []


def test_when_it_goes_on_the_next_connector_waits_as_well() -> None:
    """What it asks for is not here yet: nothing but what it may be owed would have to end here."""
    desk, _ = owing(0)
    _, asked, _ = back(desk, away_for=0.0)
    claim = claim_by_other(desk, 1)
    [ended] = [one for one in desk.settle() if isinstance(one, relay.Unsubscribe)]
    answered = [one for one in desk.sent() if isinstance(one, relay.Ack | relay.HandedOver)]
    assert ended.client == client_id(1)
    handed = relay.HandedOver(claim.message_id, client_id(1), OTHER, NODE)
    assert answered == [relay.Ack(claim.message_id), handed]
    answer(desk, asked.message_id)


def test_an_answer_from_before_it_went_again_says_nothing() -> None:
    desk, _ = owing(0)
    _, early, _ = back(desk, away_for=0.0)
    link, asked, claim = back(desk, away_for=None)
    answer(desk, claim)
    answer(desk, early.message_id)
    desk.push(5, 1)
    desk.settle()
    assert desk.ids(link) == []
    answer(desk, asked.message_id)
    assert desk.ids(link) == [5]


def test_a_session_that_is_over_is_asked_about_no_more() -> None:
    desk, _ = owing(0)
    back(desk, away_for=0.0)
    desk.connector.end(desk.connector.durable[client_id(1)], "expired", desk.now)
    desk.sent()
    assert a_sync_asks_nothing(desk)


def test_a_connector_that_was_away_when_the_client_went_and_came_back_asks_too() -> None:
    """Simulated with seed 30328: what it was owed itself came behind what the other one handed over."""
    desk, _ = owing(0)
    desk = Desk(recovered=list(desk.port.events))
    link = desk.visit()
    desk.say(link, b"auth", desk.credentials(1, **DURABLE))
    [claim] = [one.message_id for one in desk.sent() if isinstance(one, relay.Claim)]
    for name in (b"default", b"default", b"other"):
        theirs = relay.Subscribe(message_id(800), client_id(1), NODE, name, b'{"n":{"use":2}}')
        desk.connector.receive(desk.dispatcher, theirs.encode(), desk.now)
    [asked] = questions(desk.sent())
    moved = relay.Push(message_id(5), b"", client_id(1), b'{"n":5}', moved=7)
    desk.connector.receive(desk.dispatcher, moved.encode(), desk.now)
    desk.settle()
    answer(desk, claim)
    desk.push(4, 1)
    answer(desk, asked.message_id)
    assert desk.ids(link) == []
    desk.settle()
    assert desk.ids(link) == [4, 5]


def test_without_dispatchers_nobody_is_asked_and_nothing_kept_for_the_answer() -> None:
    """A client that comes again and again meanwhile left a question each time."""
    made: list[bytes] = []

    def new_id() -> bytes:
        made.append(message_id(len(made)))
        return made[-1]

    returning = Returning(NODE, new_id)
    returning.note(client_id(1), 0.0)
    returning.ask([], client_id(1))
    assert not made
    link = RecordingLink("dispatchers")
    returning.ask([link])
    assert returning.answered(made[0], sure=True) == [client_id(1)]
