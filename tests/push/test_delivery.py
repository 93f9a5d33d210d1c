"""What a connector delivers and keeps: the quick way, the bound over all sessions, what is counted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.journal.events import Delivered, Dropped, Redelivered
from homing.push.sessions import MAX_BACKLOG, OLD_SECONDS, UNASKED, Limits, Session, Store
from homing.push.shared import Shared
from homing.testing import EPOCH, RecordingLink
from homing.wire import relay
from homing.wire.pushed import Gap, Push
from homing.wire.session import command
from tests.push.desk import Desk, client_id, message_id

DURABLE = {"ack": True, "resume": True}


def test_a_client_is_asked_for_its_backlog_before_too_much_is_sent_in_one_turn() -> None:
    desk = Desk()
    link = desk.subscribed(1)
    payload = b"x" * 10_000
    for number in range(60):  # as if nothing of it were taken
        desk.push(number, 1, payload=payload)
        link.backlog = sum(len(message) for message in link.sent)
    sent = sum(len(message) for message in link.sent)
    assert MAX_BACKLOG < sent <= MAX_BACKLOG + UNASKED + len(payload) * 2
    link.backlog = 0
    desk.wake(desk.now + 0.1)
    assert desk.ids(link) == list(range(60))


def test_a_client_that_changes_its_subscriptions_gets_what_they_ask_for_at_once() -> None:
    desk = Desk()
    link = desk.subscribed(1)
    desk.push(1, 1)
    desk.say(link, b"subn", b"other", b"n", b'{"use":2,"low":2}')
    desk.settle()
    desk.heard(link)
    desk.push(2, 1)
    [push] = desk.heard(link)
    assert isinstance(push, Push)
    assert push.subs == ["default", "other"]
    desk.say(link, b"unsub")
    desk.settle()
    desk.heard(link)
    desk.push(1_000_000, 1)
    [push] = desk.heard(link)
    assert isinstance(push, Push)
    assert push.subs == ["other"]


def test_a_fan_out_is_one_event_and_those_who_are_gone_another() -> None:
    desk = Desk()
    for number in range(5):
        desk.subscribed(number)
    desk.push(1, *range(8))
    [delivered] = [one for one in desk.port.events if isinstance(one, Delivered)]
    [dropped] = [one for one in desk.port.events if isinstance(one, Dropped)]
    assert delivered.clients == b"".join(client_id(number) for number in range(5))
    assert dropped.clients == b"".join(client_id(number) for number in range(5, 8))
    tally = desk.connector.delivery.tally
    assert (tally.publications, tally.deliveries, tally.drops) == (1, 5, 3)


def test_what_waits_for_a_client_that_leaves_is_told_as_dropped() -> None:
    desk = Desk()
    slow = desk.subscribed(1)
    slow.backlog = MAX_BACKLOG + 1
    for number in range(3):
        desk.push(number, 1)
    desk.connector.closed(slow, desk.now)
    dropped = [one for one in desk.port.events if isinstance(one, Dropped)]
    assert [one.id for one in dropped] == [message_id(number) for number in range(3)]
    assert desk.connector.store.held == 0


def test_all_sessions_together_keep_so_much_and_the_heaviest_pays_with_a_gap() -> None:
    desk = Desk(limits=Limits(kept_bytes=1 << 20))
    heavy, light = desk.subscribed(1, **DURABLE), desk.subscribed(2, **DURABLE)
    for link in (heavy, light):
        desk.connector.closed(link, desk.now)
    payload = b"x" * 20_000
    desk.push(0, 2, payload=payload)
    for number in range(1, 100):
        desk.push(number, 1, payload=payload)
        desk.settle()
        assert desk.connector.store.held <= 1 << 20
    assert len(desk.connector.sessions[client_id(2)]) == 1
    reasons = {one.reason for one in desk.port.events if isinstance(one, Dropped)}
    assert reasons == {b"store-full"}
    gap, *rest = desk.heard(desk.auth_resumed(1))
    assert isinstance(gap, Gap)
    got = [int(one.attrs["n"]) for one in rest if isinstance(one, Push)]
    assert got == list(range(gap.dropped + 1, 100))
    assert desk.ids(desk.auth_resumed(2)) == [0]


def test_a_durable_client_may_ask_to_be_disconnected_when_it_is_slow() -> None:
    desk = Desk(limits=Limits(buffer=10_000))
    slow = desk.subscribed(1, **DURABLE, slow="disconnect")
    slow.backlog = MAX_BACKLOG + 1
    for number in range(10):
        desk.push(number, 1, payload=b"x" * 990)
    desk.settle()
    assert desk.connector.sessions[client_id(1)].link is slow
    for number in range(10, 13):
        desk.push(number, 1, payload=b"x" * 990)
    desk.settle()
    assert slow.reason == "slow consumer"
    assert desk.ids(desk.auth_resumed(1)) == list(range(13))  # a policy for connections


def test_a_full_session_disconnects_too_where_that_was_asked_for() -> None:
    desk = Desk(limits=Limits(owed_count=3))
    slow = desk.subscribed(1, **DURABLE, slow="disconnect")
    for number in range(3):  # all under way
        desk.push(number, 1)
    desk.settle()
    slow.backlog = MAX_BACKLOG + 1
    desk.push(3, 1)
    desk.settle()
    assert slow.reason == "slow consumer"


def test_nobody_is_disconnected_for_a_replay_that_takes_long() -> None:
    desk = Desk(limits=Limits(buffer=10_000))
    away = desk.subscribed(1, **DURABLE, slow="disconnect")
    desk.connector.closed(away, desk.now)
    for number in range(20):
        desk.push(number, 1, payload=b"x" * 990)
    desk.settle()
    back = desk.visit()
    back.backlog = MAX_BACKLOG + 1
    words = desk.credentials(1, **DURABLE, slow="disconnect")
    desk.connector.receive(back, command([b"auth", words]), desk.now)
    desk.grant()
    desk.push(20, 1, payload=b"x" * 990)
    desk.settle()
    assert back.reason is None


def test_a_durable_client_may_ask_for_its_oldest_to_be_dropped() -> None:
    desk = Desk(limits=Limits(buffer=10_000))
    slow = desk.subscribed(1, **DURABLE, slow="drop-oldest")
    slow.backlog = MAX_BACKLOG + 1
    for number in range(25):
        desk.push(number, 1, payload=b"x" * 990)
    desk.settle()
    slow.backlog = 0
    desk.wake(desk.now + 0.1)
    gap, *rest = desk.heard(slow)
    assert isinstance(gap, Gap)
    assert gap.dropped >= 15
    kept = [int(one.attrs["n"]) for one in rest if isinstance(one, Push)]
    assert kept == list(range(gap.dropped, 25))
    dropped = [one for one in desk.port.events if isinstance(one, Dropped)]
    assert [one.id for one in dropped] == [message_id(number) for number in range(gap.dropped)]


@pytest.mark.parametrize(
    "attributes", [b"", b"{", b"[1]", b'{"n":1},"id":"forged"', b'{"n":"\xff"}']
)
def test_attributes_that_are_none_reach_nobody_and_are_told_as_dropped(attributes: bytes) -> None:
    desk = Desk()
    plain, durable = desk.subscribed(1), desk.subscribed(2, **DURABLE)
    desk.say(durable, b"subn", b"other", b"n", b'{"use": 2}')
    listed = client_id(1) + client_id(2)
    push = relay.Push(message_id(1), b"p", listed, attributes)
    desk.dispatcher.take()
    desk.connector.receive(desk.dispatcher, push.encode(), desk.now)
    desk.settle()
    assert desk.ids(plain) == desk.ids(durable) == []
    [dropped] = [one for one in desk.port.events if isinstance(one, Dropped)]
    assert (dropped.clients, dropped.reason) == (listed, b"malformed")
    desk.push(2, 1, 2)
    desk.settle()
    assert desk.ids(plain) == desk.ids(durable) == [2]


def test_limits_of_one_session_are_settings() -> None:
    desk = Desk(limits=Limits(owed_count=3, away=10.0, keepalive=5.0, slow="disconnect"))
    durable = desk.subscribed(1, **DURABLE)
    desk.connector.closed(durable, desk.now)
    for number in range(5):
        desk.push(number, 1)
    desk.settle()
    assert len(desk.connector.sessions[client_id(1)]) == 3
    slow = desk.subscribed(2)
    slow.backlog = MAX_BACKLOG + 1
    desk.push(9, 2)
    assert slow.reason == "slow consumer"
    quiet = desk.auth(3)
    desk.connector.beat(6.0)
    assert quiet.reason == "keepalive"
    desk.connector.beat(11.0)
    assert client_id(1) not in desk.connector.sessions


Step = tuple[str, int, int]
steps = st.lists(
    st.tuples(
        st.sampled_from(["owe", "ack", "pump", "part", "lighten", "clear"]),
        st.integers(0, 2),
        st.integers(0, 9),
    ),
    max_size=60,
)


@given(steps)
def test_the_store_holds_what_its_sessions_hold_whatever_happens(taken: list[Step]) -> None:
    store = Store(Limits(owed_count=5, owed_bytes=100, buffer=50))
    sessions = [Session(client_id(n), n > 0, "spill", store) for n in range(3)]
    for what, place, number in taken:
        session = sessions[place]
        if what == "owe":
            session.owe(Shared(message_id(number), b"x" * (number * 5), b"{}"))
        elif what == "ack":
            session.acknowledge(message_id(number))
        elif what == "pump":
            session.pump()
        elif what == "part":
            session.part(0.0)
        elif what == "lighten":
            session.lighten(number * 10)
        else:
            session.clear()
        assert store.held == sum(one.held for one in sessions)
        for one in sessions:
            kept = [*one.waiting.values(), *one.unacked.values()]
            assert one.held == sum(shared.size for shared in kept)
            assert one.room == 0 or not one.waiting


def test_what_was_published_before_the_client_came_is_flagged_when_it_comes() -> None:
    """Another connector had the session too, and may have pushed it: nobody here knows."""
    desk = Desk()
    desk.now = 100.0
    link = desk.subscribed(1, **DURABLE)
    came = int(EPOCH + desk.now)
    made = (came - 1, came, came - OLD_SECONDS, came + 5)
    for number, second in enumerate(made):
        identity = second.to_bytes(4, "big") + number.to_bytes(8, "big")
        push = relay.Push(identity, b"", client_id(1), b'{"n":%d}' % number)
        desk.connector.receive(desk.dispatcher, push.encode(), desk.now)
        desk.settle()
    got = [one for one in desk.heard(link) if isinstance(one, Push)]
    assert [one.redelivered for one in got] == [True, False, False, False]
    kinds = [type(one) for one in desk.port.events if isinstance(one, Delivered | Redelivered)]
    assert kinds == [Redelivered, Delivered, Delivered, Delivered]
    assert desk.connector.delivery.tally.redeliveries == 1


@pytest.mark.parametrize("cut", [False, True], ids=["linked", "cut off meanwhile"])
def test_a_late_clock_flags_nothing_for_a_client_that_stays(cut: bool) -> None:
    """Its link broke and it is back: nobody else can have pushed anything, unless we may not have heard of it."""
    desk = Desk()
    desk.now = 100.0
    desk.connector.closed(desk.subscribed(1, **DURABLE), desk.now)
    if cut:
        desk.connector.closed(desk.dispatcher, desk.now)
        desk.dispatcher = RecordingLink("dispatchers")
        desk.join(desk.dispatcher)
    desk.now = 500.0
    link = desk.auth_resumed(1)
    identity = int(EPOCH + 400).to_bytes(4, "big") + bytes(8)  # by a clock that is 100 s late
    push = relay.Push(identity, b"", client_id(1), b'{"n":1}')
    desk.connector.receive(desk.dispatcher, push.encode(), desk.now)
    desk.settle()
    [got] = [one for one in desk.heard(link) if isinstance(one, Push)]
    assert got.redelivered == cut


def test_clients_that_acknowledge_nothing_see_no_flags() -> None:
    desk = Desk()
    desk.now = 100.0
    link = desk.subscribed(1)
    identity = int(EPOCH).to_bytes(4, "big") + bytes(8)
    push = relay.Push(identity, b"", client_id(1), b'{"n":1}')
    desk.connector.receive(desk.dispatcher, push.encode(), desk.now)
    [got] = desk.heard(link)
    assert isinstance(got, Push)
    assert not got.redelivered
