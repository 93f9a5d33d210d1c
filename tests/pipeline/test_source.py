"""The data source in a real Spark: every event once, as a table and as a stream."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from homing.errors import PipelineError
from homing.journal.events import (
    Delivered,
    Event,
    NodeStarted,
    PublicationAccepted,
    RequestAccepted,
    RequestAnswered,
)
from homing.journal.reader import segments
from homing.journal.sealing import seal_all
from homing.journal.segment import BLOCKS_AT
from homing.pipeline.asked import parse
from homing.pipeline.schema import EVENTS
from tests.pipeline.conftest import WriteJournal, run_through


def requests(count: int, first: int = 1) -> list[Event]:
    """Pairs of a request and its answer; the first takes number `first`."""
    found: list[Event] = []
    for i in range(count):
        number = first + 2 * i
        found.append(RequestAccepted(float(number), b"echo", b"client", i))
        found.append(RequestAnswered(number + 0.5, number, b"worker", i))
    return found


def load(spark: SparkSession, path: Path, **options: Any) -> DataFrame:
    return spark.read.format("homing").options(**options).load(str(path))


def numbers(frame: DataFrame) -> list[int]:
    return sorted(row.number for row in frame.select("number").collect())


def test_a_table_of_every_journal(
    spark: SparkSession, tmp_path: Path, write_journal: WriteJournal
) -> None:
    write_journal(tmp_path / "a", requests(3), requests(2, 7), segment_bytes=BLOCKS_AT + 100)
    attrs = b'{"price": 12.5, "city": "Paris"}'
    write_journal(
        tmp_path / "b",
        [
            PublicationAccepted(1.0, b"i" * 12, b"p", attrs, b"\x00\xff"),
            Delivered(2.0, b"i" * 12, b"c" * 24),
        ],
        node=b"node0002",
    )
    frame = load(spark, tmp_path)
    assert frame.schema == EVENTS
    assert frame.count() == 12
    rows = {
        row.number: row
        for row in frame.where("node = hex('node0002') or true").collect()
        if row.node == b"node0002".hex()
    }
    assert rows[1].at == datetime(2023, 11, 14, 22, 13, 21)
    assert rows[1].attrs == {"price": "12.5", "city": "Paris"}
    assert rows[1].payload == b"\x00\xff"
    assert rows[2].clients == [(b"c" * 12).hex()] * 2


def test_sealed_copies_give_the_same_rows(
    spark: SparkSession, tmp_path: Path, write_journal: WriteJournal
) -> None:
    write_journal(tmp_path / "a", *[requests(5, 1 + 10 * i) for i in range(6)], segment_bytes=8500)
    before = sorted(load(spark, tmp_path).collect())
    assert len(list(seal_all(tmp_path / "a"))) >= 2
    assert sorted(load(spark, tmp_path).collect()) == before
    kinds = load(spark, tmp_path, kinds="RequestAnswered")
    assert numbers(kinds) == list(range(2, 61, 2))


def test_options_choose_kinds_and_times(
    spark: SparkSession, tmp_path: Path, write_journal: WriteJournal
) -> None:
    write_journal(tmp_path, requests(4))
    assert numbers(load(spark, tmp_path, kinds="RequestAccepted")) == [1, 3, 5, 7]
    since = load(
        spark,
        tmp_path,
        since="2023-11-14T22:13:23+00:00",
        until=str(1_700_000_005_000_000),
    )
    assert numbers(since) == [3, 4]


def test_filters_are_pushed_down(
    spark: SparkSession, tmp_path: Path, write_journal: WriteJournal
) -> None:
    write_journal(tmp_path, [NodeStarted(0.0, b"broker")], requests(3, 2))
    frame = load(spark, tmp_path, pushdown="true")
    assert numbers(frame.where("kind = 'RequestAnswered'")) == [3, 5, 7]
    assert numbers(frame.where(F.col("kind").isin("NodeStarted", "Gap"))) == [1]
    late = F.col("at") >= F.lit(datetime(2023, 11, 14, 22, 13, 24))
    assert numbers(frame.where(late)) == [4, 5, 6, 7]
    assert numbers(
        frame.where(late & (F.col("at") < F.lit(datetime(2023, 11, 14, 22, 13, 26))))
    ) == [4, 5]


def test_a_schema_prunes_columns(
    spark: SparkSession, tmp_path: Path, write_journal: WriteJournal
) -> None:
    write_journal(tmp_path, requests(2))
    frame = spark.read.format("homing").schema("size bigint, kind string").load(str(tmp_path))
    assert [tuple(row) for row in frame.where("kind = 'RequestAccepted'").collect()] == [
        (0, "RequestAccepted"),
        (1, "RequestAccepted"),
    ]


def test_damage_is_skipped_or_stops_the_query(
    spark: SparkSession, tmp_path: Path, write_journal: WriteJournal
) -> None:
    write_journal(tmp_path, requests(1), requests(1, 3), requests(1, 5))
    [segment] = segments(tmp_path)
    data = bytearray(segment.path.read_bytes())
    data[BLOCKS_AT + 60] ^= 0xFF
    segment.path.write_bytes(data)
    assert numbers(load(spark, tmp_path)) == [3, 4, 5, 6]
    with pytest.raises(PySparkException, match="checksum of events 1–2 wrong"):
        load(spark, tmp_path, damage="fail").count()


def test_an_empty_directory_is_an_empty_table(spark: SparkSession, tmp_path: Path) -> None:
    assert load(spark, tmp_path).count() == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs a path"),
        ({"path": "x", "kinds": "Requests"}, "no such kinds of events: Requests"),
        ({"path": "x", "since": "yesterday"}, "since is a time"),
        ({"path": "x", "since": "9" * 5_000}, "since is a time"),
        ({"path": "x", "maxEvents": "9" * 5_000}, "maxEvents is a number above 0"),
        ({"path": "x", "maxEvents": "0"}, "maxEvents is a number above 0"),
        ({"path": "x", "damage": "ignore"}, "damage is skip or fail"),
    ],
)
def test_wrong_options_are_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        parse(options, EVENTS)


def test_a_wrong_schema_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="no such columns: colour string"):
        spark.read.format("homing").schema("colour string").load(str(tmp_path)).count()


def test_a_stream_goes_on_from_its_checkpoint(
    spark: SparkSession, tmp_path: Path, write_journal: WriteJournal
) -> None:
    log = write_journal(tmp_path / "journal/a", requests(5), segment_bytes=BLOCKS_AT + 300)
    assert run_stream(spark, tmp_path) == list(range(1, 11))
    log.append(requests(20, 11), 0)
    write_journal(tmp_path / "journal/b", requests(1), node=b"node0002")
    assert run_stream(spark, tmp_path, maxEvents=7) == sorted([*range(1, 51), 1, 2])
    assert run_stream(spark, tmp_path) == sorted([*range(1, 51), 1, 2])


def run_stream(spark: SparkSession, tmp_path: Path, **options: Any) -> list[int]:
    """Everything available into Parquet; what has arrived there in all."""
    frame = spark.readStream.format("homing").options(**options).load(str(tmp_path / "journal"))
    writer = (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
    )
    run_through(lambda: writer.start(str(tmp_path / "out")))
    return numbers(spark.read.parquet(str(tmp_path / "out")))
