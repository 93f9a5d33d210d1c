"""Tables of the push plane: publications, matches, deliveries, subscriptions, sessions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from homing.journal.events import (
    Acknowledged,
    Delivered,
    Dropped,
    Event,
    NodeStarted,
    PublicationAccepted,
    PublicationMatched,
    Redelivered,
    RingChanged,
    SessionClosed,
    SessionOpened,
    SubscriptionRemoved,
    SubscriptionSet,
)
from homing.pipeline import intervals
from homing.pipeline.projecting import PROJECTIONS, project
from homing.pipeline.publications import deliveries, matched, matches, publications
from tests.pipeline.conftest import SKEW, ToFrame

ID, ALICE, BOB, PLACE = b"i" * 12, b"a" * 12, b"b" * 12, b"connect1"
A, B = ALICE.hex(), BOB.hex()


def test_publications_matches_and_deliveries(frame: ToFrame) -> None:
    events: list[Event] = [
        PublicationAccepted(1.0, ID, b"p", b'{"price": 12.5, "ok": true}', b"hello"),
        PublicationAccepted(1.1, ID, b"p", b"not json", b""),
        PublicationMatched(1.2, ID, ALICE + PLACE + BOB + PLACE, 3),
        Delivered(1.3, ID, ALICE + BOB),
        Redelivered(1.4, ID, BOB),
        Acknowledged(1.5, ID, ALICE),
        Dropped(1.6, ID, BOB, b"slow"),
    ]
    source = frame(*events)
    found = publications(source).selectExpr(
        "id", "attrs", "size", "variant_get(attributes, '$.price', 'double') as price", "number"
    )
    good, bad = sorted(found.collect(), key=lambda row: row.number)
    assert (good.attrs, good.price, good.size) == ({"price": "12.5", "ok": "true"}, 12.5, 5)
    assert (bad.attrs, bad.price) == (None, None)
    assert {(row.client, row.connector) for row in matches(source).collect()} == {
        (A, PLACE.hex()),
        (B, PLACE.hex()),
    }
    [row] = matched(source).collect()
    assert (row.clients, row.subscriptions) == (2, 3)
    assert sorted((row.step, row.client, row.reason) for row in deliveries(source).collect()) == [
        ("acknowledged", A, None),
        ("delivered", A, None),
        ("delivered", B, None),
        ("dropped", B, "slow"),
        ("redelivered", B, None),
    ]


CHANGES: list[Event] = [
    SubscriptionSet(1.0, ALICE, PLACE, b"cheap", b"{1}"),
    SubscriptionSet(2.0, ALICE, PLACE, b"near", b"{2}"),
    SubscriptionSet(3.0, ALICE, PLACE, b"cheap", b"{3}"),
    SubscriptionSet(3.5, BOB, PLACE, b"all", b"{4}"),
    SubscriptionRemoved(4.0, ALICE, PLACE, b"near"),
    SubscriptionSet(5.0, ALICE, PLACE, b"near", b"{5}"),
    SubscriptionRemoved(6.0, ALICE, PLACE),
    SubscriptionSet(7.0, ALICE, PLACE, b"cheap", b"{6}"),
]


def history(found: Any) -> dict[str, tuple[float, float | None]]:
    origin = 1_700_000_000
    return {
        row.fields: (
            row.valid_from.timestamp() - origin,
            row.valid_to and row.valid_to.timestamp() - origin,
        )
        for row in found.collect()
    }


def test_subscriptions_hold_from_when_to_when(frame: ToFrame) -> None:
    expected = {
        "{1}": (1.0, 3.0),
        "{2}": (2.0, 4.0),
        "{3}": (3.0, 6.0),
        "{4}": (3.5, None),
        "{5}": (5.0, 6.0),
        "{6}": (7.0, None),
    }
    changes = intervals.changes(frame(*CHANGES, node=PLACE))
    assert history(intervals.subscriptions(changes)) == expected
    for seconds in (2.5, 4.0, 5.5, 6.5):
        left = intervals.not_over(changes, datetime.fromtimestamp(SKEW / 1e6 + seconds, UTC))
        assert left.count() < len(CHANGES) or seconds < 4
        assert history(intervals.subscriptions(left)) == {
            fields: (begin, end)
            for fields, (begin, end) in expected.items()
            if end is None or end >= seconds
        }


def test_a_connector_that_lets_a_session_go_ends_nothing_elsewhere(frame: ToFrame) -> None:
    """A durable client's session has moved to another connector, which has written all of it, when the former removes its own."""
    former: list[Event] = [
        SubscriptionSet(1.0, ALICE, PLACE, b"cheap", b"{1}"),
        SubscriptionSet(2.0, ALICE, PLACE, b"near", b"{2}"),
        SubscriptionSet(2.5, ALICE, PLACE, b"left", b"{3}"),
        SubscriptionRemoved(10.25, ALICE, PLACE),
        SubscriptionRemoved(21.0, ALICE, PLACE, b"near"),
    ]
    other = b"connect2"
    latter: list[Event] = [
        SubscriptionSet(10.0, ALICE, other, b"cheap", b"{4}"),
        SubscriptionSet(10.125, ALICE, other, b"near", b"{5}"),
        SubscriptionRemoved(20.0, ALICE, other, b"cheap"),
    ]
    events = frame(*former, node=PLACE).unionByName(frame(*latter, node=other))
    changes = intervals.changes(events)
    expected = {
        "{1}": (1.0, 10.0),
        "{2}": (2.0, 10.125),
        "{3}": (2.5, 10.25),
        "{4}": (10.0, 20.0),
        "{5}": (10.125, None),
    }
    assert history(intervals.subscriptions(changes)) == expected
    kept = intervals.not_over(changes, datetime.fromtimestamp(SKEW / 1e6 + 15.0, UTC))
    assert history(intervals.subscriptions(kept)) == {
        fields: expected[fields] for fields in ("{4}", "{5}")
    }


