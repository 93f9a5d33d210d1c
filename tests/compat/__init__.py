"""Recorded bytes, kept as text that a person can check against the specification.

A `.hex` file holds hex digits in any grouping, text in "double quotes" (taken as UTF-8, with
`\\"` and `\\\\` for the two characters it needs), and comments from `#` to the end of the line.
`6*00` repeats a byte: six zeros.
"""

from __future__ import annotations

import re
from pathlib import Path

_ROOT = Path(__file__).parent
_TOKEN = re.compile(
    r"""(?P<space>\s+|\#[^\n]*)
      | "(?P<text>(?:[^"\\\n]|\\["\\])*)"
      | (?P<times>\d+)\*(?P<byte>[0-9a-fA-F]{2})\b
      | (?P<hex>(?:[0-9a-fA-F]{2})+)\b""",
    re.VERBOSE,
)


def load(name: str) -> bytes:
    """The bytes of tests/compat/<name>.hex."""
    return parse((_ROOT / f"{name}.hex").read_text(encoding="utf-8"), name)


def names(folder: str) -> list[str]:
    """Every recording under tests/compat/<folder>, as names for `load`."""
    found = (_ROOT / folder).rglob("*.hex")
    return sorted(str(path.relative_to(_ROOT).with_suffix("")) for path in found)


def parse(text: str, name: str = "text") -> bytes:
    """Bytes of one recording; anything that is none of the known forms is an error."""
    out = bytearray()
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            line = text.count("\n", 0, at) + 1
            raise ValueError(f"{name}.hex:{line}: cannot read {text[at : at + 20]!r}")
        at = token.end()
        if token["text"] is not None:
            out += re.sub(r"\\(.)", r"\1", token["text"]).encode()
        elif token["times"]:
            out += bytes.fromhex(token["byte"]) * int(token["times"])
        elif token["hex"]:
            out += bytes.fromhex(token["hex"])
    return bytes(out)
