"""Fenced blocks of a Markdown page that a test runs as its reader would.

A block is run when `<!-- runs -->` stands on the line above its fence; `<!-- runs in the checkout -->`
runs it there instead of in a new directory, `<!-- runs nightly … -->` only in the nightly profile; with
`, figures vary` before its end every number on the page stands for any number. In a `console` block, lines after `$ ` are commands and the others what they print, where `…`
stands for anything within a line and a line `…` for any lines. A `python` block is a program. A `toml`
or `text` block with `<!-- file: NAME -->` above it is written to that file. All blocks of a page
share one directory and one shell, top to bottom.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, NamedTuple

_BLOCK = re.compile(
    r"^<!-- (?:runs(?P<nightly> nightly)?(?P<checkout> in the checkout)?(?P<vary>, figures vary)?|file: (?P<name>[\w.-]+)) -->\n+"
    r"^```(?P<language>\w+)[^\n]*\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_NUMBER = re.compile(r"\d[\d,.]*(?<=\d)")
_MARK = re.compile(r"^<!-- (?:runs|file:)", re.MULTILINE)


class Step(NamedTuple):
    """One thing to do: run a command or a program, or write a file."""

    kind: Literal["command", "program", "file"]
    text: str
    line: int
    expected: str = ""  # what a command prints, or the name of a file
    in_checkout: bool = False
    nightly: bool = False


def steps(page: Path) -> list[Step]:
    """Everything on a page that is marked; a mark without a block below it is an error."""
    text = page.read_text(encoding="utf-8")
    found: list[Step] = []
    for block in _BLOCK.finditer(text):
        line = text.count("\n", 0, block.start("body")) + 1
        before = len(found)
        checkout = block["checkout"] is not None
        if block["name"] is not None:
            found.append(Step("file", block["body"], line, block["name"]))
        elif block["language"] == "console":
            found += _commands(block["body"], line, checkout)
        elif block["language"] == "python":
            found.append(Step("program", block["body"], line, in_checkout=checkout))
        else:
            raise ValueError(f"{page.name}:{line}: nobody knows how to run {block['language']}")
        if block["vary"] is not None:
            found[before:] = [
                step._replace(expected=_NUMBER.sub("…", step.expected)) for step in found[before:]
            ]
        if block["nightly"] is not None:
            found[before:] = [step._replace(nightly=True) for step in found[before:]]
    if len(_MARK.findall(text)) != len(_BLOCK.findall(text)):
        raise ValueError(f"{page.name}: a mark has no fenced block right below it")
    return found


def _commands(body: str, first_line: int, checkout: bool) -> list[Step]:
    found: list[Step] = []
    for number, line in enumerate(body.splitlines(), first_line):
        if line.startswith("$ "):
            found.append(Step("command", line[2:], number, in_checkout=checkout))
        elif found and line.startswith("> "):  # the shell's own continuation prompt
            found[-1] = found[-1]._replace(text=f"{found[-1].text}\n{line[2:]}")
        elif found:
            found[-1] = found[-1]._replace(expected=f"{found[-1].expected}{line}\n")
        elif line.strip():
            raise ValueError(f"line {number}: output before any command: {line!r}")
    return found


def printed_as_shown(printed: str, expected: str) -> bool:
    """Whether output looks as the page shows it; trailing blanks do not count."""
    pattern = ""
    for line in expected.splitlines():
        if line.strip() == "…":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += ".*".join(re.escape(part) for part in line.rstrip().split("…")) + r"[ \t]*\n"
    return (
        re.fullmatch(pattern + r"\s*", printed if printed.endswith("\n") else printed + "\n")
        is not None
    )
