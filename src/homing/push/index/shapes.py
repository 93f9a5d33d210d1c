"""Shapes: publications with the same attribute names, encoded without a loop in Python.

One publisher's publications look alike. The first two of a kind are encoded attribute by attribute;
for the others a shape knows which values are numbers, booleans and strings, checks them by the
handful in C (operator, struct) and puts them where the kernels read them. A publication that
breaks the pattern, say with a string where numbers were, goes the slow way again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from math import hypot, nan
from operator import itemgetter
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from homing.push.index import kernels as compiled
from homing.push.index.kernels.layout import ALWAYS, NONE
from homing.push.index.lanes import NO_LANE, OTHER_TOKEN, Attribute, Vocabulary
from homing.push.index.packing import Pattern
from homing.push.values import Value

# Shapes that a thread keeps; with more kinds of publications than this they come and go.
MAX_SHAPES = 64
# Names seen once: what never comes again is not worth a shape.
MAX_SEEN = 256
# Numbers whose squares' sum has a root below this are far from infinite, NaN and beyond 2^53.
SAFE = 2.0**52

_NUMBERS, _BOOLEANS, _TEXTS = frozenset({int, float}), frozenset({bool}), frozenset({str})
_OTHERS = repeat(OTHER_TOKEN)
_GIVEN_AT = 8 * (NONE + 1)


class Rows(NamedTuple):
    """Publications as the kernels see them: their lanes, their values, and room for their codes."""

    lanes: npt.NDArray[np.int32]
    values: npt.NDArray[np.float64]
    coded: npt.NDArray[np.uint16]
    # Where these three are: one array instead of three to hand over.
    places: npt.NDArray[np.uint64]

    @classmethod
    def of(
        cls,
        lanes: npt.NDArray[np.int32],
        values: npt.NDArray[np.float64],
        coded: npt.NDArray[np.uint16],
    ) -> Rows:
        """`values` has the two columns that every publication has, then one for each lane."""
        assert values.shape[1] == NONE + 1 + lanes.size
        assert coded.shape == values.shape
        places = (lanes.ctypes.data, lanes.size, values.ctypes.data, len(values), coded.ctypes.data)
        return cls(lanes, values, coded, np.array(places, np.uint64))

    @classmethod
    def of_one(cls, lanes: npt.NDArray[np.int32], values: npt.ArrayLike) -> Rows:
        """One publication with values on these lanes."""
        width = NONE + 1 + lanes.size
        row = np.full((1, width), nan)
        row[0, ALWAYS] = 0.0
        row[0, NONE + 1 :] = values
        return cls.of(lanes, row, np.empty((1, width), np.uint16))


class Shape:
    """Where the values of publications with certain attribute names go."""

    __slots__ = (
        *(
            "_booleans",
            "_buffer",
            "_kinds",
            "_names",
            "_numbers",
            "_pack",
            "_pattern",
            "_texts",
            "_types",
        ),
        "row",
    )

    def __init__(
        self,
        numbers: dict[str, int],
        booleans: dict[str, int],
        texts: dict[str, int],
        constants: list[int],
        like: Mapping[str, Value],
    ) -> None:
        names = tuple(like)
        given = [*numbers.values(), *booleans.values(), *texts.values()]
        self.row = Rows.of_one(np.array([*given, *constants], np.int32), 1.0)
        self._buffer = memoryview(self.row.values.data).cast("B")
        self._pack = Struct(f"={len(given)}d").pack_into
        self._numbers = _picker(numbers, names)
        self._booleans = _picker(booleans, names) if booleans else None
        self._texts = _picker(texts, names)
        self._types = [*map(type, like.values())]
        self._names = names
        self._kinds = (tuple(numbers), tuple(booleans), tuple(texts))
        self._pattern: Pattern | None = None

    def matrix(
        self, rows: Sequence[Mapping[str, Value]], tokens: Mapping[str, int], kernel: Any
    ) -> npt.NDArray[np.float64] | None:
        """A row of values for each publication; None if names or kinds differ."""
        if self._pattern is None:
            width = self.row.values.shape[1]
            self._pattern = Pattern(self._names, self._kinds, width, kernel)
        return self._pattern.matrix(rows, tokens, kernel)

    def takes(self, attributes: Mapping[str, Value], tokens: Mapping[str, int]) -> bool:
        """Put the values in place; False if they are not of the kinds that this shape is for."""
        given = tuple(attributes.values())
        numbers = self._numbers(given)
        texts = self._texts(given)
        # Mostly all types are those of the first publication; a number may be whole or not.
        if [*map(type, given)] != self._types and not (
            _NUMBERS.issuperset(map(type, numbers)) and _TEXTS.issuperset(map(type, texts))
        ):
            return False
        try:
            if not hypot(*numbers) < SAFE:
                return False
        except OverflowError:
            return False
        found = map(tokens.get, texts, _OTHERS)
        if self._booleans is None:
            self._pack(self._buffer, _GIVEN_AT, *numbers, *found)
            return True
        booleans = self._booleans(given)
        if not _BOOLEANS.issuperset(map(type, booleans)):
            return False
        self._pack(self._buffer, _GIVEN_AT, *numbers, *booleans, *found)
        return True


def _picker(wanted: Iterable[str], names: tuple[str, ...]) -> Callable[[Any], Any]:
    """What picks the values of the wanted names from all values, always as a tuple."""
    places = [names.index(name) for name in wanted]
    if len(places) > 1:
        return itemgetter(*places)
    return itemgetter(slice(places[0], places[0] + 1) if places else slice(0))


class Shapes:
    """The shapes of what one thread matched lately, for one state of the vocabulary."""

    def __init__(self) -> None:
        self._shapes: dict[tuple[str, ...], Shape] = {}
        self._seen: set[tuple[str, ...]] = set()
        self._lanes_changed = -1

    def row(self, attributes: Mapping[str, Value], vocabulary: Vocabulary) -> Rows:
        """The publication, valid until the next one is asked for; refuses what has no meaning."""
        if self._lanes_changed != vocabulary.lanes_changed:
            self._keep_up(vocabulary)
        names = tuple(attributes)
        shape = self._shapes.get(names)
        if shape is None:
            shape = self._new(names, attributes, vocabulary)
        if shape is not None and shape.takes(attributes, vocabulary.register.numbers):
            return shape.row
        lanes, values = vocabulary.row(attributes)
        return Rows.of_one(np.array(lanes, np.int32), values)

    def matrix(
        self, rows: Sequence[Mapping[str, Value]], vocabulary: Vocabulary
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64]] | None:
        """Publications that are all of one shape: their lanes, and a row of values each."""
        kernels = compiled.ready()
        names = tuple(rows[0])
        if kernels is None or not names:
            return None
        self._keep_up(vocabulary)
        shape = self._shapes.get(names)
        if shape is None:
            shape = shape_of(rows[0], vocabulary)  # many at once are worth one
            self._keep(names, shape)
        if shape is None:
            return None
        matrix = shape.matrix(rows, vocabulary.register.numbers, kernels.rows)
        return None if matrix is None else (shape.row.lanes, matrix)

    def _keep_up(self, vocabulary: Vocabulary) -> None:
        if self._lanes_changed != vocabulary.lanes_changed:
            self._lanes_changed = vocabulary.lanes_changed
            self._shapes.clear()

    def _new(
        self, names: tuple[str, ...], attributes: Mapping[str, Value], vocabulary: Vocabulary
    ) -> Shape | None:
        if names not in self._seen:
            if len(self._seen) >= MAX_SEEN:
                self._seen.clear()
            self._seen.add(names)
            return None
        shape = shape_of(attributes, vocabulary)
        self._keep(names, shape)
        return shape

    def _keep(self, names: tuple[str, ...], shape: Shape | None) -> None:
        if shape is not None:
            if len(self._shapes) >= MAX_SHAPES:
                self._shapes.clear()
            self._shapes[names] = shape


def shape_of(attributes: Mapping[str, Value], vocabulary: Vocabulary) -> Shape | None:
    """The shape of publications like this one; None where each must be looked at by itself."""
    numbers: dict[str, int] = {}
    booleans: dict[str, int] = {}
    texts: dict[str, int] = {}
    constants: list[int] = []
    lanes_of_kind = {int: numbers, float: numbers, bool: booleans, str: texts}
    for name, value in attributes.items():
        known = vocabulary.attributes.get(name)
        if known is None:
            continue
        if known.present != NO_LANE:
            constants.append(known.present)
        if known.number == known.token == NO_LANE and not known.prefixes:
            continue  # whatever it is, nobody asks for more than that it is there
        lane = _lane(known, type(value))
        if lane == NO_LANE:
            return None
        lanes_of_kind[type(value)][name] = lane
    constants += [lane for name, lane in vocabulary.absences.items() if name not in attributes]
    return Shape(numbers, booleans, texts, constants, attributes)


def _lane(known: Attribute, kind: type) -> int:
    """The one lane that a value of this kind has; NO_LANE if there are none or several."""
    if kind in _NUMBERS:
        return known.number
    if kind in _TEXTS and known.prefixes:
        return NO_LANE
    return known.token if kind in _TEXTS or kind in _BOOLEANS else NO_LANE
