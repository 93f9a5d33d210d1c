"""Small Parquet files beside Spark: what it would take a job to read or write.

Each has its checksums beside it as Hadoop's local file system keeps them, so that Spark, which looks at no checksum in a
Parquet file, says of a damaged one that it is, as it does of those it wrote itself. Only below a root that is a directory of this machine (homing.pipeline.tables.Tables.local).
"""

from __future__ import annotations

import os
import shutil
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from homing.errors import PipelineError
from homing.journal.columns import parquet_options

LISTED = "_files"  # Spark passes over such names
# Hadoop's form: a mark, bytes for each checksum, and the checksums. Its own 512 bytes are many calls from Python.
_MARK, _EACH = b"crc\0", 4096


def save(rows: pa.Table, path: Path) -> None:
    """A file that is whole once it has its name; texts are texts in it, coded here or not."""
    with _named_when_whole(path) as unnamed:
        pq.write_table(rows, unnamed, store_schema=False, **parquet_options(rows.schema))


def duplicate(file: Path, path: Path) -> None:
    """The same for a file that there is already."""
    with _named_when_whole(path) as unnamed:
        shutil.copyfile(file, unnamed)


@contextmanager
def _named_when_whole(path: Path) -> Iterator[Path]:
    """PipelineError if the disk does not take it: an error of a task is told by its last words, which should name the file."""
    unnamed = path.with_name(f".{path.name}.{uuid4().hex}")  # Spark passes over such names
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield unnamed
        _beside(path).write_bytes(_MARK + struct.pack(">I", _EACH) + _sums(unnamed, _EACH))
        unnamed.rename(path)
    except OSError as error:
        with suppress(OSError):
            _beside(path).unlink(missing_ok=True)
            unnamed.unlink(missing_ok=True)  # on a disk that is full half a file is in the way
        why = os.strerror(error.errno) if error.errno else str(error)
        raise PipelineError(f"{path} cannot be written: {why}") from error


def _beside(path: Path) -> Path:
    """Where a file's checksums are."""
    return path.with_name(f".{path.name}.crc")


def _sums(path: Path, each: int) -> bytes:
    with path.open("rb") as file:
        parts = iter(partial(file.read, each), b"")
        return b"".join(zlib.crc32(part).to_bytes(4, "big") for part in parts)


def _check(path: Path) -> None:
    """PipelineError if a file is not what was written; nobody knows of one without checksums, as earlier versions left them."""
    try:
        told = _beside(path).read_bytes()
    except FileNotFoundError:
        return
    head = len(_MARK) + 4
    each = int.from_bytes(told[len(_MARK) : head], "big")
    if not (told.startswith(_MARK) and each) or told[head:] != _sums(path, each):
        raise PipelineError(
            f"{path} is damaged", hint="put back what was there, or ingest into another directory"
        )


def read(directories: Iterable[Path], schema: pa.Schema) -> pa.Table:
    """Everything in these directories; columns that an older file has not are null."""
    found = [_read(path) for place in directories for path in parquet_files(place)]
    return pa.concat_tables([schema.empty_table(), *(_fit(each, schema) for each in found)])


def _read(path: Path) -> pa.Table:
    _check(path)
    with pq.ParquetFile(path) as file:  # as a dataset `batch=7` would be a column of it
        return file.read()


def _fit(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        rows.column(field.name).cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def rows_in(directory: Path) -> int:
    """How many rows the files of a directory have."""
    return sum(pq.read_metadata(path).num_rows for path in parquet_files(directory))


def parquet_files(directory: Path) -> list[Path]:
    """The files of a directory that are whole."""
    return sorted(path for path in directory.glob("*.parquet") if not path.name.startswith("."))


def note(
    directory: Path,
    key: str,
    number: int,
    row: Mapping[str, Any],
    schema: pa.Schema,
    names: Iterable[str] = (),
) -> None:
    """Leave one row as `key=number`, and beside it the names of the files it means, whole or not at all."""
    made = directory / f".{uuid4().hex}"
    save(pa.Table.from_pylist([dict(row)], schema), made / "part.parquet")
    (made / LISTED).write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    (made / "_SUCCESS").touch()
    place = directory / f"{key}={number}"
    shutil.rmtree(place, ignore_errors=True)  # what a killed writer left
    made.rename(place)


def listed(place: Path) -> list[str]:
    """The names beside one note; none if it has none."""
    path = place / LISTED
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def notes(directory: Path, key: str) -> list[dict[str, Any]]:
    """Every row that `note` or Spark left, with its number under `key`."""
    return [
        {**_row(path, path.stat().st_mtime_ns), key: int(place.name.partition("=")[2])}
        for place in directory.glob(f"{key}=*")
        for path in parquet_files(place)
    ]


@lru_cache(65_536)
def _row(path: Path, changed: int) -> dict[str, Any]:
    """A stream that runs for days reads each note once."""
    [row] = _read(path).to_pylist()
    return dict(row)
