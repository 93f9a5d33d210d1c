"""Events for people: plain JSON objects."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from homing.ids import ID_BYTES
from homing.journal.events import PLACE_BYTES, Event, PublicationMatched, PublicationTaken, Unknown
from homing.journal.reader import Record

# Kinds from here on are the push plane's, whose ids are binary by nature.
_PUSH_KINDS = 30
_IDS = frozenset({"id", "client", "connector"})


def describe(record: Record) -> dict[str, Any]:
    """One event as a JSON object: number, time, kind, then its fields."""
    event = record.event
    found: dict[str, Any] = {
        "number": record.number,
        "at": datetime.fromtimestamp(record.wall / 1e6, UTC).isoformat(),
        "kind": type(event).__name__,
    }
    if isinstance(event, Unknown):
        return found | {"tag": event.kind, "fields": plain(event.fields)}
    names = event.__struct_fields__
    return found | {name: _field(event, name) for name in names if name != "at"}


def _field(event: Event, name: str) -> Any:
    value = getattr(event, name)
    if name == "clients":
        step = PLACE_BYTES if isinstance(event, PublicationMatched | PublicationTaken) else ID_BYTES
        return [value[i : i + step].hex() for i in range(0, len(value), step)]
    if name in _IDS and _kind(event) >= _PUSH_KINDS:
        return value.hex()
    return plain(value)


def _kind(event: Event) -> int:
    tag = event.__struct_config__.tag
    assert isinstance(tag, int)
    return tag


def plain(value: Any) -> Any:
    """What JSON can hold of it."""
    if isinstance(value, bytes):
        return printable(value)
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value


def printable(value: bytes) -> str | None:
    """A name as people write it; hex where it is not text, None where there is none."""
    if not value:
        return None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return "0x" + value.hex()
    return text if text.isprintable() else "0x" + value.hex()
