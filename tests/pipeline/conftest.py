"""One Spark session for all tests of the pipeline, and journals to read."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from homing.journal.disk import Directory
from homing.journal.events import Event
from homing.journal.log import Limits, Log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SKEW = 1_700_000_000_000_000  # µs: what the wall clock is ahead of the monotonic one

# A JVM for short lives: no second compiler, one collector thread, no web page, and no code
# generated for queries that run once over a handful of rows.
QUICK = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss4m",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.spark)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(600))  # Spark is slow to start beside others


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from homing.pipeline.session import connect

    warehouse = tmp_path_factory.mktemp("warehouse")
    os.environ["SPARK_LOCAL_DIRS"] = str(warehouse)
    session = connect(
        "local[2]",
        settings={**QUICK, "spark.sql.warehouse.dir": str(warehouse / "tables")},
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def run_through(start: Callable[[], StreamingQuery], seconds: int = 300) -> None:
    """A stream that ends by itself, to its end; AssertionError if that takes too long."""
    from homing.pipeline.session import finish

    ended: list[bool] = []

    def watch(query: StreamingQuery) -> None:
        ended.append(bool(query.awaitTermination(seconds)))

    finish(start, watch)
    assert ended[-1]


def begun(start: Callable[[], StreamingQuery], seconds: float = 300.0) -> StreamingQuery:
    """A stream that goes on, once its source has started; begun anew if that came too late."""
    from homing.pipeline.session import LATE

    deadline = time.monotonic() + seconds
    while True:
        query = start()
        while query.isActive and "nitializing" in query.status["message"]:
            assert time.monotonic() < deadline, "the stream did not start in time"
            time.sleep(0.1)
        if query.isActive or LATE not in str(query.exception()):
            return query


ToFrame = Callable[..., "DataFrame"]


@pytest.fixture
def frame(spark: SparkSession) -> ToFrame:
    """Events as Spark sees them, numbered from `first`, without a journal in between; `role` as its header says."""
    import pyarrow as pa

    from homing.journal.columns import batch
    from homing.pipeline.schema import EVENTS

    def make(
        *events: Event, node: bytes = b"node0001", first: int = 1, role: str | None = None
    ) -> DataFrame:
        rows = pa.Table.from_batches([batch(node, [(first, SKEW, events)], role=role)])
        return spark.createDataFrame(rows, EVENTS)

    return make


WriteJournal = Callable[..., Log]


@pytest.fixture
def write_journal() -> Iterator[WriteJournal]:
    """Writes groups of events as one journal; the log comes back for more."""
    opened: list[Directory] = []
    salts = count(1)

    def write(
        path: Path,
        *groups: Sequence[Event],
        node: bytes = b"node0001",
        segment_bytes: int = 64 << 20,
        name: str = "",
    ) -> Log:
        opened.append(Directory(path))
        log = Log(
            opened[-1],
            node,
            name=name,
            limits=Limits(segment_bytes=segment_bytes),
            durable=False,
            wall=lambda: SKEW / 1e6,
            salt=lambda: next(salts),
        )
        for group in groups:
            log.append(group, SKEW)
        return log

    yield write
    for directory in opened:
        directory.close()
