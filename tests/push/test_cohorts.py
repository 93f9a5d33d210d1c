"""Cohorts: whoever is sent to together gets what each would have got alone."""

from __future__ import annotations

from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from homing.journal.events import Delivered
from homing.push import popular
from homing.push.cohorts import ROOM
from homing.push.places import each_id
from homing.push.popular import Popular
from homing.push.sessions import MAX_BACKLOG
from homing.testing import RecordingLink
from homing.wire.session import command
from tests.push.desk import Desk

CLIENTS = 40
DURABLE = {"ack": True, "resume": True}

clients = st.integers(0, CLIENTS - 1)
steps = st.one_of(
    st.tuples(st.sampled_from(["all", "most"]), st.sampled_from([10, 3_000, ROOM])),
    st.tuples(st.sampled_from(["one", "leave", "come", "ask", "slow", "take"]), clients),
    st.tuples(st.just("wait"), st.just(0)),
)


class Crowd:
    """A connector with clients, and all that each of their links was ever sent."""

    def __init__(self) -> None:
        self.desk = Desk()
        self.links: dict[int, RecordingLink] = {}
        self.all: list[RecordingLink] = []
        self.pushed = 0
        for number in range(CLIENTS):
            self.come(number, **(DURABLE if number == 7 else {}))

    def come(self, number: int, **given: object) -> None:
        self.links[number] = link = self.desk.subscribed(number, **given)
        self.all.append(link)

    def do(self, step: tuple[str, int]) -> None:
        verb, what = step
        link = self.links.get(what)
        if verb in ("all", "most", "one"):
            self.pushed += 1
            listed = {"all": range(CLIENTS), "most": range(35), "one": [what]}[verb]
            self.desk.push(self.pushed, *listed, payload=b"x" * (10 if verb == "one" else what))
        elif verb == "wait":
            self.desk.settle()
            self.desk.wake(self.desk.now + 0.1)
        elif verb == "come" and link is None:
            sent = self.desk.visit()
            self.desk.say(sent, b"auth", self.desk.credentials(what))
            self.links[what] = sent
            self.all.append(sent)
            self.desk.say(sent, b"sub", b"n", b'{"use":2}')
        elif verb == "leave" and link is not None:
            self.take(link)
            self.desk.connector.closed(self.links.pop(what), self.desk.now)
        elif verb == "ask" and link is not None:
            words = command([b"subn", b"other", b"n", b'{"use":2,"low":2}'])
            self.desk.connector.receive(link, words, self.desk.now)
        elif link is not None:
            link.backlog = MAX_BACKLOG + 1 if verb == "slow" else 0

    def take(self, link: RecordingLink) -> None:
        link.backlog = 0
        self.desk.settle()
        self.desk.wake(self.desk.now + 0.1)

    def told(self) -> tuple[list[list[bytes]], list[tuple[bytes, bytes]], list[object]]:
        """What every link got, what the journal says was delivered to whom, and all else it says.

        When a client is found to be slow may differ: until it takes again, not for longer.
        """
        for link in self.links.values():
            self.take(link)
        events: list[Any] = self.desk.port.events
        delivered = [one for one in events if isinstance(one, Delivered)]
        pairs = [(one.id, client) for one in delivered for (client,) in each_id(one.clients)]
        others = [replace(one, at=0.0) for one in events if not isinstance(one, Delivered)]
        return [link.sent for link in self.all], sorted(pairs), others


@given(st.lists(steps, max_size=40))
def test_a_cohort_gets_what_its_clients_would_get_one_by_one(todo: list[tuple[str, int]]) -> None:
    together = Crowd()
    for step in todo:
        together.do(step)
    with mock.patch("homing.push.cohorts.SHORT", 1 << 30):
        alone = Crowd()
        for step in todo:
            alone.do(step)
    assert together.told() == alone.told()


def test_a_list_that_comes_again_becomes_a_cohort_that_ends_with_a_change() -> None:
    crowd = Crowd()
    links: list[int] = []

    def counted(found: list[RecordingLink]) -> mock.Mock:
        links.append(len(found))
        return mock.Mock()

    crowd.desk.connector.delivery._cohorts._together = counted  # type: ignore[assignment]
    for _ in range(4):
        crowd.do(("all", 10))
    assert links == [CLIENTS - 1]  # all but the durable one, found once
    crowd.do(("leave", 3))
    crowd.do(("all", 10))
    crowd.do(("all", 10))
    assert links == [CLIENTS - 1, CLIENTS - 2]
    crowd.do(("all", ROOM))  # as much as goes out unasked
    crowd.do(("all", 10))
    assert links == [CLIENTS - 1, CLIENTS - 2, CLIENTS - 2]


def test_what_is_popular_is_bounded_in_number_and_bytes() -> None:
    kept: Popular[int] = Popular()
    for number in range(popular.MAX_LISTS + 10):
        kept.keep(number.to_bytes(4, "big"), number)
        assert kept.get(bytes(4)) == 0  # asked for all the time, so never forgotten
    assert len(kept) == popular.MAX_LISTS
    assert kept.get((1).to_bytes(4, "big")) is None
    for number in range(10):
        kept.keep(bytes([number]) * (popular.MAX_BYTES // 4), number)
    assert len(kept) <= 4
    assert kept.get(bytes([9]) * (popular.MAX_BYTES // 4)) == 9
