"""Spark's Python daemon, with what homing's tasks import there before the first of them forks.

Each worker of Spark's own daemon imports for itself: pyarrow, and with it pandas at its first
array, are two seconds of processor time, for every worker of every session.
"""

from __future__ import annotations

import gc
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


def main() -> None:
    """What `python -m pyspark.daemon` does, from here."""
    for name in IMPORTS:
        import_module(name)
    gc.freeze()  # workers collect garbage after each task: not what they never made
    pyspark.daemon.manager()


if __name__ == "__main__":
    main()
