"""The table `requests` as homing.pipeline.requests makes it, with numpy instead of Spark.

Nearly every request has its acceptance and its one end in the same piece of a journal: such plain
ones become rows where the piece is read. The other events are handed on and folded together with
what earlier batches left open: a piece counts as a small batch of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from homing.journal.columns import SCHEMA
from homing.pipeline.requests import ENDS, KINDS

Ints: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

_TIME = pa.timestamp("us", tz="UTC")
REQUESTS = pa.schema(
    [
        ("node", pa.string()),
        ("request", pa.int64()),
        ("service", pa.string()),
        ("client", pa.string()),
        ("origin", pa.string()),
        ("message", pa.string()),
        ("accepted_at", _TIME),
        ("ended_at", _TIME),
        ("outcome", pa.string()),
        ("latency_us", pa.int64()),
        ("waited_us", pa.int64()),
        ("worker", pa.string()),
        ("served_by", pa.string()),
        ("hops", pa.int32()),
        ("attempts", pa.int32()),
        ("request_bytes", pa.int64()),
        ("answer_bytes", pa.int64()),
        ("ends", pa.int32()),
        ("open", pa.bool_()),
    ]
)

# What requests are made of; of events that wait for others nothing else is kept.
NEEDED = pa.schema(
    [
        SCHEMA.field(name)
        for name in (
            *("node", "number", "at", "kind", "request", "service", "client", "worker"),
            *("peer", "code", "size", "attempts", "took_us", "name"),
        )
    ]
)
# Texts that repeat are codes on their way through: a number is taken where a text would be copied.
_TEXT = pa.dictionary(pa.int32(), pa.string())
_CODED = pa.schema(
    [(each.name, _TEXT if each.type == pa.string() else each.type) for each in REQUESTS]
)
# Requests are ranked by a table over all numbers between them where it has at most so many places
# for each event; further apart they are sorted.
_SPREAD = 4


def plain(events: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Of one node's events: the rows of plain requests and of those refused at the door, the rest."""
    found = _fold(events)
    is_plain = found.accepted & (found.ends == 1)
    rest = found.starts | ((found.group >= 0) & ~_at(is_plain, found.group))
    rows = pa.concat_tables([found.rows.filter(pa.array(is_plain)), found.refused])
    return rows, events.filter(pa.array(rest))


def closed(events: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Of any nodes' events: the rows of requests that are over, the events of those that are not."""
    rows, still = [_CODED.empty_table()], [NEEDED.empty_table()]
    events = events.select(NEEDED.names)
    for node in events.column("node").unique().to_pylist():
        theirs = events.filter(pc.equal(events.column("node"), node))
        found = _fold(theirs)
        is_open = _mask(found.rows.column("open").combine_chunks())
        rows += [found.rows.filter(pa.array(~is_open)), found.refused]
        still.append(theirs.filter(pa.array((found.group >= 0) & _at(is_open, found.group))))
    return pa.concat_tables(rows), pa.concat_tables(still)


@dataclass
class _Folded:
    """A row for each request of one node; for each event, which of them it is of (-1: of none)."""

    rows: pa.Table
    refused: pa.Table  # at the door: the refusal is the row
    group: Ints
    starts: Mask
    accepted: Mask
    ends: Ints


def _fold(events: pa.Table) -> _Folded:
    batch = _Columns(events)
    is_a = batch.kinds
    ended = np.logical_or.reduce([is_a[kind] for kind in ENDS])
    number, at = batch.numbers("number"), batch.numbers("at")
    request = np.where(is_a["RequestAccepted"], number, batch.numbers("request"))
    told = np.logical_or.reduce([is_a[kind] for kind in KINDS if kind != "NodeStarted"])
    mine = np.flatnonzero(told & (request > 0))
    requests, group = _ranked(request[mine])

    def last_of(chosen: Mask) -> Ints:
        """Of each request the event that comes last among these; -1 where there is none."""
        found = np.full(len(requests), -1)
        found[group[chosen[mine]]] = mine[chosen[mine]]
        return found

    def count(chosen: Mask) -> Ints:
        return np.bincount(group[chosen[mine]], minlength=len(requests))

    counts = count(ended), count(is_a["RequestReposted"]), count(is_a["RequestRequeued"])
    first_end = np.full(len(requests), -1)
    ends = np.flatnonzero(ended[mine])
    if np.any(counts[0] > 1):  # the earliest is put there last
        ends = ends[np.lexsort((-number[mine[ends]], -at[mine[ends]]))]
    first_end[group[ends]] = mine[ends]
    accepted = last_of(is_a["RequestAccepted"])
    starts = np.flatnonzero(is_a["NodeStarted"])
    starts = starts[np.argsort(number[starts])]
    of_event = np.full(len(number), -1)
    of_event[mine] = group
    return _Folded(
        _rows(batch, requests, accepted, first_end, counts, (number[starts], at[starts])),
        _refused(batch, np.flatnonzero(is_a["RequestRefused"] & (request <= 0))),
        of_event,
        is_a["NodeStarted"],
        accepted >= 0,
        counts[0],
    )


def _ranked(numbers: Ints) -> tuple[Ints, Ints]:
    """The different numbers, ascending, and the place of each among them."""
    least, most = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)
    if most - least >= _SPREAD * len(numbers):
        found, place = np.unique(numbers, return_inverse=True)
        return found, place
    there = np.zeros(most - least + 1, np.bool_)
    there[numbers - least] = True
    return np.flatnonzero(there) + least, (np.cumsum(there) - 1)[numbers - least]


