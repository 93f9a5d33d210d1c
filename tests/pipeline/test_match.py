"""Matching on Spark says what the oracle says, whole or in shards."""

from __future__ import annotations

import json
import random
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from homing.pipeline.match import as_of, chunks, match, match_chunk, open_shard, save
from homing.push.index.oracle import matches
from homing.push.subscription import parse_attributes, parse_fields

Subscription = tuple[str, str, str]
Publication = tuple[str, str | None]
CITIES = ["Paris", "Lyon", "Oslo"]


def some_fields(chance: random.Random) -> dict[str, Any]:
    low = chance.randrange(100)
    choices: list[tuple[str, dict[str, Any]]] = [
        ("price", {"use": 2, "low": low, "high": low + chance.randrange(40)}),
        ("city", {"use": 1, "strval": chance.choice(CITIES)}),
        ("stock", {"use": 3, "extra": {"exists": chance.random() < 0.5}}),
        ("city", {"use": 3, "extra": {"in": chance.sample(CITIES, 2)}}),
        ("price", {"use": 3, "extra": {"any": [{"lt": low}, {"gt": low + 20}]}}),
    ]
    return dict(chance.sample(choices, chance.randint(1, 3)))


def workload(seed: int, size: int = 60) -> tuple[list[Publication], list[Subscription]]:
    chance = random.Random(seed)
    publications: list[Publication] = [("bad", "[1]"), ("worse", None)]
    for i in range(size):
        attrs: dict[str, Any] = {"price": chance.randrange(140), "city": chance.choice(CITIES)}
        if chance.random() < 0.3:
            attrs["stock"] = chance.random() < 0.5
        publications.append((f"p{i}", json.dumps(attrs)))
    subscriptions = [
        (f"c{chance.randrange(size)}", f"k{chance.randrange(3)}", json.dumps(some_fields(chance)))
        for _ in range(size)
    ]
    return publications, [*subscriptions, ("c0", "k1", "{broken")]


def expected(publications: list[Publication], subscriptions: list[Subscription]) -> set[Any]:
    """By brute force; a client is at the connector of its last subscription."""
    at = {client: connector for client, connector, _ in subscriptions}
    good = [(i, parse_attributes(text)) for i, text in publications if text and text != "[1]"]
    kept = [(client, parse_fields(text)) for client, _, text in subscriptions if text != "{broken"]
    return {
        (i, client, at[client])
        for i, attrs in good
        for client, fields in kept
        if matches(fields, attrs)
    }


@settings(max_examples=20)
@given(st.integers(0, 10**6))
def test_a_worker_says_what_the_oracle_says(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    publications, subscriptions = workload(seed)
    columns = list(zip(*subscriptions, strict=True))
    table = pa.table(dict(zip(("client", "connector", "fields"), columns, strict=True)))
    index, _ = save(table, tmp_path_factory.mktemp("shard") / "one")
    shard = open_shard(index)
    ids, texts = zip(*publications, strict=True)
    batch = pa.record_batch({"id": pa.array(ids), "attrs_json": pa.array(texts)})
    found = [
        row
        for asking in chunks(batch)
        for part in match_chunk(shard, asking)
        for row in part.to_pylist()
    ]
    pairs = [(row["id"], client, row["connector"]) for row in found for client in row["clients"]]
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == expected(publications, subscriptions)


def test_on_spark_whole_and_sharded(spark: SparkSession) -> None:
    publications, subscriptions = workload(1, 200)
    left = spark.createDataFrame(publications, "id string, attrs_json string")
    right = spark.createDataFrame(subscriptions, "client string, connector string, fields string")
    answer = expected(publications, subscriptions)
    for shards in (1, 3):
        rows = match(left, right, shards).collect()
        assert len(rows) == len(answer)
        assert {(row.id, row.client, row.connector) for row in rows} == answer


def test_subscriptions_as_of_a_moment(spark: SparkSession) -> None:
    rows = [
        ("a", datetime(2026, 1, 1), datetime(2026, 2, 1), False),
        ("b", datetime(2026, 1, 15), None, True),
    ]
    table = spark.createDataFrame(
        rows, "client string, valid_from timestamp, valid_to timestamp, open boolean"
    )
    assert clients(as_of(table, datetime(2026, 1, 10))) == ["a"]
    assert clients(as_of(table, datetime(2026, 1, 20))) == ["a", "b"]
    assert clients(as_of(table, datetime(2026, 2, 1))) == ["b"]
    assert clients(as_of(table, None)) == ["b"]


def clients(found: Any) -> list[str]:
    return sorted(row.client for row in found.collect())


@pytest.mark.parametrize("most", [1, 7, 1 << 19])
@pytest.mark.parametrize("connectors", [1, 3])
def test_lists_are_the_same_however_long_a_batch_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connectors: int, most: int
) -> None:
    """Clients with one subscription each, at one connector or at several."""
    publications, drawn = workload(7, 300)
    subscriptions = [
        (f"c{i:03}", f"k{i % connectors}", fields) for i, (_, _, fields) in enumerate(drawn)
    ]
    columns = list(zip(*subscriptions, strict=True))
    table = pa.table(dict(zip(("client", "connector", "fields"), columns, strict=True)))
    index, _ = save(table, tmp_path / "one")
    shard = open_shard(index)
    assert shard.plain == (connectors == 1)
    assert shard.client_of.tolist() == list(range(len(subscriptions))) or not shard.plain
    monkeypatch.setattr("homing.pipeline.match.MOST_PAIRS", most)
    ids, texts = zip(*publications, strict=True)
    batch = pa.record_batch({"id": pa.array(ids), "attrs_json": pa.array(texts)})
    found = [
        (row["id"], client, row["connector"])
        for asking in chunks(batch)
        for part in match_chunk(shard, asking)
        for row in part.to_pylist()
        for client in row["clients"]
    ]
    assert len(found) == len(set(found))
    assert set(found) == expected(publications, subscriptions)
