"""Sessions that move between connectors, message by message."""

from __future__ import annotations

import itertools

import pytest

from homing.push.doorway import CONFIRM_SECONDS
from homing.push.move import REFUSED_SECONDS
from homing.push.moves import MOVES, RETRY_SECONDS
from homing.push.sessions import Limits
from homing.testing import EPOCH, RecordingLink
from homing.wire import relay
from homing.wire.pushed import Push
from homing.wire.session import command
from tests.push.desk import NODE, Desk, client_id, message_id

OTHER = b"conn0002"
DURABLE = {"ack": True, "resume": True}
PATIENCE = Limits().wait  # of a session that does not say


def claim_by_other(desk: Desk, number: int, later: float = 1.0) -> relay.Claim:
    """Another connector let the client in, so much later than now."""
    stamp = int((EPOCH + desk.now + later) * 1e6)
    claim = relay.Claim(message_id(900), client_id(number), OTHER, stamp)
    desk.connector.receive(desk.dispatcher, claim.encode(), desk.now)
    return claim


def acknowledge(desk: Desk, message: relay.Relayed) -> None:
    """The new connector has it."""
    if isinstance(message, relay.Push):
        ack = relay.Ack(message.message_id, message.clients[:12], OTHER, message.moved)
    else:
        assert isinstance(message, relay.Subscribe | relay.Unsubscribe)
        ack = relay.Ack(message.message_id)
    desk.connector.receive(desk.dispatcher, ack.encode(), desk.now)


def move_away(desk: Desk) -> None:
    """Another connector claims the client's session, and takes all of it."""
    desk.sent()
    claim_by_other(desk, 1)
    for message in desk.sent():
        acknowledge(desk, message)
    desk.settle()
    desk.sent()


def all_but_the_end(desk: Desk) -> relay.Relayed:
    """A session that owes nothing is handed over; what is left, which ends its subscriptions here."""
    for message in desk.sent():
        acknowledge(desk, message)
    desk.connector.journaled(len(desk.port.events), desk.now)
    [ended] = desk.sent()
    return ended


def owing(count: int) -> tuple[Desk, RecordingLink]:
    """A connector that owes a client, who is here, so many publications."""
    desk = Desk()
    link = desk.subscribed(1, **DURABLE)
    for number in range(1, count + 1):
        desk.push(number, 1)
    desk.settle()
    assert desk.ids(link) == list(range(1, count + 1))
    return desk, link


def test_a_client_gets_nothing_before_its_claim_is_answered() -> None:
    desk = Desk()
    link = desk.visit()
    words = [b"auth", desk.credentials(1, **DURABLE)]
    assert [str(one) for one in desk.say(link, *words)] == ["Status(+authsuccess)"]
    [claim] = desk.sent()
    assert isinstance(claim, relay.Claim)
    assert (claim.client, claim.connector, claim.time) == (client_id(1), NODE, int(EPOCH * 1e6))
    desk.connector.receive(link, command([b"sub", b"n", b'{"use":2}']), desk.now)
    desk.settle()
    desk.push(2, 1)
    moved = relay.Push(message_id(1), b"old", client_id(1), b'{"n":1}', moved=True)
    desk.connector.receive(desk.dispatcher, moved.encode(), desk.now)
    desk.settle()
    assert desk.ids(link) == []
    desk.connector.receive(desk.dispatcher, relay.Ack(claim.message_id).encode(), desk.now)
    pushes = desk.heard(link)
    assert [(one.attrs["n"], one.redelivered) for one in pushes] == [(1, True), (2, False)]  # type: ignore[union-attr]


def test_a_claim_that_nobody_answers_holds_for_a_moment_only() -> None:
    desk = Desk()
    link = desk.visit()
    desk.say(link, b"auth", desk.credentials(1, **DURABLE))
    desk.connector.receive(link, command([b"sub", b"n", b'{"use":2}']), desk.now)
    desk.settle()
    desk.push(1, 1)
    desk.settle()
    desk.wake(PATIENCE - 0.1)
    assert desk.ids(link) == []
    desk.wake(PATIENCE + 0.1)
    assert desk.ids(link) == [1]


