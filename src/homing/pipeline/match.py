"""Job `match`: publications × subscriptions at scale, with the matcher's own index.

The driver builds the index of each shard once; Spark ships it to the executors as a file, which
their Python workers map into memory, and publications stream through it in Arrow batches. One
shard serves sets that fit a machine (some 300 bytes a subscription). With more, publications pass
by one shard after the other, a quarter of a million at a time: only one shard needs to be in memory.

The answer is what a matcher would say: a client once for each publication, however many of
its subscriptions are satisfied. What a matcher would refuse (attributes or fields that have
no meaning) matches nothing.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import SparkFiles
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.utils import is_remote

from homing.pipeline.parsing import fields_of
from homing.pipeline.spelling import Alike, Mixed, attributes_in, kernel
from homing.push.index import Index, kernels
from homing.push.subscription import Fields, dump_fields

# Publications given to the index at once: twice its own chunk, as what is done once for a chunk weighs
# more with shards; a task holds the pairs of one chunk.
CHUNK = 2048
# Publications that pass by one shard before the next is mapped in its place: about 64 MB of them.
GROUP = 1 << 18
# Pairs in one Arrow batch: it bounds a task's memory, and an array of texts holds 2 GiB at most.
MOST_PAIRS = 1 << 19

# What tasks say: a list of clients for each publication and connector. Spark makes pairs of it, and
# looks at every client for whether it is there unless it is told so.
_LISTS = pa.schema(
    [
        ("id", pa.string()),
        ("connector", pa.string()),
        ("clients", pa.list_(pa.field("element", pa.string(), nullable=False))),
    ]
)
LISTS = from_arrow_schema(_LISTS)

Ints: TypeAlias = npt.NDArray[np.int64]
Taker: TypeAlias = Callable[[Ints], pa.Array]


def as_of(subscriptions: DataFrame, moment: datetime | None) -> DataFrame:
    """Those of the table `subscriptions` that held at a moment; without one, hold now."""
    if moment is None:
        return subscriptions.where("open")
    at = F.lit(moment)
    ended = F.col("valid_to").isNotNull() & (F.col("valid_to") <= at)
    return subscriptions.where((F.col("valid_from") <= at) & ~ended)


def what_if(spark: SparkSession, alternatives: Sequence[Fields]) -> DataFrame:
    """Subscriptions of a client that might be: one for each alternative of its filter."""
    rows = [("what-if", "", dump_fields(fields).decode()) for fields in alternatives]
    return spark.createDataFrame(rows, "client string, connector string, fields string")


def match(publications: DataFrame, subscriptions: DataFrame, shards: int = 1) -> DataFrame:
    """Publications (id, attrs_json) and subscriptions (client, connector, fields) in; pairs out."""
    return pairs(publications, ship(subscriptions, shards))


def pairs(publications: DataFrame, names: Sequence[str]) -> DataFrame:
    """The same with an index that was shipped; a row is written once, where somebody needs it."""
    asked = publications.select("id", "attrs_json")
    return asked.mapInArrow(matching(names), LISTS).select(
        "id", F.explode("clients").alias("client"), "connector"
    )


def ship(subscriptions: DataFrame, shards: int) -> list[str]:
    """Build the index of each shard and send it to the executors; the files' names."""
    kernel()  # tasks fetch what is compiled here
    since = [name for name in ("valid_from",) if name in subscriptions.columns]
    rows = subscriptions.select("client", "connector", "fields", *since)
    number = F.pmod(F.xxhash64("client"), F.lit(shards))
    parts = [rows.where(number == shard) if shards > 1 else rows for shard in range(shards)]
    run = uuid.uuid4().hex
    names = [f"subscriptions-{run}-{shard}" for shard in range(shards)]
    for name, table in zip(names, _collected(parts), strict=True):
        if since:  # Spark's order is any, and the last subscription knows where its client is
            table = table.sort_by([(since[0], "ascending")])
        for path in save(table, scratch() / name):
            send(subscriptions.sparkSession, str(path))
    return names


