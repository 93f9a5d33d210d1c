"""The matcher: publications in, parcels out, acks when they are safe."""

from __future__ import annotations

import itertools

import pytest

from homing.journal.events import Dropped, PublicationAccepted, PublicationDone, PublicationMatched
from homing.push.handover import MAX_PUBLICATION
from homing.push.index.oracle import Oracle
from homing.push.intake import HEARD
from homing.push.matcher import Matcher
from homing.push.places import by_connector, places
from homing.push.ring import vnode_hashes
from homing.testing import RecordingLink, RecordingPort
from homing.wire import publish, relay, status
from homing.wire.assembly import MAX_MESSAGE, Assembler
from homing.wire.packet import STATUS, PacketStream

C1, C2 = b"conn0001", b"conn0002"
EVERY_N = b'{"n":{"use":2}}'


def client_id(number: int) -> bytes:
    return number.to_bytes(12, "big")


def message_id(number: int) -> bytes:
    return b"message:" + number.to_bytes(4, "big")


class Desk:
    """A matcher with one dispatcher and one publisher."""

    def __init__(
        self,
        recovered: list[object] | None = None,
        *,
        ready: bool = True,
        tokens: tuple[bytes, ...] = (),
        elsewhere: bool = False,
    ) -> None:
        self.port = RecordingPort()
        counter = itertools.count(1)
        self.matcher = Matcher(
            self.port,
            b"match001",
            lambda: 1e9,
            lambda: b"made::::" + next(counter).to_bytes(4, "big"),
            Oracle,
            dispatchers=["d:1"],
            publish_tokens=tokens,
            recovered=recovered or [],
            elsewhere=elsewhere,
        )
        self.publisher = RecordingLink("publishers", b"p1")
        self.matcher.opened(self.publisher, 0.0)
        self.dispatcher = RecordingLink("dispatchers")
        self.matcher.opened(self.dispatcher, 0.0)
        if ready:
            self.hello(C1, C2)
            for connector in (C1, C2):
                self.sync(connector)
            self.relayed()

    def hello(self, *connectors: bytes) -> None:
        hello = relay.Hello(b"disp0001", b"dispatcher", connectors=b"".join(connectors))
        self.tell(hello)

    def sync(self, connector: bytes) -> None:
        self.tell(relay.Sync(bytes(12), connector, relay.SYNC_BEGIN))
        self.tell(relay.Sync(bytes(12), connector, relay.SYNC_END))

    def tell(self, message: relay.Relayed) -> None:
        """Something comes from the dispatcher."""
        self.matcher.receive(self.dispatcher, message.encode(), 0.0)

    def subscribe(self, client: int, connector: bytes = C1, fields: bytes = EVERY_N) -> None:
        message = relay.Subscribe(bytes(12), client_id(client), connector, b"default", fields)
        self.tell(message)
        assert relay.Ack(bytes(12)) in self.relayed()

    def send(self, number: int, attributes: bytes | None = None, payload: bytes = b"p") -> None:
        attributes = b'{"n":%d}' % number if attributes is None else attributes
        image = publish.Publish(attributes, payload, message_id(number)).encode()
        self.matcher.receive(self.publisher, image, 0.0)

    def sync_journal(self) -> None:
        self.matcher.journaled(len(self.port.events), 0.0)

    def relayed(self) -> list[relay.Relayed]:
        runs = b"".join(self.dispatcher.take())
        return [relay.decode(one) for one in Assembler(1).receive(runs, 0.0)]

    def answers(self) -> list[publish.FromMatcher]:
        runs = b"".join(self.publisher.take())
        return [publish.from_matcher(one) for one in Assembler(3).receive(runs, 0.0)]

    def take_over(self, push: relay.Relayed) -> None:
        """The connectors have taken a push over."""
        assert isinstance(push, relay.Push)
        for connector, clients in by_connector(push.clients).items():
            self.tell(relay.Ack(push.message_id, clients, connector))


def test_a_publication_waits_for_the_journal_then_for_its_connectors() -> None:
    desk = Desk()
    desk.subscribe(1)
    desk.subscribe(2, C2)
    desk.send(7)
    assert desk.relayed() == []
    desk.sync_journal()
    [push] = desk.relayed()
    listed = places(client_id(1), C1) + places(client_id(2), C2)
    assert push == relay.Push(message_id(7), b"p", listed, b'{"n":7}')
    assert desk.answers() == []
    desk.take_over(push)
    assert desk.answers() == [publish.Accepted(message_id(7), 2)]
    assert len(desk.matcher.owed) == 0


def test_without_connectors_the_ack_comes_a_second_later() -> None:
    desk = Desk()
    desk.subscribe(1)
    desk.send(7)
    desk.sync_journal()
    for key in desk.port.due(1.0):
        desk.matcher.wake(key, 1.0)
    assert desk.answers() == [publish.Accepted(message_id(7), 1)]
    assert len(desk.matcher.owed) == 1