def test_a_session_is_handed_over_in_order_and_kept_until_it_is_there() -> None:
    desk, link = owing(3)
    desk.sent()
    claim = claim_by_other(desk, 1)
    assert [str(one) for one in desk.heard(link)] == ["Status(-replaced)"]
    told, *pushes = desk.sent()
    assert told == relay.Subscribe(
        told.message_id,  # type: ignore[union-attr]
        *(client_id(1), OTHER, b"default", b'{"n":{"use":2}}'),
    )
    assert [one.message_id for one in pushes if isinstance(one, relay.Push) and one.moved] == [
        message_id(number) for number in (1, 2, 3)
    ]
    session = desk.connector.durable[client_id(1)]
    for left, message in zip((3, 3, 2), [told, *pushes], strict=False):
        assert len(session) == left
        acknowledge(desk, message)
    assert desk.sent() == []  # one is still under way
    acknowledge(desk, pushes[-1])
    desk.connector.journaled(len(desk.port.events), desk.now)
    [ended] = desk.sent()
    assert isinstance(ended, relay.Unsubscribe)
    assert not session.subscriptions
    desk.push(4, 1)  # a matcher had found it before
    late = [one for one in desk.settle() if isinstance(one, relay.Push)]
    assert [(one.message_id, one.moved) for one in late] == [(message_id(4), claim.rank[0])]
    acknowledge(desk, ended)
    assert desk.sent() == []  # nothing more is to come, but this is not there yet
    acknowledge(desk, late[0])
    handed = relay.HandedOver(claim.message_id, client_id(1), OTHER, NODE)
    assert desk.sent() == [relay.Ack(claim.message_id), handed]
    desk.wake(desk.connector.store.limits.away + 10.0)
    assert client_id(1) not in desk.connector.durable


def test_what_is_said_of_an_earlier_move_is_not_of_this_one() -> None:
    """The other connector had it, and has handed it back since: it would be nowhere."""
    desk, _ = owing(1)
    desk.sent()
    claim_by_other(desk, 1)
    [first] = [one for one in desk.sent() if isinstance(one, relay.Push)]
    desk.now += 2.0
    desk.auth_resumed(1)  # the client is back
    desk.sent()
    claim_by_other(desk, 1)
    [second] = [one for one in desk.sent() if isinstance(one, relay.Push)]
    assert first.message_id == second.message_id
    session = desk.connector.durable[client_id(1)]
    acknowledge(desk, first)
    assert len(session) == 1
    acknowledge(desk, second)
    assert len(session) == 0


def test_what_several_connectors_held_comes_in_the_order_of_its_publisher() -> None:
    desk = Desk()
    link = desk.visit()
    desk.say(link, b"auth", desk.credentials(1, **DURABLE))
    [claim] = desk.sent()
    desk.connector.receive(link, command([b"sub", b"n", b'{"use":2}']), desk.now)
    desk.settle()
    desk.push(5, 1)
    for number in (3, 4, 1, 2):
        attributes = b'{"n":%d}' % number
        moved = relay.Push(message_id(number), b"", client_id(1), attributes, moved=7)
        desk.connector.receive(desk.dispatcher, moved.encode(), desk.now)
    desk.settle()
    assert isinstance(claim, relay.Claim)
    desk.connector.receive(desk.dispatcher, relay.Ack(claim.message_id).encode(), desk.now)
    assert desk.ids(link) == [1, 2, 3, 4, 5]


def test_a_client_that_begins_anew_gets_nothing_of_what_it_had_elsewhere() -> None:
    """As at its own connector; the other one is told that it need not keep it."""
    desk = Desk()
    link = desk.subscribed(1, ack=True)
    changed = relay.Subscribe(message_id(60), client_id(1), NODE, b"old", b'{"m":{"use":2}}')
    moved = relay.Push(message_id(1), b"old", client_id(1), b'{"n":1}', moved=7)
    for message in (changed, moved):
        desk.connector.receive(desk.dispatcher, message.encode(), desk.now)
    node = desk.connector.node
    assert desk.settle() == [
        relay.Ack(message_id(60)),
        relay.Ack(message_id(1), client_id(1), node, 7),
    ]
    assert list(desk.connector.durable[client_id(1)].subscriptions) == ["default"]
    assert desk.ids(link) == []


def test_an_older_claim_changes_nothing() -> None:
    desk, link = owing(1)
    desk.sent()
    claim = claim_by_other(desk, 1, later=-1.0)
    assert desk.sent() == [relay.Ack(claim.message_id)]
    assert desk.heard(link) == []
    assert len(desk.connector.durable[client_id(1)]) == 1


def test_what_gets_no_answer_is_sent_again_from_the_start() -> None:
    desk, _ = owing(2)
    desk.sent()
    claim_by_other(desk, 1)
    first = desk.sent()
    acknowledge(desk, first[1])
    desk.wake(RETRY_SECONDS + 5.0)
    again = [one for one in desk.sent() if isinstance(one, relay.Push | relay.Subscribe)]
    assert [type(one) for one in again] == [relay.Subscribe, relay.Push]
    assert again[1].message_id == message_id(2)


