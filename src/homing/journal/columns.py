"""Events as Arrow columns: one wide table that Parquet files and Spark share.

Built a column at a time, never a row at a time: the events of a block are grouped by kind,
each field of a group becomes one array, and the groups are put back into order at the end.

Ids of the push plane are hex text; names, routing ids and codes are text where they are
printable and `0x…` otherwise; whatever an event does not have is null. What few kinds have
(a version, a credit, a plan) is kept as JSON in `extra`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from operator import attrgetter
from typing import Any, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from homing.ids import ID_BYTES
from homing.journal import events
from homing.journal.events import PLACE_BYTES, Event, Unknown
from homing.journal.text import plain, printable

SCHEMA = pa.schema(
    [
        ("node", pa.string()),
        ("role", pa.string()),
        ("number", pa.int64()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("kind", pa.string()),
        ("request", pa.int64()),
        ("service", pa.string()),
        ("client", pa.string()),
        ("worker", pa.string()),
        ("peer", pa.string()),
        ("code", pa.string()),
        ("size", pa.int64()),
        ("attempts", pa.int32()),
        ("took_us", pa.int64()),
        ("id", pa.string()),
        ("publisher", pa.string()),
        ("connector", pa.string()),
        ("name", pa.string()),
        ("fields", pa.string()),
        ("attrs", pa.map_(pa.string(), pa.string())),
        ("attrs_json", pa.string()),
        ("payload", pa.binary()),
        ("clients", pa.list_(pa.string())),
        ("connectors", pa.list_(pa.string())),
        ("count", pa.int64()),
        ("extra", pa.string()),
    ]
)

# Columns that hardly repeat and mostly ascend: as differences they take a tenth of the room.
_ASCENDING = ("number", "at", "request", "accepted_at", "ended_at")


def parquet_options(schema: pa.Schema) -> dict[str, Any]:
    """How files of events, and of what is made of them, are written."""
    coded: list[str] = []
    for field in schema:
        if pa.types.is_map(field.type):
            coded += [f"{field.name}.key_value.key", f"{field.name}.key_value.value"]
        elif pa.types.is_list(field.type):
            coded.append(f"{field.name}.list.element")
        elif field.name not in _ASCENDING and not pa.types.is_boolean(field.type):
            coded.append(field.name)
    ascending = [name for name in _ASCENDING if name in schema.names]
    return {
        "compression": "zstd",
        "use_dictionary": coded,
        "column_encoding": dict.fromkeys(ascending, "DELTA_BINARY_PACKED"),
    }


Column: TypeAlias = Callable[[list[Any]], pa.Array]
_HEX = np.array([int.from_bytes(f"{i:02x}".encode(), "little") for i in range(256)], np.uint16)


def _integers(values: list[Any]) -> pa.Array:
    return pa.array(values, pa.int64())


def _requests(values: list[Any]) -> pa.Array:
    """0 says that there is none."""
    return pa.array([value or None for value in values], pa.int64())


def _counts(values: list[Any]) -> pa.Array:
    return pa.array(values, pa.int32())


def _micros(values: list[Any]) -> pa.Array:
    return pa.array([round(value * 1e6) for value in values], pa.int64())


def _names(values: list[Any]) -> pa.Array:
    """Names repeat: each different one is made text once."""
    coded = pa.array(values, pa.binary()).dictionary_encode()
    texts = pa.array([printable(value.as_py()) for value in coded.dictionary], pa.string())
    return texts.take(coded.indices)


def _ids(values: list[Any]) -> pa.Array:
    return pa.array([value.hex() or None for value in values], pa.string())


def _texts(values: list[Any]) -> pa.Array:
    return pa.array([value.decode("utf-8", "replace") for value in values], pa.string())


def _bytes(values: list[Any]) -> pa.Array:
    return pa.array(values, pa.binary())


def _sizes(values: list[Any]) -> pa.Array:
    return pa.array([len(value) for value in values], pa.int64())


def _maps(values: list[Any]) -> pa.Array:
    return pa.array([_attributes(value) for value in values], SCHEMA.field("attrs").type)


def _attributes(value: bytes) -> list[tuple[str, str]] | None:
    """The attributes as text, for a map column; null where the JSON has no meaning."""
    try:
        found = msgspec.json.decode(value, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return [
        (name, each if isinstance(each, str) else msgspec.json.encode(each).decode())
        for name, each in found.items()
    ]


def _hex_lists(values: list[Any], step: int, start: int, size: int) -> pa.Array:
    """Concatenated records of `step` bytes to lists of the hex of their bytes from `start` on."""
    counts = np.fromiter((len(value) // step for value in values), np.int64, len(values))
    raw = b"".join([value[: len(value) // step * step] for value in values])
    records = np.frombuffer(raw, np.uint8).reshape(-1, step)[:, start : start + size]
    text = np.ascontiguousarray(_HEX[records]).tobytes()
    ends = np.arange(len(records) + 1, dtype=np.int32) * (2 * size)
    flat = pa.StringArray.from_buffers(len(records), pa.py_buffer(ends), pa.py_buffer(text))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), flat)


def _clients(values: list[Any]) -> pa.Array:
    return _hex_lists(values, ID_BYTES, 0, ID_BYTES)


def _placed_clients(values: list[Any]) -> pa.Array:
    return _hex_lists(values, PLACE_BYTES, 0, ID_BYTES)


def _placed_connectors(values: list[Any]) -> pa.Array:
    return _hex_lists(values, PLACE_BYTES, ID_BYTES, PLACE_BYTES - ID_BYTES)


# kind -> [(column, field, how)]; fields not named here go to `extra`.
_Layout: TypeAlias = Sequence[tuple[str, str, Column]]
_DELIVERY: _Layout = [("id", "id", _ids), ("clients", "clients", _clients)]
_SUBSCRIPTION: _Layout = [
    ("client", "client", _ids),
    ("connector", "connector", _ids),
    ("name", "name", _names),
]
_REQUEST: _Layout = [
    ("service", "service", _names),
    ("client", "client", _names),
    ("size", "size", _integers),
    ("peer", "peer", _names),
]
LAYOUTS: dict[type[Event], _Layout] = {
    events.NodeStarted: [("name", "name", _names)],
    events.NodeStopped: [("code", "reason", _names)],
    events.Gap: [("count", "lost", _integers)],
    events.MemberJoined: [("name", "node", _names)],
    events.MemberLeft: [("name", "node", _names), ("code", "reason", _names)],
    events.RingChanged: [("count", "epoch", _integers)],
    events.RequestAccepted: [*_REQUEST, ("name", "message", _names)],
    events.RequestReposted: [("request", "request", _requests), ("peer", "peer", _names)],
    events.RequestAnswered: [
        ("request", "request", _requests),
        ("worker", "worker", _names),
        ("size", "size", _integers),
        ("took_us", "waited", _micros),
        ("attempts", "attempts", _counts),
        ("count", "partials", _integers),
        ("peer", "peer", _names),
    ],
    events.RequestRefused: [
        *_REQUEST,
        ("request", "request", _requests),
        ("code", "code", _names),
        ("attempts", "attempts", _counts),
    ],
    events.RequestRequeued: [("request", "request", _requests), ("worker", "worker", _names)],
    events.AnswerOrphaned: [
        ("service", "service", _names),
        ("worker", "worker", _names),
        ("client", "client", _names),
    ],
    events.WorkerJoined: [
        ("worker", "worker", _names),
        ("service", "service", _names),
        ("count", "credit", _integers),
    ],
    events.WorkerLeft: [
        ("worker", "worker", _names),
        ("service", "service", _names),
        ("code", "reason", _names),
    ],
    events.PublicationAccepted: [
        ("id", "id", _ids),
        ("publisher", "publisher", _names),
        ("attrs", "attrs", _maps),
        ("attrs_json", "attrs", _texts),
        ("payload", "payload", _bytes),
        ("size", "payload", _sizes),
    ],
    events.PublicationRefused: [
        ("id", "id", _ids),
        ("publisher", "publisher", _names),
        ("code", "code", _names),
    ],
    events.PublicationMatched: [
        ("id", "id", _ids),
        ("clients", "clients", _placed_clients),
        ("connectors", "clients", _placed_connectors),
        ("count", "subscriptions", _integers),
        ("took_us", "took", _micros),
    ],
    events.SubscriptionSet: [*_SUBSCRIPTION, ("fields", "fields", _texts)],
    events.SubscriptionRemoved: _SUBSCRIPTION,
    events.PublicationDone: [("id", "id", _ids)],
    # As with DeliveryQueued, the payload is in PublicationAccepted already.
    events.PublicationTaken: [
        ("id", "id", _ids),
        ("clients", "clients", _placed_clients),
        ("connectors", "clients", _placed_connectors),
        ("count", "subscriptions", _integers),
        ("size", "payload", _sizes),
        ("attrs_json", "attrs", _texts),
    ],
    events.Delivered: _DELIVERY,
    events.Redelivered: _DELIVERY,
    events.Acknowledged: _DELIVERY,
    events.Dropped: [*_DELIVERY, ("code", "reason", _names)],
    # The payload is in PublicationAccepted already: here only how large the queued copy is.
    events.DeliveryQueued: [
        *_DELIVERY,
        ("size", "payload", _sizes),
        ("attrs_json", "attrs", _texts),
    ],
    events.SessionOpened: [("client", "client", _ids)],
    events.SessionClosed: [("client", "client", _ids), ("code", "reason", _names)],
}


def batch(
    node: bytes,
    blocks: Iterable[tuple[int, int, Sequence[Event | Unknown]]],
    schema: pa.Schema = SCHEMA,
    kinds: Collection[str] | None = None,
    *,
    role: str | None = None,
) -> pa.RecordBatch:
    """One batch of (first number, skew in µs, events) blocks, in the order of their numbers.

    `node` and `role` recorded them; a journal that does not say its role has null there.

    Only the columns of `schema`, a part of SCHEMA, and events of `kinds` are made.
    """
    groups: dict[type, tuple[list[int], list[int], list[Any]]] = {}
    for first, skew, found in blocks:
        for number, event in enumerate(found, first):
            group = groups.get(event.__class__)
            if group is None:
                group = groups[event.__class__] = ([], [], [])
            group[0].append(number)
            group[1].append(int(event.at * 1e6) + skew)
            group[2].append(event)
    parts = [
        _Part({"node": node.hex(), "role": role, "kind": kind.__name__}, kind, *group)
        for kind, group in groups.items()
        if kinds is None or kind.__name__ in kinds
    ]
    if not parts:
        return pa.RecordBatch.from_pylist([], schema)
    columns = {name: _column(name, parts) for name in ["number", *schema.names]}
    if len(parts) > 1:
        order = np.argsort(columns["number"].to_numpy(zero_copy_only=False), kind="stable")
        columns = {name: column.take(pa.array(order)) for name, column in columns.items()}
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


class _Part:
    """The events of one kind; makes the columns that it is asked for."""

    def __init__(
        self,
        same: dict[str, str | None],
        kind: type[Any],
        numbers: list[int],
        walls: list[int],
        found: list[Any],
    ) -> None:
        self._same = same  # columns in which all rows have one text
        self._kind = kind
        self._numbers = numbers
        self._walls = walls
        self._found = found
        self._layout = {column: (name, how) for column, name, how in LAYOUTS.get(kind, [])}

    def column(self, name: str) -> pa.Array:
        size = len(self._found)
        if name in self._layout:
            field, build = self._layout[name]
            return build(list(map(attrgetter(field), self._found)))
        if name == "number":
            return pa.array(self._numbers, pa.int64())
        if name == "at":
            return pa.array(self._walls, SCHEMA.field("at").type)
        if name in self._same:
            return pa.repeat(pa.scalar(self._same[name], pa.string()), size)
        if name == "extra":
            return self._extra()
        return pa.nulls(size, SCHEMA.field(name).type)

    def _extra(self) -> pa.Array:
        placed = {field for field, _ in self._layout.values()}
        rest = sorted(set(self._kind.__struct_fields__) - {"at"} - placed)
        if not rest:
            return pa.nulls(len(self._found), pa.string())
        return pa.array([_extra(event, rest) for event in self._found], pa.string())


def _column(name: str, parts: list[_Part]) -> pa.Array:
    return pa.concat_arrays([part.column(name) for part in parts])


def _extra(event: Any, names: list[str]) -> str:
    found = {name: getattr(event, name) for name in names}
    return msgspec.json.encode({name: plain(each) for name, each in found.items()}).decode()