def test_one_far_too_large_is_refused_once_and_the_link_goes_on() -> None:
    desk = Desk()
    desk.subscribe(1)
    image = publish.Publish(b"{}", bytes(8 * MAX_MESSAGE), message_id(6)).encode()
    for run in PacketStream().receive(image):
        desk.matcher.receive(desk.publisher, run, 0.0)
    [refusal] = desk.answers()
    assert refusal == publish.Refusal(message_id(6), f"too-large over {MAX_MESSAGE} bytes")
    desk.send(7)
    desk.sync_journal()
    assert len(desk.relayed()) == 1
    assert desk.publisher.reason is None


def test_nobody_matches_is_acknowledged_at_once_with_zero() -> None:
    desk = Desk()
    desk.send(7)
    desk.sync_journal()
    assert desk.answers() == [publish.Accepted(message_id(7), 0)]
    assert desk.relayed() == []


def test_the_same_publication_again_is_answered_and_goes_nowhere() -> None:
    desk = Desk()
    desk.subscribe(1)
    desk.send(7)
    desk.send(7)
    desk.sync_journal()
    [push] = desk.relayed()
    desk.take_over(push)
    desk.send(7)
    assert desk.answers() == [publish.Accepted(message_id(7), 1)] * 3
    assert desk.relayed() == []
    accepted = [e for e in desk.port.events if isinstance(e, PublicationAccepted)]
    assert len(accepted) == 1


def test_a_client_is_listed_once_however_many_subscriptions_match() -> None:
    desk = Desk()
    desk.subscribe(1)
    desk.tell(relay.Subscribe(bytes(12), client_id(1), C1, b"other", EVERY_N))
    desk.relayed()
    desk.send(7)
    desk.sync_journal()
    [push] = desk.relayed()
    assert isinstance(push, relay.Push)
    assert push.clients == places(client_id(1), C1)
    desk.take_over(push)
    assert desk.answers() == [publish.Accepted(message_id(7), 2)]


def test_a_publication_without_an_id_gets_one() -> None:
    desk = Desk()
    image = publish.Publish(b"{}", b"x").encode()
    desk.matcher.receive(desk.publisher, image, 0.0)
    desk.sync_journal()
    [answer] = desk.answers()
    assert isinstance(answer, publish.Accepted)
    assert answer.message_id.startswith(b"made::::")


@pytest.mark.parametrize(
    ("attributes", "payload", "code"),
    [
        (b"", b"", "malformed"),
        (b"[]", b"", "malformed"),
        (b'{"a":[1]}', b"", "malformed"),
        (b'{"a":null}', b"", "malformed"),
        (b'{"a":NaN}', b"", "malformed"),
        (b'{"a":"\xff"}', b"", "malformed"),
        (b"[" * 50_000, b"", "malformed"),
        (b"{" + b",".join(b'"a%d":1' % n for n in range(20_000)) + b"}", b"", "malformed"),
        (b"{}", b"x" * MAX_PUBLICATION, "too-large"),
    ],
)
def test_what_makes_no_sense_is_refused_and_the_link_stays(
    attributes: bytes, payload: bytes, code: str
) -> None:
    desk = Desk()
    desk.send(1, attributes, payload)
    [answer] = desk.answers()
    assert isinstance(answer, publish.Refusal)
    assert answer.reason.split()[0] == code
    assert answer.message_id == message_id(1)
    desk.send(2)
    desk.sync_journal()
    assert desk.answers() == [publish.Accepted(message_id(2), 0)]


def test_a_full_disk_refuses() -> None:
    desk = Desk()
    desk.port.full = True
    desk.send(1)
    desk.port.full = False
    desk.send(2)
    desk.sync_journal()
    refused, accepted = desk.answers()
    assert isinstance(refused, publish.Refusal)
    assert refused.reason.startswith("queue-full the journal's disk is full")
    assert accepted == publish.Accepted(message_id(2), 0)


def test_what_a_full_disk_has_in_hand_is_refused_in_time_and_not_undone() -> None:
    desk = Desk()
    desk.send(1)  # taken, and then the disk takes nothing more
    desk.matcher.intake.beat(5.0)
    assert desk.answers() == []
    desk.matcher.intake.beat(10.0)
    [refused] = desk.answers()
    assert isinstance(refused, publish.Refusal)
    assert (refused.message_id, refused.reason.split()[0]) == (message_id(1), "queue-full")
    desk.matcher.intake.beat(12.0)
    assert desk.answers() == []
    desk.send(1)  # as it was told to
    desk.sync_journal()
    assert desk.answers() == [publish.Accepted(message_id(1), 0)]
    assert len([e for e in desk.port.events if isinstance(e, PublicationAccepted)]) == 1


