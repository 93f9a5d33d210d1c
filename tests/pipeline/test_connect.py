"""The same jobs over Spark Connect: a server from pip's pyspark, a client without a JVM."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from homing import sync
from homing.errors import PipelineError
from homing.journal.events import NodeStopped, PublicationAccepted
from homing.pipeline import session
from homing.push.placement import load_plan
from homing.push.publisher import Publisher
from homing.testing import fabric
from homing.wire.pushed import Push
from tests.pipeline.conftest import QUICK, WriteJournal
from tests.pipeline.test_cluster import DRIVER, HOME, SECONDS, story, told
from tests.pipeline.test_ledger import ALICE, key, published
from tests.pipeline.test_live import reached
from tests.push.processes import Processes
from tests.push.test_nodes import collect, subscriber

CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def home(directory: Path) -> Path:
    """Spark without the zip of its Python part: processes start quicker from the one installed."""
    directory.mkdir()
    for part in ("bin", "jars"):
        (directory / part).symlink_to(HOME / part)
    return directory


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Connect server on local[2]; its catalog is in memory, its tables below a directory."""
    directory = tmp_path_factory.mktemp("connect")
    port = free_port()
    settings = {**QUICK, "spark.connect.grpc.binding.port": str(port), "spark.master": "local[2]"}
    settings["spark.sql.warehouse.dir"] = str(directory / "warehouse")
    words = [str(HOME / "bin/spark-submit"), "--class", CLASS, "--driver-memory", "1g"]
    words += [word for item in settings.items() for word in ("--conf", "=".join(item))]
    environment = os.environ | {
        "SPARK_HOME": str(home(directory / "home")),
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
            assert process.poll() is None, (directory / "server.log").read_text(encoding="utf-8")[
                -2000:
            ]
            assert time.monotonic() < deadline, "the server did not come up"
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


# The other verbs, and a second run of those above, as a user calls them.
VERBS = """
import contextlib, io, json, sys
from homing.cli import main

def pipeline(*words):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = main(["pipeline", *words, *json.loads(sys.argv[1])])
    return code, printed.getvalue()

print(json.dumps([pipeline(*words) for words in json.loads(sys.argv[2])]))
"""


def driver(script: str, *words: str) -> bytes:
    """Run a program that has Spark's client alone; what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", script, *words],
        capture_output=True,
        timeout=2 * SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    sys.stderr.write(
        done.stderr.decode()[-3000:]
    )  # shown if what it printed is not as it should be
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(3 * SECONDS)
def test_ingest_match_and_ledger_over_connect(
    remote: str, tmp_path: Path, write_journal: WriteJournal
) -> None:
    events = story(tmp_path, write_journal)
    journal, tables = str(tmp_path / "journal"), str(tmp_path / "tables")
    told(driver(DRIVER, remote, journal, tables, json.dumps({})), events)


def batches_of(following: subprocess.Popen[bytes], tables: Path, count: int) -> None:
    """Wait until a stream has completed so many."""
    deadline = time.monotonic() + SECONDS
    while len(list(tables.glob("_batches/batch=*/_SUCCESS"))) < count:
        assert following.poll() is None, following.communicate()
        assert time.monotonic() < deadline, "the batch did not come"
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.timeout(5 * SECONDS)
def test_follow_export_and_replay_over_connect(
    remote: str, tmp_path: Path, write_journal: WriteJournal
) -> None:
    events = story(tmp_path, write_journal)
    tables = tmp_path / "tables"
    where = ["--remote", remote, "--tables", str(tables)]
    words = ["ingest", "--follow", "--journal", str(tmp_path / "journal"), *where]
    command = [sys.executable, "-m", "homing.cli", "pipeline", *words]
    binary = PublicationAccepted(400.0, key(2), b"p", '{"città": "São"}'.encode(), b"\x00\xff")
    more = [binary, published(2, 400.0, ALICE)[1], NodeStopped(2000.0)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as following:
        batches_of(following, tables, 1)
        write_journal(tmp_path / "journal/matcher", more, node=b"node0002")
        batches_of(following, tables, 2)
        following.send_signal(signal.SIGINT)
        out, _ = following.communicate(timeout=SECONDS)
    assert (following.returncode, out.decode()) == (
        0,
        f"{events + len(more)} events in 2 batches at {tables}\n",
    )
    setting = f"push.dispatcher=ipc://{tmp_path}/dispatcher"
    client = secrets.token_hex(12)
    with fabric(setting, push=True) as here:
        stamp, token = here.credentials(client)
        with sync.Subscriber(client, here.subscribers, token=token, timestamp=stamp) as subscriber:
            subscriber.subscribe("not exists(price) or price < 1000")
            flags = ["--set", setting, "--set", "security.token_key=homing.testing"]
            flags += ["--set", f"node.data={tmp_path}"]
            asked = [
                ["export", "publications", "--to", "copied", "--columns", "id"],
                ["replay", "--since", "2023-01-01", *flags],
            ]
            found = driver(VERBS, json.dumps(where), json.dumps(asked))
            done = json.loads(found.splitlines()[-1])
            pushes = [subscriber.get(timeout=60) for _ in range(2)]
    assert done == [[0, "2 rows in copied\n"], [0, "2 publications to 2 clients in all\n"]]
    got = {push.id: push.body for push in pushes if isinstance(push, Push)}
    assert got == {key(1).hex(): b"", key(2).hex(): b"\x00\xff"}


async def lived(remote: str, directory: Path) -> None:
    """Publish while a caller lives, while none does, and after one was killed."""
    async with (
        Processes(directory, "push.matching=spark") as nodes,
        Publisher(nodes.port(7001), timeout=60.0) as publisher,
        subscriber(nodes, "aa" * 12) as even,
    ):
        got: list[Push] = []
        task = asyncio.create_task(collect(even, got))

        async def live(*words: str) -> asyncio.subprocess.Process:
            where = ["--remote", remote, "--tables", str(directory / "tables")]
            where += ["--journal", str(nodes.data / "journal")]
            where += ["--set", f"node.data={directory / 'server'}"]
            where += ["--set", f"push.dispatcher={nodes.port(7003)}"]
            command = (sys.executable, "-m", "homing.cli", "pipeline", "live", *words, *where)
            return await asyncio.create_subprocess_exec(
                *command, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )

        def segments() -> int:
            """Each life of a stand-in begins one."""
            return len(list((directory / "server/journal").glob("live-*/*.hj")))

        async def publish(numbers: range) -> None:
            await asyncio.gather(*[publisher.publish({"n": n, "half": n % 2}) for n in numbers])

        await even.subscribe("half = 0")
        await publish(range(20))
        draining = await live("--drain")
        async with asyncio.timeout(SECONDS):
            out, err = await draining.communicate()
        assert (draining.returncode, out) == (0, b"all handed over\n"), err.decode()[-3000:]
        await reached(lambda: len(got) == 10)

        await even.subscribe("n in 20..29", name="some")
        following = await live()
        await publish(range(20, 40))
        await reached(lambda: len(got) == 25)
        following.kill()  # the stream goes on at the server, whoever began it
        await following.communicate()
        await publish(range(40, 60))
        await reached(lambda: len(got) == 35)

        lives = segments()
        following = await live()  # the stream of the one that was killed ends, and this one goes on
        await reached(lambda: segments() > lives)
        await publish(range(60, 80))
        await reached(lambda: len(got) >= 45)
        following.send_signal(signal.SIGINT)
        async with asyncio.timeout(SECONDS):
            out, err = await following.communicate()
        assert (following.returncode, out) == (0, b"stopped\n"), err.decode()[-3000:]
        task.cancel()
    wanted = [n for n in range(80) if n % 2 == 0 or 20 <= n < 30]
    assert sorted(int(one.attrs["n"]) for one in got) == wanted


@pytest.mark.slow
@pytest.mark.timeout(5 * SECONDS)
def test_live_over_connect(remote: str, tmp_path: Path) -> None:
    asyncio.run(lived(remote, tmp_path))


@pytest.mark.slow
@pytest.mark.timeout(5 * SECONDS)
def test_compact_over_connect(remote: str, tmp_path: Path, write_journal: WriteJournal) -> None:
    events = story(tmp_path, write_journal)
    tables = tmp_path / "größe tables"
    more = [*published(2, 400.0, ALICE), NodeStopped(2000.0)]
    where = ["--remote", remote, "--tables", str(tables)]
    asked = [
        ["ingest", "--journal", str(tmp_path / "journal"), "--max-events", "5"],
        ["compact"],
        ["show", "subscriptions"],
        ["compact"],
        ["show", "subscriptions"],
        ["compact", "--keep", "1"],
        ["show", "requests"],
    ]
    write_journal(tmp_path / "journal/matcher", more, node=b"node0002")
    done = json.loads(driver(VERBS, json.dumps(where), json.dumps(asked)).splitlines()[-1])
    codes, printed = zip(*done, strict=True)
    assert codes == (0,) * len(asked)
    told = printed[1].split()
    assert told[:5] == ["events", str(events + len(more)), "rows", "1", "files"]
    assert int(told[5].replace(",", "")) > 0
    assert printed[2] == printed[4]
    assert ALICE.hex() in printed[4]
    assert printed[5].split()[:2] == ["events", "0"]  # all of it is years old
    assert "open" in printed[6]
    assert not list(tables.glob("events/batch=*"))
    assert len(list(tables.glob("_generations/generation=*"))) == 2


@pytest.mark.nightly
@pytest.mark.timeout(5 * SECONDS)
def test_every_verb_over_connect(remote: str, tmp_path: Path, write_journal: WriteJournal) -> None:
    events = story(tmp_path, write_journal)
    journal, tables = str(tmp_path / "journal"), str(tmp_path / "tables")
    plan, report = tmp_path / "plan.json", tmp_path / "report.html"
    more = [*published(2, 400.0, ALICE), NodeStopped(2000.0)]
    words = [
        ["ingest", "--journal", journal],
        ["ledger", "--grace", "30"],
        ["match", "--filter", "not exists(price) or price > 5"],
        ["slo"],
        ["plan", "--matchers", "2", "--out", str(plan)],
        ["show", "requests", "--where", "outcome = 'queue-full'"],
        ["report", "--out", str(report)],
    ]
    told(driver(DRIVER, remote, journal, tables, json.dumps({})), events)
    write_journal(tmp_path / "journal/matcher", more, node=b"node0002")
    where = ["--remote", remote, "--tables", tables]
    out = driver(VERBS, json.dumps(where), json.dumps(words))
    done = json.loads(out.splitlines()[-1])
    codes, printed = zip(*done, strict=True)
    assert printed[0] == f"{events + len(more)} events in 2 batches at {tables}\n"
    assert key(2).hex() in printed[1]  # matched, and nobody delivered it
    assert printed[2] == "2 matches of 2 publications, in what_if\n"
    assert "echo" in printed[3]
    assert "c5" in printed[5]
    assert codes == (0, 1, 0, 0, 0, 0, 0)
    assert len(load_plan(plan.read_bytes()).tiles) > 0
    assert "Not accounted for" in report.read_text(encoding="utf-8")


def test_a_missing_grpc_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "find_spec", lambda _: None)
    with pytest.raises(PipelineError, match="gRPC"):
        session.connect(remote="sc://127.0.0.1:1")
