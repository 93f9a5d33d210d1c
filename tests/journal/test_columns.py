"""Columns: every field of every kind arrives, in the order of the numbers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings

from homing.journal import events
from homing.journal.columns import LAYOUTS, SCHEMA, batch
from homing.journal.text import printable
from tests.journal.test_events import batches

NODE = b"\x00\x01\x02\x03\x04\x05\x06\x07"
CLIENT = bytes(range(12))
CONNECTOR = bytes(range(100, 108))


def row(event: events.Event | events.Unknown) -> dict[str, Any]:
    [found] = batch(NODE, [(7, 1_000_000, [event])]).to_pylist()
    return {name: value for name, value in found.items() if value is not None}


def test_what_every_row_has() -> None:
    assert row(events.NodeStopped(2.5)) == {
        "node": "0001020304050607",
        "number": 7,
        "at": datetime(1970, 1, 1, 0, 0, 3, 500_000, UTC),
        "kind": "NodeStopped",
    }


def test_a_request_and_its_answer() -> None:
    accepted = row(events.RequestAccepted(1.0, b"echo", b"\x00\xff", 64, b"paris", b"m-1"))
    assert (
        accepted
        | {
            "service": "echo",
            "client": "0x00ff",
            "size": 64,
            "peer": "paris",
            "name": "m-1",
        }
        == accepted
    )
    answered = row(events.RequestAnswered(1.0, 7, b"w", 32, 0.0015, 2, 3))
    assert (
        answered
        | {
            "request": 7,
            "worker": "w",
            "size": 32,
            "took_us": 1500,
            "attempts": 2,
            "count": 3,
        }
        == answered
    )
    assert "request" not in row(events.RequestRefused(1.0, 0, b"queue-full", b"echo", b"c"))


def test_a_publication_its_matches_and_deliveries() -> None:
    attrs = b'{"price": 12.5, "city": "Paris", "new": true}'
    accepted = row(events.PublicationAccepted(1.0, CLIENT, b"p", attrs, b"\x00\xff"))
    assert accepted["id"] == CLIENT.hex()
    assert accepted["attrs"] == [("price", "12.5"), ("city", "Paris"), ("new", "true")]
    assert accepted["attrs_json"] == attrs.decode()
    assert (accepted["payload"], accepted["size"]) == (b"\x00\xff", 2)
    matched = row(events.PublicationMatched(1.0, CLIENT, (CLIENT + CONNECTOR) * 2, 3))
    assert matched["clients"] == [CLIENT.hex()] * 2
    assert matched["connectors"] == [CONNECTOR.hex()] * 2
    assert matched["count"] == 3
    assert row(events.Delivered(1.0, CLIENT, CLIENT * 3))["clients"] == [CLIENT.hex()] * 3
    assert row(events.Dropped(1.0, CLIENT, b"", b"slow"))["clients"] == []


@pytest.mark.parametrize(
    "attrs", [b'{"a": \xff', b'{"a": "\xff"}', b'{"\xff": 1}', b"[]", b"[" * 9999, b""]
)
def test_bad_json_is_no_map_but_still_text(attrs: bytes) -> None:
    found = row(events.PublicationAccepted(1.0, CLIENT, b"p", attrs, b""))
    assert "attrs" not in found
    assert found["attrs_json"] == attrs.decode("utf-8", "replace")


def test_what_has_no_column_is_kept_as_json() -> None:
    found = row(events.NodeStarted(1.0, b"broker", b"paris", b"1.0", b"host", 42))
    assert found["name"] == "paris"
    assert msgspec.json.decode(found["extra"]) == {
        "role": "broker",
        "version": "1.0",
        "host": "host",
        "pid": 42,
    }
    unknown = row(events.Unknown(99, 1.0, [b"x", [5, b"\xff"]]))
    assert unknown["kind"] == "Unknown"
    assert msgspec.json.decode(unknown["extra"]) == {"kind": 99, "fields": ["x", [5, "0xff"]]}


def test_every_kind_has_a_layout_of_columns_and_fields_that_exist() -> None:
    assert set(LAYOUTS) == set(events.KINDS.values())
    for kind, layout in LAYOUTS.items():
        assert {column for column, _, _ in layout} <= set(SCHEMA.names)
        assert {field for _, field, _ in layout} <= set(kind.__struct_fields__)


@settings(max_examples=50)
@given(batches)
def test_any_events_make_a_batch_in_order(found: list[events.Event]) -> None:
    made = batch(NODE, [(1, 0, found[:5]), (6, 0, found[5:])], kinds=None)
    assert made.schema == SCHEMA
    assert made.column("number").to_pylist() == list(range(1, len(found) + 1))[: made.num_rows]
    assert made.column("kind").to_pylist() == [type(event).__name__ for event in found]


def test_every_row_says_which_role_recorded_it() -> None:
    found = [events.NodeStopped(1.0), events.Gap(2.0, 1)]
    for role in ("matcher", None):
        made = batch(NODE, [(1, 0, found)], role=role)
        assert made.column("role").to_pylist() == [role, role]


def test_only_the_columns_and_kinds_asked_for() -> None:
    schema = pa.schema([SCHEMA.field("service"), SCHEMA.field("at")])
    found = [events.NodeStopped(1.0), events.RequestAccepted(2.0, b"echo", b"c", 1)]
    made = batch(NODE, [(1, 0, found)], schema, {"RequestAccepted"})
    assert made.schema == schema
    assert made.column("service").to_pylist() == ["echo"]
    assert batch(NODE, [(1, 0, found)], schema, {"Gap"}).num_rows == 0


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"", None),
        (b"echo", "echo"),
        ("café".encode(), "café"),
        (b"a\n", "0x610a"),
        (b"\xff", "0xff"),
    ],
)
def test_printable(value: bytes, text: str | None) -> None:
    assert printable(value) == text
