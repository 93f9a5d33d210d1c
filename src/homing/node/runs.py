"""What the last run of each pipeline job found: one small file a job, beside the tables.

    <tables>/_runs/ledger.json   {"job": "ledger", "finished": …, "seconds": …, "result": "…"}

Jobs leave it, the dashboard shows it. Tables that are not on a disk of this machine get none.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

import msgspec

DIRECTORY = "_runs"
MAX_RESULT = 500
"""Characters of a result: a line for people, not a report."""
MAX_FILE = 8 << 10
"""A larger file was not left by a job."""
MAX_RUNS = 32
"""Files looked at: several times as many as there are jobs."""
_log = logging.getLogger("homing.pipeline")


class Run(msgspec.Struct, frozen=True):
    """One finished run."""

    job: str
    finished: float  # unix time
    seconds: float
    result: str
    well: bool = True  # whether it found everything in order


def note_run(tables: str, run: Run) -> None:
    """Remember a run as its job's last; a place that cannot be written to is not worth failing for."""
    if "://" in tables and not tables.startswith("file://"):
        return
    place = Path(tables.removeprefix("file://")) / DIRECTORY
    kept = msgspec.structs.replace(run, result=run.result[:MAX_RESULT])
    try:
        place.mkdir(parents=True, exist_ok=True)
        fresh = place / f".{run.job}.{os.getpid()}"
        fresh.write_bytes(msgspec.json.encode(kept))
        fresh.replace(place / f"{run.job}.json")
    except OSError as error:
        _log.warning("the run of %s is not remembered: %s", run.job, error)


def last_runs(tables: Path) -> list[Run]:
    """The last run of every job, newest first; what is no run is passed over."""
    found = []
    for path in sorted((tables / DIRECTORY).glob("*.json"))[:MAX_RUNS]:
        try:
            with path.open("rb") as file:
                found.append(msgspec.json.decode(file.read(MAX_FILE), type=Run))
        except (OSError, msgspec.DecodeError):
            continue
    return sorted(found, key=lambda run: -run.finished)
