"""The connector: auth, subscriptions, delivery, durable sessions, slow clients."""

from __future__ import annotations

import pytest

from homing.journal.events import DeliveryQueued
from homing.push.sessions import MAX_BACKLOG, Limits
from homing.testing import EPOCH, RecordingLink
from homing.wire import relay
from homing.wire.pushed import Gap, Push
from homing.wire.session import HEARTBEAT, command
from tests.push.desk import KEYS, NODE, Desk, client_id, message_id

EVERY_N = b'{"use":2}'


def is_open(link: RecordingLink) -> bool:
    return link.reason is None


def lines(answers: object) -> list[str]:
    assert isinstance(answers, list)
    return [str(one) for one in answers]


# --- auth -----------------------------------------------------------------------------------


def test_before_auth_only_auth_and_heartbeats_are_served() -> None:
    desk = Desk()
    link = desk.visit()
    assert lines(desk.say(link, b"sub", b"n", EVERY_N)) == ["Status(-command error: auth first)"]
    desk.connector.receive(link, HEARTBEAT, 0.0)
    assert lines(desk.heard(link)) == ["Status(+h)"]
    assert link.reason is None


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"token": "00"}, "not this client's"),
        ({"timestamp": 0, "token": KEYS.issue(client_id(1).hex(), 0)}, "too old"),
        ({"client_id": "short"}, "24 hex digits"),
        ({"timestamp": "x"}, "not an auth"),
        ({"token": None}, "not an auth"),
        ({"slow": "spill"}, "only a durable session"),
        ({"slow": "other"}, "not an auth"),
    ],
)
def test_a_wrong_auth_says_why_and_closes(changes: dict[str, object], why: str) -> None:
    desk = Desk()
    link = desk.visit()
    [answer] = lines(desk.say(link, b"auth", desk.credentials(1, **changes)))
    assert answer.startswith("Status(-auth error")
    assert why in answer
    assert link.reason is not None
    assert len(desk.connector.doorway) == 0


def test_a_token_stamped_1970_or_tomorrow_is_refused() -> None:
    desk = Desk()
    for stamp in (1, int(EPOCH) + 86400):
        token = KEYS.issue(client_id(1).hex(), stamp)
        link = desk.visit()
        [answer] = lines(desk.say(link, b"auth", desk.credentials(1, timestamp=stamp, token=token)))
        assert answer.startswith("Status(-auth error")


def test_who_does_not_authenticate_is_closed_after_ten_seconds() -> None:
    desk = Desk()
    idler, late = desk.visit(), desk.visit()
    desk.wake(9.0)
    assert is_open(idler)
    late = desk.visit()
    member = desk.auth(1)
    desk.wake(11.0)
    assert lines(desk.heard(idler)) == ["Status(-auth error none within 10 s)"]
    assert not is_open(idler)
    assert is_open(late)
    assert member.reason is None
    desk.wake(20.0)
    assert not is_open(late)


def test_who_says_nothing_for_90_seconds_is_closed() -> None:
    desk = Desk()
    quiet, lively = desk.auth(1), desk.auth(2)
    for now in range(0, 200, 20):
        desk.wake(float(now))
        desk.connector.receive(lively, HEARTBEAT, desk.now)
        desk.connector.receive(desk.dispatcher, relay.Heartbeat(1).encode(), desk.now)
    assert quiet.reason == "keepalive"
    assert lively.reason is None


def test_the_newest_connection_of_a_client_wins() -> None:
    desk = Desk()
    old = desk.subscribed(1)
    new = desk.auth(1)
    assert lines(desk.heard(old)) == ["Status(-replaced)"]
    assert old.reason == "replaced"
    desk.connector.closed(old, 0.0)  # the network tells it late
    assert desk.connector.sessions[client_id(1)].link is new


# --- commands -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "parts",
    [
        [b"SUB", b"n", EVERY_N],  # commands have their case too
        [b"sub"],
        [b"sub", b"n"],
        [b"sub", b"n", b"not json"],
        [b"sub", b"n", b'{"use":9}'],
        [b"sub", b"", EVERY_N],
        [b"sub", b"\xff", EVERY_N],
        [b"sub", b"n", b"[" * 100_000],
        [b"subn"],
        [b"subn", b"name"],
        [b"unsub", b"a", b"b"],
        [b"ack"],
        [b"ack", b"xyz"],
        [b"ack", b"\xff"],
        [b""],
        [b"\r\n"],
    ],
)
def test_a_wrong_command_is_told_and_the_connection_stays(parts: list[bytes]) -> None:
    desk = Desk()
    link = desk.auth(1)
    [answer] = lines(desk.say(link, *parts))
    assert answer.startswith("Status(-command error: ")
    assert link.reason is None
    assert desk.connector.sessions[client_id(1)].subscriptions == {}