def test_the_copies_that_matchers_record_do_not_count(frame: ToFrame) -> None:
    connector = frame(*CHANGES, node=PLACE)
    copies = [SubscriptionSet(each.at + 1.5, ALICE, PLACE, b"cheap", b"{1}") for each in CHANGES]
    both = connector.unionByName(frame(*copies, node=b"node0002"))
    assert intervals.changes(both).collect() == intervals.changes(connector).collect()


def test_sessions(frame: ToFrame) -> None:
    events: list[Event] = [
        SessionOpened(1.0, ALICE, True, False),
        SessionOpened(2.0, BOB),
        SessionClosed(3.0, ALICE, b"keepalive"),
        SessionOpened(4.0, ALICE, True, True),
    ]
    found = intervals.sessions(frame(*events)).orderBy("opened_at").collect()
    assert [(row.client, row.reason, row.durable, row.resumed, row.open) for row in found] == [
        (A, "keepalive", True, False, False),
        (B, None, False, False, True),
        (A, None, True, True, True),
    ]


def test_a_connector_that_begins_anew_holds_no_session_of_before(frame: ToFrame) -> None:
    events: list[Event] = [
        NodeStarted(0.0, b"connector"),
        SessionOpened(1.0, ALICE, True),
        SessionOpened(2.0, BOB),
        SessionClosed(3.0, ALICE, b"keepalive"),
        NodeStarted(4.0, b"connector"),
        SessionOpened(5.0, ALICE, True),
        NodeStarted(6.0, b"connector"),
    ]
    whole = intervals.sessions(frame(*events)).orderBy("opened_at").collect()
    assert [(row.client, row.reason, row.open) for row in whole] == [
        (A, "keepalive", False),
        (B, "restarted", False),
        (A, "restarted", False),
    ]
    assert [(row.closed_at - row.opened_at).total_seconds() for row in whole] == [2.0, 2.0, 1.0]
    begun = frame(*events[:3])
    state = intervals.still_open(begun, intervals.sessions(begun))
    later = frame(*events).where("number > 3")
    found = intervals.sessions(state.unionByName(later)).orderBy("opened_at").collect()
    assert found == whole
    other = frame(NodeStarted(9.0, b"connector"), node=b"node0002")
    assert intervals.sessions(state.unionByName(other)).where("not open").count() == 0


