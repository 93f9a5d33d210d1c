"""Removing directories of tables, wherever Spark keeps them.

A classic session has Spark's own file systems at hand. A client of Spark Connect has none: there a task removes, with
Arrow's file systems, at the place that Spark says a table has. On Spark's file systems other than a directory
that all tasks see, Arrow must find the credentials itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

import pyarrow as pa
from pyarrow import fs
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.utils import is_remote

from homing.errors import PipelineError
from homing.pipeline.tables import MARKERS, Tables, literal

_SAFE = "%/:@?=&+,;!$'()*~-._"
# Spark's names of what Arrow calls otherwise.
_SCHEMES = {"s3a": "s3", "s3n": "s3", "abfss": "abfs"}

_REMOVALS = pa.schema(
    [
        ("directory", pa.string()),
        ("key", pa.string()),
        ("upto", pa.int64()),
        ("but", pa.list_(pa.int64())),
    ]
)
_REMOVED = pa.schema([("seen", pa.bool_()), ("removed", pa.int64())])


class Removal(NamedTuple):
    """Every `key=N` below a directory with N up to a number, but for some."""

    directory: str
    key: str
    upto: int
    but: tuple[int, ...] = ()

    def meant(self, name: str) -> bool:
        """Whether a directory of this name is to go."""
        number = name.removeprefix(f"{self.key}=")
        known = name != number and number.isdigit()
        return known and int(number) <= self.upto and int(number) not in self.but


class Files(Protocol):
    """What removes."""

    def remove(self, removals: Sequence[Removal]) -> None:
        """Remove what is there of these."""


def files_of(tables: Tables) -> Files:
    """What removes files of tables; PipelineError if nothing here can."""
    return Tasks(tables) if is_remote() else Hadoop(tables.spark)


class Hadoop:
    """Through Spark's own file systems."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self._path = jvm.org.apache.hadoop.fs.Path
        self._conf = spark._jsc.hadoopConfiguration()

    def remove(self, removals: Sequence[Removal]) -> None:
        for removal in removals:
            place = self._path(removal.directory)
            system = place.getFileSystem(self._conf)
            if not system.exists(place):
                continue
            for status in system.listStatus(place):
                if removal.meant(status.getPath().getName()):
                    system.delete(status.getPath(), True)


class Tasks:
    """Through a task. Looks before anything is written whether tasks see the tables."""

    def __init__(self, tables: Tables) -> None:
        self._spark = tables.spark
        self._root = tables.root
        notes = tables.spark.read.format(tables.format).load(literal(f"{tables.root}/{MARKERS}"))
        self._place = notes.inputFiles()[0].partition(f"/{MARKERS}/")[0]
        self.remove([Removal(f"{tables.root}/{MARKERS}", "batch", -1)])

    def remove(self, removals: Sequence[Removal]) -> None:
        rows = [
            each._replace(directory=self._place + each.directory.removeprefix(self._root))
            for each in removals
        ]
        asked = self._spark.createDataFrame(
            [(*each[:3], list(each.but)) for each in rows], from_arrow_schema(_REMOVALS)
        )
        work = asked.coalesce(1).mapInArrow(removing(), from_arrow_schema(_REMOVED))
        try:
            done = work.collect()
        except PySparkException as error:
            *_, told = str(error).partition("JVM stacktrace")[0].strip().splitlines()
            raise PipelineError(
                f"tasks of this server cannot remove files below {self._place}: {told}",
                hint="run it with --master, beside the tables",
            ) from error
        if not any(row.seen for row in done):
            raise PipelineError(
                f"tasks of this server do not see {self._place}",
                hint="run it with --master, beside the tables",
            )


def removing() -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For mapInArrow: what to remove in; whether its directory is there, and what was removed, out."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            asked = [Removal(**row) for row in batch.to_pylist()]
            yield pa.RecordBatch.from_pylist([remove_by_uri(each) for each in asked], _REMOVED)

    return run


def remove_by_uri(removal: Removal) -> dict[str, bool | int]:
    """One removal below a directory that is given as a URI."""
    scheme, colon, rest = removal.directory.partition(":")
    # Spark escapes some of what a URI cannot spell, Arrow wants all of it escaped.
    uri = f"{_SCHEMES.get(scheme, scheme)}{colon}{quote(rest, safe=_SAFE)}"
    system, place = fs.FileSystem.from_uri(uri)
    found = system.get_file_info(fs.FileSelector(place, allow_not_found=True))
    gone = [each.path for each in found if removal.meant(each.base_name)]
    for path in gone:
        system.delete_dir(path)
    there = system.get_file_info(place).type == fs.FileType.Directory
    return {"seen": there, "removed": len(gone)}
