"""The example for Spark: reading, matching, publishing back."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "spark_journal.py"


def test_spark_reads_matches_and_publishes(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = importlib.util.spec_from_file_location("spark_journal", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    example.tell(spark)
    told = capsys.readouterr().out
    assert "read: 2000 publications" in told
    assert "published: A4 is slow" in told
