"""Table `requests`: every way a request can go, and what is kept for the next batch."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame

from homing.journal.events import (
    Event,
    NodeStarted,
    RequestAccepted,
    RequestAnswered,
    RequestRefused,
    RequestReposted,
    RequestRequeued,
)
from homing.pipeline.requests import requests, still_open
from tests.pipeline.conftest import ToFrame

STORY: list[Event] = [
    RequestAccepted(1.0, b"echo", b"c1", 10),  # 1: answered
    RequestAccepted(1.1, b"echo", b"c2", 11),  # 2: reposted, answered by a peer
    RequestAccepted(1.2, b"slow", b"c3", 12),  # 3: worker lost once, then refused
    RequestAccepted(1.3, b"slow", b"c4", 13),  # 4: open
    RequestAnswered(1.5, 1, b"w1", 20, 0.25),
    RequestReposted(1.6, 2, b"lyon"),
    RequestAnswered(1.9, 2, b"w9", 21, 0.0, 1, 0, b"lyon"),
    RequestRequeued(2.0, 3, b"w1"),
    RequestRefused(3.2, 3, b"timeout", attempts=2),
    RequestRefused(3.3, 0, b"queue-full", b"echo", b"c5", 14),
]


def rows(found: DataFrame) -> dict[Any, Any]:
    return {row.request: row for row in found.collect()}


def test_every_outcome(frame: ToFrame) -> None:
    found = rows(requests(frame(*STORY)))
    outcomes = {key: row.outcome for key, row in found.items()}
    assert outcomes == {1: "answered", 2: "answered", 3: "timeout", 4: "open", None: "queue-full"}
    one = found[1]
    assert (one.service, one.client, one.worker) == ("echo", "c1", "w1")
    assert (one.latency_us, one.waited_us) == (500_000, 250_000)
    assert (one.request_bytes, one.answer_bytes, one.attempts, one.hops) == (10, 20, 1, 1)
    assert one.accepted_at == datetime(2023, 11, 14, 22, 13, 21)
    assert (found[2].hops, found[2].served_by) == (2, "lyon")
    assert (found[3].attempts, found[3].ends) == (2, 1)
    assert found[4].ended_at is None
    assert [row.open for row in found.values()].count(True) == 1
    assert found[None].client == "c5"


def test_batches_give_what_the_whole_gives(frame: ToFrame) -> None:
    whole = rows(requests(frame(*STORY)))
    for cut in (2, 6, 8):
        early = frame(*STORY[:cut])
        first = requests(early)
        kept = still_open(early, first)
        late = frame(*STORY[cut:], first=cut + 1)
        together = kept.unionByName(late)
        assert rows(first.where("not open").unionByName(requests(together))) == whole


def test_a_restarted_broker_has_forgotten_what_was_open(frame: ToFrame) -> None:
    events = [*STORY, NodeStarted(9.0, b"broker"), RequestAccepted(9.5, b"echo", b"c", 1)]
    found = rows(requests(frame(*events)))
    assert found[4].outcome == "forgotten"
    assert not found[4].open
    assert found[12].outcome == "open"


def test_what_was_open_was_over_with_the_first_restart_after_it(frame: ToFrame) -> None:
    """However many there were since: a batch may hold a bad night of them."""
    accepted = RequestAccepted(1.0, b"echo", b"c", 1)
    started = [NodeStarted(at, b"broker") for at in (0.5, 2.0, 3.0)]
    events = [started[0], accepted, started[1], accepted, started[2], accepted]
    found = rows(requests(frame(*events)))
    assert [found[number].outcome for number in (2, 4, 6)] == ["forgotten", "forgotten", "open"]
    ended = [found[number].ended_at for number in (2, 4, 6)]
    assert ended == [datetime(2023, 11, 14, 22, 13, 22), datetime(2023, 11, 14, 22, 13, 23), None]


def test_an_end_without_a_beginning_and_two_ends_are_rows(frame: ToFrame) -> None:
    found = rows(requests(frame(RequestAnswered(1.0, 99, b"w", 1), *STORY[:1], first=0)))
    assert (found[99].accepted_at, found[99].latency_us, found[99].ends) == (None, None, 1)
    twice = [*STORY[:1], RequestAnswered(2.0, 1, b"w", 1), RequestAnswered(2.5, 1, b"w", 1)]
    row = rows(requests(frame(*twice)))[1]
    assert (row.ends, row.latency_us) == (2, 1_000_000)
