"""Tables of the push plane as homing.pipeline.publications makes them, in Arrow instead of Spark.

`matched`, `matches`, `deliveries` and `changes` look at one event at a time: the task that reads a piece of a
journal leaves its rows of them too. `publications` is left to Spark, which alone writes its VARIANT.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from homing.pipeline.intervals import CHANGES, OWNER, SUBSCRIPTION_KINDS
from homing.pipeline.publications import DELIVERY_KINDS, MATCH_KINDS

_TEXT = pa.string()


class Projection(NamedTuple):
    """A table whose rows each come of one event."""

    kinds: Sequence[str]
    columns: Sequence[str]
    make: Callable[[pa.RecordBatch], pa.Table]


def matched(events: pa.RecordBatch) -> pa.Table:
    """One row a publication that was matched, with how many clients it was for."""
    return pa.table(
        {
            "id": events.column("id"),
            "node": events.column("node"),
            "matched_at": events.column("at"),
            "clients": pc.list_value_length(events.column("clients")),
            "subscriptions": events.column("count"),
        }
    )


def matches(events: pa.RecordBatch) -> pa.Table:
    """One row a client that a publication was for."""
    event = pc.list_parent_indices(events.column("clients"))
    return pa.table(
        {
            "id": events.column("id").take(event),
            "client": pc.list_flatten(events.column("clients")),
            "connector": pc.list_flatten(events.column("connectors")),
            "node": events.column("node").take(event),
            "matched_at": events.column("at").take(event),
            "took_us": events.column("took_us").take(event),
        }
    )


def deliveries(events: pa.RecordBatch) -> pa.Table:
    """One row a publication, client and step."""
    event = pc.list_parent_indices(events.column("clients"))
    return pa.table(
        {
            "id": events.column("id").take(event),
            "client": pc.list_flatten(events.column("clients")),
            "step": pc.utf8_lower(events.column("kind").cast(_TEXT)).take(event),
            "node": events.column("node").take(event),
            "number": events.column("number").take(event),
            "at": events.column("at").take(event),
            "reason": events.column("code").take(event),
        }
    )


def changes(events: pa.RecordBatch) -> pa.Table:
    """One row a change of a subscription, as its connector records it."""
    node, connector, role = (events.column(name).cast(_TEXT) for name in _OWNED)
    owned = pc.and_(pc.equal(node, connector), pc.equal(pc.fill_null(role, OWNER), OWNER))
    return pa.Table.from_batches([events.filter(owned)]).select(CHANGES)


_OWNED = ("node", "connector", "role")
_EVENT = ("id", "node", "at", "kind", "clients")
PROJECTIONS = {
    "matched": Projection(MATCH_KINDS, (*_EVENT, "count"), matched),
    "matches": Projection(MATCH_KINDS, (*_EVENT, "connectors", "took_us"), matches),
    "deliveries": Projection(DELIVERY_KINDS, (*_EVENT, "number", "code"), deliveries),
    "changes": Projection(SUBSCRIPTION_KINDS, (*CHANGES, "role"), changes),
}


def project(events: pa.Table, projection: Projection) -> pa.Table:
    """A table's rows of some events; of any kind, and with at least the columns that it needs."""
    asked = pa.array(projection.kinds, _TEXT)
    ours = events.filter(pc.is_in(events.column("kind").cast(_TEXT), asked))
    whole = ours.select(projection.columns).combine_chunks()
    parts = whole.to_batches() or [pa.RecordBatch.from_pylist([], whole.schema)]
    return pa.concat_tables([projection.make(part) for part in parts])
