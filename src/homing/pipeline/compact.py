"""Job `compact`: few large files instead of many small ones, old rows gone, statistics.

Every batch of `ingest` leaves a file or more in each table. This job writes those since the last time as a run, in
order of time, so that a query for an hour skips the rest by the files' own minimum and maximum:

    <root>/_compacted/events/generation=3/   a run: what compaction 3 wrote of the table
    <root>/_generations/generation=3/        written last: read these runs and the batches after `upto`

A run that is as large as a file should be stays as it is in later generations; smaller ones are written together with
what is new. Retention leaves out runs that are too old, and writes anew those it cuts. What a generation replaced
stays until the next one, for queries that are under way. A driver killed anywhere leaves the tables as they were or
as they are to be. One compaction at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from homing.errors import PipelineError
from homing.pipeline import intervals
from homing.pipeline.agreeing import alone
from homing.pipeline.pieces import STATE
from homing.pipeline.removing import Removal, files_of
from homing.pipeline.tables import (
    COMPACTED,
    GENERATIONS,
    TABLES,
    Generation,
    Marker,
    Run,
    Tables,
    literal,
)

# Rows in one file: some 100 MB of events.
ROWS_IN_FILE = 2_000_000

# When a row was over; what has no such time is open and always kept.
TIMES = {
    "events": "at",
    "requests": "coalesce(ended_at, accepted_at)",
    "publications": "accepted_at",
    "matched": "matched_at",
    "matches": "matched_at",
    "deliveries": "at",
    "changes": "at",
    "sessions": "closed_at",
}


class Statistics(NamedTuple):
    """What is in one table after compaction."""

    table: str
    rows: int
    files: int
    bytes: int
    first: datetime | None
    last: datetime | None


def kept(frame: DataFrame, table: str, cutoff: datetime | None) -> DataFrame:
    """The rows that retention keeps."""
    if cutoff is None:
        return frame
    if table == "changes":
        return intervals.not_over(frame, cutoff)
    over = F.expr(TIMES[table])
    return frame.where(over.isNull() | (over >= F.lit(cutoff)))


def in_order(frame: DataFrame, table: str, files: int) -> DataFrame:
    """Spread over so many files by time, sorted in each."""
    over: Column = F.expr(TIMES[table])
    return frame.repartitionByRange(files, over).sortWithinPartitions(over)


def run(tables: Tables, cutoff: datetime | None = None) -> list[Statistics]:
    """Make the next generation, remove what the last but one left; what the tables hold now."""
    if not tables.markers():
        raise PipelineError(
            "there is nothing to compact", hint="run `homing pipeline ingest` first"
        )
    # Two at once would write one generation, and the first one's note could count for the other's rows.
    with alone(tables, "compact"):
        return _run(tables, cutoff)


def _run(tables: Tables, cutoff: datetime | None) -> list[Statistics]:
    files, markers = files_of(tables), tables.markers()
    before = tables.generation() or Generation(0, -1, ())
    generation = Generation(before.number + 1, markers[-1].batch, ())
    for name in TIMES:
        runs = _runs(tables, name, before, generation, cutoff)
        generation = generation._replace(runs=(*generation.runs, *runs))
    tables.complete_generation(generation)
    files.remove(_replaced(tables, before, generation))
    return statistics(tables, generation)


def _runs(
    tables: Tables, name: str, before: Generation, after: Generation, cutoff: datetime | None
) -> list[Run]:
    """A table's runs from now on; those that do not stay are written as one, with what is new."""
    stay, rewrite = sort_out(before.of(name), cutoff)
    frame = tables.rows_of(name, rewrite, before.upto, after.upto)
    frame = kept(frame, name, cutoff)
    over = F.unix_micros(F.expr(TIMES[name]))
    told = frame.agg(F.count("*"), F.min(over), F.max(over)).first()
    assert told is not None
    if not told[0]:
        return stay
    made = Run(name, after.number, *told)
    written = in_order(frame, name, -(-made.rows // ROWS_IN_FILE)).write.format(tables.format)
    written.mode("overwrite").save(tables.place_of(made))
    return [*stay, made]


def sort_out(runs: Sequence[Run], cutoff: datetime | None) -> tuple[list[Run], list[Run]]:
    """Which runs stay as they are, and which are written anew; the others are too old."""
    oldest = None if cutoff is None else int(cutoff.timestamp() * 1e6)
    stay, rewrite = [], []
    for each in runs:
        if each.table == "changes":
            rewrite.append(each)  # what is over depends on changes in other runs; they are few
        elif oldest is not None and each.last is not None and each.last < oldest:
            continue
        elif each.rows < ROWS_IN_FILE or (oldest is not None and (each.first or 0) < oldest):
            rewrite.append(each)
        else:
            stay.append(each)
    return stay, rewrite


def statistics(tables: Tables, generation: Generation) -> list[Statistics]:
    """Rows, files, bytes and the span of each table, as a generation has it and its state."""
    markers = [each for each in tables.markers() if each.batch <= generation.upto]
    places = [tables.place_of(run) for run in generation.runs]
    sizes: dict[str, list[int]] = {name: [] for name in TIMES}
    for row in _sizes(tables, places):
        table = unquote(row.path).split(f"/{COMPACTED}/")[-1].partition("/")[0]
        sizes[table].append(row.length)
    found = []
    for name in TIMES:
        runs = generation.of(name)
        rows = sum(run.rows for run in runs) + _open(tables, name, markers)
        first = min((run.first for run in runs if run.first is not None), default=None)
        last = max((run.last for run in runs if run.last is not None), default=None)
        count, size = len(sizes[name]), sum(sizes[name])
        found.append(Statistics(name, rows, count, size, _moment(first), _moment(last)))
    return found


def _open(tables: Tables, name: str, markers: list[Marker]) -> int:
    """Rows of a table that only its state has."""
    table = TABLES.get(name)
    if table is None or table.keep is None:
        return 0
    return table.make(tables.state(name, markers)).count()


def _sizes(tables: Tables, places: list[str]) -> list[Row]:
    """The files in these directories, as Spark lists them."""
    if not places:
        return []
    found = tables.spark.read.format("binaryFile").load([literal(place) for place in places])
    return found.select("path", "length").collect()


def _moment(micros: int | None) -> datetime | None:
    """As Spark shows times: UTC, without saying so."""
    return (
        None if micros is None else datetime.fromtimestamp(micros / 1e6, UTC).replace(tzinfo=None)
    )


def _replaced(tables: Tables, before: Generation, after: Generation) -> list[Removal]:
    """Batches that the generation before replaced, runs in neither, older generations, and old state."""
    found = []
    for name in TIMES:
        found.append(Removal(f"{tables.root}/{name}", "batch", before.upto))
        used = [run.number for run in (*before.of(name), *after.of(name))]
        place = f"{tables.root}/{COMPACTED}/{name}"
        found.append(Removal(place, "generation", before.number, tuple(used)))
    found.append(Removal(f"{tables.root}/{GENERATIONS}", "generation", before.number - 1))
    then = [marker for marker in tables.markers() if marker.batch <= before.upto]
    for name, table in TABLES.items():
        latest = tables.state_batch(name, then) if table.keep else None
        if latest is not None:
            found.append(Removal(f"{tables.root}/{STATE}/{name}", "batch", latest - 1))
    return found
