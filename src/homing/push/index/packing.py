"""Packing: a batch of publications of one shape on its way from dictionaries to a matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from homing.push.index.kernels.layout import ALWAYS, NONE
from homing.push.index.lanes import OTHER_TOKEN
from homing.push.values import Value

_OTHERS = repeat(OTHER_TOKEN)
_pack = msgspec.msgpack.Encoder().encode
# Numbers up to these fit the one byte, or the two behind it, that MessagePack begins a list or a map with.
_BYTE, _TWO_BYTES = 15, 0xFFFF


class Pattern:
    """How publications with the same names, of the same kinds, look as MessagePack."""

    __slots__ = ("_attributes", "_names", "_texts", "_texts_at", "_width")

    def __init__(
        self,
        names: Sequence[str],
        kinds: tuple[Sequence[str], Sequence[str], Sequence[str]],
        width: int,
        rows: Any,
    ) -> None:
        """`kinds` are the names of numbers, booleans and texts, in the order of their columns."""
        numbers, booleans, texts = kinds
        self._texts_at = NONE + 1 + len(numbers) + len(booleans)
        self._texts = tuple(texts)
        self._width = width
        places: dict[str, tuple[int, int]] = {}
        for i, name in enumerate([*numbers, *booleans], NONE + 1):
            places[name] = (rows.NUMBER if name in numbers else rows.BOOLEAN, i)
        places |= {name: (rows.TEXT, i) for i, name in enumerate(texts)}
        packed = _pack(dict.fromkeys(names))[: _head(len(names))]
        attributes: list[tuple[int, int, int]] = []
        for name in names:
            packed += _pack(name)
            attributes.append((len(packed), *places.get(name, (rows.IGNORED, 0))))
        self._names = np.frombuffer(packed, np.uint8)
        self._attributes = np.array(attributes, np.int32).reshape(-1, 3)

    def matrix(
        self, rows: Sequence[Mapping[str, Value]], tokens: Mapping[str, int], kernel: Any
    ) -> npt.NDArray[np.float64] | None:
        """A row of values for each publication; None if some are of another shape."""
        try:
            packed = _pack(rows)
        except (TypeError, ValueError, OverflowError):  # no publications, whatever that is
            return None
        count, texts = len(rows), len(self._texts)
        # 1 is the value on the lanes behind all others, which the names alone decide.
        matrix = np.ones((count, self._width))
        matrix[:, ALWAYS], matrix[:, NONE] = 0.0, np.nan
        numbers = np.empty((count, texts), np.int32)
        spans = np.empty((count * texts, 3), np.int64)
        octets = np.frombuffer(packed, np.uint8)
        distinct = kernel.unpack(
            octets, _head(count), self._names, self._attributes, matrix, numbers, spans
        )
        if distinct < 0:
            return None
        if texts:
            names, firsts = self._texts, spans[:distinct, 2].tolist()
            found: list[Any] = [rows[first // texts][names[first % texts]] for first in firsts]
            if not {str}.issuperset(map(type, found)):  # a date is written as a text too
                return None
            known = np.fromiter(map(tokens.get, found, _OTHERS), np.float64, distinct)
            matrix[:, self._texts_at : self._texts_at + texts] = known[numbers]
        return matrix


def _head(size: int) -> int:
    """The bytes in front of a list or a map of so many."""
    return 1 if size <= _BYTE else 3 if size <= _TWO_BYTES else 5
