"""Streams whose Python process Spark did not wait for are begun anew; other failures are told."""

from __future__ import annotations

import errno
import socket
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from homing.errors import PipelineError
from homing.pipeline import daemon
from homing.pipeline.files import save
from homing.pipeline.session import ATTEMPTS, LATE, TRACEBACK, finish


class Query:
    """A stream that ended as told."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error

    def exception(self) -> Exception | None:
        return self.error


class Starts:
    """Gives out streams that end one after the other as listed."""

    def __init__(self, *errors: Exception | None) -> None:
        self.errors = list(errors)
        self.begun = 0

    def __call__(self) -> StreamingQuery:
        self.begun += 1
        return cast(StreamingQuery, Query(self.errors.pop(0)))


def nothing(query: Any) -> None:
    """The stream has ended already."""


def test_bounds_are_kept_by_who_writes(spark: SparkSession) -> None:
    """Users' own options of the JVM stay beside ours; the tests have some."""
    java: Any = spark._jvm
    assert java.System.getProperty("arrow.enable_unsafe_memory_access") == "true"
    assert java.org.apache.arrow.memory.BoundsChecking.BOUNDS_CHECKING_ENABLED is False


def test_a_task_is_heard_of_without_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux acknowledges at once when a task begins; sockets that are not TCP's are left alone."""
    tasks: list[tuple[socket.socket, bool]] = []

    def run(sock: socket.socket, authenticated: bool) -> int:
        tasks.append((sock, authenticated))
        return 3

    monkeypatch.setattr(daemon, "_run", run)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as sock,
    ):
        at_once = socket.IPPROTO_TCP, socket.TCP_QUICKACK
        sock.setsockopt(*at_once, 0)
        assert daemon.prompt(sock, True) == 3
        assert sock.getsockopt(*at_once) == 1
    near, far = socket.socketpair()
    with near, far:
        assert daemon.prompt(near, False) == 3
    assert tasks == [(sock, True), (near, False)]


def test_a_late_process_is_given_another_chance() -> None:
    starts = Starts(RuntimeError(f"Python worker failed to {LATE}."), None)
    finish(starts, nothing)
    assert starts.begun == 2


def test_a_start_that_raises_is_tried_again_too() -> None:
    begun: list[int] = []

    def start() -> StreamingQuery:
        begun.append(1)
        if len(begun) < 3:
            raise PySparkException(f"worker failed to {LATE}")
        return cast(StreamingQuery, Query(None))

    finish(start, nothing)
    assert len(begun) == 3


@pytest.mark.parametrize(
    ("error", "times"), [("the disk is gone\nat org.apache…", 1), (f"failed to {LATE}", ATTEMPTS)]
)
def test_what_does_not_pass_is_told_in_one_line(error: str, times: int) -> None:
    starts = Starts(*[RuntimeError(error)] * ATTEMPTS)
    with pytest.raises(PipelineError) as told:
        finish(starts, nothing)
    assert str(told.value) == error.splitlines()[0]
    assert starts.begun == times


def test_an_error_in_the_process_of_a_connect_server_is_told_by_its_own_name() -> None:
    trace = '  File "ingest.py", line 46, in _batch\n    write(batch)\nOSError: the disk is full\n'
    starts = Starts(
        RuntimeError(f"[STREAM_FAILED] in foreachBatch: {TRACEBACK}\n{trace}\n\tat org.")
    )
    with pytest.raises(PipelineError, match=r"^OSError: the disk is full$"):
        finish(starts, nothing)


def test_of_several_errors_in_a_process_ours_is_told() -> None:
    """The one that caused it comes before it, and what Spark stumbles over then behind."""
    trace = (
        "ConnectionRefusedError: [Errno 111] Connection refused\n\n"
        "The above exception was the direct cause of the following exception:\n\n"
        "homing.errors.PipelineError: no journal server answers at h:1: refused\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        "UnboundLocalError: cannot access local variable 'reader'\n"
    )
    starts = Starts(RuntimeError(f"[FAILED] {TRACEBACK}\n{trace}\tat org."))
    with pytest.raises(PipelineError, match=r"^no journal server answers at h:1: refused$"):
        finish(starts, nothing)


def test_an_error_of_a_task_is_told_behind_what_only_announces_it() -> None:
    """The driver's process raises it again, under a name of its own and with the task's trace in it."""
    trace = f"pyspark.errors.PythonException: An exception was thrown from the Python worker:\n{TRACEBACK}"
    text = f"[STREAM_FAILED] in foreachBatch: {TRACEBACK}\n  File\n{trace}\n  File\nOSError: full\n SQLSTATE"
    with pytest.raises(PipelineError, match=r"^OSError: full$"):
        finish(Starts(RuntimeError(text)), nothing)


def test_a_file_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "requests").write_text("not a directory")
    path = tmp_path / "requests" / "batch=0" / "one.parquet"
    with pytest.raises(PipelineError, match=f"{path} cannot be written: Not a directory"):
        save(pa.table({"n": [1]}), path)

    def full(table: pa.Table, where: Path, **_: object) -> None:
        where.touch()
        raise OSError(errno.ENOSPC, "Error writing bytes to file")

    path = tmp_path / "one.parquet"
    monkeypatch.setattr(pq, "write_table", full)
    with pytest.raises(PipelineError, match="cannot be written: No space left"):
        save(pa.table({"n": [1]}), path)
    assert [each.name for each in tmp_path.iterdir()] == ["requests"]  # no half of it either