@pytest.mark.parametrize("gone", [False, True])
def test_a_refused_move_is_tried_again_unless_there_is_no_such_session(gone: bool) -> None:
    desk, _ = owing(1)
    desk.sent()
    claim = claim_by_other(desk, 1)
    reason = "gone there is no such session here" if gone else "queue-full"
    nak = relay.Nak(message_id(1), reason, OTHER).encode()
    desk.connector.receive(desk.dispatcher, nak, desk.now)
    session = desk.connector.durable[client_id(1)]
    assert (session.move is None) is gone
    assert (relay.Ack(claim.message_id) in desk.sent()) is gone
    assert session.subscriptions
    assert len(session) == 1


def test_a_session_that_is_not_there_lets_others_move_there() -> None:
    """They are owed the same publication; and what is said of an earlier move says nothing of this one."""
    desk = Desk()
    for number in (1, 2):
        desk.subscribed(number, **DURABLE)
    desk.push(1, 1, 2)
    desk.settle()
    claims = {number: claim_by_other(desk, number) for number in (1, 2)}
    desk.sent()
    for number, moved in ((1, claims[1].time), (2, claims[2].time - 1)):
        gone = relay.Nak(message_id(1), "gone", OTHER, client_id(number), moved)
        desk.connector.receive(desk.dispatcher, gone.encode(), desk.now)
    moving = [desk.connector.durable[client_id(number)].move is not None for number in (1, 2)]
    assert moving == [False, True]


def forwarded(desk: Desk) -> list[bytes]:
    return [one.message_id for one in desk.sent() if isinstance(one, relay.Push)]


def test_a_refused_move_is_tried_again_soon_and_then_less_and_less_often() -> None:
    desk, _ = owing(1)
    desk.sent()
    claim_by_other(desk, 1)
    tries = []
    while desk.now < 20.0:
        if forwarded(desk):
            tries.append(desk.now)
            for _ in range(2):  # the second one tells nothing new
                nak = relay.Nak(message_id(1), "no-service nobody here holds it", OTHER).encode()
                desk.connector.receive(desk.dispatcher, nak, desk.now)
        desk.wake(desk.now + 0.25)
    pauses = [later - at for at, later in itertools.pairwise(tries)]
    assert pauses[:6] == [0.25, 0.5, 1.0, 2.0, RETRY_SECONDS, RETRY_SECONDS]


def test_a_move_that_loses_its_dispatcher_goes_on_over_the_next() -> None:
    desk, _ = owing(2)
    desk.sent()
    claim_by_other(desk, 1)
    assert forwarded(desk) == [message_id(1), message_id(2)]
    desk.connector.closed(desk.dispatcher, desk.now)
    desk.wake(REFUSED_SECONDS)
    desk.dispatcher = RecordingLink("dispatchers")
    desk.join(desk.dispatcher, b"disp0002")
    desk.wake(3 * REFUSED_SECONDS)
    assert forwarded(desk) == [message_id(1), message_id(2)]


def test_a_session_that_has_moved_does_nothing_when_a_dispatcher_is_lost() -> None:
    desk, _ = owing(1)
    move_away(desk)
    settled = desk.connector.durable[client_id(1)].move
    assert settled is not None
    before = settled.settled
    desk.now = 1.0
    desk.connector.closed(desk.dispatcher, desk.now)
    assert MOVES not in desk.port.timers
    assert settled.settled == before


def test_a_push_for_a_session_that_is_not_here_is_refused() -> None:
    desk = Desk()
    moved = relay.Push(message_id(1), b"old", client_id(1), b'{"n":1}', moved=True)
    desk.connector.receive(desk.dispatcher, moved.encode(), desk.now)
    [nak] = desk.sent()
    assert isinstance(nak, relay.Nak)
    assert nak.reason.startswith("gone")
    assert (nak.clients, nak.moved) == (client_id(1), 1)


def test_a_client_that_comes_back_stays() -> None:
    desk, _ = owing(2)
    claim = claim_by_other(desk, 1)
    desk.now = 5.0
    link = desk.auth_resumed(1)
    assert desk.ids(link) == [1, 2]
    assert desk.connector.durable[client_id(1)].move is None
    assert relay.Ack(claim.message_id) in desk.sent()


