"""`match`, `ledger` and `slo` say what plain Python says of the same random history (tests.pipeline.oracle)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from homing.journal.sealing import seal_all
from homing.pipeline import ingest, ledger, slo
from homing.pipeline.match import as_of, match
from homing.pipeline.tables import Tables
from homing.testing import seeds
from tests.pipeline import oracle
from tests.pipeline.conftest import SKEW, WriteJournal, run_through
from tests.pipeline.histories import HOUR, History, Story

SAME = ("requests", "errors", "in_flight", "waiting_share")
PERCENTILES = ("p50_us", "p90_us", "p99_us", "p999_us")


def ingested(
    spark: SparkSession, directory: Path, story: Story, seed: int, write_journal: WriteJournal
) -> Tables:
    """The story's tables, in several batches; some journals are sealed."""
    chance = random.Random(seed)
    for node, events in story.items():
        groups = [events[at : at + 20] for at in range(0, len(events), 20)]
        place = directory / "journal" / node.decode()
        write_journal(place, *groups, node=node, segment_bytes=4000)
        if chance.random() < 0.5:
            list(seal_all(place))
    tables = Tables(spark, str(directory / "tables"))
    total = sum(map(len, story.values()))
    most = total // chance.choice([1, 2, 3]) + 40
    run_through(partial(ingest.start, tables, str(directory / "journal"), max_events=most))
    return tables


@pytest.mark.parametrize("seed", seeds(ci=1, nightly=25))
def test_jobs_say_what_the_oracle_says(
    spark: SparkSession, tmp_path: Path, write_journal: WriteJournal, seed: int
) -> None:
    story = History(seed).live()
    tables = ingested(spark, tmp_path, story, seed, write_journal)
    check({name: tables.read(name) for name in (*AUDITED, "subscriptions")}, story)


Frames = Mapping[str, DataFrame]
AUDITED = ("events", "requests", "publications", "matched", "matches", "deliveries")


def check(tables: Frames, story: Story) -> None:
    for terms in (ledger.Terms(), ledger.Terms(grace=3600.0, late=5.0, skew=60.0)):
        audit = ledger.audit(**{name: tables[name] for name in AUDITED}, terms=terms)
        found = Counter((row.problem, row.plane, row.key, row.client) for row in audit.collect())
        assert found == oracle.ledger(story, *terms)
    _minutes(tables, story)
    _subscribers(tables, story)
    for moment in (None, SKEW + int(1.25 * HOUR * 1e6)):
        then = None if moment is None else datetime.fromtimestamp(moment / 1e6, UTC)
        held = as_of(tables["subscriptions"], then)
        rows = match(tables["publications"], held, 1 if moment else 2).collect()
        assert {(row.id, row.client, row.connector) for row in rows} == oracle.match(story, moment)


def _minutes(tables: Frames, story: Story) -> None:
    rows = slo.anomalies(slo.minutes(slo.histogram(tables["requests"]))).collect()
    found = {_key(row, "service"): row for row in rows}
    expected = oracle.minutes(story)
    assert found.keys() == expected.keys()
    for key, row in found.items():
        figures = expected[key]
        assert (row["codes"] or {}) == figures["codes"], key
        for name in SAME:
            assert (row[name] or 0) == pytest.approx(figures[name] or 0), (key, name)
        for name in PERCENTILES:
            assert (row[name] is None) == (figures[name] is None), key
            if row[name] is not None:
                assert row[name] == pytest.approx(max(1, figures[name]), rel=0.011), key
        for name in ("odd_rate", "odd_latency", "odd_errors"):
            assert figures[name] in (None, row[name]), (key, name)


def _subscribers(tables: Frames, story: Story) -> None:
    told = slo.subscribers(tables["publications"], tables["deliveries"])
    rows = [row.asDict() for row in told.collect()]
    found = {_key(row, "client"): row for row in rows}
    for row in rows:
        del row["client"], row["minute"]
    assert found == oracle.subscribers(story)


def _key(row: Any, name: str) -> tuple[Any, int]:
    return row[name], int(row["minute"].replace(tzinfo=UTC).timestamp())