def _collected(parts: Sequence[DataFrame]) -> Iterator[pa.Table]:
    """The rows of each part; Spark collects the next one's while somebody works on these."""
    with ThreadPoolExecutor(1) as ahead:
        coming = ahead.submit(parts[0].toArrow)
        for part in parts[1:]:
            table = coming.result()
            coming = ahead.submit(part.toArrow)
            yield table
        yield coming.result()


def save(table: pa.Table, path: Path) -> list[Path]:
    """A shard of (client, connector, fields) as files: the index, and whose each row is."""
    index, clients = path.with_suffix(".index"), path.with_suffix(".arrow")
    build(table).snapshot(index)
    places = table.select(["client", "connector"])
    with pa.OSFile(str(clients), "wb") as file, pa.ipc.new_file(file, places.schema) as out:
        out.write_table(places)
    return [index, clients]


def build(table: pa.Table) -> Index:
    """Index the fields of each row under its number; what has no meaning matches nothing."""
    kernels.load()  # a job has the time that a node's first match has not
    index = Index(background=False)
    for row, text in enumerate(table.column("fields").to_pylist()):
        fields = fields_of(text)
        if fields is not None:
            index.add(row, fields)
    return index


def send(spark: SparkSession, path: str) -> None:
    """Give every executor a copy of a file."""
    if is_remote():
        spark.addArtifacts(path, file=True)
    else:
        spark.sparkContext.addFile(path)


