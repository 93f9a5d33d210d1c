"""The JVM of a local driver: which Spark it runs, and what of its own log people see."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

QUIET = "error"
LEVELS = (QUIET, "warn", "info", "debug")
# Loggers of what is raised too: of streams, of tasks, of files that a job writes.
RAISED = (
    "org.apache.spark.sql.execution.streaming",
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.sql.execution.datasources.FileFormatWriter",
    "org.apache.hadoop.mapreduce.lib.output.FileOutputCommitter",
    "org.apache.spark.util.Utils",
)
# Java says so whenever Spark runs, of a module that Spark itself asks for; no option keeps it from that.
SAID_ALWAYS = b"WARNING: Using incubator modules: jdk.incubator.vector"

# Spark has a configuration of its own, and lines to say which, where it finds none. A shell, for which it takes every
# Python, gets the level of its gateway's logger, and lines to say that, where it is another. A context that cannot be
# made raises why, and logs it too, with a stack.
LOG4J = """rootLogger.level = {level}
logger.context.name = org.apache.spark.SparkContext
logger.context.level = {context}
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = {level}
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{{yy/MM/dd HH:mm:ss}} %p %c{{1}}: %m%n%ex
"""


def make_home(level: str) -> None:
    """A SPARK_HOME whose Python processes import the pyspark that is installed, unless the user has one.

    Spark puts a zip of it first, which each process would have to compile anew: on a busy machine
    longer than the ten seconds it gets. A home without that zip leaves them the one with bytecode.
    """
    if "SPARK_HOME" in os.environ:
        return
    home = Path(tempfile.mkdtemp(prefix="homing-spark-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    for part in Path(pyspark.__file__).parent.iterdir():
        if part.name in ("bin", "jars", "sbin"):
            (home / part.name).symlink_to(part)
    (home / "conf").mkdir()  # SPARK_CONF_DIR of the user's comes before it
    (home / "conf" / "log4j2.properties").write_text(
        LOG4J.format(level=level, context="off" if level == QUIET else level)
    )
    os.environ["SPARK_HOME"] = str(home)


def launch(settings: Mapping[str, str]) -> None:
    """Start the JVM, unless it runs, and pass on to stderr what it says, but for what it says always."""
    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    said, saying = os.pipe()
    threading.Thread(target=_pass_on, args=(said,), name="homing-jvm-stderr", daemon=True).start()
    conf = SparkConf()
    for key, value in settings.items():
        conf.set(key, value)
    try:
        gateway = launch_gateway(conf, popen_kwargs={"stderr": saying})  # type: ignore[no-untyped-call]
    finally:
        os.close(saying)
    SparkContext._ensure_initialized(gateway=gateway)


def _pass_on(said: int) -> None:
    """To where the JVM would have said it, which in a notebook is not what `sys.stderr` is."""
    with os.fdopen(said, "rb") as lines:
        for line in lines:
            if line.strip() != SAID_ALWAYS:
                with contextlib.suppress(OSError):  # nobody reads it any more: the JVM may go on
                    os.write(2, line)


def keep_quiet(spark: SparkSession) -> None:
    """What a job has to say it says itself.

    A stream or a task that fails raises its error; Spark logs it too, and a hundred lines of Java and Python with it.
    """
    spark.sparkContext.setLogLevel(QUIET.upper())
    jvm: Any = spark._jvm
    log4j = jvm.org.apache.logging.log4j
    for name in RAISED:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)