def test_a_command_broken_inside_its_frame_is_told() -> None:
    desk = Desk()
    link = desk.auth(1)
    desk.connector.receive(link, b"#4\r\n*1\r\n", 0.0)
    [answer] = lines(desk.heard(link))
    assert answer.startswith("Status(-command error: expected $<number>")


def test_sub_sets_attributes_of_the_default_subscription_and_keeps_the_rest() -> None:
    desk = Desk()
    link = desk.auth(1)
    desk.say(link, b"sub", b"Price", b'{"use":2,"low":1}')
    [first] = desk.settle()
    desk.say(link, b"sub", b"city", b'{"use":1,"strval":"Paris"}')
    [second] = desk.settle()
    assert isinstance(first, relay.Subscribe)
    assert isinstance(second, relay.Subscribe)
    assert (first.name, first.fields) == (b"default", b'{"Price":{"use":2,"low":1}}')
    assert second.fields == (b'{"Price":{"use":2,"low":1},"city":{"use":1,"strval":"Paris"}}')


def test_subn_replaces_whole_and_unsub_removes() -> None:
    desk = Desk()
    link = desk.auth(1)
    desk.say(link, b"subn", b"Mine", b"a", EVERY_N, b"b", EVERY_N)
    desk.settle()
    desk.say(link, b"subn", b"Mine", b"c", EVERY_N)
    [replaced] = desk.settle()
    assert isinstance(replaced, relay.Subscribe)
    assert (replaced.name, replaced.fields) == (b"Mine", b'{"c":{"use":2}}')
    desk.say(link, b"unsub", b"Mine")
    [removed] = desk.settle()
    assert removed == relay.Unsubscribe(removed_id(removed), client_id(1), NODE, b"Mine")
    assert lines(desk.heard(link)) == ["Status(+unsub)"]
    assert lines(desk.say(link, b"unsub", b"Mine")) == ["Status(+unsub)"]


def removed_id(message: relay.Relayed) -> bytes:
    assert isinstance(message, relay.Unsubscribe)
    return message.message_id


def test_a_subscription_is_answered_when_the_matchers_have_it_and_in_order() -> None:
    desk = Desk()
    link = desk.auth(1)
    assert desk.say(link, b"sub", b"n", EVERY_N) == []
    assert desk.say(link, b"nonsense") == []  # its answer waits behind the first
    desk.connector.receive(link, HEARTBEAT, 0.0)
    assert lines(desk.heard(link)) == ["Status(+h)"]
    desk.settle()
    assert lines(desk.heard(link)) == ["Status(+sub)", "Status(-command error: unknown nonsense)"]


def test_without_matchers_a_subscription_is_answered_after_two_seconds() -> None:
    desk = Desk()
    link = desk.auth(1)
    desk.say(link, b"sub", b"n", EVERY_N)
    desk.wake(2.5)
    assert lines(desk.heard(link)) == ["Status(+sub)"]


def test_a_client_may_have_a_thousand_subscriptions_and_no_more() -> None:
    desk = Desk()
    link = desk.auth(1)
    for number in range(1000):
        desk.say(link, b"subn", b"s%d" % number, b"n", EVERY_N)
    desk.settle()
    assert len(desk.heard(link)) == 1000
    [answer] = lines(desk.say(link, b"subn", b"more", b"n", EVERY_N))
    assert "1000 subscriptions at most" in answer


# --- delivery -------------------------------------------------------------------------------


def test_a_push_is_encoded_once_and_acknowledged() -> None:
    desk = Desk()
    links = [desk.subscribed(number) for number in range(3)]
    desk.push(7, 0, 1, 2, payload=b"a\r\nb")
    images = [link.sent[0] for link in links]
    assert images[0] is images[1] is images[2]
    [push] = desk.heard(links[0])
    assert isinstance(push, Push)
    assert (push.id, push.body, push.subs) == (message_id(7).hex(), b"a\r\nb", ["default"])
    clients = b"".join(client_id(n) for n in range(3))
    assert desk.sent() == [relay.Ack(message_id(7), clients, NODE)]


def test_names_tell_which_subscriptions_matched() -> None:
    desk = Desk()
    link = desk.subscribed(1)
    desk.say(link, b"subn", b"Low", b"n", b'{"use":2,"high":5}')
    desk.say(link, b"subn", b"High", b"n", b'{"use":2,"low":5}')
    desk.settle()
    desk.heard(link)
    for number in (3, 5, 9):
        desk.push(number, 1)
    subs = [one.subs for one in desk.heard(link) if isinstance(one, Push)]
    assert subs == [["default", "Low"], ["default", "Low", "High"], ["default", "High"]]


