"""Gaps: each publication is received or told as lost, once, and in its place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.journal.events import Dropped
from homing.push.gaps import Lost, joined, read_lost
from homing.push.sessions import MAX_BACKLOG, Limits
from homing.testing import RecordingLink
from homing.wire.pushed import Gap, Push
from homing.wire.session import command
from tests.push.desk import Desk, client_id, message_id

DURABLE = {"ack": True, "resume": True}
Range = tuple[int, int]


def number_of(text: str) -> int:
    return int.from_bytes(bytes.fromhex(text)[8:], "big")


class Reader:
    """A durable client that writes down what it is told, over kills and connections."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.desk = Desk(limits=limits)
        self.link: RecordingLink = self.desk.subscribed(1, **DURABLE)
        self.received: set[int] = set()
        self.gaps: set[Range] = set()
        self.unacked: list[int] = []
        self.published = 0
        self.away = False
        self.journal: list[object] = []

    def publish(self, count: int) -> None:
        for _ in range(count):
            self.desk.push(self.published, 1)
            self.published += 1
        self.desk.settle()

    def read(self) -> list[int]:
        """What came on this connection, in order: a gap stands right before what follows it."""
        fresh: list[int] = []
        newest = -1
        for one in self.desk.heard(self.link):
            if isinstance(one, Push):
                number = number_of(one.id)
                assert number > newest
                newest = number
                fresh.append(number)
            elif isinstance(one, Gap):
                first, last = number_of(one.first), number_of(one.last)
                assert newest < first
                assert one.dropped == last - first + 1
                newest = last
                self.gaps.add((first, last))
        self.received.update(fresh)
        self.unacked += fresh
        return fresh

    def acknowledge(self, count: int) -> None:
        self.read()
        now, self.unacked = self.unacked[:count], self.unacked[count:]
        for number in now:
            words = command([b"ack", message_id(number).hex().encode()])
            self.desk.connector.receive(self.link, words, self.desk.now)

    def slow(self, stuck: bool) -> None:
        self.link.backlog = MAX_BACKLOG + 1 if stuck else 0

    def leave(self) -> None:
        self.read()
        self.desk.connector.closed(self.link, self.desk.now)
        self.unacked, self.away = [], True

    def come(self) -> None:
        if self.away:
            self.link, self.away = self.desk.auth_resumed(1), False

    def kill(self, checkpoint: bool) -> None:
        self.read()
        if checkpoint:
            self.journal = list(self.desk.connector.checkpoint())
        else:
            self.journal += self.desk.port.events
        self.desk = Desk(self.journal, self.limits)
        self.unacked, self.away = [], True

    def drain(self) -> None:
        """Read all that is owed, and one more that tells of a gap at the end."""
        self.come()
        self.slow(False)
        self.desk.wake(self.desk.now + 1)
        self.acknowledge(1 << 30)
        while self.unacked or self.read():
            self.acknowledge(1 << 30)
            self.desk.wake(self.desk.now + 1)
        self.publish(1)
        self.read()

    def check(self) -> None:
        told = [number for first, last in self.gaps for number in range(first, last + 1)]
        assert len(told) == len(set(told))
        assert not self.received & set(told)
        assert self.received | set(told) == set(range(self.published))


@pytest.mark.parametrize(("count", "published"), [(2000, 4000), (300, 2000)])
def test_a_client_that_reads_nothing_has_one_gap_where_it_belongs(
    count: int, published: int
) -> None:
    reader = Reader(Limits(owed_count=count))
    reader.publish(published)
    reader.drain()
    reader.check()
    assert len(reader.gaps) == 1
    dropped = [one for one in reader.desk.port.events if isinstance(one, Dropped)]
    assert len(dropped) == published - count


@pytest.mark.parametrize("killed", [False, True])
def test_what_was_sent_before_the_client_left_is_replayed_and_not_dropped(killed: bool) -> None:
    reader = Reader(Limits(owed_count=6))
    reader.publish(3)
    if killed:
        reader.kill(checkpoint=False)
    else:
        reader.leave()
    reader.publish(10)
    reader.come()
    assert reader.read() == [0, 1, 2, 10, 11, 12]
    assert reader.gaps == {(3, 9)}


STEPS = st.one_of(
    st.tuples(st.just("publish"), st.integers(1, 12)),
    st.tuples(st.just("acknowledge"), st.integers(1, 8)),
    st.tuples(st.just("slow"), st.booleans()),
    st.tuples(st.just("kill"), st.booleans()),
    st.tuples(st.just("leave")),
    st.tuples(st.just("come")),
)


@given(st.lists(STEPS, max_size=20), st.sampled_from([1 << 20, 30]))
def test_all_is_received_or_told_once_whatever_happens(
    steps: list[tuple[object, ...]], total: int
) -> None:
    reader = Reader(Limits(owed_count=6, kept_bytes=total))
    for name, *given_ in steps:
        getattr(reader, str(name))(*given_)
        store = reader.desk.connector.store
        assert store.held <= total
        assert len(reader.desk.connector.durable[client_id(1)]) <= 6
    reader.drain()
    reader.check()


def test_a_gap_stays_here_when_what_follows_it_goes_elsewhere() -> None:
    reader = Reader(Limits(owed_count=2))
    reader.leave()
    reader.publish(4)
    session = reader.desk.connector.durable[client_id(1)]
    assert session.hand_over(message_id(2))
    assert session.gaps == {message_id(3): Lost(2, message_id(0), message_id(1))}
    assert not session.hand_over(message_id(2))


def test_lost_ones_join_in_order_and_are_read_back() -> None:
    whole = joined(Lost(1, b"a", b"a"), None, Lost(2, b"b", b"c"))
    assert whole == Lost(3, b"a", b"c")
    assert read_lost(Lost(3, b"a", b"c").told()) == whole
    assert read_lost(b"queue-full") is None
    assert joined(None) is None