def test_publishers_need_a_token_where_there_is_one() -> None:
    desk = Desk(tokens=(b"one", b"two"))
    desk.send(1)
    desk.matcher.receive(desk.publisher, publish.Hello(b"bad").encode(), 0.0)
    denied = desk.answers()
    assert [a.reason.split()[0] for a in denied if isinstance(a, publish.Refusal)] == [
        "denied",
        "denied",
    ]
    desk.matcher.receive(desk.publisher, publish.Hello(b"two").encode(), 0.0)
    desk.send(1)
    desk.sync_journal()
    assert desk.answers() == [publish.Hello(), publish.Accepted(message_id(1), 0)]


def test_before_all_subscriptions_are_known_publications_wait() -> None:
    desk = Desk(ready=False)
    desk.send(1)
    desk.hello(C1)
    desk.send(2)
    desk.tell(relay.Sync(bytes(12), C1, relay.SYNC_BEGIN))
    desk.tell(relay.Subscribe(bytes(12), client_id(1), C1, b"default", EVERY_N))
    assert not [e for e in desk.port.events if isinstance(e, PublicationAccepted)]
    desk.tell(relay.Sync(bytes(12), C1, relay.SYNC_END))
    desk.sync_journal()
    pushed = [one.message_id for one in desk.relayed() if isinstance(one, relay.Push)]
    assert pushed == [message_id(1), message_id(2)]


def test_a_dispatcher_that_has_connectors_to_meet_has_not_said_what_it_owns() -> None:
    desk = Desk(ready=False)
    desk.tell(relay.Hello(b"disp0001", b"dispatcher", more=True))
    desk.send(1)
    early = [one for one in desk.port.events if isinstance(one, PublicationAccepted)]
    desk.hello(C1)
    desk.tell(relay.Sync(bytes(12), C1, relay.SYNC_BEGIN))
    desk.tell(relay.Subscribe(bytes(12), client_id(1), C1, b"default", EVERY_N))
    desk.tell(relay.Sync(bytes(12), C1, relay.SYNC_END))
    desk.sync_journal()
    pushed = [one.message_id for one in desk.relayed() if isinstance(one, relay.Push)]
    assert (early, pushed) == ([], [message_id(1)])


def test_a_range_updated_matches_at_once() -> None:
    desk = Desk()
    desk.subscribe(1, fields=b'{"n":{"use":2,"low":1,"high":1}}')
    desk.send(1)
    desk.subscribe(1, fields=b'{"n":{"use":2,"low":2,"high":2}}')
    desk.send(2)
    desk.send(3, b'{"n":1}')
    desk.sync_journal()
    desk.relayed()
    counts = [e.subscriptions for e in desk.port.events if isinstance(e, PublicationMatched)]
    assert counts == [1, 1, 0]


def test_a_lost_dispatcher_gets_everything_again_in_order() -> None:
    desk = Desk()
    desk.subscribe(1)
    for number in range(3):
        desk.send(number)
    desk.sync_journal()
    first = desk.relayed()
    desk.take_over(first[0])
    desk.matcher.closed(desk.dispatcher, 0.0)
    desk.send(3)
    desk.sync_journal()
    desk.dispatcher = RecordingLink("dispatchers")
    desk.matcher.opened(desk.dispatcher, 0.0)
    desk.hello(C1, C2)
    again = [one.message_id for one in desk.relayed() if isinstance(one, relay.Push)]
    assert again == [message_id(1), message_id(2), message_id(3)]


def test_refused_parcels_wait_and_are_sent_again_in_order() -> None:
    desk = Desk()
    desk.subscribe(1)
    desk.send(1)
    desk.sync_journal()
    desk.relayed()
    desk.tell(relay.Nak(message_id(1), "queue-full", C1))
    desk.send(2)
    desk.sync_journal()
    assert desk.relayed() == []
    desk.matcher.wake(C1, 1.0)
    again = [one.message_id for one in desk.relayed() if isinstance(one, relay.Push)]
    assert again == [message_id(1), message_id(2)]


def test_what_can_never_be_taken_is_dropped_and_told() -> None:
    desk = Desk()
    desk.subscribe(1)
    desk.send(1)
    desk.sync_journal()
    desk.tell(relay.Nak(message_id(1), "too-large for me"))
    assert len(desk.matcher.owed) == 0
    [dropped] = [e for e in desk.port.events if isinstance(e, Dropped)]
    assert (dropped.id, dropped.clients) == (message_id(1), client_id(1))


