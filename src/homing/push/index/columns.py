"""Columns: a batch of publications as one array per attribute, from numpy, pyarrow or lists.

A column holds numbers, strings or booleans; a missing attribute is None in a list, masked in a
numpy.ma array, null in a pyarrow array. NaN is a value, and refused like everywhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from operator import itemgetter
from struct import pack
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from homing.errors import SubscriptionError
from homing.push.index.kernels.layout import ALWAYS, NONE
from homing.push.index.lanes import EXACT, NO_LANE, OTHER_TOKEN, Vocabulary
from homing.push.subscription import MAX_INTEGER
from homing.push.values import Value

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

# Bytes of a number: what is wider, numpy's longdouble, lanes would round.
_WIDEST = 8
_ARROW_KINDS = frozenset(
    {"bool", "halffloat", "float", "double"}
    | {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
)


class Column(NamedTuple):
    """One attribute: its values and where it is missing. Strings are numbers into `texts`."""

    kind: str  # number, boolean, text, or token: a text as its number in the vocabulary
    values: npt.NDArray[Any]
    missing: Flags | None
    texts: list[str]

    def value(self, row: int) -> Value | None:
        """The value in one row as Python has it."""
        if self.missing is not None and self.missing[row]:
            return None
        found: Value = self.values[row].item()
        return self.texts[int(found)] if self.kind == "text" else found


class Columns(Sequence[Mapping[str, Value]]):
    """All columns of a batch; as a sequence, its rows."""

    def __init__(self, columns: Mapping[str, object]) -> None:
        self._columns = {name: _column(name, column) for name, column in columns.items()}
        lengths = {len(column.values) for column in self._columns.values()}
        if len(lengths) > 1:
            raise SubscriptionError(f"columns of different lengths: {sorted(lengths)}")
        self._length = lengths.pop() if lengths else 0

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            return self._slice(row)
        values = {name: column.value(row) for name, column in self._columns.items()}
        return {name: value for name, value in values.items() if value is not None}

    def _slice(self, rows: slice) -> Columns:
        part = Columns({})
        part._columns = {
            name: column._replace(
                values=column.values[rows],
                missing=None if column.missing is None else column.missing[rows],
            )
            for name, column in self._columns.items()
        }
        part._length = len(range(*rows.indices(self._length)))
        return part

    def matrix(self, vocabulary: Vocabulary) -> tuple[npt.NDArray[np.int32], Floats]:
        """The lanes that somebody asked for, and a row of values for each publication."""
        lanes: list[int] = []
        values: list[Floats] = []
        for name, column in self._columns.items():
            for lane, found in self._lanes(name, column, vocabulary):
                if column.missing is not None:
                    found[column.missing] = np.nan
                lanes.append(lane)
                values.append(found)
        for name, lane in vocabulary.absences.items():
            lanes.append(lane)
            values.append(self._absent(name))
        matrix = np.full((self._length, NONE + 1 + len(lanes)), np.nan)
        matrix[:, ALWAYS] = 0.0
        for i, found in enumerate(values):
            matrix[:, NONE + 1 + i] = found
        return np.array(lanes, np.int32), matrix

    def _lanes(self, name: str, column: Column, vocabulary: Vocabulary) -> list[tuple[int, Floats]]:
        known = vocabulary.attributes.get(name)
        if known is None:
            return []
        found: list[tuple[int, Floats]] = []
        if column.kind == "number" and known.number != NO_LANE:
            found.append((known.number, column.values.astype(np.float64)))
        elif column.kind in ("boolean", "token") and known.token != NO_LANE:
            found.append((known.token, column.values.astype(np.float64)))
        elif column.kind == "text":
            tokens = vocabulary.register.numbers
            if known.token != NO_LANE:
                found.append((known.token, _each(column, lambda s: tokens.get(s, OTHER_TOKEN))))
            for length, lane in known.prefixes.items():
                found.append((lane, _each(column, _prefix_token(tokens, length))))
        if known.present != NO_LANE:
            found.append((known.present, np.ones(self._length)))
        return found

    def _absent(self, name: str) -> Floats:
        column = self._columns.get(name)
        if column is None:
            return np.ones(self._length)
        if column.missing is None:
            return np.full(self._length, np.nan)
        return np.where(column.missing, 1.0, np.nan)


def _each(column: Column, number: Callable[[str], float]) -> Floats:
    """The number of every text, asked once for each distinct one."""
    numbers = np.array([number(text) for text in column.texts] or [np.nan], np.float64)
    picked: Floats = numbers[np.minimum(column.values, len(numbers) - 1)]
    return picked


def _prefix_token(tokens: Mapping[str, int], length: int) -> Callable[[str], float]:
    return lambda text: tokens.get(text[:length], np.nan) if len(text) >= length else np.nan


def _column(name: str, column: Any) -> Column:
    if hasattr(column, "null_count") and hasattr(column, "type"):
        return _from_arrow(name, column)
    if isinstance(column, np.ma.MaskedArray):
        return _from_numpy(name, column.filled(), np.ma.getmaskarray(column))
    if not isinstance(column, np.ndarray):
        missing = np.array([value is None for value in column], np.bool_)
        array = np.empty(len(column), object)
        array[:] = column
        return _from_numpy(name, array, missing if missing.any() else None)
    return _from_numpy(name, column, None)


def _from_arrow(name: str, column: Any) -> Column:
    if hasattr(column, "combine_chunks"):
        column = column.combine_chunks()
    if str(column.type).startswith("dictionary<"):
        column = column.dictionary_decode()
    missing = np.asarray(column.is_null()) if column.null_count else None
    kind = str(column.type)
    if kind == "null":
        return Column("text", np.zeros(len(column), np.int64), missing, [])
    if kind in ("string", "large_string", "string_view"):
        encoded = column.dictionary_encode()
        numbers = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)
        return Column("text", numbers.astype(np.int64), missing, encoded.dictionary.to_pylist())
    if kind not in _ARROW_KINDS:
        raise SubscriptionError(
            f"the column `{name}` holds {kind}: no numbers, strings or booleans"
        )
    if column.null_count:
        column = column.fill_null(0 if kind != "bool" else False)
    return _from_numpy(name, column.to_numpy(zero_copy_only=False), missing)


def _from_numpy(name: str, values: npt.NDArray[Any], missing: Flags | None) -> Column:
    if values.dtype.kind == "b":
        return Column("boolean", values, missing, [])
    if values.dtype.kind in "iuf" and values.dtype.itemsize <= _WIDEST:
        bad = ~np.isfinite(values)
        if missing is not None:
            bad &= ~missing
        if bad.any():
            raise SubscriptionError(f"`{name}` holds NaN or an infinity: those match nothing")
        if values.dtype == np.uint64:
            _check_large(name, values if missing is None else values[~missing])
        return Column("number", values, missing, [])
    return _from_objects(name, values, missing)


def _from_objects(name: str, values: npt.NDArray[Any], missing: Flags | None) -> Column:
    """Python objects or fixed-width strings: all of one kind, or the column is refused."""
    there = (values if missing is None else values[~missing]).tolist()
    plain = _from_values(name, there)
    if missing is None:
        return plain
    spread = np.zeros(len(values), plain.values.dtype)
    spread[~missing] = plain.values
    return plain._replace(values=spread, missing=missing)


def _from_values(name: str, values: Sequence[Any]) -> Column:
    kinds = set(map(type, values))
    if kinds == {float}:
        packed = pack(f"={len(values)}d", *values)  # four times as fast as numpy.array
        return _from_numpy(name, np.frombuffer(packed, np.float64), None)
    if kinds <= {str}:
        numbers: dict[str, int] = {}
        found = [numbers.setdefault(text, len(numbers)) for text in values]
        return Column("text", np.array(found, np.int64), None, list(numbers))
    if kinds == {bool}:
        return Column("boolean", np.array(values, np.bool_), None, [])
    if kinds <= {int, float}:
        return _from_numpy(
            name, _integers(name, values) if kinds == {int} else _mixed(name, values), None
        )
    names = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise SubscriptionError(f"the column `{name}` mixes {names}: match such rows one by one")


def _integers(name: str, values: Sequence[int]) -> npt.NDArray[Any]:
    for kind in (np.int64, np.uint64):  # 2^63 is the largest of all, and fits the second only
        try:
            return np.array(values, kind)
        except OverflowError:
            continue
    raise _too_large(name)


def _mixed(name: str, values: Sequence[int | float]) -> Floats:
    """Integers among floats become floats; those that would be rounded are refused."""
    try:
        array = np.array(values, np.float64)
    except OverflowError:
        raise _too_large(name) from None
    large = np.flatnonzero(np.abs(array) >= EXACT)
    if any(type(values[i]) is int for i in large.tolist()):
        raise SubscriptionError(
            f"the column `{name}` mixes floats with integers beyond 2^53: match such rows one by one"
        )
    return array


def _check_large(name: str, values: npt.NDArray[np.uint64]) -> None:
    if values.size and int(values.max()) > MAX_INTEGER:
        raise _too_large(name)


def _too_large(name: str) -> SubscriptionError:
    return SubscriptionError(f"`{name}` holds an integer of more than 64 bits, with its sign")


def _picked(
    names: tuple[str, ...], rows: Sequence[Mapping[str, Value]]
) -> list[tuple[Value, ...]] | None:
    """Each row's values of these names; None unless all rows have them and no others."""
    if not names or {*map(len, rows)} != {len(names)}:
        return None
    picked = map(itemgetter(*names), rows)
    try:
        return list(picked) if len(names) > 1 else list(zip(picked, strict=True))
    except KeyError:
        return None