@pytest.mark.parametrize("restarted", [False, True])
def test_what_was_handed_over_may_come_back_with_the_client(restarted: bool) -> None:
    """It had moved on before it got it: the other connector owes it, and hands it over again."""
    desk, _ = owing(2)
    move_away(desk)
    if restarted:
        desk = Desk(recovered=list(desk.port.events))
    desk.now += 5.0
    link = desk.auth(1, **DURABLE)
    for number in (1, 2, 1):  # one of them twice: its ack was lost
        back = relay.Push(message_id(number), b"", client_id(1), b'{"n":%d}' % number, moved=True)
        desk.connector.receive(desk.dispatcher, back.encode(), desk.now)
    desk.settle()
    pushes = desk.heard(link)
    assert [(one.attrs["n"], one.redelivered) for one in pushes] == [(1, True), (2, True)]  # type: ignore[union-attr]


def test_what_comes_before_the_subscriptions_are_back_is_owed() -> None:
    """A matcher had found the session here before it left; its client is back before that came."""
    desk, _ = owing(1)
    move_away(desk)
    assert not desk.connector.durable[client_id(1)].subscriptions
    desk.now += 5.0
    link = desk.visit()
    desk.say(link, b"auth", desk.credentials(1, **DURABLE))
    [claim] = [one for one in desk.sent() if isinstance(one, relay.Claim)]
    desk.push(7, 1)
    desk.settle()
    assert desk.ids(link) == []
    adopted = relay.Subscribe(message_id(800), client_id(1), NODE, b"default", b'{"n":{"use":2}}')
    desk.connector.receive(desk.dispatcher, adopted.encode(), desk.now)
    desk.settle()
    desk.connector.receive(desk.dispatcher, relay.Ack(claim.message_id).encode(), desk.now)
    [push] = desk.heard(link)
    assert (push.attrs["n"], push.subs) == (7, ["default"])  # type: ignore[union-attr]


def test_what_was_refused_for_want_of_a_session_is_taken_from_its_former_connector() -> None:
    desk = Desk()
    desk.push(1, 1)  # before the client is here
    desk.settle()
    link = desk.subscribed(1, **DURABLE)
    moved = relay.Push(message_id(1), b"old", client_id(1), b'{"n":1}', moved=True)
    for _ in range(2):
        desk.connector.receive(desk.dispatcher, moved.encode(), desk.now)
        desk.settle()
    assert desk.ids(link) == [1]
    desk.say(link, b"ack", message_id(1).hex().encode())
    desk.connector.receive(desk.dispatcher, moved.encode(), desk.now)  # it has it: not once more
    desk.settle()
    assert desk.ids(link) == []


def test_a_full_disk_refuses_a_subscription_that_moves_here() -> None:
    desk = Desk()
    desk.auth(1, **DURABLE)
    told = relay.Subscribe(message_id(1), client_id(1), NODE, b"default", b'{"n":{"use":2}}')
    desk.port.full = True
    desk.connector.receive(desk.dispatcher, told.encode(), desk.now)
    [refusal] = desk.sent()
    assert isinstance(refusal, relay.Nak)
    assert (refusal.message_id, refusal.connector) == (message_id(1), NODE)
    assert refusal.reason.startswith("queue-full")
    desk.port.full = False
    desk.connector.receive(desk.dispatcher, told.encode(), desk.now)
    desk.settle()
    assert desk.connector.durable[client_id(1)].names == ("default",)


def test_a_client_without_a_durable_session_is_at_one_connector() -> None:
    desk = Desk()
    link = desk.visit()
    desk.say(link, b"auth", desk.credentials(1))
    [visit] = desk.sent()
    assert visit == relay.Claim(
        visit.message_id,  # type: ignore[union-attr]
        *(client_id(1), NODE, int(EPOCH * 1e6)),
        durable=False,
    )
    for later, heard in ((-1.0, []), (1.0, ["Status(-replaced)"])):
        stamp = int((EPOCH + later) * 1e6)
        other = relay.Claim(message_id(900), client_id(1), OTHER, stamp, durable=False)
        desk.connector.receive(desk.dispatcher, other.encode(), desk.now)
        assert [str(one) for one in desk.heard(link)] == heard
    assert desk.sent() == []  # a visit is not answered
    assert client_id(1) not in desk.connector.sessions