def test_the_same_publication_again_goes_only_to_whom_it_has_not_gone() -> None:
    desk = Desk()
    first, second = desk.subscribed(1), desk.subscribed(2)
    desk.push(7, 1)
    desk.push(7, 1)
    desk.push(7, 1, 2)
    assert desk.ids(first) == [7]
    assert desk.ids(second) == [7]
    assert len(desk.sent()) == 3  # each is acknowledged


def test_who_is_not_here_or_not_subscribed_gets_nothing_and_it_is_still_acknowledged() -> None:
    desk = Desk()
    link = desk.auth(1)
    desk.push(7, 1, 99)
    assert desk.ids(link) == []
    assert len(desk.sent()) == 1


def test_a_client_without_a_durable_session_leaves_nothing_behind() -> None:
    desk = Desk()
    for number in range(100):
        desk.subscribed(number)
    links = [session.link for session in desk.connector.sessions.values()]
    for link in links:
        assert link is not None
        desk.connector.closed(link, 0.0)
    gone = desk.settle()
    assert len(gone) == 100
    assert all(isinstance(one, relay.Unsubscribe) and one.name == b"" for one in gone)
    assert (len(desk.connector.sessions), len(desk.connector.doorway)) == (0, 0)


def test_five_thousand_connects_and_closes_leave_nothing() -> None:
    desk = Desk()
    for number in range(5000):
        link = desk.visit() if number % 2 else desk.auth(number)
        desk.connector.closed(link, 0.0)
        desk.connector.closed(link, 0.0)  # told twice
    connector = desk.connector
    assert (len(connector.doorway), len(connector.sessions), len(connector.durable)) == (0, 0, 0)


def test_two_thousand_messages_in_order_while_others_connect_and_leave() -> None:
    desk = Desk()
    link = desk.subscribed(1)
    for number in range(2000):
        desk.push(number, 1)
        if number % 10 == 0:
            visitor = desk.subscribed(1000 + number)
            desk.connector.closed(visitor, 0.0)
    assert desk.ids(link) == list(range(2000))


# --- durable sessions -----------------------------------------------------------------------

DURABLE = {"ack": True, "resume": True}


def test_a_durable_push_and_its_ack_wait_for_the_journal() -> None:
    desk = Desk()
    link = desk.subscribed(1, **DURABLE)
    desk.push(7, 1)
    assert desk.ids(link) == []
    assert desk.sent() == []
    desk.connector.journaled(len(desk.port.events), 0.0)
    assert desk.ids(link) == [7]
    assert desk.sent() == [relay.Ack(message_id(7), client_id(1), NODE)]


def test_resume_replays_in_order_what_was_not_acknowledged() -> None:
    desk = Desk()
    link = desk.subscribed(1, **DURABLE)
    for number in range(4):
        desk.push(number, 1)
    desk.settle()
    desk.say(link, b"ack", message_id(1).hex().encode())
    desk.connector.closed(link, 0.0)
    desk.push(4, 1)  # while it is away
    desk.settle()
    link = desk.auth_resumed(1)
    got = [one for one in desk.heard(link) if isinstance(one, Push)]
    assert [(one.attrs["n"], one.redelivered) for one in got] == [
        (0, True),
        (2, True),
        (3, True),
        (4, True),
    ]


def test_without_resume_the_session_starts_anew() -> None:
    desk = Desk()
    link = desk.subscribed(1, **DURABLE)
    desk.push(1, 1)
    desk.settle()
    desk.connector.closed(link, 0.0)
    link = desk.auth(1, ack=True)
    assert desk.connector.sessions[client_id(1)].subscriptions == {}
    assert isinstance(desk.settle()[0], relay.Unsubscribe)
    assert desk.ids(link) == []


def test_a_restarted_connector_knows_sessions_subscriptions_and_debts() -> None:
    desk = Desk()
    link = desk.subscribed(1, **DURABLE)
    desk.subscribed(2)
    for number in range(3):
        desk.push(number, 1, 2)
    desk.settle()
    desk.say(link, b"ack", message_id(0).hex().encode())
    again = Desk(recovered=desk.port.events)
    assert list(again.connector.sessions) == [client_id(1)]
    again.push(2, 1)  # the dispatcher does not know that we have it
    assert again.sent() == [relay.Ack(message_id(2), client_id(1), NODE)]
    link = again.auth_resumed(1)
    assert again.ids(link) == [1, 2]


def test_a_full_disk_refuses_and_keeps_the_order() -> None:
    desk = Desk()
    link = desk.subscribed(1, **DURABLE)
    desk.port.full = True
    desk.push(1, 1)
    desk.port.full = False
    desk.push(2, 1)  # was under way behind it
    refused = desk.sent()
    assert [type(one) for one in refused] == [relay.Nak, relay.Nak]
    desk.push(1, 1)
    desk.push(2, 1)
    desk.settle()
    assert desk.ids(link) == [1, 2]


