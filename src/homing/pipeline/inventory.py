"""Which files tables are made of, so that one which somebody removed is missed.

Beside the note that makes a batch or a compaction count stands a list of the files it means, one a line, below the
tables' root. Notes of before have none, and nothing is known of their files; nor of tables that are no directory of this
machine. What is listed and not read any more, as a compaction replaced it or a later batch wrote the next state, may go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from homing.pipeline.files import listed
from homing.pipeline.pieces import STATE
from homing.pipeline.tables import GENERATIONS, MARKERS, TABLES, Tables


def missing(tables: Tables, root: Path) -> Iterator[str]:
    """Files, relative to the root, that readers need and that are not there."""
    # In this order: a compaction meanwhile holds no batch that the markers lack.
    generation, markers = tables.generation(), tables.markers()
    upto = generation.upto if generation else -1
    if generation is not None:
        yield from _gone(root, listed(root / GENERATIONS / f"generation={generation.number}"))
    states = {f"{STATE}/{name}": tables.state_batch(name, markers) for name in TABLES}
    for batch in sorted({each.batch for each in markers if each.batch > upto} | _known(states)):
        names = listed(root / MARKERS / f"batch={batch}")
        yield from _gone(root, (each for each in names if _is_read(each, batch, upto, states)))


def _known(states: dict[str, int | None]) -> set[int]:
    return {batch for batch in states.values() if batch is not None}


def _is_read(name: str, batch: int, upto: int, states: dict[str, int | None]) -> bool:
    table = name.partition("/batch=")[0]
    return states[table] == batch if table in states else batch > upto


def _gone(root: Path, names: Iterable[str]) -> Iterator[str]:
    return (name for name in names if not (root / name).exists())
