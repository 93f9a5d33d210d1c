"""Before `ingest` begins, and `compact`: tables and checkpoint tell of the same batches, and nobody else does the same job.

Batches are known by their numbers. A checkpoint that was removed begins again with batch 0, which tables that
stayed have already: its events, and with them all that came meanwhile, would be passed over. Tables that were removed
lack what their checkpoint says is read. Either way rows would be missing without a word, as they would where single
files were removed.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from homing.errors import PipelineError
from homing.pipeline.inventory import missing
from homing.pipeline.tables import Tables

LOCK = "_{}.lock"  # of a job


def check(tables: Tables) -> None:
    """PipelineError if one of the two is from another time; only directories of this machine are looked at."""
    check_whole(tables)
    if tables.local is not None and (written := _written(tables)) > _last(tables.local, "offsets"):
        told = f"tables, up to batch {written}, but not all of its checkpoint"
        raise _apart(tables, f"{told}: what is read from here on would be missing")


def check_whole(tables: Tables) -> None:
    """PipelineError if batches, or files of them, are gone: who reads the rest finds all in order, or losses that are none."""
    if tables.local is None:
        return
    if _written(tables) < _last(tables.local, "commits"):
        told = "a checkpoint, but not all tables that belong to it"
        raise _apart(tables, f"{told}: what was read before is missing")
    gone = [*missing(tables, tables.local)]
    if gone:
        more = f" and {len(gone) - 1:,} more" if len(gone) > 1 else ""
        raise _apart(tables, f"lost {gone[0]}{more}: what was in there is missing")


def _written(tables: Tables) -> int:
    """The last batch that is in the tables."""
    generation, markers = tables.generation(), tables.markers()
    return max(generation.upto if generation else -1, markers[-1].batch if markers else -1)


def _last(root: Path, notes: str) -> int:
    """The highest batch of a checkpoint's notes; Spark keeps the newest hundred."""
    names = [path.name for path in (root / "_checkpoint" / notes).glob("[0-9]*")]
    return max((int(name) for name in names if name.isdigit()), default=-1)


def _apart(tables: Tables, there: str) -> PipelineError:
    return PipelineError(
        f"{tables.root} has {there}",
        hint="put back what was removed, or ingest into another directory",
    )


@contextmanager
def alone(tables: Tables, job: str = "ingest") -> Iterator[None]:
    """Nobody else does this job with these tables meanwhile, who asks for that too; PipelineError if somebody does."""
    if tables.local is None:
        yield
        return
    tables.local.mkdir(parents=True, exist_ok=True)
    path = tables.local / LOCK.format(job)
    with path.open("ab", buffering=0) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PipelineError(
                f"another {job} writes the tables at {tables.root}",
                hint="wait for it, or give this one a directory of its own",
            ) from None
        _try_disk(file, path)
        yield


def _try_disk(file: FileIO, path: Path) -> None:
    """Whether anything can be written here: what Spark says of a disk that is full is longer, and comes later."""
    try:
        file.truncate(0)
        file.write(f"{os.getpid()}\n".encode())
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
