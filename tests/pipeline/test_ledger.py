"""The ledger: silent when all is accounted for, and naming every violation when not."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from homing.journal.events import (
    Acknowledged,
    Delivered,
    DeliveryQueued,
    Dropped,
    Event,
    Gap,
    NodeStarted,
    NodeStopped,
    PublicationAccepted,
    PublicationMatched,
    Redelivered,
    RequestAccepted,
    RequestAnswered,
    RequestRefused,
    RequestRequeued,
)
from homing.pipeline.ingest import write_batch
from homing.pipeline.ledger import DEFAULT_TERMS, Terms, audit, run
from homing.pipeline.publications import deliveries, matched, matches, publications
from homing.pipeline.requests import requests
from homing.pipeline.tables import Tables
from tests.pipeline.conftest import SKEW, ToFrame

PLACE = b"connect1"
ALICE, BOB, CAROL = b"a" * 12, b"b" * 12, b"c" * 12


def key(i: int) -> bytes:
    return i.to_bytes(12, "big")


def published(i: int, at: float, *clients: bytes) -> list[Event]:
    places = b"".join(client + PLACE for client in clients)
    return [
        PublicationAccepted(at, key(i), b"p", b"{}", b""),
        PublicationMatched(at + 0.1, key(i), places, len(clients)),
    ]


def audited(events: DataFrame, terms: Terms = DEFAULT_TERMS) -> DataFrame:
    return audit(
        events,
        requests(events),
        publications(events),
        matched(events),
        matches(events),
        deliveries(events),
        terms,
    )


def problems(events: DataFrame, terms: Terms = DEFAULT_TERMS) -> set[tuple[str, str, str | None]]:
    return {(row.problem, row.key, row.client) for row in audited(events, terms).collect()}


def test_all_is_well(frame: ToFrame) -> None:
    events: list[Event] = [
        RequestAccepted(1.0, b"echo", b"c", 1),  # 1
        RequestAnswered(2.0, 1, b"w", 1),
        RequestAccepted(3.0, b"echo", b"c", 1),  # 3
        RequestRefused(4.0, 3, b"timeout"),
        RequestRefused(4.5, 0, b"queue-full", b"echo", b"c"),
        *published(1, 5.0, ALICE, BOB, CAROL),
        Delivered(6.0, key(1), ALICE),
        DeliveryQueued(6.0, key(1), BOB, b"{}", b""),
        Redelivered(500.0, key(1), BOB),
        Acknowledged(501.0, key(1), ALICE + BOB),
        Dropped(502.0, key(1), CAROL, b"slow"),
        *published(4, 510.0, BOB),
        Acknowledged(512.0, key(4), BOB),  # it has it, though nobody wrote how
        *published(2, 600.0),
        RequestAccepted(990.0, b"echo", b"c", 1),  # still within grace
        *published(3, 995.0, ALICE),
        NodeStopped(1000.0),
    ]
    assert problems(frame(*events)) == set()


def test_every_violation_is_named(frame: ToFrame) -> None:
    events: list[Event] = [
        RequestAccepted(1.0, b"echo", b"c1", 1),  # 1: lost in a restart
        NodeStarted(2.0, b"broker"),
        RequestAccepted(3.0, b"echo", b"c3", 1),  # 3: lost
        RequestAccepted(3.0, b"echo", b"c4", 1),  # 4: answered twice
        RequestAnswered(4.0, 4, b"w", 1),
        RequestAnswered(4.1, 4, b"w", 1),
        RequestAnswered(5.0, 99, b"w", 1),  # nobody's
        PublicationAccepted(6.0, key(1), b"p", b"{}", b""),  # never matched
        *published(2, 7.0, ALICE, BOB, CAROL),
        Delivered(8.0, key(2), ALICE),
        Delivered(9.0, key(2), ALICE),  # twice
        Delivered(700.0, key(2), CAROL),  # late; and BOB gets nothing
        Delivered(10.0, key(9), ALICE),  # nobody's
        Gap(11.0, 7),
        RequestAnswered(12.0, 0, b"w", 1),  # accepted while the disk was full
        NodeStopped(1000.0),
    ]
    assert problems(frame(*events)) == {
        ("lost", "1", "c1"),
        ("lost", "3", "c3"),
        ("duplicate", "4", "c4"),
        ("orphaned", "99", None),
        ("lost", key(1).hex(), "p"),
        ("duplicate", key(2).hex(), ALICE.hex()),
        ("lost", key(2).hex(), BOB.hex()),
        ("late", key(2).hex(), CAROL.hex()),
        ("orphaned", key(9).hex(), ALICE.hex()),
        ("unrecorded", "15", None),
        ("unrecorded", "16", None),
    }


def test_clock_skew_between_nodes_makes_no_loss(frame: ToFrame) -> None:
    """A connector ten minutes behind has not yet recorded; its own clock says so."""
    matcher = frame(*published(1, 1000.0, ALICE), NodeStopped(1100.0))
    connector = frame(NodeStopped(400.0), node=PLACE)
    assert problems(matcher.unionByName(connector)) == set()
    lost = {("lost", key(1).hex(), ALICE.hex())}
    later = frame(NodeStopped(400.0), NodeStopped(1100.0), node=PLACE)
    assert problems(matcher.unionByName(later)) == lost
    others = frame(NodeStopped(2000.0), node=b"node0003")  # it is silent for too long
    assert problems(matcher.unionByName(connector).unionByName(others)) == lost


def test_the_connector_that_was_told_last_owes_the_record(frame: ToFrame) -> None:
    """A client moved, and its publication was matched again: grace is counted where it is now."""
    former, now = b"connect9", b"connect1"
    matcher = frame(
        PublicationAccepted(1000.0, key(1), b"p", b"{}", b""),
        PublicationMatched(1000.0, key(1), ALICE + former, 1),
        PublicationMatched(1010.0, key(1), ALICE + now, 1),
        NodeStopped(1100.0),
    )
    told = [frame(NodeStopped(1100.0), node=former), frame(NodeStopped(400.0), node=now)]
    assert problems(matcher.unionByName(told[0]).unionByName(told[1])) == set()


def test_what_began_before_the_record_is_not_judged(frame: ToFrame) -> None:
    """Retention cuts through what is under way: its beginning is gone, its end is kept."""
    broker: list[Event] = [
        RequestAccepted(1.0, b"echo", b"c", 1),  # 1
        RequestAccepted(2.0, b"echo", b"c", 1),  # 2
        NodeStopped(3.0),
        RequestAnswered(4.0, 1, b"w", 1),
        RequestRequeued(4.0, 2, b"w"),
        NodeStarted(5.0, b"broker"),
        RequestAnswered(6.0, 99, b"w", 1),  # of nobody that is after the cut
    ]
    matcher: list[Event] = [*published(1, 1.0, ALICE), *published(2, 2.0, ALICE, BOB)]
    matcher += [*published(3, 700.0, BOB), NodeStopped(2000.0)]
    connector: list[Event] = [
        Delivered(1.5, key(1), ALICE),
        Delivered(1.6, key(2), ALICE),  # by its clock before what it is a delivery of
        Delivered(2.6, key(2), BOB),
        Redelivered(900.0, key(1), ALICE),
        Acknowledged(900.0, key(1), ALICE),
        Delivered(950.0, key(9), ALICE),  # of nothing, and late enough to be told
        NodeStopped(2000.0),
    ]
    whole = frame(*broker).unionByName(frame(*matcher, node=b"matcher1"))
    whole = whole.unionByName(frame(*connector, node=PLACE))
    lost = ("lost", key(3).hex(), BOB.hex())
    orphans = {("orphaned", "99", None), ("orphaned", key(9).hex(), ALICE.hex())}
    assert problems(whole) == {("lost", "2", "c"), lost, *orphans}
    begins = F.timestamp_micros(F.lit(SKEW + 2_000_000))
    brokers = F.col("node") == b"node0001".hex()
    cut = whole.where(F.when(brokers, F.col("number") > 2).otherwise(F.col("at") >= begins))
    assert problems(cut) == {lost, *orphans}


def test_a_cluster_s_node_is_cut_where_one_of_its_journals_is(frame: ToFrame) -> None:
    """Its roles have one id: a dispatcher's journal, which is hardly written, begins with number 1 for ever."""
    matcher = frame(
        NodeStarted(1.0, b"matcher"),
        *published(1, 10.0, ALICE),
        *published(2, 699.0, BOB),
        *published(3, 1500.0, ALICE),
        node=PLACE,
        role="matcher",
    )
    connector = frame(
        NodeStarted(1.0, b"connector"),
        Delivered(11.0, key(1), ALICE),
        Delivered(700.0, key(2), BOB),
        NodeStopped(2000.0),
        node=PLACE,
        role="connector",
    )
    others = matcher.unionByName(
        frame(NodeStarted(1.0, b"dispatcher"), node=PLACE, role="dispatcher")
    )
    lost = {("lost", key(3).hex(), ALICE.hex())}
    assert problems(others.unionByName(connector)) == lost
    assert problems(others.unionByName(connector.where("number > 2"))) == lost


