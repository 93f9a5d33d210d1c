"""Folding with numpy gives what Spark's fold gives, however a journal is cut into pieces."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from homing.journal.columns import batch
from homing.journal.events import (
    Event,
    NodeStarted,
    NodeStopped,
    RequestAccepted,
    RequestAnswered,
    RequestRefused,
    RequestReposted,
    RequestRequeued,
)
from homing.pipeline import requests
from homing.pipeline.folding import REQUESTS, _ranked, closed, plain
from homing.pipeline.schema import EVENTS
from tests.pipeline.conftest import SKEW
from tests.pipeline.test_requests import STORY


def story(chance: random.Random, size: int) -> list[Event]:
    """Anything a broker may record, in any order that it may."""
    events: list[Event] = []
    accepted: list[int] = []
    while len(events) < size:
        at = len(events) + chance.random()
        request = chance.choice([*accepted[-5:], 0, 10_000 + chance.randrange(3)])
        events.append(
            chance.choice(
                [
                    RequestAccepted(at, b"echo", b"c", 1, chance.choice([b"", b"lyon"]), b"m"),
                    RequestAccepted(at, b"slow", b"d", 2),
                    RequestAnswered(at, request, b"w", 3, 0.5, chance.randrange(1, 3)),
                    RequestAnswered(at - 2.0, request, b"v", 4, 0.25, 1, 0, b"lyon"),
                    RequestRefused(at, request, b"timeout", b"echo", b"c", 5),
                    RequestReposted(at, request, b"lyon"),
                    RequestRequeued(at, request, b"w"),
                    NodeStopped(at),
                    *([NodeStarted(at, b"broker")] if chance.random() < 0.2 else []),
                ]
            )
        )
        if isinstance(events[-1], RequestAccepted):
            accepted.append(len(events))
    return events


def table(events: list[Event], node: bytes = b"node0001", first: int = 1) -> pa.Table:
    return pa.Table.from_batches([batch(node, [(first, SKEW, events)])])


def spark_rows(spark: SparkSession, events: pa.Table) -> DataFrame:
    return requests.requests(spark.createDataFrame(events, EVENTS))


def same(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> bool:
    """The same rows, in whatever order."""
    return Counter(map(repr, one)) == Counter(map(repr, other))


def plain_rows(frame: DataFrame) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = frame.toArrow().cast(REQUESTS).to_pylist()
    return found


def test_the_columns_are_spark_s(spark: SparkSession) -> None:
    made = spark_rows(spark, table([])).toArrow().schema
    assert [(each.name, each.type) for each in made] == [
        (each.name, each.type) for each in REQUESTS
    ]


def test_folding_gives_what_spark_gives(spark: SparkSession) -> None:
    chance = random.Random(7)
    for size in (0, 1, 40, 200):
        one = table(story(chance, size))
        both = pa.concat_tables([one, table(story(chance, size), b"node0002")])
        found = spark_rows(spark, both)
        rows, still = closed(both)
        assert same(rows.to_pylist(), plain_rows(found.where("not open")))
        kept = requests.still_open(spark.createDataFrame(both, EVENTS), found)
        assert same(
            still.select(["node", "number", "kind"]).to_pylist(),
            [row.asDict() for row in kept.select("node", "number", "kind").collect()],
        )


def test_pieces_give_what_the_whole_gives() -> None:
    """A request that ends once, wherever its events are cut, is one row."""
    events = [*STORY, *(RequestAnswered(9.0, number, b"w", 1) for number in (4,))]
    whole, _ = closed(table(events))
    for cut in range(len(events) + 1):
        first, left = plain(table(events[:cut]))
        second, more = plain(table(events[cut:], first=cut + 1))
        rest, still = closed(pa.concat_tables([left, more]))
        assert still.num_rows == 0
        assert same(pa.concat_tables([first, second, rest]).to_pylist(), whole.to_pylist())


def test_texts_may_come_as_codes() -> None:
    """As the Parquet copy of a segment has them, with other codes in each of its parts."""
    chance = random.Random(8)
    for size in (0, 1, 30, 200):
        events = table(story(chance, size))
        parts = [events.slice(0, size // 2), events.slice(size // 2)]
        coded = pa.concat_tables([_coded(part) for part in parts])
        for one, other in zip(plain(events), plain(coded), strict=True):
            assert same(one.to_pylist(), other.select(one.column_names).to_pylist())


def _coded(events: pa.Table) -> pa.Table:
    columns = [
        column.dictionary_encode() if column.type == pa.string() else column
        for column in events.columns
    ]
    return pa.table(columns, names=events.column_names)


@given(st.lists(st.one_of(st.integers(1, 20), st.integers(1, 2**62))))
def test_ranks_are_those_of_sorting(numbers: list[int]) -> None:
    asked = np.array(numbers, np.int64)
    for one, other in zip(_ranked(asked), np.unique(asked, return_inverse=True), strict=True):
        assert one.tolist() == other.tolist()
