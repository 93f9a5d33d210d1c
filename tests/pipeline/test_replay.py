"""Replay: what was published reaches those who have not got it, under its own id."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from homing import sync
from homing.config import load
from homing.journal.events import Delivered, DeliveryQueued, Dropped, Event
from homing.pipeline import ingest, replay
from homing.pipeline.handing import Handing
from homing.pipeline.tables import Tables
from homing.testing import Fabric, fabric
from homing.wire.pushed import Push
from tests.pipeline.conftest import SKEW, ToFrame, WriteJournal, run_through
from tests.pipeline.test_ledger import ALICE, BOB, PLACE, key, published


def test_who_is_owed_what(frame: ToFrame) -> None:
    from homing.pipeline.publications import deliveries, matches, publications

    events = frame(
        *published(1, 5.0, ALICE, BOB),
        *published(2, 6.0, ALICE),
        *published(3, 7.0, BOB),
        Delivered(8.0, key(1), ALICE),
        Dropped(8.0, key(2), ALICE, b"slow"),
    )
    asked = replay.Asked(until=datetime.fromtimestamp(SKEW / 1e6 + 6.5, UTC))
    span = replay.within(publications(events), asked)
    found = replay.owed(span, matches(events), deliveries(events)).collect()
    assert [(row.id, row.places) for row in found] == [
        (key(1).hex(), [(BOB + PLACE).hex()]),
        (key(2).hex(), [(ALICE + PLACE).hex()]),
    ]
    again = replay.owed(span, matches(events), deliveries(events), again=True).collect()
    assert [len(row.places) for row in again] == [2, 1]


def test_what_was_queued_and_dropped_is_owed(frame: ToFrame) -> None:
    """A durable client that fell behind, or stayed away for too long, missed it."""
    from homing.pipeline.publications import deliveries, matches, publications

    here = [
        *(DeliveryQueued(8.0, key(number), ALICE, b"{}", b"") for number in range(1, 5)),
        Dropped(9.0, key(2), ALICE, b"queue-full"),
        Dropped(9.0, key(3), ALICE, b"queue-full"),
        DeliveryQueued(10.0, key(3), ALICE, b"{}", b""),  # by an earlier replay
        Dropped(9.0, key(4), ALICE, b"moved"),
    ]
    there = [DeliveryQueued(8.5, key(4), ALICE, b"{}", b"")]
    events = frame(*(event for number in range(1, 5) for event in published(number, 5.0, ALICE)))
    told = frame(*here, node=b"connect1").unionByName(frame(*there, node=b"connect2"))
    span = replay.within(publications(events), replay.Asked())
    found = replay.owed(span, matches(events), deliveries(told)).collect()
    assert [row.id for row in found] == [key(2).hex()]


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Fabric]:
    with fabric(f"push.dispatcher=ipc://{tmp_path}/dispatcher", push=True) as running:
        yield running


def test_a_span_is_replayed_to_todays_subscribers(
    spark: SparkSession, here: Fabric, tmp_path: Path, write_journal: WriteJournal
) -> None:
    story: list[Event] = []
    for number in range(1, 21):
        story += published(number, float(number), ALICE)
    write_journal(tmp_path / "old/matcher", story)
    tables = Tables(spark, str(tmp_path / "tables"))
    run_through(lambda: ingest.start(tables, str(tmp_path / "old")))

    flags = {"node.data": str(tmp_path / "data"), "security.token_key": "homing.testing"}
    config = load(Path("/dev/null"), flags=flags, environment={})
    client = secrets.token_hex(12)
    stamp, token = here.credentials(client)
    dispatchers = [f"ipc://{tmp_path}/dispatcher"]
    asked = replay.Asked(since=datetime.fromtimestamp(SKEW / 1e6 + 10.5, UTC), rate=20.0)
    with (
        sync.Subscriber(client, here.subscribers, token=token, timestamp=stamp) as subscriber,
        Handing(config, "replay", b"replay01", dispatchers) as handing,
    ):
        subscriber.subscribe("not exists(price) or price < 1000")
        handing.wait_ready(60)
        found = replay.plan(tables, list(handing.entries().values()), asked)
        before = time.monotonic()
        done = replay.run(found, handing, asked)
        assert (
            time.monotonic() - before >= 0.3
        )  # ten at twenty a second, the last pair not waited for
        assert (done.publications, done.deliveries) == (10, 10)
        got = [subscriber.get(timeout=60) for _ in range(10)]
        ids = [one.id for one in got if isinstance(one, Push)]
        assert ids == [key(number).hex() for number in range(11, 21)]
        replay.run(found, handing, asked)  # connectors know what went out a moment ago
        with pytest.raises(TimeoutError):
            subscriber.get(timeout=0.2)