def test_an_abandoned_session_ends_after_a_day() -> None:
    desk = Desk()
    link = desk.subscribed(1, **DURABLE)
    desk.connector.closed(link, 0.0)
    desk.connector.beat(100.0)
    assert client_id(1) in desk.connector.sessions
    desk.connector.beat(100_000.0)
    assert client_id(1) not in desk.connector.sessions
    again = Desk(recovered=desk.port.events)
    assert not again.connector.sessions


# --- slow clients ---------------------------------------------------------------------------


def test_a_slow_client_loses_the_oldest_and_is_told_while_others_notice_nothing() -> None:
    desk = Desk()
    slow, quick = desk.subscribed(1), desk.subscribed(2)
    slow.backlog = MAX_BACKLOG + 1
    payload = b"x" * (Limits().buffer // 10)
    for number in range(15):
        desk.push(number, 1, 2, payload=payload)
    assert desk.ids(quick) == list(range(15))
    assert desk.ids(slow) == []
    assert desk.connector.sessions[client_id(1)].held <= Limits().buffer
    slow.backlog = 0
    desk.wake(desk.now + 0.1)
    gap, *rest = desk.heard(slow)
    assert isinstance(gap, Gap)
    kept = [int(one.attrs["n"]) for one in rest if isinstance(one, Push)]
    assert kept == list(range(gap.dropped, 15))
    assert (gap.first, gap.last) == (message_id(0).hex(), message_id(gap.dropped - 1).hex())


def test_a_slow_client_may_ask_to_be_disconnected() -> None:
    desk = Desk()
    slow = desk.subscribed(1, slow="disconnect")
    slow.backlog = MAX_BACKLOG + 1
    desk.push(1, 1)
    assert slow.reason == "slow consumer"
    assert client_id(1) not in desk.connector.sessions


def test_a_slow_durable_client_spills_and_loses_nothing() -> None:
    desk = Desk()
    slow = desk.subscribed(1, **DURABLE)
    slow.backlog = MAX_BACKLOG + 1
    for number in range(50):
        desk.push(number, 1)
    desk.settle()
    assert desk.ids(slow) == []
    slow.backlog = 0
    desk.wake(desk.now + 0.1)
    assert desk.ids(slow) == list(range(50))


def test_a_durable_client_that_never_acknowledges_gets_a_window_only() -> None:
    desk = Desk()
    link = desk.subscribed(1, **DURABLE)
    for number in range(1500):
        desk.push(number, 1)
    desk.settle()
    first = desk.ids(link)
    assert first == list(range(1024))
    for number in first[:10]:
        desk.say(link, b"ack", message_id(number).hex().encode())
    desk.connector.receive(link, command([b"hb"]), desk.now)
    assert len(desk.connector.sessions[client_id(1)].unacked) == 1024


# --- dispatchers ----------------------------------------------------------------------------


def test_a_dispatcher_that_joins_is_told_everything() -> None:
    desk = Desk()
    desk.subscribed(1)
    desk.subscribed(2, **DURABLE)
    other = RecordingLink("dispatchers")
    desk.connector.opened(other, 0.0)
    hello = relay.Hello(b"disp0002", b"dispatcher").encode()
    desk.connector.receive(other, hello, 0.0)
    _, claim, begin, *subscriptions, end = desk.sent(other)
    assert isinstance(claim, relay.Claim)
    assert (claim.client, claim.connector) == (client_id(2), NODE)
    assert isinstance(begin, relay.Sync)
    assert isinstance(end, relay.Sync)
    assert (begin.phase, end.phase) == (relay.SYNC_BEGIN, relay.SYNC_END)
    clients = [one.client for one in subscriptions if isinstance(one, relay.Subscribe)]
    assert clients == [client_id(1), client_id(2)]


def test_an_item_of_65535_bytes_closes_the_link_and_nothing_else() -> None:
    desk = Desk()
    link = desk.subscribed(1)
    broken = b"\x03\x00\x08\x01\x01\xff\xff" + bytes(5)
    desk.connector.receive(desk.dispatcher, broken, 0.0)
    assert desk.dispatcher.reason is not None
    assert link.reason is None


def test_what_durable_clients_are_owed_is_journaled_once_for_a_fan_out() -> None:
    desk = Desk()
    for number in range(5):
        desk.subscribed(number, **DURABLE)
    desk.push(1, *range(5))
    queued = [event for event in desk.port.events if isinstance(event, DeliveryQueued)]
    assert [event.clients for event in queued] == [b"".join(client_id(n) for n in range(5))]
