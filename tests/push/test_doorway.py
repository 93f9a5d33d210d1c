"""The doorway: what a durable session is told of its subscriptions while the disk takes its time."""

from __future__ import annotations

import pytest

from homing.journal.events import SubscriptionRemoved, SubscriptionSet
from homing.push import doorway
from homing.testing import RecordingLink
from homing.wire import relay
from tests.push.desk import Desk

EVERY_N = b'{"use":2}'
DURABLE = {"ack": True, "resume": True}


def lines(desk: Desk, link: RecordingLink) -> list[str]:
    return [str(one) for one in desk.heard(link)]


def test_no_subscription_is_confirmed_before_it_is_on_disk() -> None:
    desk = Desk()
    link = desk.auth(1, **DURABLE)
    assert desk.say(link, b"subn", b"a", b"n", EVERY_N) == []
    desk.wake(2.5)
    desk.wake(9.5)
    assert lines(desk, link) == []
    desk.settle()
    assert lines(desk, link) == ["Status(+sub)"]


def test_once_on_disk_slow_matchers_have_their_time_and_no_more() -> None:
    desk = Desk()
    link = desk.auth(1, **DURABLE)
    desk.say(link, b"sub", b"n", EVERY_N)
    desk.wake(2.5)
    desk.now = 5.0
    desk.connector.journaled(len(desk.port.events), desk.now)
    assert lines(desk, link) == []
    desk.wake(7.5)
    assert lines(desk, link) == ["Status(+sub)"]


def test_what_the_disk_does_not_take_is_told_as_refused_and_holds_once_it_does() -> None:
    desk = Desk()
    link = desk.auth(1, **DURABLE)
    desk.say(link, b"subn", b"a", b"n", EVERY_N)
    desk.wake(2.5)
    desk.wake(12.5)
    [answer] = lines(desk, link)
    assert answer.startswith("Status(-command error: queue-full not on disk")
    told = desk.settle()  # the group in hand is written after all
    assert [one.name for one in told if isinstance(one, relay.Subscribe)] == [b"a"]
    assert lines(desk, link) == []
    assert [one.name for one in desk.port.events if isinstance(one, SubscriptionSet)] == [b"a"]


def test_what_is_removed_in_memory_only_is_not_said_to_be_gone() -> None:
    desk = Desk()
    link = desk.subscribed(1, **DURABLE)
    desk.say(link, b"unsub")
    desk.say(link, b"unsub")
    desk.wake(2.5)
    assert lines(desk, link) == []
    desk.settle()
    assert lines(desk, link) == ["Status(+unsub)", "Status(+unsub)"]
    assert len([one for one in desk.port.events if isinstance(one, SubscriptionRemoved)]) == 2


def test_too_many_changes_wait_for_no_matcher_but_for_the_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doorway, "MAX_CONFIRMING", 1)
    desk = Desk()
    link = desk.auth(1, **DURABLE)
    desk.say(link, b"subn", b"a", b"n", EVERY_N)
    desk.say(link, b"subn", b"b", b"n", EVERY_N)
    assert lines(desk, link) == []
    desk.connector.journaled(len(desk.port.events), desk.now)
    desk.wake(2.5)
    assert lines(desk, link) == ["Status(+sub)", "Status(+sub)"]


def test_a_connection_is_one_clients() -> None:
    desk = Desk()
    link = desk.auth(1)
    session = link.state.session
    assert str(desk.say(link, b"auth", b"{}")[0]).startswith("Status(-command error: authenticated")
    assert link.reason is None, "it stays"
    assert link.state.session is session


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([b"subn"], "subn takes"),
        ([b"unsub", b"a", b"b"], "unsub takes"),
        ([b"nonsense"], "unknown nonsense"),
    ],
)
def test_a_known_command_that_is_used_wrongly_is_not_called_unknown(
    words: list[bytes], told: str
) -> None:
    desk = Desk()
    [answer] = desk.say(desk.auth(1), *words)
    assert str(answer).startswith(f"Status(-command error: {told}")
