"""Subscriptions that change, in executors that hold a copy: a base, and what has changed since.

The base is an index of all subscriptions at some moment, shipped once as a file. Each
micro-batch carries the rest with its task: which rows of the base no longer hold, and the few
subscriptions that came instead, which a worker indexes when it first meets them. Once these
are too many a new base is made.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from homing.pipeline.match import (
    CHUNK,
    Shard,
    build,
    load,
    save,
    scratch,
    send,
    shard_of,
)
from homing.pipeline.parsing import all_attributes_of
from homing.pipeline.register import Entry
from homing.push.places import PLACE_BYTES

PLACED = "id string, attrs_json string, payload binary, places binary, matched int"
# Changes that are carried along before a new base pays: a worker indexes about 100 000 a second.
MOST_CHANGES = 1000
SHARE = 50  # or a fiftieth of the base, if that is more
# Client lists in one Arrow batch: an array of bytes holds 2 GiB at most.
MOST_BYTES = 64 << 20

_PLACED = pa.schema(
    [
        ("id", pa.string()),
        ("attrs_json", pa.string()),
        ("payload", pa.binary()),
        ("places", pa.binary()),
        ("matched", pa.int32()),
    ]
)
Ints: TypeAlias = npt.NDArray[np.int64]


@dataclass
class Overlay:
    """What a task needs to match: the base's name, its rows that are gone, what came instead."""

    base: str
    version: str
    gone: Ints
    added: list[tuple[bytes, bytes]]  # place, fields


@dataclass
class Overlays:
    """The driver's side: makes bases and overlays from the register's changes."""

    ship: Callable[[str, pa.Table], None]
    _base: str = ""
    _numbers: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    _changed: set[int] = field(default_factory=set)
    _latest: Overlay | None = None

    def current(self, changes: tuple[Mapping[int, Entry], Iterable[int]] | None) -> Overlay:
        """The subscriptions as they are: all of them, and which changed since the last time."""
        if self._latest is None or changes is not None:
            self._latest = self._next(*(changes or ({}, ())))
        return self._latest

    def _next(self, entries: Mapping[int, Entry], changed: Iterable[int]) -> Overlay:
        self._changed.update(changed)
        if not self._base or len(self._changed) > max(MOST_CHANGES, len(self._numbers) // SHARE):
            self._rebase(entries)
        touched = np.array(sorted(self._changed), np.int64)
        rows = np.searchsorted(self._numbers, touched)
        inside = rows < len(self._numbers)
        gone = rows[inside][self._numbers[rows[inside]] == touched[inside]]
        now = [entries[number] for number in touched.tolist() if number in entries]
        added = [(entry.place, entry.fields) for entry in now]
        return Overlay(self._base, uuid.uuid4().hex, gone.astype(np.int64), added)

    def _rebase(self, entries: Mapping[int, Entry]) -> None:
        self._base = f"live-{uuid.uuid4().hex}"
        self._numbers = np.fromiter(entries, np.int64, len(entries))
        self._changed.clear()
        table = as_table([(entry.place, entry.fields) for entry in entries.values()])
        self.ship(self._base, table)


def ship(spark: SparkSession, name: str, table: pa.Table) -> None:
    """Index a base and send it to the executors."""
    for path in save(table, scratch() / name):
        send(spark, str(path))


def as_table(entries: Sequence[tuple[bytes, bytes]]) -> pa.Table:
    """Subscriptions as the match job indexes them; who they are for is a place, in hex."""
    return pa.table(
        {
            "client": pa.array([place.hex() for place, _ in entries], pa.string()),
            "connector": pa.array([""] * len(entries), pa.string()),
            "fields": pa.array([fields.decode() for _, fields in entries], pa.string()),
        }
    )


def place(publications: DataFrame, overlay: Overlay) -> DataFrame:
    """Publications (id, attrs_json, payload) in; the same with whom each is for, and matches."""
    return publications.select("id", "attrs_json", "payload").mapInArrow(_placing(overlay), PLACED)


def _placing(overlay: Overlay) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        shards = [(load(overlay.base), overlay.gone)]
        if overlay.added:
            shards.append((_added(overlay), np.empty(0, np.int64)))
        for batch in batches:
            yield from place_batch(shards, batch)

    return run


_latest: dict[str, Shard] = {}


def _added(overlay: Overlay) -> Shard:
    """The index of what came since the base; a worker keeps the last one."""
    if overlay.version not in _latest:
        _latest.clear()
        table = as_table(overlay.added)
        _latest[overlay.version] = shard_of(build(table), table)
    return _latest[overlay.version]


def place_batch(
    shards: Sequence[tuple[Shard, Ints]], batch: pa.RecordBatch
) -> Iterator[pa.RecordBatch]:
    """A batch with the places of each publication, each place once."""
    for start in range(0, batch.num_rows, CHUNK):
        part = batch.slice(start, CHUNK)
        asked = all_attributes_of(part.column("attrs_json").to_pylist())
        known = np.array([i for i, each in enumerate(asked) if each is not None], np.int64)
        lists = [b""] * part.num_rows
        counts = np.zeros(part.num_rows, np.int64)
        for shard, gone in shards:
            offsets, found = shard.index.match_batch([each for each in asked if each is not None])
            publication = np.repeat(known, np.diff(offsets))
            kept = ~np.isin(found, gone) if len(gone) else np.ones(len(found), bool)
            _add(shard, publication[kept], found.astype(np.int64)[kept], lists, counts)
        if len(shards) > 1:
            lists = [_once(listed) for listed in lists]
        yield from _batches(part, lists, counts)


def _add(
    shard: Shard, publication: Ints, subscription: Ints, lists: list[bytes], counts: Ints
) -> None:
    """Put the places that one shard found behind those that others did."""
    counts += np.bincount(publication, minlength=len(lists))
    size = max(1, len(shard.clients))
    once = np.unique(publication * size + shard.client_of[subscription])
    raw = shard.raw[once % size].tobytes()
    ends = (np.searchsorted(once // size, np.arange(len(lists) + 1)) * PLACE_BYTES).tolist()
    for i in np.unique(once // size).tolist():
        lists[i] += raw[ends[i] : ends[i + 1]]


def _once(listed: bytes) -> bytes:
    """A client may have subscriptions in the base and beside it."""
    places = [listed[at : at + PLACE_BYTES] for at in range(0, len(listed), PLACE_BYTES)]
    return b"".join(dict.fromkeys(places))


def _batches(
    part: pa.RecordBatch, lists: Sequence[bytes], counts: Ints
) -> Iterator[pa.RecordBatch]:
    start = size = 0
    for end in range(1, part.num_rows + 1):
        size += len(lists[end - 1])
        if end < part.num_rows and size + len(lists[end]) <= MOST_BYTES:
            continue
        columns = [part.column(name).slice(start, end - start) for name in _PLACED.names[:3]]
        columns.append(pa.array(lists[start:end], pa.binary()))
        columns.append(pa.array(counts[start:end], pa.int32()))
        yield pa.RecordBatch.from_arrays(columns, schema=_PLACED)
        start, size = end, 0
