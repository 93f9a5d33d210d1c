"""The flags that every job of `homing pipeline` has, and what they open."""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from homing.cli.outcome import say
from homing.cli.verb import ConfigFlags, misused
from homing.journal.reader import journals

if TYPE_CHECKING:
    from rich.status import Status

    from homing.config import Config
    from homing.pipeline.tables import Tables


# Loggers of PySpark that tell what is wrong with a query; the command tells it too, for people.
_TWICE = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")

# What is there once anybody has ingested (homing.pipeline.tables).
_BEGUN = ("_batches", "_checkpoint")
# Where Spark and Hadoop look for settings of the user's own.
_OWN_SETTINGS = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR")

# Seconds that a cluster is given before people are told for whom they wait: a JVM of ours takes some of them.
PATIENCE = 10.0


@Parameter(name="*")
@dataclass(frozen=True)
class Where:
    """The flags that every job has."""

    master: Annotated[str | None, Parameter(help="Spark master: local[2], spark://…, yarn")] = None
    remote: Annotated[str | None, Parameter(help="Spark Connect server, sc://host")] = None
    tables: Annotated[str | None, Parameter(help="where the tables are")] = None
    conf: Annotated[
        tuple[str, ...], Parameter(help="any setting of Spark: key=value", show_default=False)
    ] = ()
    explain: Annotated[bool, Parameter(help="print Spark's plan instead of running")] = False
    spark_log: Annotated[
        Literal["error", "warn", "info", "debug"],
        Parameter(help="what is seen of Spark's own log"),
    ] = "error"

    def open(self, flags: ConfigFlags) -> Tables:
        """A Spark session and the tables in it, whether there are any or not."""
        from homing.cli.checkup import need_java
        from homing.pipeline.session import connect
        from homing.pipeline.tables import Tables

        config = flags.load({"pipeline.master": self.master})
        master, remote = config.pipeline.master, self.server(config)
        settings = {"spark.sql.shuffle.partitions": str(config.pipeline.shuffle_partitions)}
        settings |= dict(map(_setting, self.conf))
        root = self.root(config)
        here = self.here(config, root)
        if here is not None and here.exists() and not here.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "tables are a directory, this is a file", root)
        if remote is None:
            need_java()
        _reckon_in_utc()
        for name in _TWICE:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        with waiting_for(remote or master):
            spark = connect(master, remote=remote, settings=settings, log=self.spark_log)
        return Tables(spark, root)

    def read(self, flags: ConfigFlags) -> Tables:
        """The same for a job that reads: where nobody has ingested all would seem to be in order."""
        from homing.pipeline.agreeing import check_whole

        config = flags.load({"pipeline.master": self.master})
        here = self.here(config, self.root(config))
        if here is not None and not any((here / name).is_dir() for name in _BEGUN):
            raise _nothing_here(str(here))
        tables = self.open(flags)
        if not tables.begun:
            raise _nothing_here(tables.root)
        check_whole(tables)
        return tables

    def root(self, config: Config) -> str:
        """Where the tables are."""
        return self.tables or str(Path(config.node.data) / config.pipeline.tables)

    def here(self, config: Config, root: str) -> Path | None:
        """The same as a directory of this machine, where it is one beyond doubt: mistakes are told before Spark starts.

        A path without a scheme is on whatever file system Spark, or Hadoop, is told to use.
        """
        told = any(key.startswith("spark.hadoop.") for key, _ in map(_setting, self.conf))
        elsewhere = told or any(name in os.environ for name in _OWN_SETTINGS)
        local = (self.master or config.pipeline.master).startswith("local") and not self.remote
        return Path(root) if local and not elsewhere and ":" not in root else None

    def source(self, config: Config, journal: Path | None, endpoint: str | None) -> dict[str, str]:
        """The options of the source that the flags mean; mistakes are told before Spark starts."""
        if endpoint is not None and journal is not None:
            raise misused("journals are in a directory or at servers: --journal or --endpoint")
        if endpoint is not None:
            return {"endpoint": endpoint, "token": config.journal.token}
        root = journal or Path(config.node.data)
        if self.server(config) is None and not root.is_dir():
            raise FileNotFoundError(errno.ENOENT, "there is no journal here", str(root))
        if self.server(config) is None and not journals(root):
            say(f"no journal is below {root} yet", hint="each is a directory of *.hj")
        return {"path": str(root)}

    def server(self, config: Config) -> str | None:
        """The Spark Connect server that is meant, if one is."""
        master = self.master or config.pipeline.master
        return self.remote or (master if master.startswith("sc://") else None)


def busy(what: str) -> Status:
    """A sign of life on a terminal, while Spark says nothing for seconds."""
    from rich.console import Console

    return Console(stderr=True).status(f"{what}…")


@contextmanager
def waiting_for(place: str) -> Iterator[None]:
    """While Spark starts. A cluster's master or server may never answer: who is waited for, and since when, is said once."""
    if place.startswith("local"):
        with busy("starting Spark"):
            yield
        return
    told = f"waiting for Spark at {place}, since {time.strftime('%H:%M:%S')} UTC"
    timer = threading.Timer(PATIENCE, say, (told,))
    timer.daemon = True
    timer.start()
    try:
        with busy(f"starting Spark at {place}"):
            yield
    finally:
        timer.cancel()


def _nothing_here(root: str) -> FileNotFoundError:
    told = "no tables are here yet, `homing pipeline ingest` makes them"
    return FileNotFoundError(errno.ENOENT, told, root)


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise misused(f"--conf is key=value, not {text!r}")
    return key, value


def _reckon_in_utc() -> None:
    """Spark hands times to Python, and takes them, as this process's local ones, which have no zone; tables are in UTC."""
    os.environ["TZ"] = "UTC"
    time.tzset()


HERE = Where()
