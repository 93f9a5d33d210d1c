"""What takes a while to find out: disks, the index, pipeline runs. Looked at every few seconds, apart.

A journal may have thousands of segments and an index millions of subscriptions; the loop that
serves both planes must not wait for either.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from homing.node.runs import last_runs

MAX_ATTRIBUTES = 50
"""Rows of the table of attributes: those with most bounds."""


class Place(msgspec.Struct, frozen=True):
    """A journal to look at: whose, below which directory, and the number of its last event."""

    node: str
    root: Path
    number: Callable[[], int]


class Survey:
    """`look` may run in a thread of its own; `found` is always whole."""

    def __init__(
        self,
        journals: list[Place],
        tables: Path,
        index: Callable[[], Any] | None = None,
    ) -> None:
        """`index`: homing.push.index.Index.stats, where a matcher is here."""
        self._journals = journals
        self._tables = tables
        self._index = index
        self.found: Mapping[str, Any] = {}

    def look(self) -> None:
        """Find everything out anew."""
        stats = self._index() if self._index is not None else None
        self.found = {
            "journals": [_journal(place) for place in self._journals],
            "index": None if stats is None else _index(stats),
            "attributes": [] if stats is None else _attributes(stats),
            "pipeline": [msgspec.to_builtins(run) for run in last_runs(self._tables)],
        }


def _journal(place: Place) -> dict[str, Any]:
    """One journal on its disk; segments come and go while one looks."""
    sizes = []
    for file in place.root.glob(f"{place.node}-*/*"):
        try:
            sizes.append(file.stat().st_size)
        except FileNotFoundError:
            continue
    return {
        "node": place.node,
        "segments": len(sizes),
        "bytes": sum(sizes),
        "number": place.number(),
        "free": shutil.disk_usage(place.root).free,
    }


def _index(stats: Any) -> dict[str, Any]:
    publications = max(stats.publications, 1)
    return {
        "subscriptions": stats.subscriptions,
        "bytes": stats.bytes,
        "publications": stats.publications,
        "matches": stats.matches / publications,
        "candidates": stats.candidates_per_event,
    }


def _attributes(stats: Any) -> list[dict[str, Any]]:
    most = sorted(stats.attributes, key=lambda one: -one.bounds)[:MAX_ATTRIBUTES]
    return [
        {"name": one.name, "bounds": one.bounds, "selectivity": one.selectivity} for one in most
    ]
