"""The stand-in matcher: owes what it took until it is done, over restarts, and takes nothing twice."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from homing.errors import DiskFull, QueueFull
from homing.journal.events import Dropped, PublicationDone, PublicationTaken, SubscriptionSet
from homing.pipeline.handing import figures
from homing.pipeline.standin import StandIn
from homing.push.places import places
from homing.testing import RecordingLink, RecordingPort
from homing.wire import relay
from homing.wire.assembly import Assembler
from homing.wire.publish import Publish

C1 = b"conn0001"
ALICE, BOB = b"alice-client", b"bob---client"
FIELDS = b'{"n":{"use":2}}'


def identity(number: int) -> bytes:
    return number.to_bytes(12, "big")


class Desk:
    """A stand-in with one dispatcher that owns one connector."""

    def __init__(self, recovered: Iterable[object] = ()) -> None:
        self.port = RecordingPort()
        self.role = StandIn(
            self.port, b"spark001", lambda: 1e9, dispatchers=["d:1"], recovered=recovered
        )
        self.link = RecordingLink("dispatchers")
        self.role.opened(self.link, 0.0)

    def join(self) -> None:
        self.tell(relay.Hello(b"disp0001", b"dispatcher", connectors=C1))
        self.tell(relay.Sync(bytes(12), C1, relay.SYNC_BEGIN))
        self.tell(relay.Sync(bytes(12), C1, relay.SYNC_END))
        self.heard()

    def tell(self, message: relay.Relayed) -> None:
        self.role.receive(self.link, message.encode(), 0.0)

    def ready(self) -> bool:
        return self.role.ready

    def hand(self, number: int, *clients: bytes) -> int:
        listed = places(b"".join(clients), C1) if clients else b""
        return self.role.hand(Publish(b"{}", b"p", identity(number)), listed, len(clients), 0.0)

    def sync_journal(self) -> None:
        self.role.journaled(len(self.port.events), 0.0)

    def heard(self) -> list[relay.Relayed]:
        whole = Assembler(relay.MESSAGE_ID).receive(b"".join(self.link.take()), 0.0)
        return [relay.decode(message) for message in whole]

    def pushed(self) -> list[bytes]:
        return [one.message_id for one in self.heard() if isinstance(one, relay.Push)]


def test_it_is_ready_once_every_connector_has_told() -> None:
    desk = Desk()
    desk.tell(relay.Hello(b"disp0001", b"dispatcher", connectors=C1))
    assert desk.ready() is False
    desk.tell(relay.Sync(bytes(12), C1, relay.SYNC_BEGIN))
    desk.tell(relay.Subscribe(identity(7), ALICE, C1, b"s", FIELDS))
    desk.tell(relay.Sync(bytes(12), C1, relay.SYNC_END))
    assert desk.ready() is True
    assert relay.Ack(identity(7)) in desk.heard()
    assert [entry.place for entry in desk.role.register] == [ALICE + C1]
    desk.tell(relay.Unsubscribe(identity(8), ALICE, C1))
    assert len(desk.role.register) == 0


def test_nothing_leaves_before_it_is_durable_and_nothing_twice() -> None:
    desk = Desk()
    desk.join()
    assert desk.hand(1, ALICE, BOB) == 1
    assert desk.hand(1, ALICE, BOB) == 0
    assert desk.pushed() == []
    desk.sync_journal()
    assert desk.pushed() == [identity(1)]
    desk.tell(relay.Ack(identity(1), ALICE + BOB, C1))
    assert isinstance(desk.port.events[-1], PublicationDone)
    assert desk.hand(2) == 3  # for nobody: recorded, and done at once
    desk.sync_journal()
    assert desk.port.events[-1] == PublicationDone(0.0, identity(2))
    assert desk.port.events[-2] == PublicationTaken(0.0, identity(2), b"", b"", b"", 0)


def test_its_figures_have_a_matchers_names() -> None:
    desk = Desk()
    desk.join()
    desk.tell(relay.Subscribe(identity(7), ALICE, C1, b"s", FIELDS))
    desk.hand(1, ALICE)
    desk.hand(2)
    desk.sync_journal()
    told = {sample.metric.name: sample.value for sample in figures(desk.role)}
    assert list(told.values()) == [1, 1, 2]
    assert "homing_push_subscriptions" in told


@pytest.mark.parametrize("by_checkpoint", [False, True])
def test_another_life_owes_what_was_not_done(by_checkpoint: bool) -> None:
    desk = Desk()
    desk.join()
    desk.tell(relay.Subscribe(identity(7), ALICE, C1, b"s", FIELDS))
    for number in (1, 2):
        desk.hand(number, ALICE)
    desk.sync_journal()
    desk.tell(relay.Ack(identity(1), ALICE, C1))
    desk.hand(3, BOB)  # not durable yet, but on its way
    told = desk.role.checkpoint() if by_checkpoint else list(desk.port.events)
    again = Desk(told)
    assert [entry.fields for entry in again.role.register] == [FIELDS]
    again.join()
    desk_after = Desk(again.role.checkpoint())
    for one in (again, desk_after):
        assert [one.hand(number, ALICE) for number in (1, 2, 3)] == [0, 0, 0]
    assert len(again.role.owed) == len(desk_after.role.owed) == 2
    desk_after.tell(relay.Hello(b"disp0001", b"dispatcher", connectors=C1))
    assert desk_after.pushed() == [identity(2), identity(3)]
    desk_after.role.forget()
    assert desk_after.hand(1, ALICE) > 0


def test_a_full_disk_and_full_connectors_are_told() -> None:
    desk = Desk()
    desk.join()

    def full(event: object) -> int:
        raise DiskFull("no room")

    desk.port.journal = full  # type: ignore[method-assign]
    with pytest.raises(QueueFull, match="no room"):
        desk.hand(1, ALICE)
    desk.port.journal = RecordingPort().journal  # type: ignore[method-assign]
    assert desk.hand(1, ALICE) > 0


def test_refusals_wait_or_are_given_up() -> None:
    desk = Desk()
    desk.join()
    desk.hand(1, ALICE)
    desk.sync_journal()
    assert desk.pushed() == [identity(1)]
    desk.tell(relay.Nak(identity(1), "queue-full later", C1))
    desk.role.wake(C1, 1.0)
    assert desk.pushed() == [identity(1)]
    desk.tell(relay.Nak(identity(1), "too-large for ever"))
    dropped = [event for event in desk.port.events if isinstance(event, Dropped)]
    assert [(event.id, event.clients) for event in dropped] == [(identity(1), ALICE)]
    assert len(desk.role.owed) == 0
    assert not [e for e in desk.port.events if isinstance(e, SubscriptionSet)]
