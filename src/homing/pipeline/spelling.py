"""Attributes by the ten thousand: texts that are spelled alike become columns.

One publisher's texts differ in their values only. The first of them tells the spelling: which bytes
stand between the values, and of which kind each is. All that follow it are read by a kernel, without
an object for any name or value. What is spelled otherwise may have a spelling of its own, and what
is not worth one is decoded text by text (homing.pipeline.parsing). The answer is the same:
the kernel takes only what has one meaning, and numbers that it reads exactly.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from homing.pipeline.parsing import all_attributes_of, attributes_of
from homing.push.index import Index
from homing.push.index.kernels import fetch
from homing.push.subscription import MAX_STRING, Attributes

# Texts that a spelling must be worth, of those that are left: fewer are decoded sooner than tried.
WORTH = 64
# Spellings that one batch is tried for: each looks at all that those before it left.
MOST_SPELLINGS = 8

Ints: TypeAlias = npt.NDArray[np.int64]
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|true|false|-?\d[\d.eE+-]*')


@cache
def kernel() -> Any:
    """homing.pipeline.scan, imported late: numba comes with it, and where nobody did so yet a compiler."""
    return fetch("homing.pipeline.scan")


class Spelling(NamedTuple):
    """Names, the kind of each one's value, and the bytes around the values."""

    names: tuple[str, ...]
    kinds: npt.NDArray[np.uint8]
    between: npt.NDArray[np.uint8]
    ends: npt.NDArray[np.int32]


class Alike(NamedTuple):
    """Publications with the same attributes: their places in the batch, an array for each name."""

    places: Ints
    columns: Mapping[str, Any]

    def match(self, index: Index) -> tuple[Ints, npt.NDArray[np.uint64]]:
        """All matches: those of places[i] are found[offsets[i]:offsets[i + 1]]."""
        return index.match_columns(self.columns)

    def parts(self, size: int) -> Iterator[Alike]:
        """The same, so many at a time."""
        for start in range(0, len(self.places), size):
            end = start + size
            columns = {name: column[start:end] for name, column in self.columns.items()}
            yield Alike(self.places[start:end], columns)


class Mixed(NamedTuple):
    """Publications of which each has attributes of its own, and their places in the batch."""

    places: Ints
    attributes: Sequence[Attributes]

    def match(self, index: Index) -> tuple[Ints, npt.NDArray[np.uint64]]:
        """All matches, as above."""
        return index.match_batch(self.attributes)

    def parts(self, size: int) -> Iterator[Mixed]:
        """The same, so many at a time."""
        for start in range(0, len(self.places), size):
            end = start + size
            yield Mixed(self.places[start:end], self.attributes[start:end])


def attributes_in(texts: pa.Array) -> Iterator[Alike | Mixed]:
    """All publications whose attributes have a meaning; those without are left out."""
    texts = texts.cast(pa.string())  # Spark has a setting for other types of texts
    left = np.arange(len(texts))
    for _ in range(MOST_SPELLINGS):
        spelling = spelling_of(texts[int(left[0])].as_py()) if len(left) >= WORTH else None
        if spelling is None:
            break
        some = texts if len(left) == len(texts) else texts.take(pa.array(left))
        rows, columns = read(spelling, some)
        if len(rows) < WORTH:
            break
        yield Alike(left[rows], columns)
        left = np.delete(left, rows)
    if len(left):
        asked = all_attributes_of(texts.take(pa.array(left)).to_pylist())
        known = [each for each in asked if each is not None]
        yield Mixed(left[[each is not None for each in asked]], known)


def spelling_of(text: str | None) -> Spelling | None:
    """How a text is spelled; None if it has no meaning, or no attributes."""
    attributes = attributes_of(text)
    tokens = list(_TOKEN.finditer(text or ""))
    # Nothing but names and values, one after the other; a name that comes twice has one value.
    if not attributes or len(tokens) != 2 * len(attributes):
        return None
    assert text is not None
    kinds, between, behind = [], [], 0
    for value in tokens[1::2]:
        kind = _kind(value.group())
        quote = kind == kernel().TEXT  # belongs to what is around
        between.append(text[behind : value.start() + quote].encode())
        behind = value.end() - quote
        kinds.append(kind)
    between.append(text[behind:].encode())
    ends = np.cumsum([0, *map(len, between)], dtype=np.int32)
    raw = np.frombuffer(b"".join(between), np.uint8)
    return Spelling(tuple(attributes), np.array(kinds, np.uint8), raw, ends)


def _kind(value: str) -> int:
    made = kernel()
    return int({'"': made.TEXT, "t": made.BOOLEAN, "f": made.BOOLEAN}.get(value[0], made.NUMBER))


def read(spelling: Spelling, texts: pa.StringArray) -> tuple[Ints, dict[str, Any]]:
    """Which texts are spelled so, and their values by name."""
    if texts.null_count:
        texts = texts.fill_null("")
    made, size, width = kernel(), len(texts), len(spelling.names)
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + size + 1]
    data = np.frombuffer(texts.buffers()[2] or b"", np.uint8)
    rows = np.empty(size, np.int64)
    values = np.empty((width, size))
    spans = np.empty((width, size if made.TEXT in spelling.kinds else 0, 2), np.int32)
    about = (spelling.between, spelling.ends, spelling.kinds)
    found = made.scan(data, offsets, *about, MAX_STRING, rows, values, spans)
    columns: dict[str, Any] = {}
    for k, (name, kind) in enumerate(zip(spelling.names, spelling.kinds.tolist(), strict=True)):
        if kind == made.TEXT:
            columns[name] = _texts(texts.buffers()[2], spans[k, :found])
        else:
            part = values[k, :found]
            columns[name] = part != 0 if kind == made.BOOLEAN else part
    return rows[:found], columns


def _texts(data: pa.Buffer, spans: npt.NDArray[np.int32]) -> pa.StringArray:
    """The texts at these places: of all pieces that the places cut the bytes into, every other one."""
    cuts = np.append(spans.reshape(-1), spans[-1:, 1])
    pieces = pa.StringArray.from_buffers(max(0, len(cuts) - 1), pa.py_buffer(cuts), data)
    return pieces.take(pa.array(np.arange(0, len(pieces), 2)))
