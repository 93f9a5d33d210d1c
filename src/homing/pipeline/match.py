"""Job `match`: publications × subscriptions at scale, with the matcher's own index.

The driver builds the index of each shard once; Spark ships it to the executors as a file, which
their Python workers map into memory, and publications stream through it in Arrow batches. One
shard serves sets that fit a machine (some 300 bytes a subscription). With more, publications pass
by one shard after the other, some ten thousand at a time: only one shard needs to be in memory.

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
from dataclasses import dataclass
from datetime import datetime
from functools import cache, cached_property
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import SparkFiles
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.utils import is_remote

from homing.pipeline.parsing import all_attributes_of, fields_of
from homing.push.index import Index, kernels
from homing.push.subscription import Attributes, Fields, dump_fields

RESULT = "id string, client string, connector string"
# Publications given to the index at once: its own chunk, so that its pages stay in cache.
CHUNK = 1024
# Publications that pass by one shard before the next is mapped in its place.
GROUP = 65_536
# Pairs in one Arrow batch: it bounds a task's memory, and an array of texts holds 2 GiB at most.
MOST_PAIRS = 1 << 19

_RESULT = pa.schema([("id", pa.string()), ("client", pa.string()), ("connector", pa.string())])

Taker: TypeAlias = Callable[[npt.NDArray[np.int64]], pa.Array]


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
    asked = publications.select("id", "attrs_json")
    return asked.mapInArrow(matching(ship(subscriptions, shards)), RESULT)


def ship(subscriptions: DataFrame, shards: int) -> list[str]:
    """Build the index of each shard and send it to the executors; the files' names."""
    rows = subscriptions.select(
        "client", "connector", "fields", F.pmod(F.xxhash64("client"), F.lit(shards)).alias("shard")
    )
    run = uuid.uuid4().hex
    names = [f"subscriptions-{run}-{shard}" for shard in range(shards)]
    for shard, name in enumerate(names):
        table = rows.where(F.col("shard") == shard).drop("shard").toArrow()
        for path in save(table, scratch() / name):
            send(subscriptions.sparkSession, str(path))
    return names


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
    """An index whose subscription numbers are rows; clients by number, to tell them apart."""

    index: Index
    client_of: npt.NDArray[np.int64]
    clients: pa.Array
    connectors: pa.Array

    @cached_property
    def takers(self) -> tuple[Taker, Taker]:
        """Clients and connectors by the client's number."""
        return taking(self.clients), taking(self.connectors)

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
    return Shard(
        index,
        coded.indices.to_numpy(zero_copy_only=False).astype(np.int64),
        coded.dictionary,
        _connectors(places.column("connector"), coded.indices, len(coded.dictionary)),
    )


def _connectors(connectors: pa.ChunkedArray, codes: pa.Array, size: int) -> pa.Array:
    """Each client's connector, by the client's number; the last subscription knows best."""
    last = np.zeros(size, np.int64)
    last[codes.to_numpy(zero_copy_only=False)] = np.arange(len(codes))
    return connectors.combine_chunks().take(pa.array(last))


@dataclass
class Asking:
    """A chunk of publications: their ids, and the attributes of those that have some."""

    ids: pa.Array
    places: npt.NDArray[np.int64]
    attributes: Sequence[Attributes]


def matching(
    names: Sequence[str],
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What tasks do, for mapInArrow: (id, attrs_json) in, RESULT out."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for group in _groups(batches, GROUP if len(names) > 1 else 1):
            for name in names:
                shard = load(name)
                for asking in group:
                    yield from match_chunk(shard, asking)

    return run


def _groups(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[list[Asking]]:
    """Chunks of publications, gathered to so many publications or a batch more."""
    group: list[Asking] = []
    for batch in batches:
        group += chunks(batch)
        if sum(len(asking.ids) for asking in group) >= size:
            yield group
            group = []
    if group:
        yield group


def chunks(batch: pa.RecordBatch) -> Iterator[Asking]:
    """A batch of (id, attrs_json) as the index takes it."""
    for start in range(0, batch.num_rows, CHUNK):
        part = batch.slice(start, CHUNK)
        asked = all_attributes_of(part.column("attrs_json").to_pylist())
        places = np.array([i for i, each in enumerate(asked) if each is not None], np.int64)
        known = [each for each in asked if each is not None]
        yield Asking(part.column("id"), places, known)


def match_chunk(shard: Shard, asking: Asking) -> Iterator[pa.RecordBatch]:
    """The pairs of a chunk. All subscriptions of a client lie in one shard: no pair comes twice."""
    offsets, found = shard.index.match_batch(asking.attributes)
    publication = np.repeat(asking.places, np.diff(offsets))
    return _pairs(shard, asking.ids, publication, found.astype(np.int64))


def _pairs(
    shard: Shard,
    ids: pa.Array,
    publication: npt.NDArray[np.int64],
    subscription: npt.NDArray[np.int64],
) -> Iterator[pa.RecordBatch]:
    """Each client once for each publication."""
    client = shard.client_of[subscription]
    if len(shard.clients) < len(shard.client_of):
        size = len(shard.clients)
        pairs = np.sort(publication * size + client)
        pairs = pairs[np.concatenate([[True], pairs[1:] != pairs[:-1]])] if len(pairs) else pairs
        publication, client = pairs // size, pairs % size
    take_id, take_client, take_connector = taking(ids), *shard.takers
    for start in range(0, len(client), MOST_PAIRS):
        some, whose = publication[start : start + MOST_PAIRS], client[start : start + MOST_PAIRS]
        columns = [take_id(some), take_client(whose), take_connector(whose)]
        yield pa.RecordBatch.from_arrays(columns, schema=_RESULT)


def taking(texts: pa.Array) -> Taker:
    """How to take texts by their places: ids are of one length, and numpy copies such quickest."""
    lengths = pc.binary_length(texts)
    width = lengths[0].as_py() if len(texts) else None
    if not width or texts.null_count or pc.min(lengths).as_py() != pc.max(lengths).as_py():
        return lambda places: texts.take(pa.array(places))
    begin = int(np.frombuffer(texts.buffers()[1], np.int32)[texts.offset])
    rows = np.frombuffer(texts.buffers()[2], f"V{width}", len(texts), begin)

    def take(places: npt.NDArray[np.int64]) -> pa.Array:
        ends = np.arange(len(places) + 1, dtype=np.int32) * np.int32(width)
        data = pa.py_buffer(rows.take(places))  # indexing is three times as slow for such rows
        return pa.StringArray.from_buffers(len(places), pa.py_buffer(ends), data)

    return take
