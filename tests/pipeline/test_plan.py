"""Placement plans from tables: complete, as even as foretold, in the form that matchers load."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from homing.errors import Malformed, PipelineError
from homing.journal.events import NodeStarted, RingChanged
from homing.pipeline import plan as job
from homing.pipeline.ingest import write_batch
from homing.pipeline.tables import Tables
from homing.push.placement import dump_plan, load_plan
from homing.push.subscription import parse_attributes, parse_fields
from tests.pipeline.conftest import ToFrame


def test_a_plan_is_as_even_as_foretold_and_complete(spark: SparkSession) -> None:
    chance = random.Random(11)
    attributes = [
        {"price": round(chance.random() * 100, 3), "size": chance.randrange(1000)}
        for _ in range(600)
    ]
    texts = [json.dumps(each) for each in attributes]
    fields = []
    for _ in range(400):
        low = chance.random() * 95
        wanted = {"price": {"use": 2, "low": low, "high": low + 5}}
        if chance.random() < 0.5:
            wanted["size"] = {"use": 2, "low": chance.randrange(900), "high": 1000}
        fields.append(json.dumps(wanted))
    publications = spark.createDataFrame([(t,) for t in [*texts, "[]"]], "attrs_json string")
    subscriptions = spark.createDataFrame([(f,) for f in [*fields, "{"]], "fields string")
    names = job.names("8")

    made, forecast = job.make(3, names, publications, subscriptions)
    assert load_plan(dump_plan(made)) == made
    assert made.epoch == 3
    assert len(made.tiles) >= 4
    found = job.tiles(publications, subscriptions, made)
    measured = job.balance(made, names, found, len(fields), len(texts))
    assert measured.copies == pytest.approx(forecast.copies, rel=0.01)
    assert measured.max_over_mean == pytest.approx(forecast.max_over_mean, rel=0.01)

    counts = {(row.tree, row.tile): row for row in found.collect()}
    for tile in made.tiles:
        asked = sum(tile in made.asked(parse_attributes(text)) for text in texts)
        laid = [made.tiles_for(parse_fields(text)) for text in fields]
        held = sum(tree == tile[0] and tile[1] in numbers for tree, numbers in laid)
        row = counts.get(tile)
        assert (held, asked) == ((row.subscriptions, row.publications) if row else (0, 0))


def test_matchers_are_named_or_counted() -> None:
    assert job.names("2") == ["0000000000000001", "0000000000000002"]
    assert job.names("00000000000000aa, 00000000000000bb") == [f"{n:016x}" for n in (0xAA, 0xBB)]
    with pytest.raises(Malformed):
        job.names("one,two")


def test_matchers_are_known_by_whatever_they_recorded(
    spark: SparkSession, frame: ToFrame, tmp_path: Path
) -> None:
    """They started before the first event that is kept; before events said their role nothing else told of it."""
    tables = Tables(spark, str(tmp_path))
    kept = frame(RingChanged(9.0, 1), node=b"matcher1", first=500, role="matcher")
    old = frame(NodeStarted(1.0, b"matcher"), node=b"matcher2")
    others = frame(RingChanged(9.0, 1), node=b"connect1", role="connector")
    write_batch(tables, kept.unionByName(old).unionByName(others), 0)
    assert job.matchers_of(tables) == [b"matcher1".hex(), b"matcher2".hex()]


def test_a_plan_for_nobody_is_refused(spark: SparkSession) -> None:
    empty = spark.createDataFrame([], "attrs_json string, fields string")
    with pytest.raises(PipelineError, match="matchers"):
        job.make(1, [], empty, empty)
    made, _ = job.make(1, ["a" * 16], empty, empty)
    assert len(made.tiles) == 1
