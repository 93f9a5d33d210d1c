"""MkDocs hook: the navigation is the folders of docs/, in the order a newcomer reads them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

# Folder and its title; pages inside go by FIRST, then by file name.
SECTIONS = (
    ("concepts", "Concepts"),
    ("how-to", "How-to"),
    ("reference", "Reference"),
    ("operations", "Operations"),
    ("benchmarks", "Benchmarks"),
    ("design", "Design"),
    ("design/adr", "Decisions"),
)
FIRST = (
    "index.md",
    "tutorial.md",
    "architecture.md",
    "journey-of-a-request.md",
    "journey-of-a-publication.md",
    "cli.md",
)

Nav = list[str | dict[str, Any]]


def on_config(config: Any) -> Any:
    """Called by MkDocs once the configuration is read."""
    config["nav"] = navigation(Path(config["docs_dir"]))
    return config


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Put the list of decisions where the index of them asks for it."""
    if page.file.src_uri != "design/adr/index.md":
        return markdown
    return markdown.replace(
        "<!-- decisions -->", decisions(Path(config["docs_dir"]) / "design" / "adr")
    )


def navigation(docs: Path) -> Nav:
    """The nav of mkdocs.yml."""
    nav: Nav = [*_pages(docs, docs)]
    for folder, title in SECTIONS:
        pages = _pages(docs / folder, docs)
        if pages:
            nav.append({title: pages})
    return nav


def _pages(folder: Path, docs: Path) -> list[str]:
    files = sorted(folder.glob("*.md"), key=lambda path: (_rank(path.name), path.name))
    return [path.relative_to(docs).as_posix() for path in files]


def _rank(name: str) -> int:
    return FIRST.index(name) if name in FIRST else len(FIRST)


def decisions(folder: Path) -> str:
    """A Markdown list of every decision record, by its own title."""
    lines = []
    for path in sorted(folder.glob("[0-9]*.md")):
        title = re.sub(r"^#\s*", "", path.read_text(encoding="utf-8").partition("\n")[0])
        lines.append(f"- [{title}]({path.name})")
    return "\n".join(lines)
