"""Journals over HTTP: the same rows as from the disk, resumable, and nothing else of the machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from homing.cli import main
from homing.errors import CorruptSegment, PipelineError
from homing.journal.events import Event
from homing.journal.segment import BLOCKS_AT
from homing.pipeline.asked import Local, parse
from homing.pipeline.reading import read_range
from homing.pipeline.remote import Remote, parse_remote
from homing.pipeline.schema import EVENTS
from tests.pipeline.conftest import SKEW, WriteJournal, run_through
from tests.pipeline.test_ledger import ALICE, published
from tests.pipeline.test_requests import STORY

TOKEN = "let me in"


@contextmanager
def serving(root: Path) -> Iterator[str]:
    words = ["journal", "serve", str(root), "--listen", "127.0.0.1:0"]
    words += ["--set", f"journal.token={TOKEN}"]
    process = subprocess.Popen(
        [sys.executable, "-m", "homing.cli", *words],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert " journals at tcp://127.0.0.1:" in line
        yield line.strip().rpartition("//")[2]
    finally:
        process.terminate()
        assert process.wait(30) == 0
        assert process.stdout is not None
        process.stdout.close()


def strictly(damage: CorruptSegment) -> None:
    raise damage


def test_a_server_answers_what_the_disk_says(tmp_path: Path, write_journal: WriteJournal) -> None:
    root = tmp_path / "journal"
    for node in (b"node0001", b"node0002"):
        groups: list[list[Event]] = [published(i, float(i), ALICE) for i in range(1, 9)]
        limit, name = BLOCKS_AT + 300, f"matcher {node.hex()}"
        write_journal(root / node.decode(), *groups, node=node, segment_bytes=limit, name=name)
    local = Local(root)
    with serving(root) as endpoint:
        remote = parse_remote(endpoint, TOKEN)
        end = remote.advance({}, None, strictly)
        assert {key.rpartition(" ")[2]: at for key, at in end.items()} == local.advance(
            {}, None, strictly
        )
        half = remote.advance({}, 3, strictly)
        assert remote.advance(half, None, strictly, end) == end
        rows = []
        for start, until in (({}, half), (half, end)):
            for piece in remote.between(start, until, strictly):
                asked = parse({"endpoint": endpoint, "token": TOKEN}, EVENTS)
                rows += [row for b in read_range(asked, piece) for row in b.to_pylist()]
        here = parse({"path": str(root)}, EVENTS)
        pieces = local.between({}, local.advance({}, None, strictly), strictly)
        kept = [row for piece in pieces for b in read_range(here, piece) for row in b.to_pylist()]
        assert sorted(map(str, rows)) == sorted(map(str, kept))
        assert len(rows) == 32

        gone = remote.between({}, end, strictly)[0]
        Path(gone.path).unlink()
        with pytest.raises(CorruptSegment, match="retention removed it"):
            list(remote.blocks(gone, strictly))
        (tmp_path / "secret").mkdir()
        for wrong in ("../secret", "/etc", ""):
            piece = gone._replace(journal=f"http://{endpoint} {wrong}")
            with pytest.raises(CorruptSegment):
                list(remote.blocks(piece, strictly))
        with pytest.raises(PipelineError, match="token"):
            Remote(remote.endpoints, "wrong").advance({}, None, strictly)
    with pytest.raises(PipelineError, match="no journal server answers"):
        remote.advance({}, None, strictly)


def test_journals_are_not_served_to_strangers_without_a_token(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["journal", "serve", str(tmp_path), "--listen", "0.0.0.0:0"]) != 0
    assert "journal.token" in capsys.readouterr().err


def test_options_name_one_place(tmp_path: Path) -> None:
    for wrong in ({}, {"path": "/x", "endpoint": "a:1"}, {"endpoint": "a:1,,b:2"}):
        with pytest.raises(PipelineError):
            parse(wrong, EVENTS)


def test_a_stream_from_an_endpoint_goes_on_where_it_stopped(
    spark: SparkSession, tmp_path: Path, write_journal: WriteJournal
) -> None:
    log = write_journal(tmp_path / "journal/broker", STORY)
    with serving(tmp_path / "journal") as endpoint:

        def options(**more: str) -> dict[str, str]:
            return {"endpoint": endpoint, "token": TOKEN, **more}

        assert spark.read.format("homing").options(**options()).load().count() == len(STORY)

        def run() -> None:
            events = spark.readStream.format("homing").options(**options(maxEvents="4")).load()
            writer = (
                events.select("node", "number", "kind")
                .writeStream.format("parquet")
                .option("path", str(tmp_path / "out"))
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
            )
            run_through(writer.start)

        run()
        log.append(published(1, 5.0, ALICE), SKEW)
        run()
        run()
        found = spark.read.parquet(str(tmp_path / "out"))
        assert found.count() == found.distinct().count() == len(STORY) + 2
