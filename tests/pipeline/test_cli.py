"""`homing pipeline`: the jobs end to end, from journals to exit codes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from homing.cli import main
from homing.cli import pipeline as cli
from homing.cli.pipeline_flags import Where
from homing.config import load
from homing.journal.events import NodeStopped, RequestAccepted
from homing.node.runs import last_runs
from homing.pipeline import ingest
from homing.pipeline.tables import Tables
from homing.push.placement import load_plan
from tests.pipeline.conftest import SKEW, WriteJournal, run_through
from tests.pipeline.test_ledger import ALICE, BOB, published
from tests.pipeline.test_requests import STORY


@pytest.mark.usefixtures("spark")
def test_jobs_from_the_command_line(
    tmp_path: Path, write_journal: WriteJournal, capsys: pytest.CaptureFixture[str]
) -> None:
    journal, tables = tmp_path / "journal", str(tmp_path / "tables")
    log = write_journal(journal / "broker", STORY)

    def pipeline(*words: str) -> tuple[int, str]:
        code = main(["pipeline", *words, "--tables", tables, "--master", "local[2]"])
        return code, capsys.readouterr().out

    # An audit of nothing, which a mistyped directory would be, does not find that all is well.
    assert [pipeline("ledger"), pipeline("slo")] == [(66, "")] * 2

    code, printed = pipeline("ingest", "--journal", str(journal))
    assert (code, printed) == (0, f"{len(STORY)} events in 1 batches at {tables}\n")

    code, printed = pipeline("ledger")
    assert (code, printed.splitlines()[-1]) == (0, "nothing lost, doubled, orphaned or late")

    code, printed = pipeline("ledger", "--explain")
    assert (code, "Physical Plan" in printed) == (0, True)

    code, printed = pipeline("show", "requests", "--where", "outcome = 'queue-full'")
    assert code == 0
    assert "c5" in printed

    code, printed = pipeline("slo")
    assert code == 0
    assert "echo" in printed

    log.append([RequestAccepted(10.0, b"echo", b"late-one", 1), NodeStopped(500.0)], SKEW)
    write_journal(journal / "matcher", published(1, 400.0, ALICE, BOB), node=b"node0002")
    assert pipeline("ingest", "--journal", str(journal))[0] == 0
    code, printed = pipeline("ledger", "--grace", "30")
    assert code == 1
    assert "late-one" in printed
    assert printed.splitlines()[-1] == "2 lost"  # who has the deliveries is not known yet

    code, printed = pipeline("match", "--filter", "not exists(price) or price > 5")
    assert (code, printed) == (0, "1 matches of 1 publications, in what_if\n")

    code, printed = pipeline("export", "requests", "--to", "default.asked", "--columns", "service")
    assert (code, printed.split(" rows in ")[1]) == (0, "default.asked\n")

    code, printed = pipeline("compact", "--keep", "100000")
    assert code == 0
    assert printed.splitlines()[0].startswith("events")

    code, printed = pipeline("plan", "--matchers", "2", "--out", str(tmp_path / "plan.json"))
    assert code == 0
    assert load_plan((tmp_path / "plan.json").read_bytes()).epoch > 0
    assert "measured" in printed
    assert pipeline("replay")[0] == 64

    runs = {run.job: run for run in last_runs(Path(tables))}
    assert runs.keys() == {"ingest", "ledger", "slo", "match", "compact", "plan"}
    assert (runs["ledger"].result, runs["ledger"].well) == ("2 lost", False)
    assert runs["match"].well


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["ingest", "--journal", "nowhere"], 66, "there is no journal here: nowhere"),
        (["live", "--journal", "nowhere"], 66, "there is no journal here: nowhere"),
        (["ingest", "--max-events", "0"], 64, 'Invalid value "0" for --max-events'),
        (["match", "--shards", "0"], 64, 'Invalid value "0" for --shards'),
        (["report", "--out", "no/where.html"], 66, "there is no such directory: no"),
        (["report", "--out", "empty"], 74, "a file is meant, this is a directory: empty"),
        (["plan", "--epoch", "0"], 64, 'Invalid value "0" for --epoch'),
        (["plan", "--out", "empty"], 74, "a file is meant, this is a directory: empty"),
        (["ingest", "--journal", "empty", "--endpoint", "host:1"], 64, "--journal or --endpoint"),
        (["ledger", "--conf", "spark.ui.enabled"], 64, "--conf is key=value"),
        (["ledger", "--tables", "nowhere"], 66, "no tables are here yet"),
        (["show", "requests", "--tables", "empty"], 66, "no tables are here yet"),
        (["ingest", "--journal", "empty", "--tables", "file"], 74, "tables are a directory"),
        (["ingest", "--journal", "empty", "--tables", "file"], 74, "no journal is below empty yet"),
    ],
)
def test_mistakes_are_told_before_spark_starts(
    words: list[str],
    code: int,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("file").touch()
    monkeypatch.setattr("homing.pipeline.session.connect", None)
    assert main(["pipeline", *words]) == code
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("conf", "variable", "root"),
    [
        (["spark.hadoop.fs.defaultFS=hdfs://there"], None, "tables"),
        ([], "HADOOP_CONF_DIR", "tables"),
        ([], None, "s3a://bucket/tables"),
    ],
)
def test_where_spark_may_look_elsewhere_nobody_looks_before(
    conf: list[str], variable: str | None, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable:
        monkeypatch.setenv(variable, "/etc/hadoop")
    assert Where(conf=tuple(conf)).here(load(), root) is None


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("job", [["ledger"], ["slo"], ["report"], ["show", "requests"]])
def test_of_tables_that_are_not_there_nothing_is_said(
    job: list[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An audit of a place where nobody ingested used to find everything in order."""
    monkeypatch.chdir(tmp_path)
    assert main(["pipeline", *job, "--tables", "nowhere", "--master", "local[2]"]) == 66
    assert (
        "no tables are here yet, `homing pipeline ingest` makes them: nowhere"
        in capsys.readouterr().err
    )
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def far_east(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine whose clock is on the wall of another zone."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("spark", "far_east")
def test_times_plans_and_conditions(
    tmp_path: Path, write_journal: WriteJournal, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a directory whose name Spark would take for a pattern."""
    journal, tables = tmp_path / "journal", str(tmp_path / "tables [of] {a*}")
    lost = RequestAccepted(10.0, b"echo", b"late-one", 1)
    write_journal(journal / "broker", [lost, NodeStopped(500.0)])

    def pipeline(*words: str) -> tuple[int, str, str]:
        code = main(["pipeline", *words, "--tables", tables, "--master", "local[2]"])
        return (code, *capsys.readouterr())

    assert pipeline("ingest", "--journal", str(journal), "--explain")[1].startswith("==")
    assert not Path(tables).exists()
    assert pipeline("ingest", "--journal", str(journal))[0] == 0
    moment = datetime.fromtimestamp(SKEW / 1e6 + 10.0, UTC).strftime("%Y-%m-%d %H:%M:%S")
    assert moment in pipeline("show", "events")[1]
    code, printed, _ = pipeline("ledger")
    assert code == 1
    assert f"late-one at {moment}Z" in printed
    code, printed, _ = pipeline("ledger", "--explain")
    assert code == 0
    assert "Physical Plan" in printed
    assert pipeline("slo", "--explain")[0] == 0
    assert not Path(tables, "slo_minutes").exists()
    for condition in ("bogus = 1", "(("):
        code, _, told = pipeline("show", "requests", "--where", condition)
        assert code == 1
        assert told.count("\n") == 1
        assert "bug" not in told
    for _ in range(3):  # what was compacted is removed two times later
        assert pipeline("compact")[0] == 0
    assert "late-one" in pipeline("ledger")[1]


class Following:
    """A stream that goes on until it is stopped."""

    isActive = True
    lastProgress = None
    stopped = False

    def stop(self) -> None:
        self.stopped = True

    def exception(self) -> None:
        return None


def test_a_stream_that_follows_ends_as_services_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """By SIGTERM, in order: it used to be killed, and to leave its files in /tmp."""
    monkeypatch.setattr("time.sleep", lambda _: os.kill(os.getpid(), signal.SIGTERM))
    before = signal.getsignal(signal.SIGTERM)
    query = Following()
    cli._follow(lambda: cast(StreamingQuery, query), follow=True)
    assert query.stopped
    assert signal.getsignal(signal.SIGTERM) is before
    with pytest.raises(KeyboardInterrupt):
        cli._follow(lambda: cast(StreamingQuery, query), follow=False)


def test_a_broken_filter_is_told_before_spark_starts(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["pipeline", "match", "--filter", "price in", "--tables", str(tmp_path)]
    assert main(words) == 65
    assert capsys.readouterr().err.startswith("homing: ")


def test_the_report_is_one_page_without_links(
    spark: SparkSession,
    tmp_path: Path,
    write_journal: WriteJournal,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tables, page = Tables(spark, str(tmp_path / "tables")), tmp_path / "report.html"
    write_journal(tmp_path / "journal/broker", STORY)
    write_journal(tmp_path / "journal/matcher", published(1, 5.0, ALICE, BOB), node=b"node0002")
    run_through(lambda: ingest.start(tables, str(tmp_path / "journal")))
    assert main(["pipeline", "report", "--out", str(page), "--tables", tables.root]) == 0
    text = page.read_text(encoding="utf-8")
    assert "http" not in text
    assert text.count("<svg") >= 3
    assert "Everything is accounted for." in text
    assert ALICE.hex() in text
