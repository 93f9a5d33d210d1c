"""Which other matchers have heard what we told: who is waited for, and for how long."""

from __future__ import annotations

from homing.push.hearing import NOTHING, PATIENCE, Hearing
from homing.testing import RecordingLink
from homing.wire import packet, publish, relay, status
from homing.wire.assembly import Assembler
from tests.push.test_matcher import C1, C2, Desk, message_id
from tests.push.test_neighbours import B, C, Others, an_earlier_life


def told(*names: str) -> Hearing:
    """All of these are there and have heard all, but for what is told now."""
    hearing = Hearing()
    for name in names:
        hearing.joined(name, 0.0)
        hearing.confirmed(name, hearing.told)
    hearing.told += 1
    hearing.need(10.0)
    return hearing


def test_all_that_are_there_are_waited_for() -> None:
    hearing = told("a", "b")
    assert hearing.reached(10.0) == 1
    assert hearing.patience(10.0) == 10.0 + PATIENCE
    hearing.confirmed("a", 2)
    assert hearing.reached(10.0) == 1
    hearing.confirmed("b", 2)
    assert hearing.reached(10.0) == 2


def test_nobody_there_nobody_waited_for() -> None:
    assert Hearing().reached(0.0) == Hearing().needed


def test_who_had_its_time_is_waited_for_again_when_it_has_heard_something() -> None:
    hearing = told("a")
    assert hearing.reached(10.0 + PATIENCE) == 2
    hearing.told += 1
    hearing.need(16.0)
    assert hearing.reached(16.0) == 3, "it is deaf: no more time for it"
    hearing.confirmed("a", 3)
    hearing.told += 1
    hearing.need(17.0)
    assert hearing.reached(17.0) == 3


def test_who_is_gone_has_its_time_from_then_and_none_more_by_coming_and_going() -> None:
    hearing = told("a")
    hearing.confirmed("a", 2)
    hearing.left("a", 12.0)
    assert hearing.reached(12.0) == NOTHING, "it may be back without what it had heard"
    hearing.joined("a", 13.0)
    hearing.left("a", 14.0)
    assert hearing.patience(14.0) == 12.0 + PATIENCE
    assert hearing.reached(12.0 + PATIENCE) == 2
    hearing.confirmed("a", 2)
    assert not hearing._heard, "and is forgotten"


def test_who_is_back_and_has_heard_all_counts_as_before() -> None:
    hearing = told("a")
    hearing.left("a", 10.5)
    hearing.joined("a", 11.0)
    assert hearing.reached(11.0) == NOTHING
    hearing.confirmed("a", 2)
    assert hearing.reached(11.0) == 2
    hearing.left("a", 20.0)
    assert hearing.patience(20.0) == 20.0 + PATIENCE


def test_whom_an_earlier_life_knew_has_its_time_from_when_it_is_asked_for() -> None:
    hearing = Hearing()
    hearing.expect(["a"])
    assert hearing.reached(100.0) == NOTHING
    assert hearing.patience(100.0) == 100.0 + PATIENCE
    assert hearing.reached(100.0 + PATIENCE) == hearing.needed


def test_who_does_not_confirm_is_not_waited_for() -> None:
    hearing = told("a")
    hearing.excuse("a")
    assert hearing.reached(10.0) == 2
    hearing.left("a", 11.0)
    assert hearing.reached(11.0) == 2


def confirmations(link: RecordingLink) -> list[int | None]:
    told = Assembler(1).receive(b"".join(link.take()), 0.0)
    return [status.confirmed(one) for one in told if one.command == packet.ACK]


def test_a_late_publication_is_acknowledged_when_the_others_have_heard_of_it() -> None:
    """Its publisher may be at another matcher the moment after."""
    desk = Others(B, C, number=1)
    desk.send(1)
    desk.sync_journal()
    desk.heard(B)
    desk.wake(1.0)
    assert desk.answers() == []
    number = [status.decode(one).number for one in desk.heard(B)][-1]
    desk.hear(C, number)
    desk.hear(B, number - 1)
    assert desk.answers() == []
    desk.hear(B, number)
    assert desk.answers() == [publish.Accepted(message_id(1), 1)]
    desk.send(2)
    desk.sync_journal()
    desk.wake(2.0)
    assert desk.answers() == [publish.Accepted(message_id(2), 1)], "no news"


def test_one_that_hears_nothing_keeps_a_publisher_waiting_only_so_long() -> None:
    desk = Others(B, number=1)
    desk.hear(B, 99)
    desk.send(1)
    desk.sync_journal()
    desk.matcher.closed(desk.links[B], 0.5)
    desk.links[B] = desk.join(B)
    desk.wake(1.0)
    desk.matcher.closed(desk.links[B], 2.0)
    desk.wake(PATIENCE + 0.4)
    assert desk.answers() == []
    desk.wake(PATIENCE + 0.5)
    assert desk.answers() == [publish.Accepted(message_id(1), 1)]


def test_a_status_is_confirmed_when_a_later_life_would_know_its_era() -> None:
    desk = Others(B)
    desk.say(desk.links[B], B, {}, number=7)
    assert confirmations(desk.links[B]) == [7]
    desk.say(desk.links[B], B, {}, late=C1, eras=[3, 3], number=8)
    desk.say(desk.links[B], B, {}, late=C1, eras=[3, 3], number=9)
    assert confirmations(desk.links[B]) == []
    desk.sync_journal()
    assert confirmations(desk.links[B]) == [8, 9]
    again = Desk([*desk.port.events], ready=False)
    again.send(1)
    assert again.matcher.owed.eras.current.number == 4, "though nobody has told it anything"


def test_what_an_earlier_life_owes_is_acknowledged_when_the_others_have_heard_of_it() -> None:
    """Its publisher sends again what it was not told, and may have been at none of them meanwhile."""
    desk = Desk(an_earlier_life(), ready=False)
    desk.hello(C1, C2)
    desk.send(2)
    for key in desk.port.due(1.0):
        desk.matcher.wake(key, 1.0)
    assert desk.answers() == []
    link = RecordingLink("status", B)
    desk.matcher.opened(link, 1.0)
    desk.matcher.receive(link, relay.Hello(B, b"matcher").encode(), 1.0)
    [told] = Assembler(1).receive(b"".join(link.take()[1:]), 0.0)
    desk.matcher.receive(link, status.confirm(status.decode(told).number), 1.0)
    assert desk.answers() == [publish.Accepted(message_id(2), 1)]