@cache
def scratch() -> Path:
    """Executors fetch the files when a task first asks, so they stay until this process ends."""
    directory = tempfile.mkdtemp(prefix="homing-match-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return Path(directory)


@dataclass
class Shard:
    """An index whose subscription numbers are rows; clients by number, those of a connector in a row."""

    index: Index
    client_of: Ints
    clients: pa.Array
    connector_of: Ints  # by the client's number
    connectors: pa.Array

    @cached_property
    def plain(self) -> bool:
        """Whether no client can be found twice, and all are at one connector: rows are clients then."""
        return len(self.clients) == len(self.client_of) and len(self.connectors) <= 1

    @cached_property
    def take_clients(self) -> Taker:
        """Clients by their numbers."""
        return taking(self.clients)

    @cached_property
    def raw(self) -> npt.NDArray[np.uint8]:
        """The clients' bytes, one row each, where they are hex of one length."""
        text = "".join(self.clients.to_pylist())
        return np.frombuffer(bytes.fromhex(text), np.uint8).reshape(max(1, len(self.clients)), -1)


_loaded: dict[str, Shard] = {}


def load(name: str) -> Shard:
    """The shard of that name; a worker keeps the last one, as its tasks mostly ask for the same."""
    if name not in _loaded:
        _loaded.clear()
        _loaded[name] = open_shard(Path(SparkFiles.get(f"{name}.index")))
    return _loaded[name]


def open_shard(path: Path) -> Shard:
    """Map a shard's files into memory."""
    kernels.load()
    with pa.memory_map(str(path.with_suffix(".arrow"))) as file:
        places = pa.ipc.open_file(file).read_all()
    return shard_of(Index.load(path, background=False), places)


def shard_of(index: Index, places: pa.Table) -> Shard:
    """An index with the client and connector of each of its rows."""
    coded = places.column("client").combine_chunks().dictionary_encode()
    codes = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    held = _connectors(places.column("connector"), codes, len(coded.dictionary))
    connector_of = held.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    order = np.argsort(connector_of, kind="stable")
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    return Shard(
        index,
        number[codes],
        coded.dictionary.take(pa.array(order)),
        connector_of[order],
        held.dictionary,
    )


def _connectors(connectors: pa.ChunkedArray, codes: Ints, size: int) -> pa.Array:
    """Each client's connector; the last subscription knows best."""
    last = np.zeros(size, np.int64)
    last[codes] = np.arange(len(codes))
    return connectors.combine_chunks().take(pa.array(last)).dictionary_encode("encode")


class Asking(NamedTuple):
    """Some publications of a batch: the ids of all of it, and the attributes of these."""

    ids: pa.Array
    asked: Alike | Mixed


def matching(
    names: Sequence[str],
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What tasks do, for mapInArrow: (id, attrs_json) in, LISTS out."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for group in _groups(batches, GROUP if len(names) > 1 else 1):
            # Which shard comes first is all the same: the one that is there need not be mapped.
            for name in sorted(names, key=lambda name: name not in _loaded):
                shard = load(name)
                for asking in group:
                    yield from match_chunk(shard, asking)

    return run


def _groups(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[list[Asking]]:
    """Chunks of publications, gathered to so many publications or a batch more."""
    group: list[Asking] = []
    gathered = 0
    for batch in batches:
        group += chunks(batch)
        gathered += batch.num_rows
        if gathered >= size:
            yield group
            group, gathered = [], 0
    if group:
        yield group


def chunks(batch: pa.RecordBatch) -> Iterator[Asking]:
    """A batch of (id, attrs_json) as the index takes it."""
    ids = batch.column("id")
    for some in attributes_in(batch.column("attrs_json")):
        for part in some.parts(CHUNK):
            yield Asking(ids, part)


def match_chunk(shard: Shard, asking: Asking) -> Iterator[pa.RecordBatch]:
    """The lists of a chunk. All subscriptions of a client lie in one shard: nobody comes twice."""
    offsets, found = asking.asked.match(shard.index)
    rows = found.view(np.int64)
    if shard.plain and len(rows) <= MOST_PAIRS:
        if len(rows):
            yield _plain_lists(shard, asking, offsets, rows)
        return
    publication = np.repeat(asking.asked.places, np.diff(offsets))
    publication, client = _each_once(shard, publication, shard.client_of.take(rows))
    for start in range(0, len(client), MOST_PAIRS):
        end = start + MOST_PAIRS
        yield _lists(shard, asking.ids, publication[start:end], client[start:end])


def _plain_lists(shard: Shard, asking: Asking, offsets: Ints, client: Ints) -> pa.RecordBatch:
    """Lists that are what the index found, each of one publication."""
    some = np.flatnonzero(np.diff(offsets))
    ends = pa.array(np.append(offsets[some], len(client)), pa.int32())
    columns = [
        asking.ids.take(pa.array(asking.asked.places[some])),
        shard.connectors.take(pa.array(np.zeros(len(some), np.int64))),
        pa.ListArray.from_arrays(ends, shard.take_clients(client), _LISTS.field("clients").type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_LISTS)


def _each_once(shard: Shard, publication: Ints, client: Ints) -> tuple[Ints, Ints]:
    """Each client once for each publication, and those of a connector in a row."""
    if shard.plain:
        return publication, client
    size = len(shard.clients)
    alone = size == len(shard.client_of)
    found = np.sort(publication * size + client)
    if not alone and len(found):
        found = found[np.concatenate([[True], found[1:] != found[:-1]])]
    publication = found // size
    return publication, found - publication * size


def _lists(shard: Shard, ids: pa.Array, publication: Ints, client: Ints) -> pa.RecordBatch:
    several = len(shard.connectors) > 1
    at = (
        publication * len(shard.connectors) + shard.connector_of[client] if several else publication
    )
    starts = np.flatnonzero(np.concatenate([[True], at[1:] != at[:-1]]))
    ends = pa.array(np.append(starts, len(client)), pa.int32())
    columns = [
        ids.take(pa.array(publication[starts])),
        shard.connectors.take(pa.array(shard.connector_of[client[starts]])),
        pa.ListArray.from_arrays(ends, shard.take_clients(client), _LISTS.field("clients").type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_LISTS)


def taking(texts: pa.Array) -> Taker:
    """How to take texts by their places: ids are of one length, and numpy copies such quickest."""
    lengths = pc.binary_length(texts)
    width = lengths[0].as_py() if len(texts) else None
    if not width or texts.null_count or pc.min(lengths).as_py() != pc.max(lengths).as_py():
        return lambda places: texts.take(pa.array(places))
    begin = int(np.frombuffer(texts.buffers()[1], np.int32)[texts.offset])
    rows = np.frombuffer(texts.buffers()[2], f"V{width}", len(texts), begin)

    def take(places: Ints) -> pa.Array:
        ends = np.arange(len(places) + 1, dtype=np.int32) * np.int32(width)
        data = pa.py_buffer(rows.take(places))  # indexing is three times as slow for such rows
        return pa.StringArray.from_buffers(len(places), pa.py_buffer(ends), data)

    return take
