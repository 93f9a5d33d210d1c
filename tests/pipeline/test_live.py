"""Live matching on Spark: real nodes, a real stream, every publication once to whom it is for."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from homing.config import Config, load
from homing.pipeline import ingest, ledger, live
from homing.pipeline.handing import Handing
from homing.pipeline.tables import Tables
from homing.push.publisher import Publisher
from homing.wire.pushed import Push
from tests.pipeline.conftest import begun, run_through
from tests.push.processes import Processes
from tests.push.test_nodes import collect, subscriber

NODE = b"spark001"
SECONDS = 120.0


def settings(nodes: Processes) -> Config:
    flags = {"node.data": str(nodes.data), "push.dispatcher": nodes.port(7003)}
    return load(Path("/dev/null"), flags=flags, environment={})


def stand_in(nodes: Processes) -> Handing:
    return Handing(settings(nodes), "live", NODE, [nodes.port(7003)])


async def reached(what: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not what():
        assert time.monotonic() < end, "not reached in time"
        await asyncio.sleep(0.05)


async def matched_by_spark(spark: SparkSession, directory: Path) -> None:
    chance = random.Random(3)
    source = {"path": str(directory / "data/journal")}
    checkpoint = str(directory / "checkpoint")
    async with (
        Processes(directory, "push.matching=spark") as nodes,
        Publisher(nodes.port(7001), timeout=60.0) as publisher,
        subscriber(nodes, "aa" * 12) as even,
        subscriber(nodes, "bb" * 12, durable=False) as some,
    ):
        got: dict[str, list[Push]] = {"even": [], "some": []}
        tasks = [
            asyncio.create_task(collect(even, got["even"])),
            asyncio.create_task(collect(some, got["some"])),
        ]
        handing = await asyncio.to_thread(stand_in, nodes)
        await asyncio.to_thread(handing.wait_ready, SECONDS)
        start = partial(live.start, spark, handing, source, checkpoint)
        query = await asyncio.to_thread(begun, start)
        await even.subscribe("half = 0")
        await some.subscribe("n in 10..19")
        numbers = [{"n": n, "half": n % 2} for n in range(60)]
        chance.shuffle(numbers)
        assert await asyncio.gather(*[publisher.publish(n) for n in numbers[:30]]) == [0] * 30
        await reached(lambda: len(got["even"]) == sum(n["half"] == 0 for n in numbers[:30]))
        await some.subscribe("n in 0..9", name="more")
        query.stop()
        await asyncio.to_thread(handing.close)

        # A driver that starts again goes on, and what it took before it does not take twice.
        rest = [publisher.publish(n) for n in numbers[30:]]
        await asyncio.gather(*rest)
        handing = await asyncio.to_thread(stand_in, nodes)
        await asyncio.to_thread(handing.wait_ready, SECONDS)
        start = partial(live.start, spark, handing, source, checkpoint)
        query = await asyncio.to_thread(begun, start)
        await reached(lambda: len(got["even"]) >= 30)
        query.stop()
        lost = str(directory / "lost")  # as if the checkpoint was never written
        drained = partial(live.start, spark, handing, source, lost, follow=False)
        await asyncio.to_thread(run_through, drained)
        assert await asyncio.to_thread(handing.wait_done, SECONDS)
        await asyncio.to_thread(handing.close)
        for task in tasks:
            task.cancel()

    first = [n["n"] for n in numbers[:30]]
    wanted = {n for n in range(20) if n >= 10 or n not in first}
    assert sorted(int(one.attrs["n"]) for one in got["even"]) == list(range(0, 60, 2))
    assert sorted(int(one.attrs["n"]) for one in got["some"]) == sorted(wanted)


@pytest.mark.slow
def test_publications_reach_whom_they_are_for_through_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    asyncio.run(matched_by_spark(spark, tmp_path))
    tables = Tables(spark, str(tmp_path / "tables"))
    run_through(lambda: ingest.start(tables, str(tmp_path / "data/journal")))
    audit = ledger.run(tables, ledger.Terms(late=3600.0))  # however busy the machine is
    assert audit.totals["publications"] == 60
    assert audit.problems == {}
