"""The same jobs on a real standalone cluster: a master and two workers from pip's pyspark."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from homing.journal.events import Acknowledged, Delivered, Event, SubscriptionSet
from scripts import spark_archive
from tests.pipeline.conftest import QUICK, WriteJournal
from tests.pipeline.test_ledger import ALICE, BOB, PLACE, key, published
from tests.pipeline.test_requests import STORY

HOME = Path(pyspark.__file__).parent
SECONDS = 240


def start(name: str, directory: Path, *words: str) -> subprocess.Popen[bytes]:
    """A daemon of Spark's, logging to a file."""
    environment = os.environ | {
        "SPARK_HOME": str(HOME),
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "SPARK_WORKER_DIR": str(directory / name),
        "PYSPARK_PYTHON": sys.executable,
    }
    with (directory / f"{name}.log").open("wb") as log:
        command = [str(HOME / "bin/spark-class"), f"org.apache.spark.deploy.{words[0]}", *words[1:]]
        return subprocess.Popen(command, stdout=log, stderr=log, env=environment)


def wait_for(path: Path, pattern: str) -> str:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        found = re.search(pattern, path.read_text(errors="replace"))
        if found:
            return found.group(0)
        time.sleep(0.1)
    raise AssertionError(f"no {pattern} in {path}:\n{path.read_text(encoding='utf-8')[-2000:]}")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("cluster")
    here = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    running = [start("master", directory, "master.Master", *here)]
    try:
        master = wait_for(directory / "master.log", r"spark://127\.0\.0\.1:\d+")
        for name in ("one", "two"):
            small = ("--cores", "1", "--memory", "700m")
            running.append(start(name, directory, "worker.Worker", *here, *small, master))
        for name in ("one", "two"):
            wait_for(directory / f"{name}.log", "Successfully registered with master")
        yield master
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait(20)


# One driver for all three jobs: a session on a cluster takes its time to come up.
DRIVER = """
import json, sys
from homing.pipeline import ingest, ledger
from homing.pipeline.match import as_of, match
from homing.pipeline.session import connect, finish
from homing.pipeline.tables import Tables

def executors(spark):
    asked = spark.sparkContext.parallelize([1, 2], 2)
    return asked.map(lambda _: __import__("homing").__file__).distinct().collect()

place, journal, root, settings = sys.argv[1:]
remote = place if place.startswith("sc://") else None
spark = connect(place, remote=remote, settings=json.loads(settings))
tables = Tables(spark, root)
finish(lambda: ingest.start(tables, journal), lambda query: query.awaitTermination())
held = as_of(tables.read("subscriptions"), None)
pairs = match(tables.read("publications"), held, 2).collect()
audit = ledger.run(tables)
events = sum(marker.events for marker in tables.markers())
found = [[] if remote else executors(spark)]
print(json.dumps([events, [pair.client for pair in pairs], audit.totals, audit.problems, *found]))
"""


def story(tmp_path: Path, write_journal: WriteJournal) -> int:
    """Two journals below `journal`; how many events they hold."""
    fields = b'{"price": {"use": 3, "extra": {"exists": false}}}'
    push: list[Event] = [
        SubscriptionSet(1.0, ALICE, PLACE, b"s", fields),
        SubscriptionSet(1.0, BOB, PLACE, b"s", b'{"price": {"use": 2, "low": 1, "high": 2}}'),
        *published(1, 5.0, ALICE),
        Delivered(6.0, key(1), ALICE),
        Acknowledged(6.5, key(1), ALICE),
    ]
    write_journal(tmp_path / "journal/broker", STORY)
    write_journal(tmp_path / "journal/push", push, node=PLACE)
    return len(STORY) + len(push)


def told(printed: bytes, expected: int) -> list[str]:
    """What the driver printed is what the story says; where executors have homing from."""
    events, clients, totals, problems, found = json.loads(printed.decode().splitlines()[-1])
    assert events == expected
    assert clients == [ALICE.hex()]
    assert totals["requests"] == 5
    assert totals["acknowledged"] == 1
    assert problems == {}
    return list(found)


@pytest.mark.slow
@pytest.mark.timeout(3 * SECONDS)
def test_ingest_match_and_ledger_on_two_workers(
    cluster: str, tmp_path: Path, write_journal: WriteJournal
) -> None:
    events = story(tmp_path, write_journal)
    settings = {
        **QUICK,
        "spark.driver.memory": "700m",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        # As on machines that have PySpark and Arrow but no homing: `make dist` makes this.
        "spark.archives": f"{spark_archive.write(tmp_path / 'dist', ('msgspec',))}#packed",
        "spark.executorEnv.PYTHONPATH": "packed",
    }
    places = [cluster, str(tmp_path / "journal"), str(tmp_path / "tables")]
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, *places, json.dumps(settings)],
        capture_output=True,
        timeout=2 * SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    found = told(done.stdout, events)
    assert found
    assert all(path.endswith("/packed/homing/__init__.py") for path in found)