class _Columns:
    """The columns of a table, each in one piece, texts as codes."""

    def __init__(self, events: pa.Table) -> None:
        self._table = events
        self._made: dict[str, pa.Array] = {}
        self.size = events.num_rows

    def __getitem__(self, name: str) -> pa.Array:
        if name not in self._made:
            found = self._table.column(name)
            if found.type == pa.string():
                found = found.dictionary_encode()
            self._made[name] = found.unify_dictionaries().combine_chunks()
        return self._made[name]

    @cached_property
    def kinds(self) -> dict[str, Mask]:
        """Of each kind that requests are made of, which events are of it."""
        kind = self["kind"]
        codes = kind.indices.to_numpy(zero_copy_only=False)
        there = {name: code for code, name in enumerate(kind.dictionary.to_pylist())}
        return {name: codes == there.get(name, -1) for name in KINDS}

    def numbers(self, name: str) -> Ints:
        """As integers; 0 where there is none."""
        found = self[name]
        if found.type != pa.int64():
            found = found.cast(pa.int64())
        numbers: Ints = pc.fill_null(found, 0).to_numpy(zero_copy_only=False)
        return numbers


def _mask(found: pa.Array) -> Mask:
    mask: Mask = found.to_numpy(zero_copy_only=False).astype(bool)
    return mask


def _at(values: Mask, places: Ints) -> Mask:
    """The values at these places; False at -1."""
    return np.append(values, False)[places]


def _rows(
    batch: _Columns,
    requests: Ints,
    accepted: Ints,
    ended: Ints,
    counts: tuple[Ints, Ints, Ints],
    restarts: tuple[Ints, Ints],
) -> pa.Table:
    ends, reposts, requeues = counts
    numbers, times = restarts
    restart = np.searchsorted(numbers, requests, "right")  # the first after each request
    forgotten = (ends == 0) & (restart < len(numbers))
    begin, end = pa.array(accepted, mask=accepted < 0), pa.array(ended, mask=ended < 0)

    def first(name: str) -> pa.Array:
        return batch[name].take(begin)

    def last(name: str) -> pa.Array:
        return batch[name].take(end)

    answered = _at(batch.kinds["RequestAnswered"], ended)
    forgotten_at = pa.array(np.append(times, 0)[restart], mask=~forgotten)
    columns = {
        "node": pa.repeat(batch["node"][0], len(ends)) if len(ends) else first("node"),
        "request": pa.array(requests),
        "service": first("service"),
        "client": first("client"),
        "origin": first("peer"),
        "message": first("name"),
        "accepted_at": first("at"),
        "ended_at": pc.coalesce(last("at"), forgotten_at.cast(_TIME)),
        "outcome": _outcomes(last("code"), answered, ends, forgotten),
        "latency_us": pc.subtract(last("at").cast(pa.int64()), first("at").cast(pa.int64())),
        "waited_us": last("took_us"),
        "worker": last("worker"),
        "served_by": last("peer"),
        "hops": pa.array(1 + (reposts > 0), pa.int32()),
        "attempts": pc.coalesce(last("attempts"), pa.array(requeues + 1, pa.int32())),
        "request_bytes": first("size"),
        "answer_bytes": pc.if_else(pa.array(answered), last("size"), pa.scalar(None, pa.int64())),
        "ends": pa.array(ends, pa.int32()),
        "open": pa.array((ends == 0) & ~forgotten),
    }
    return pa.table([columns[name] for name in _CODED.names], schema=_CODED)


def _outcomes(code: pa.Array, answered: Mask, ends: Ints, forgotten: Mask) -> pa.Array:
    """A refusal's outcome is its code; null if it has none."""
    known = len(code.dictionary)
    without_end = np.where(forgotten, known + 1, known + 2)
    refused = pc.fill_null(code.indices, -1).to_numpy(zero_copy_only=False)
    found = np.where(answered, known, np.where(ends > 0, refused, without_end)).astype(np.int32)
    words = pa.concat_arrays([code.dictionary, pa.array(["answered", "forgotten", "open"])])
    return pa.DictionaryArray.from_arrays(pa.array(found, mask=found < 0), words)


def _refused(batch: _Columns, places: Ints) -> pa.Table:
    there = {
        "node": "node",
        "service": "service",
        "client": "client",
        "origin": "peer",
        "ended_at": "at",
        "outcome": "code",
        "request_bytes": "size",
    }
    always = {"hops": 1, "attempts": 0, "ends": 1, "open": False}
    taken = pa.array(places)
    columns = [
        batch[there[each.name]].take(taken)
        if each.name in there
        else pa.repeat(pa.scalar(always.get(each.name), each.type), len(places))
        for each in _CODED
    ]
    return pa.table(columns, schema=_CODED)