def _tokens(name: str, values: Sequence[Any], vocabulary: Vocabulary) -> Column:
    """Strings as numbers at once: without prefixes nobody needs the strings themselves."""
    if set(map(type, values)) != {str}:
        return _from_values(name, values)  # which refuses it
    numbers = map(vocabulary.register.numbers.get, values, repeat(OTHER_TOKEN))
    return Column("token", np.fromiter(numbers, np.float64, len(values)), None, [])


def columns_of(rows: Sequence[Mapping[str, Value]], vocabulary: Vocabulary) -> Columns | None:
    """Rows that all have the same attributes, of the same kinds, as columns; others: None.

    Several times as fast as row after row, and the usual case: one publisher's batch.
    """
    names = tuple(rows[0]) if rows else ()
    by_row = _picked(names, rows)
    if by_row is None:
        return None
    made = Columns({})
    made._length = len(rows)
    try:
        for name, values in zip(names, zip(*by_row, strict=True), strict=True):
            known = vocabulary.attributes.get(name)
            if known is None:
                continue
            if type(values[0]) is str and not known.prefixes:
                made._columns[name] = _tokens(name, values, vocabulary)
            else:
                made._columns[name] = _from_values(name, values)
    except SubscriptionError:
        return None  # row after row tells which row and why, or finds it is fine
    return made
