"""Files of tables that are not what was written: whoever reads them says so."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from homing.errors import PipelineError
from homing.pipeline.files import duplicate, read, save

chance = random.Random(7)
ROWS = pa.table({"n": pa.array([chance.getrandbits(62) for _ in range(2000)], pa.int64())})


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def test_a_flipped_bit_is_told_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Which gives other rows where nobody looks at checksums."""
    save(ROWS, tmp_path / "made" / "one.parquet")
    duplicate(tmp_path / "made" / "one.parquet", tmp_path / "copied" / "one.parquet")
    for name in ("made", "copied"):
        path = tmp_path / name / "one.parquet"
        assert spark.read.parquet(str(path.parent)).toArrow() == ROWS
        for at in (path.stat().st_size // 3, path.stat().st_size - 30):
            flip(path, at)
            with pytest.raises(Exception, match="ChecksumException"):
                spark.read.parquet(str(path.parent)).toArrow()
            flip(path, at)


def test_a_flipped_bit_is_told_wherever_it_is(tmp_path: Path) -> None:
    path = tmp_path / "one.parquet"
    save(ROWS, path)
    assert read([tmp_path], ROWS.schema) == ROWS
    for at in range(0, path.stat().st_size, 101):
        flip(path, at)
        with pytest.raises(PipelineError, match=r"one\.parquet is damaged"):
            read([tmp_path], ROWS.schema)
        flip(path, at)
    sums = tmp_path / ".one.parquet.crc"
    for broken in (b"", b"crc\0\0\0\0\0", sums.read_bytes()[:-1]):
        sums.write_bytes(broken)
        with pytest.raises(PipelineError, match="damaged"):
            read([tmp_path], ROWS.schema)


def test_files_of_earlier_versions_have_no_checksums(tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "one.parquet")
    assert read([tmp_path], ROWS.schema) == ROWS
