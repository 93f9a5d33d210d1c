"""A Spark session that knows homing's source, local by default, the same on any cluster."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from homing.errors import PipelineError
from homing.pipeline import jvm, masters
from homing.pipeline.source import JournalSource

log = logging.getLogger(__name__)

# How often a stream is begun whose Python process came too late, and what Spark says then.
ATTEMPTS = 5
LATE = "connect back"
OURS = "homing.errors."
TRACEBACK = "Traceback (most recent call last):"
# Lines that only say that the error comes: of one in a task the driver's process raises such a one of its own.
BEFORE = (TRACEBACK, "from the Python worker:")

# What every job relies on. Users' own settings win.
DEFAULTS: dict[str, str] = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.adaptive.coalescePartitions.minPartitionSize": "1m",
}
# A stream that is stopped amid a batch is told of it by an exception with a long text, which Spark looks through with a
# pattern that recurses for every character: Java's own megabyte overflows with 3,000 of them, in a thousand lines, two
# with 7,000, sixteen with 50,000, which is several times a stack of Spark's with all its causes. Room that no thread
# needs is not taken.
STACK = "-Xss16m"
DRIVER: dict[str, str] = {"spark.driver.defaultJavaOptions": STACK}
# Where every Python process is one of this interpreter, tasks fork from one that has homing loaded. Arrow's Java
# would look at each value's bounds, which those who wrote a batch have kept: a tenth of the JVM's time.
LOCAL: dict[str, str] = {
    "spark.python.daemon.module": "homing.pipeline.daemon",
    "spark.driver.defaultJavaOptions": f"{STACK} -Darrow.enable_unsafe_memory_access=true",
}


def connect(
    master: str = "local[*]",
    *,
    remote: str | None = None,
    name: str = "homing",
    settings: Mapping[str, str] | None = None,
    log: str = jvm.QUIET,
) -> SparkSession:
    """A session at a master, or over Spark Connect at `sc://…`; `format("homing")` works in it.

    `log`: what is seen on stderr of Spark's own log, from `error` to `debug`.
    """
    # Tasks must run the interpreter that has homing, not whatever `python3` is.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if remote is None and master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # a local job listens to nobody else
    if log not in jvm.LEVELS:
        raise PipelineError(f"Spark's log is seen from {', '.join(jvm.LEVELS)} on, not {log!r}")
    if remote is not None and find_spec("grpc") is None:
        raise PipelineError("Spark Connect needs gRPC", hint="pip install 'pyspark[connect]'")
    masters.check(remote or master)
    builder = SparkSession.builder.appName(name)
    builder = builder.remote(remote) if remote else builder.master(master)
    near = LOCAL if master.startswith("local") else DRIVER
    chosen = {**DEFAULTS, **({} if remote else near), **(settings or {})}
    for key, value in chosen.items():
        builder = builder.config(key, value)
    if remote is None:
        jvm.make_home(log)
        if log == jvm.QUIET:
            jvm.launch({**chosen, "spark.master": master, "spark.app.name": name})
    try:
        spark = builder.getOrCreate()
        if remote is None and log == jvm.QUIET:
            jvm.keep_quiet(spark)
        elif remote is None:
            spark.sparkContext.setLogLevel(log.upper())
    except Exception as error:
        raise masters.unanswered(master, error) or error from None
    register(spark)
    return spark


def register(spark: SparkSession) -> None:
    """Make `format("homing")` known to a session of yours."""
    spark.dataSource.register(JournalSource)


def finish(start: Callable[[], StreamingQuery], watch: Callable[[StreamingQuery], object]) -> None:
    """Run a stream to its end, beginning anew where Spark gave up on a Python process too early.

    Each stream has one for its source, which gets ten seconds to start; no setting changes that,
    and a busy machine takes longer. Streams go on from their checkpoints, so nothing is lost by it.
    """
    for attempt in range(1, ATTEMPTS + 1):
        error = _once(start, watch)
        if error is None:
            return
        if LATE not in str(error) or attempt == ATTEMPTS:
            raise PipelineError(_told(str(error))) from error
        log.warning("Spark did not wait for a Python process; beginning anew (%d)", attempt)


def _told(error: str) -> str:
    """An error in one line: its first, or what a Python process raised.

    Where one raised several, what is told to people is the last of ours; what comes behind may be of others' making.
    """
    first, *rest = error.strip().splitlines()
    if not first.endswith(TRACEBACK):
        return first
    raised = [line for line in rest if line and not line[0].isspace() and not line.endswith(BEFORE)]
    ours = [line.partition(": ")[2] for line in raised if line.startswith(OURS)]
    return (ours or raised[:1] or [first])[-1]


def _once(
    start: Callable[[], StreamingQuery], watch: Callable[[StreamingQuery], object]
) -> Exception | None:
    """What ended a stream; None if all went well."""
    try:
        query = start()
        watch(query)
    except PySparkException as error:
        return error
    found: Exception | None = query.exception()
    return found