def test_long_lists_are_split_so_that_every_message_fits() -> None:
    desk = Desk()
    for number in range(25_000):
        desk.matcher.table.set(client_id(number), C1, b"default", EVERY_N)
    desk.send(1, payload=b"x" * 700_000)
    desk.sync_journal()
    pushes = [one for one in desk.relayed() if isinstance(one, relay.Push)]
    listed = [by_connector(push.clients)[C1] for push in pushes]
    assert b"".join(listed) == b"".join(client_id(n) for n in range(25_000))
    assert len(pushes) == 3
    for push in pushes:
        desk.take_over(push)
    assert desk.answers() == [publish.Accepted(message_id(1), 25_000)]


def test_a_restarted_matcher_owes_what_was_not_taken_over() -> None:
    desk = Desk()
    desk.subscribe(1)
    for number in range(3):
        desk.send(number)
    desk.sync_journal()
    desk.take_over(desk.relayed()[1])
    assert [e.id for e in desk.port.events if isinstance(e, PublicationDone)] == [message_id(1)]
    again = Desk(recovered=desk.port.events, ready=False)
    again.hello(C1)
    pushed = [one.message_id for one in again.relayed() if isinstance(one, relay.Push)]
    assert pushed == [message_id(0), message_id(2)]
    again.send(0)  # its publisher never heard
    again.matcher.wake(HEARD, 0.0)  # there are no others that must hear of it first
    assert again.answers() == [publish.Accepted(message_id(0), 1)]


def test_matching_elsewhere_journals_and_acknowledges_only() -> None:
    desk = Desk(elsewhere=True)
    desk.subscribe(1)
    desk.send(0)
    assert desk.answers() == []
    desk.sync_journal()
    assert desk.answers() == [publish.Accepted(message_id(0), 0)]
    assert desk.relayed() == []
    kinds = [type(event) for event in desk.port.events]
    assert PublicationMatched not in kinds
    again = Desk(list(desk.port.events), elsewhere=True)
    again.send(0)
    assert again.answers() == [publish.Accepted(message_id(0), 0)]
    assert not [e for e in again.port.events if isinstance(e, PublicationAccepted)]


def test_a_connector_that_nobody_reached_for_a_day_is_forgotten() -> None:
    desk = Desk()
    desk.subscribe(1)
    desk.subscribe(2, C2)
    desk.send(1)
    desk.sync_journal()
    desk.hello(C2)  # the first is gone
    day = 24 * 3600.0
    for now in (1.0, day, day + 2.0):
        for link in (desk.dispatcher, desk.publisher):
            if link.state is not None:
                link.state.heard = now
        desk.matcher.beat(now)
    assert [entry.connector for entry in desk.matcher.table] == [C2]
    [dropped] = [e for e in desk.port.events if isinstance(e, Dropped)]
    assert (dropped.clients, dropped.reason) == (client_id(1), b"expired")
    assert len(desk.matcher.owed) == 1  # to the other
    assert desk.matcher.ready


def test_hostile_bytes_close_the_publisher_only() -> None:
    desk = Desk()
    desk.matcher.receive(desk.publisher, b"\x03\xff\xff\x01", 0.0)
    assert desk.publisher.reason is not None
    assert desk.dispatcher.reason is None


def test_matchers_tell_each_other_of_the_ring() -> None:
    desk = Desk()
    other = RecordingLink("status")
    desk.matcher.opened(other, 0.0)
    name = b"match002".hex().encode()
    told = status.Status(name, vnodes=vnode_hashes(name))
    desk.matcher.receive(other, told.encode(), 0.0)  # before its hello: not heard
    assert len(desk.matcher.ring) == 1
    hello = relay.Hello(b"match002", b"matcher").encode()
    desk.matcher.receive(other, hello + told.encode(), 0.0)
    assert len(desk.matcher.ring) == 2
    own = Assembler(1).receive(b"".join(other.take()), 0.0)
    assert [status.decode(m).hostname for m in own if m.command == STATUS] == [
        b"match001".hex().encode()
    ]
    forged = status.Status(b"someone else", vnodes=told.vnodes)
    desk.matcher.receive(other, forged.encode(), 0.0)
    assert len(desk.matcher.ring) == 2
    desk.matcher.closed(other, 0.0)
    assert len(desk.matcher.ring) == 1


def test_what_moved_is_taken_only_where_its_own_connector_has_not_told() -> None:
    desk = Desk()
    old, new = b'{"n":{"use":2,"high":5}}', b'{"n":{"use":2,"low":6}}'
    for fields, moved in ((old, True), (new, False), (old, True)):
        desk.tell(relay.Subscribe(bytes(12), client_id(1), C2, b"default", fields, moved))
    desk.send(3)
    desk.send(7)
    desk.sync_journal()
    pushes = [one for one in desk.relayed() if isinstance(one, relay.Push)]
    assert [(one.message_id, one.clients) for one in pushes] == [(message_id(7), client_id(1) + C2)]
