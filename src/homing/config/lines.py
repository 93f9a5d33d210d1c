"""On which line of a TOML text each key stands: tomllib does not say. Pure."""

from __future__ import annotations

import re

_KEY_PART = re.compile(r"""\s*(?:"((?:[^"\\\n]|\\.)*)"|'([^'\n]*)'|([A-Za-z0-9_-]+))\s*""")
# What may hide a newline or a bracket inside a value, longest delimiters first.
_VALUE_TOKEN = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}'
    r"|'''.*?'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'"
    r"|\#[^\n]*"
    r"|[\[\]{}\n]"
    r"|[^\[\]{}\n\"'\#]+"
    r"|.",
    re.DOTALL,
)

Path = tuple[str, ...]


def key_lines(text: str) -> dict[Path, int]:
    """Line (from 1) of every table header and key of a valid TOML text, by dotted path.

    Keys inside inline tables and arrays are not listed: they stand on their parent's line.
    """
    lines: dict[Path, int] = {}
    table: Path = ()
    at = 0
    while at < len(text):
        at = _skip_blank(text, at)
        if at >= len(text):
            break
        line = text.count("\n", 0, at) + 1
        if text[at] == "[":
            table, at = _key(text, at + (2 if text.startswith("[[", at) else 1))
            lines.setdefault(table, line)
            at = _end_of_line(text, at)
        else:
            path, at = _key(text, at)
            for depth in range(len(table) + 1, len(table) + len(path) + 1):
                lines.setdefault((table + path)[:depth], line)
            at = _end_of_value(text, at + 1)
    return lines


def line_of(lines: dict[Path, int], path: Path) -> int | None:
    """The line of a path, or of the nearest parent that has one."""
    while path:
        if path in lines:
            return lines[path]
        path = path[:-1]
    return None


def _skip_blank(text: str, at: int) -> int:
    while at < len(text):
        if text[at] == "#":
            at = _end_of_line(text, at)
        elif text[at].isspace():
            at += 1
        else:
            break
    return at


def _end_of_line(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end + 1


def _key(text: str, at: int) -> tuple[Path, int]:
    """A dotted key that starts at `at`, and where it ends."""
    parts: list[str] = []
    while True:
        found = _KEY_PART.match(text, at)
        if found is None:
            return tuple(parts), at + 1
        parts.append(_unquote(found))
        at = found.end()
        if not text.startswith(".", at):
            return tuple(parts), at
        at += 1


def _unquote(found: re.Match[str]) -> str:
    basic, literal, bare = found.groups()
    if basic is None:
        return str(bare if literal is None else literal)
    import tomllib

    return str(next(iter(tomllib.loads(f'"{basic}" = 0'))))


def _end_of_value(text: str, at: int) -> int:
    depth = 0
    while at < len(text):
        found = _VALUE_TOKEN.match(text, at)
        assert found is not None  # the last alternative takes any character
        token, at = found.group(), found.end()
        if token in "[{":
            depth += 1
        elif token in "]}":
            depth -= 1
        elif token == "\n" and depth <= 0:
            break
    return at
