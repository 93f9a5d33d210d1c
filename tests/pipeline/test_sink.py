"""The sink: rows arrive at subscribers, each once, however often Spark writes them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from homing import sync
from homing.errors import HomingError, Malformed, PipelineError, SubscriptionError
from homing.pipeline.sink import Pace, check_schema, made_id, parse_target, publications
from homing.testing import Fabric, ManualClock, fabric
from homing.wire.pushed import Push
from tests.pipeline.conftest import run_through

VALUES = st.one_of(st.integers(-(2**53), 2**53), st.text(max_size=20), st.booleans())
NAMES = st.text("abcdef", min_size=1, max_size=5)


@given(st.dictionaries(NAMES, VALUES, max_size=4), st.binary(max_size=50))
def test_a_row_always_has_the_same_id_and_another_row_another(
    attributes: dict[str, Any], payload: bytes
) -> None:
    backwards = dict(reversed(attributes.items()))
    assert made_id(attributes, payload) == made_id(backwards, payload)
    assert made_id(attributes, payload) != made_id(attributes, payload + b"x")
    assert made_id(attributes, payload) != made_id({**attributes, "other": 1}, payload)


def test_rows_as_publications() -> None:
    flat = pa.record_batch({"price": [1.5, None], "vip": [True, False], "payload": ["hé", None]})
    one, two = publications(flat)
    assert (one.attributes, one.payload) == ({"price": 1.5, "vip": True}, "hé".encode())
    assert (two.attributes, two.payload) == ({"vip": False}, b"")
    whole = pa.record_batch({"id": ["0a" * 12], "attrs_json": ['{"n": 1}'], "payload": [b"\0"]})
    assert list(publications(whole)) == [(b"\n" * 12, {"n": 1}, b"\0")]
    with pytest.raises(Malformed):
        list(publications(pa.record_batch({"id": ["xyz"], "n": [1]})))
    with pytest.raises(SubscriptionError):
        list(publications(pa.record_batch({"n": [float("nan")]})))


def test_rows_that_are_no_publications_may_be_passed_over() -> None:
    rows = [(None, float("nan")), ("zz", 1.0), (None, 2.0), (None, float("inf"))]
    batch = pa.RecordBatch.from_pylist([{"id": name, "n": number} for name, number in rows])
    with pytest.raises(SubscriptionError):
        list(publications(batch))
    told: list[HomingError] = []
    assert [one.attributes for one in publications(batch, told.append)] == [{"n": 2.0}]
    assert [type(each) for each in told] == [SubscriptionError, Malformed, SubscriptionError]


def test_columns_that_cannot_be_published_are_named(spark: SparkSession) -> None:
    def check(ddl: str) -> None:
        check_schema(spark.createDataFrame([], ddl).schema)

    check("id string, payload binary, n int, city string")
    for ddl, named in (
        ("at timestamp, price decimal(9,2), n int", "at timestamp, price decimal"),
        ("id int", "id int"),
        ("attrs_json string, n int", "not in both: n"),
    ):
        with pytest.raises(PipelineError, match=named):
            check(ddl)


def test_options_are_checked() -> None:
    target = parse_target({"matchers": "a:1, b:2", "rate": "50", "refused": "skip"})
    assert (target.matchers, target.rate, target.skip_refused) == (("a:1", "b:2"), 50.0, True)
    for wrong in ({"rate": "0"}, {"rate": "many"}, {"refused": "maybe"}, {"matchers": "a:1,"}):
        with pytest.raises(PipelineError):
            parse_target(wrong)


@given(st.floats(1, 1000), st.lists(st.integers(1, 50), min_size=2, max_size=20))
def test_a_pace_lets_its_rate_through_and_no_more(rate: float, sizes: list[int]) -> None:
    clock = ManualClock()
    pace = Pace(rate, clock.monotonic)
    start = clock.monotonic()
    for size in sizes:
        clock.advance(pace.wait(size))
    took = clock.monotonic() - start
    assert took == pytest.approx(sum(sizes[:-1]) / rate)


@pytest.fixture(scope="module")
def here() -> Iterator[Fabric]:
    with fabric(push=True, journal=True) as running:
        yield running


def subscriber(here: Fabric) -> sync.Subscriber:
    client = secrets.token_hex(12)
    stamp, token = here.credentials(client)
    return sync.Subscriber(client, here.subscribers, token=token, timestamp=stamp)


def received(source: sync.Subscriber, number: int) -> list[Push]:
    found = [source.get(timeout=60) for _ in range(number)]
    return [one for one in found if isinstance(one, Push)]


def test_a_frame_arrives_once_however_often_it_is_written(
    spark: SparkSession, here: Fabric
) -> None:
    rows = [(n, "Paris", f"payload {n}") for n in range(300)]
    frame = spark.createDataFrame(rows, "n int, city string, payload string").repartition(3)
    with subscriber(here) as source:
        source.subscribe('city = "Paris" and n >= 0')
        for _ in range(2):
            frame.write.format("homing").mode("append").option("matchers", here.publishers).save()
        got = received(source, 300)
        assert {one.attrs["n"]: one.body for one in got} == {n: p.encode() for n, _, p in rows}
        with pytest.raises(TimeoutError):
            source.get(timeout=0.2)


def test_a_stream_is_published_and_a_batch_run_again_is_not_doubled(
    spark: SparkSession, here: Fabric, tmp_path: Path
) -> None:
    schema = "id string, n int"
    ids = [secrets.token_hex(12) for _ in range(40)]
    spark.createDataFrame([(ids[n], n) for n in range(40)], schema).write.json(str(tmp_path / "in"))

    def run(checkpoint: str) -> None:
        read = spark.readStream.schema(schema).json(str(tmp_path / "in"))
        writer = read.writeStream.format("homing").option("matchers", here.publishers)
        writer = writer.option("checkpointLocation", str(tmp_path / checkpoint))
        run_through(writer.trigger(availableNow=True).start)

    with subscriber(here) as source:
        source.subscribe("n < 40 and n >= 0")
        run("one")
        run("one")  # nothing new
        run("lost")  # as if the checkpoint had been lost with the driver
        got = received(source, 40)
        assert {one.id for one in got} == set(ids)
        with pytest.raises(TimeoutError):
            source.get(timeout=0.2)


def test_what_cannot_be_published_fails_the_job_and_says_why(
    spark: SparkSession, here: Fabric
) -> None:
    frame = spark.createDataFrame([("zz", 1)], "id string, n int")
    writer = frame.write.format("homing").option("matchers", here.publishers)
    with pytest.raises(Exception, match="hex digits"):
        writer.mode("append").save()
    with pytest.raises(Exception, match="cannot be overwritten"):
        writer.mode("overwrite").save()
    nobody = frame.drop("id").write.format("homing").option("matchers", "127.0.0.1:1")
    with pytest.raises(PythonException, match="no matcher answers"):
        nobody.option("timeout", "1").mode("append").save()
