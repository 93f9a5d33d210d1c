"""Spark's Python daemon, with what homing's tasks import there before the first of them forks.

Each worker of Spark's own daemon imports for itself: pyarrow, and with it pandas at its first
array, are two seconds of processor time, for every worker of every session.

A worker hears of each task in several small writes, of which the JVM sends the second when the first
was acknowledged. Linux takes 40 ms for that unless it is asked not to, anew for each task.
"""

from __future__ import annotations

import gc
import socket
from importlib import import_module

import pyspark.daemon

IMPORTS = (
    "pandas",
    "pyarrow.compute",
    "pyarrow.parquet",
    "pyspark.worker",
    "homing.pipeline.match",
    "homing.pipeline.pieces",
    "homing.pipeline.plan",
)


_run = pyspark.daemon.worker


def prompt(sock: socket.socket, authenticated: bool) -> int:
    """Run one task, as Spark's own daemon does; its code."""
    if sock.family != socket.AF_UNIX and hasattr(socket, "TCP_QUICKACK"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
    return _run(sock, authenticated)


def main() -> None:
    """What `python -m pyspark.daemon` does, from here."""
    for name in IMPORTS:
        import_module(name)
    pyspark.daemon.worker = prompt
    gc.freeze()  # workers collect garbage after each task: not what they never made
    pyspark.daemon.manager()


if __name__ == "__main__":
    main()
