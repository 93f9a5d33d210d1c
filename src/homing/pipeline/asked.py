"""What a read of the source asks for: its options, checked."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType

from homing.errors import CorruptSegment, PipelineError
from homing.journal.events import KINDS
from homing.journal.positions import Offset, Range, advance, between
from homing.journal.reader import OnDamage
from homing.pipeline.remote import Remote, parse_remote
from homing.pipeline.schema import EVENTS, arrow_part

log = logging.getLogger(__name__)

_COUNT = re.compile(r"[0-9]{1,18}")  # Spark's numbers and ours have 64 bits


@dataclass
class Wanted:
    """Which events: kinds, and a span of wall-clock µs."""

    kinds: frozenset[str] | None = None
    since: int | None = None
    until: int | None = None

    def narrow(self, filter: Filter) -> None:
        """Take over what a filter of Spark's says about `kind` and `at`."""
        column, value = getattr(filter, "attribute", ()), getattr(filter, "value", None)
        if column == ("kind",):
            if isinstance(filter, EqualTo):
                self._only({value})
            elif isinstance(filter, In):
                self._only(set(filter.value))
        elif column == ("at",) and isinstance(value, datetime):
            moment = int(value.astimezone(UTC).timestamp() * 1e6)
            if isinstance(filter, GreaterThan | GreaterThanOrEqual | EqualTo):
                self.since = moment if self.since is None else max(self.since, moment)
            if isinstance(filter, LessThan | LessThanOrEqual | EqualTo):
                self.until = moment + 1 if self.until is None else min(self.until, moment + 1)

    def _only(self, kinds: set[Any]) -> None:
        known = frozenset(str(kind) for kind in kinds)
        self.kinds = known if self.kinds is None else self.kinds & known

    def rows(self, found: pa.RecordBatch) -> pa.RecordBatch:
        """Those of a batch within the span."""
        if self.since is None and self.until is None:
            return found
        at = found.column("at").cast(pa.int64())
        keep = pc.greater_equal(at, self.since if self.since is not None else -(2**63))
        if self.until is not None:
            keep = pc.and_(keep, pc.less(at, self.until))
        return found.filter(keep)


@dataclass(frozen=True)
class Local:
    """Journals below a directory of this machine, or one that all machines share."""

    root: Path

    def advance(
        self, offset: Offset, most: int | None, on_damage: OnDamage, until: Offset | None = None
    ) -> Offset:
        """As far as they go."""
        return advance(self.root, offset, most, on_damage, until)

    def between(self, start: Offset, end: Offset, on_damage: OnDamage) -> list[Range]:
        """What to read."""
        return between(self.root, start, end, on_damage)


@dataclass
class Asked:
    """The options of one read."""

    place: Local | Remote
    wanted: Wanted
    schema: pa.Schema
    most: int | None
    fail_on_damage: bool
    ranges: bool = False

    def on_damage(self, damage: CorruptSegment) -> None:
        """Never silently."""
        if self.fail_on_damage:
            raise damage
        log.warning("%s", damage)


def parse(options: Mapping[str, str], schema: StructType) -> Asked:
    """The options, checked."""
    damage = options.get("damage", "skip")
    if damage not in ("skip", "fail"):
        raise PipelineError(f"damage is skip or fail, not {damage!r}")
    ranges = options.get("ranges", "false").lower() == "true"
    return Asked(
        _place(options),
        Wanted(_kinds(options), _moment(options, "since"), _moment(options, "until")),
        arrow_part(EVENTS if ranges else schema),
        _positive(options, "maxEvents"),
        damage == "fail",
        ranges,
    )


def _place(options: Mapping[str, str]) -> Local | Remote:
    path, endpoint = options.get("path"), options.get("endpoint")
    if bool(path) == bool(endpoint):
        hint = ".load('/var/lib/homing') or .option('endpoint', 'host:7010')"
        raise PipelineError("the homing source needs a path or an endpoint", hint=hint)
    return parse_remote(endpoint, options.get("token", "")) if endpoint else Local(Path(path or ""))


def _kinds(options: Mapping[str, str]) -> frozenset[str] | None:
    if not options.get("kinds"):
        return None
    asked = frozenset(kind.strip() for kind in options["kinds"].split(","))
    unknown = asked - {kind.__name__ for kind in KINDS.values()} - {"Unknown"}
    if unknown:
        raise PipelineError(f"no such kinds of events: {', '.join(sorted(unknown))}")
    return asked


def _moment(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if not text:
        return None
    try:
        if _COUNT.fullmatch(text):
            return int(text)
        found = datetime.fromisoformat(text)
    except ValueError:
        raise PipelineError(f"{name} is a time (ISO 8601) or µs, not {text!r}") from None
    return int(found.replace(tzinfo=found.tzinfo or UTC).timestamp() * 1e6)


def _positive(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if not text:
        return None
    if not _COUNT.fullmatch(text) or int(text) == 0:
        raise PipelineError(f"{name} is a number above 0, not {text!r}")
    return int(text)