def test_a_clock_that_was_ahead_and_was_set_back_makes_no_loss(frame: ToFrame) -> None:
    """What is under way is judged by what was recorded last; what was lost before is told all the same."""
    broker = frame(
        RequestAccepted(5000.0, b"echo", b"c1", 1),  # 1: lost while the clock was ahead
        RequestAccepted(5100.0, b"echo", b"c2", 1),  # 2: under way when it was set back
        RequestAccepted(1000.0, b"echo", b"c3", 1),  # 3: lost since
        RequestAccepted(1090.0, b"echo", b"c4", 1),  # 4: under way
        NodeStopped(1100.0),
        role="broker",
    )
    matcher = frame(
        *published(1, 5000.0),
        *published(2, 1000.0, ALICE),
        *published(3, 1090.0, ALICE),
        PublicationAccepted(1095.0, key(4), b"p", b"{}", b""),
        NodeStopped(1100.0),
        node=b"matcher1",
        role="matcher",
    )
    connector = frame(
        Delivered(5000.0, key(8), BOB),  # of a match that nobody has
        Delivered(1001.0, key(2), ALICE),
        NodeStopped(1100.0),
        node=PLACE,
        role="connector",
    )
    events = broker.unionByName(matcher).unionByName(connector)
    assert problems(events) == {
        ("lost", "1", "c1"),
        ("lost", "3", "c3"),
        ("orphaned", key(8).hex(), BOB.hex()),
    }


