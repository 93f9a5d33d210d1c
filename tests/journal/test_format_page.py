"""docs/reference/journal-format.md lists every event and column as they are."""

from __future__ import annotations

from pathlib import Path

from homing.journal.columns import SCHEMA
from homing.journal.events import KINDS

PAGE = Path(__file__).parents[2] / "docs/reference/journal-format.md"


def test_the_page_lists_every_event_and_column() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for number, kind in KINDS.items():
        fields = ", ".join(f"`{name}`" for name in kind.__struct_fields__ if name != "at")
        assert f"| {number} | `{kind.__name__}` | {fields} |" in text
    for field in SCHEMA:
        assert f"| `{field.name}` | {field.type} |" in text
