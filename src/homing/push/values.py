"""Field: the set of values that one attribute of a publication may have.

A publication's attribute is a number, a string, a boolean, or not there at all. Whatever a
subscriber writes about it (PROTOCOL 5.3: equality, ranges, in, not_in, prefix, exists, any…)
is a set of those, and such sets are closed under `&` and `|`. Keeping the set instead of the
spelling gives one canonical form: two fields that mean the same are equal, a field that no
value satisfies is seen at once, and the index needs to know one thing instead of twelve.

The number line is cut *between* values: a cut is (x, -1), just below x, or (x, +1), just
above, and a span is a pair of cuts. Closed, open and half-open ends need no cases of their
own, and Python compares int with float exactly, so no integer is ever rounded.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from math import inf

import msgspec

Number = int | float
Value = bool | int | float | str
Cut = tuple[Number, int]
Span = tuple[Cut, Cut]

BELOW, ABOVE = -1, 1
FALSE, TRUE = 1, 2

LEFT_END: Cut = (-inf, BELOW)
RIGHT_END: Cut = (inf, ABOVE)
LINE: tuple[Span, ...] = ((LEFT_END, RIGHT_END),)


class Strings(msgspec.Struct, frozen=True):
    """Strings that start with one of `prefixes`, without `minus`, and `plus` besides.

    Canonical: all three sorted, no prefix extends another, `minus` holds only strings that a
    prefix covers and `plus` only strings that none does.
    """

    prefixes: tuple[str, ...] = ()
    minus: tuple[str, ...] = ()
    plus: tuple[str, ...] = ()

    def __contains__(self, text: str) -> bool:
        if _listed(self.plus, text):
            return True
        return _covered(text, self.prefixes) and not _listed(self.minus, text)

    def __bool__(self) -> bool:
        return bool(self.prefixes or self.plus)

    def __or__(self, other: Strings) -> Strings:
        prefixes = _shortest({*self.prefixes, *other.prefixes})
        return _strings(
            prefixes, {s: s in self or s in other for s in self._named() | other._named()}
        )

    def __and__(self, other: Strings) -> Strings:
        both = {p for p in self.prefixes if _covered(p, other.prefixes)}
        both |= {p for p in other.prefixes if _covered(p, self.prefixes)}
        return _strings(
            _shortest(both), {s: s in self and s in other for s in self._named() | other._named()}
        )

    def _named(self) -> set[str]:
        return {*self.minus, *self.plus}


def _listed(texts: tuple[str, ...], text: str) -> bool:
    """Whether a sorted tuple holds the text."""
    i = bisect_left(texts, text)
    return i < len(texts) and texts[i] == text


def _covered(text: str, prefixes: tuple[str, ...]) -> bool:
    """Whether the text starts with one of these, which are sorted and extend no other.

    Whatever lies between a prefix and a text that starts with it starts with that prefix too: only the
    last one that is not beyond the text comes into question.
    """
    i = bisect_right(prefixes, text)
    return i > 0 and text.startswith(prefixes[i - 1])


def _shortest(prefixes: set[str]) -> tuple[str, ...]:
    """Only those that extend no other; sorted, so an extension comes right after its stem."""
    kept: list[str] = []
    for prefix in sorted(prefixes):
        if not kept or not prefix.startswith(kept[-1]):
            kept.append(prefix)
    return tuple(kept)


def _strings(prefixes: tuple[str, ...], inside: dict[str, bool]) -> Strings:
    """The set with these prefixes where the named strings are in or out as told."""
    minus = sorted(s for s, is_in in inside.items() if not is_in and _covered(s, prefixes))
    plus = sorted(s for s, is_in in inside.items() if is_in and not _covered(s, prefixes))
    return Strings(prefixes, tuple(minus), tuple(plus))


NO_STRINGS = Strings()
ALL_STRINGS = Strings(prefixes=("",))


class Field(msgspec.Struct, frozen=True):
    """A set of attribute values; `absent` says whether having no such attribute is fine too."""

    numbers: tuple[Span, ...] = ()
    strings: Strings = NO_STRINGS
    booleans: int = 0
    absent: bool = False

    def accepts(self, value: Value) -> bool:
        """Whether an attribute with this value satisfies the field."""
        if isinstance(value, bool):
            return bool(self.booleans & (TRUE if value else FALSE))
        if isinstance(value, str):
            return value in self.strings
        # (x, 0) lies between the cuts just below and just above x: only the last span that begins before it
        # can hold it, and a list of thousands is not gone through.
        place = (value, 0)
        i = bisect_left(self.numbers, place, key=_begin)
        return i > 0 and place < self.numbers[i - 1][1]

    def __bool__(self) -> bool:
        """False for the set that nothing satisfies."""
        return bool(self.numbers or self.strings or self.booleans or self.absent)

    def __or__(self, other: Field) -> Field:
        return Field(
            _joined([*self.numbers, *other.numbers]),
            self.strings | other.strings,
            self.booleans | other.booleans,
            self.absent or other.absent,
        )

    def __and__(self, other: Field) -> Field:
        return Field(
            _overlap(self.numbers, other.numbers),
            self.strings & other.strings,
            self.booleans & other.booleans,
            self.absent and other.absent,
        )

    @property
    def size(self) -> int:
        """How many spans, strings and prefixes it is made of: what limits are counted in."""
        strings = self.strings
        return (
            len(self.numbers) + len(strings.prefixes) + len(strings.minus) + len(strings.plus) + 1
        )


NOTHING = Field()
ABSENT = Field(absent=True)
PRESENT = Field(numbers=LINE, strings=ALL_STRINGS, booleans=FALSE | TRUE)


def _begin(ends: Span) -> Cut:
    return ends[0]


def _joined(spans: list[Span]) -> tuple[Span, ...]:
    """The union as sorted spans that neither overlap nor touch."""
    joined: list[Span] = []
    for low, high in sorted(spans):
        if joined and low <= joined[-1][1]:
            if high > joined[-1][1]:
                joined[-1] = (joined[-1][0], high)
        else:
            joined.append((low, high))
    return tuple(joined)


def _overlap(left: tuple[Span, ...], right: tuple[Span, ...]) -> tuple[Span, ...]:
    """The intersection of two sorted lists of spans, in one pass over both."""
    found: list[Span] = []
    i = j = 0
    while i < len(left) and j < len(right):
        low = max(left[i][0], right[j][0])
        high = min(left[i][1], right[j][1])
        if low < high:
            found.append((low, high))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return tuple(found)


def any_of(fields: Sequence[Field]) -> Field:
    """The union of many, joined two by two: a long list takes little more than its sorting."""
    if not fields:
        return NOTHING
    while len(fields) > 1:
        pairs = [fields[i] | fields[i + 1] for i in range(0, len(fields) - 1, 2)]
        fields = [*pairs, *fields[2 * len(pairs) :]]
    return fields[0]


def span(low: Cut, high: Cut) -> Field:
    """Numbers between two cuts; NOTHING when the cuts are the wrong way round."""
    return Field(numbers=((low, high),)) if low < high else NOTHING


def one_of(values: Iterable[Value]) -> Field:
    """Exactly these values; a number never equals a string, booleans are neither."""
    texts, points, booleans = _sorted_out(values)
    spans = _joined([((x, BELOW), (x, ABOVE)) for x in points])
    return Field(spans, Strings(plus=tuple(sorted(texts))), booleans)


def none_of(values: Iterable[Value]) -> Field:
    """Any value that is there, except these; a value of another type is not one of them."""
    texts, points, booleans = _sorted_out(values)
    ends = [LEFT_END, *(cut for x in points for cut in ((x, BELOW), (x, ABOVE))), RIGHT_END]
    spans = tuple(zip(ends[::2], ends[1::2], strict=True))
    return Field(
        spans, Strings(prefixes=("",), minus=tuple(sorted(texts))), (FALSE | TRUE) & ~booleans
    )


def with_prefix(prefix: str) -> Field:
    """Strings that start with this; the empty prefix stands for any string."""
    return Field(strings=Strings(prefixes=(prefix,)))


def _sorted_out(values: Iterable[Value]) -> tuple[set[str], list[Number], int]:
    texts: set[str] = set()
    points: set[Number] = set()
    booleans = 0
    for value in values:
        if isinstance(value, bool):
            booleans |= TRUE if value else FALSE
        elif isinstance(value, str):
            texts.add(value)
        else:
            points.add(value)
    return texts, sorted(points), booleans