def test_a_present_is_that_of_the_journal_that_owes(frame: ToFrame) -> None:
    """Roles of a cluster's node share an id: what one of them wrote before the clock was set back is none of the others'."""
    dispatcher = frame(NodeStarted(5000.0, b"dispatcher"), node=PLACE, role="dispatcher")
    matcher = frame(
        NodeStarted(5000.0, b"matcher"), *published(1, 1000.0, ALICE), node=PLACE, role="matcher"
    )
    connector = frame(
        NodeStarted(5000.0, b"connector"), NodeStopped(1010.0), node=PLACE, role="connector"
    )
    events = dispatcher.unionByName(matcher).unionByName(connector)
    assert problems(events, Terms(skew=1e5)) == set()


def test_what_was_queued_before_the_record_is_not_late(frame: ToFrame) -> None:
    """A durable client that was away for long: that its connector queued it was cut."""
    matcher = frame(*published(1, 10.0, ALICE), NodeStopped(2000.0), node=b"matcher1")
    connector = frame(
        NodeStarted(1.0, b"connector"),
        DeliveryQueued(11.0, key(1), ALICE, b"{}", b""),
        NodeStopped(20.0),
        Delivered(500.0, key(1), ALICE),
        NodeStopped(2000.0),
        node=PLACE,
    )
    assert problems(matcher.unionByName(connector)) == set()
    assert problems(matcher.unionByName(connector.where("number > 2"))) == set()
    never = connector.where("number <> 2")  # nobody queued it, and the record is whole
    assert problems(matcher.unionByName(never)) == {("late", key(1).hex(), ALICE.hex())}


def test_what_is_not_known_is_told_as_such(frame: ToFrame) -> None:
    events = frame(
        RequestAccepted(1.0, b"echo", b"c", 1),  # 1
        RequestAnswered(2.0, 1, b"w", 1),
        RequestAnswered(2.1, 1, b"w", 1),
        RequestAnswered(5.0, 99, b"w", 1),  # nobody's
        RequestRefused(5.0, 98, b""),
        *published(1, 1.0, ALICE, BOB),
        Delivered(90.0, key(1), BOB),
        NodeStopped(1000.0),
    )
    told = {(row.key, row.detail) for row in audited(events).collect()}
    assert told == {
        ("1", "service echo, outcome answered, ends 2"),
        ("99", "service unknown, no acceptance is recorded, outcome answered, ends 1"),
        ("98", "service unknown, no acceptance is recorded, refused without a code, ends 1"),
        (key(1).hex(), "deliveries 0"),
        (key(1).hex(), "deliveries 1, lag_ms 89000"),
    }


def test_an_audit_is_of_one_moment(
    spark: SparkSession, frame: ToFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that comes while tables are read, one after the other, counts in all of them or in none."""
    tables = Tables(spark, str(tmp_path))
    write_batch(tables, frame(*published(1, 1.0, ALICE), Delivered(2.0, key(1), ALICE)), 0)
    late = frame(*published(2, 3.0, ALICE), Delivered(4.0, key(2), ALICE))
    read = Tables.read

    def meanwhile(self: Tables, name: str) -> DataFrame:
        if name == "deliveries" and len(tables.markers()) == 1:
            write_batch(tables, late, 1)
        return read(self, name)

    monkeypatch.setattr(Tables, "read", meanwhile)
    assert run(tables).problems == {}
    assert len(tables.markers()) == 2