def test_a_visit_elsewhere_leaves_a_durable_session_where_it_is() -> None:
    desk, link = owing(2)
    desk.sent()
    stamp = int((EPOCH + desk.now + 1) * 1e6)
    visit = relay.Claim(message_id(900), client_id(1), OTHER, stamp, durable=False)
    desk.connector.receive(desk.dispatcher, visit.encode(), desk.now)
    assert [str(one) for one in desk.heard(link)] == ["Status(-replaced)"]
    assert desk.sent() == []
    assert desk.ids(desk.auth_resumed(1)) == [1, 2]


def test_after_a_restart_a_session_that_had_moved_takes_what_still_comes_for_it() -> None:
    """The connector does not know any more that it moved; whoever has the client will claim it."""
    desk, _ = owing(1)
    move_away(desk)
    desk = Desk(recovered=list(desk.port.events))
    desk.wake(12.0)  # beats: the matcher that found it here was away too
    desk.push(7, 1)
    desk.settle()
    claim_by_other(desk, 1)
    moved = [one for one in desk.sent() if isinstance(one, relay.Push)]
    assert [one.message_id for one in moved] == [message_id(7)]


def test_sessions_that_have_moved_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("homing.push.moves.MAX_LINGERING", 2)
    desk = Desk()
    for number in range(1, 5):
        desk.subscribed(number, **DURABLE)
        desk.sent()
        claim_by_other(desk, number)
        for message in desk.sent():
            acknowledge(desk, message)
        desk.settle()
    assert len(desk.connector.durable) == 4
    desk.wake(desk.now + 10.0)
    assert list(desk.connector.durable) == [client_id(3), client_id(4)]


def test_a_subscription_that_is_on_its_way_is_answered_for_when_it_is_there() -> None:
    """The client asked anew here; until the matchers have that, the old one must not end."""
    desk = Desk()
    link = desk.auth(1, **DURABLE)
    desk.sent()
    desk.connector.receive(
        link, command([b"sub", b"n", b'{"use":2,"low":5}']), desk.now
    )  # not on disk yet
    theirs = relay.Subscribe(message_id(800), client_id(1), NODE, b"default", b'{"n":{"use":2}}')
    desk.connector.receive(desk.dispatcher, theirs.encode(), desk.now)
    assert desk.sent() == []
    desk.connector.journaled(len(desk.port.events), desk.now)
    own, again = desk.sent()
    assert isinstance(own, relay.Subscribe)
    assert isinstance(again, relay.Subscribe)
    assert own.fields == again.fields != theirs.fields
    desk.connector.receive(desk.dispatcher, relay.Ack(own.message_id).encode(), desk.now)
    assert desk.sent() == []
    desk.connector.receive(desk.dispatcher, relay.Ack(again.message_id).encode(), desk.now)
    assert desk.sent() == [relay.Ack(theirs.message_id)]


def test_a_subscription_that_nobody_confirms_is_not_answered_for() -> None:
    desk = Desk()
    desk.auth(1, **DURABLE)
    theirs = relay.Subscribe(message_id(800), client_id(1), NODE, b"default", b'{"n":{"use":2}}')
    desk.connector.receive(desk.dispatcher, theirs.encode(), desk.now)
    desk.connector.journaled(len(desk.port.events), desk.now)
    desk.sent()
    desk.wake(desk.now + CONFIRM_SECONDS)
    naks = [one for one in desk.sent() if isinstance(one, relay.Nak)]
    assert [(one.message_id, one.connector) for one in naks] == [(theirs.message_id, NODE)]


@pytest.mark.parametrize("before", ["nowhere", "elsewhere", "nobody knows"])
def test_what_was_published_in_the_second_a_client_came_is_flagged_if_it_was_elsewhere(
    before: str,
) -> None:
    desk = Desk()
    link = desk.visit()
    desk.say(link, b"auth", desk.credentials(1, **DURABLE))
    desk.connector.receive(link, command([b"sub", b"n", b'{"use":2}']), desk.now)
    if before == "elsewhere":
        theirs = relay.Subscribe(message_id(1), client_id(1), NODE, b"default", b'{"n":{"use":2}}')
        desk.connector.receive(desk.dispatcher, theirs.encode(), desk.now)
    if before == "nobody knows":
        desk.wake(PATIENCE)
    else:
        desk.grant()
    desk.settle()
    for second in (0, 1):
        identity = int(EPOCH + second).to_bytes(4, "big") + bytes(8)
        push = relay.Push(identity, b"hello", client_id(1), b'{"n":1}')
        desk.connector.receive(desk.dispatcher, push.encode(), desk.now)
    desk.settle()
    flags = [one.redelivered for one in desk.heard(link) if isinstance(one, Push)]
    assert flags == [before != "nowhere", False]