def test_a_matcher_of_the_same_id_ends_no_session(frame: ToFrame) -> None:
    """A node of a cluster has one id, and a journal with its own numbers for each role."""
    connector = frame(
        NodeStarted(1.0, b"connector"),
        SessionOpened(2.0, ALICE),  # 2: before it was killed
        NodeStarted(10.0, b"connector"),
        SessionOpened(11.0, BOB),  # 4
    )
    busy: list[Event] = [NodeStarted(1.0, b"matcher"), *[RingChanged(2.0, 1)] * 3]
    matcher = frame(*busy, NodeStarted(10.0, b"matcher"), NodeStarted(10.0, b"dispatcher"))
    events = connector.unionByName(matcher)
    found = intervals.sessions(events)
    ended = {(row.client, row.reason, row.open) for row in found.collect()}
    assert ended == {(A, "restarted", False), (B, None, True)}
    assert [row.kind for row in intervals.still_open(events, found).collect()] == ["SessionOpened"]


def test_a_matcher_with_the_connector_s_id_records_copies(frame: ToFrame) -> None:
    """A node of a cluster has one id for its roles; its matcher hears of every session, those that are not durable too."""
    told: list[Event] = [
        SubscriptionSet(1.0, ALICE, PLACE, b"cheap", b"{1}"),
        SubscriptionSet(3.0, ALICE, PLACE, b"cheap", b"{2}"),
    ]
    heard: list[Event] = [
        SubscriptionSet(1.1, ALICE, PLACE, b"cheap", b"{1}"),
        SubscriptionSet(2.0, BOB, PLACE, b"plain", b"{3}"),
        SubscriptionSet(3.1, ALICE, PLACE, b"cheap", b"{2}"),
        SubscriptionRemoved(4.0, BOB, PLACE, b"plain"),
    ]
    connector = frame(*told, node=PLACE, role="connector")
    events = frame(*heard, node=PLACE, role="matcher").unionByName(connector)
    by_spark = intervals.changes(events)
    by_arrow = project(events.toArrow(), PROJECTIONS["changes"])
    assert sorted(by_arrow.to_pylist(), key=str) == sorted(by_spark.toArrow().to_pylist(), key=str)
    found = intervals.subscriptions(by_spark).collect()
    assert sorted((row.client, row.fields, row.open) for row in found) == [
        (A, "{1}", False),
        (A, "{2}", True),
    ]


def test_a_clock_that_is_set_back_leaves_nothing_open(frame: ToFrame) -> None:
    """Within a node numbers tell what came first; of sessions in one batch and in two."""
    events: list[Event] = [
        SubscriptionSet(100.0, ALICE, PLACE, b"cheap", b"{1}"),
        SessionOpened(100.0, ALICE),
        SubscriptionSet(60.0, ALICE, PLACE, b"cheap", b"{2}"),
        SubscriptionRemoved(70.0, ALICE, PLACE),
        SessionClosed(61.0, ALICE, b"bye"),
    ]
    changes = intervals.changes(frame(*events, node=PLACE))
    cutoff = datetime.fromtimestamp(SKEW / 1e6 + 80.0, UTC)
    for known in (changes, intervals.not_over(changes, cutoff)):
        assert history(intervals.subscriptions(known)) == {
            "{1}": (100.0, 100.0),
            "{2}": (60.0, 70.0),
        }
    for cut in (2, 3, 5):
        early = frame(*events[:cut], node=PLACE)
        late = frame(*events[cut:], node=PLACE, first=cut + 1)
        first = intervals.sessions(early)
        second = intervals.sessions(intervals.still_open(early, first).unionByName(late))
        [session] = first.where("not open").unionByName(second).collect()
        assert (session.open, session.reason) == (False, "bye")
        assert session.closed_at == session.opened_at
