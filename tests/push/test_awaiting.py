"""Sessions that wait for connectors that are away: who says so, and until when."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.errors import ConfigError
from homing.push.awaiting import HOLD_SECONDS, Awaiting
from homing.push.homes import Homes
from homing.push.sessions import Limits, Session, Store
from homing.push.subscriber import Subscriber
from homing.testing import RecordingLink
from homing.wire import relay
from homing.wire.pushed import Wait
from tests.push.desk import NODE, Desk, client_id, message_id

X, Y, Z = b"conn000X", b"conn000Y", b"conn000Z"


def claim(connector: bytes, time: int) -> relay.Claim:
    return relay.Claim(message_id(time), client_id(1), connector, time)


def waiting(patience: float = 10.0) -> tuple[Awaiting, RecordingLink]:
    link = RecordingLink("dispatchers")
    session = Session(client_id(1), True, "spill", Store(Limits(wait=patience)))
    return Awaiting(session, [link], 0.0), link


@given(st.floats(0, 600), st.integers(0, 1_000_000))
def test_nobody_is_waited_for_longer_than_the_session_says(patience: float, away: int) -> None:
    awaiting, link = waiting(patience)
    awaiting.heard(link, [relay.Absence(X, away)], 0.0)
    assert awaiting.waits == (patience > away / 1000)
    if awaiting.waits:
        assert awaiting.due <= max(HOLD_SECONDS, patience)
        assert awaiting.overdue(0, False, awaiting.due)


def test_who_has_handed_over_is_not_waited_for() -> None:
    awaiting, link = waiting()
    awaiting.handed_over(X)
    awaiting.heard(link, [relay.Absence(X, 0), relay.Absence(Y, 0)], 0.0)
    assert list(awaiting.away) == [Y]
    assert not awaiting.overdue(3, False, 10.0), "something came"
    assert not awaiting.overdue(3, True, 20.0), "something is on its way to the disk"
    awaiting.handed_over(Y)
    assert awaiting.done


@pytest.mark.parametrize(("patience", "due"), [(0.0, HOLD_SECONDS), (10.0, 10.0)])
def test_who_is_silent_is_waited_for_as_long_as_the_session_says(
    patience: float, due: float
) -> None:
    """A disk that is busy for seconds made the rest of a session come behind what was newer."""
    awaiting, _ = waiting(patience)
    assert awaiting.due == due
    assert awaiting.overdue(0, False, due)


def away(homes: Homes, one: relay.Claim, here: set[bytes], now: float) -> dict[bytes, float]:
    homes.answered(one, here.__contains__)
    return homes.away(one, here.__contains__, now)


def test_those_who_had_a_session_and_were_away_are_remembered_until_they_have_handed_over() -> None:
    homes, here = Homes(), {Y, Z}
    homes.settle(claim(X, 1))
    homes.lost(X, 5.0)
    homes.settle(claim(Y, 2))
    assert away(homes, claim(Y, 2), here, 7.0) == {X: 2.0}
    homes.settle(claim(Z, 3))
    assert away(homes, claim(Z, 3), here, 8.0) == {X: 3.0}
    homes.handed_over(client_id(1), X)
    assert away(homes, claim(Z, 3), here, 9.0) == {}
    homes.settle(claim(Y, 4))
    assert away(homes, claim(Y, 4), {X, Y, Z}, 9.0) == {}


@pytest.mark.parametrize(("said", "told"), [(8.0, True), (None, False)])
def test_a_client_is_told_that_it_waits_if_it_knows_of_waiting(
    said: float | None, told: bool
) -> None:
    desk = Desk()
    link = desk.visit()
    desk.say(link, b"auth", desk.credentials(1, ack=True, resume=True, wait=said))
    [claimed] = [one for one in desk.sent() if isinstance(one, relay.Claim)]
    away = relay.Ack(claimed.message_id, away=(relay.Absence(X, 3000),))
    desk.connector.receive(desk.dispatcher, away.encode(), desk.now)
    assert (desk.heard(link) == [Wait(5.0, [X.hex()])]) is told
    assert desk.connector.moves.waiting == 1
    for number, moved in ((2, 0), (1, 7)):
        push = relay.Push(message_id(number), b"", client_id(1), b'{"n":%d}' % number, moved=moved)
        desk.connector.receive(desk.dispatcher, push.encode(), desk.now)
    desk.settle()
    assert desk.ids(link) == []
    handed = relay.HandedOver(claimed.message_id, client_id(1), NODE, X)
    desk.connector.receive(desk.dispatcher, handed.encode(), desk.now)
    assert desk.ids(link) == [1, 2]
    assert (desk.connector.moves.waiting, desk.connector.moves.waits) == (0, 1)


@pytest.mark.parametrize("wait", [-1, 601])
def test_a_wait_beyond_the_limits_is_refused(wait: float) -> None:
    desk = Desk()
    [answer] = desk.say(desk.visit(), b"auth", desk.credentials(1, ack=True, wait=wait))
    assert str(answer).startswith("Status(-auth error")
    with pytest.raises(ConfigError):
        Subscriber(client_id(1).hex(), wait=wait)


def test_a_connector_without_a_dispatcher_claims_when_one_comes() -> None:
    desk = Desk()
    desk.connector.closed(desk.dispatcher, desk.now)
    desk.connector.moves.cut = 0  # it has just started
    link = desk.visit()
    desk.say(link, b"auth", desk.credentials(1, ack=True, resume=True))
    session = desk.connector.durable[client_id(1)]
    assert session.early is not None
    desk.dispatcher = RecordingLink("dispatchers")
    desk.connector.opened(desk.dispatcher, desk.now)
    hello = relay.Hello(b"disp0001", b"dispatcher").encode()
    desk.connector.receive(desk.dispatcher, hello, desk.now)
    desk.grant()
    assert session.early is None
