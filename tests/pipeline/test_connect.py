"""The same jobs over Spark Connect: a server from pip's pyspark, a client without a JVM."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from homing.errors import PipelineError
from homing.pipeline.session import connect
from tests.pipeline.conftest import QUICK, WriteJournal
from tests.pipeline.test_cluster import DRIVER, HOME, SECONDS, story, told

CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def server(directory: Path) -> Iterator[str]:
    """A Connect server on local[2]."""
    port = free_port()
    settings = {**QUICK, "spark.connect.grpc.binding.port": str(port), "spark.master": "local[2]"}
    settings["spark.sql.python.filterPushdown.enabled"] = "true"
    words = [str(HOME / "bin/spark-submit"), "--class", CLASS, "--driver-memory", "1g"]
    words += [word for item in settings.items() for word in ("--conf", "=".join(item))]
    environment = os.environ | {
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    with (directory / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [*words, "spark-internal"], stdout=log, stderr=log, env=environment
        )
    try:
        deadline = time.monotonic() + SECONDS
        while True:
            assert process.poll() is None, (directory / "server.log").read_text()[-2000:]
            assert time.monotonic() < deadline, "the server did not come up"
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.slow
@pytest.mark.timeout(3 * SECONDS)
def test_ingest_match_and_ledger_over_connect(tmp_path: Path, write_journal: WriteJournal) -> None:
    if find_spec("grpc") is None:
        with pytest.raises(PipelineError, match="gRPC"):
            connect(remote="sc://127.0.0.1:1")
        return
    events = story(tmp_path, write_journal)
    with server(tmp_path) as remote:
        places = [remote, str(tmp_path / "journal"), str(tmp_path / "tables")]
        done = subprocess.run(
            [sys.executable, "-c", DRIVER, *places, json.dumps({})],
            capture_output=True,
            timeout=2 * SECONDS,
            check=False,
        )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    told(done.stdout, events)
