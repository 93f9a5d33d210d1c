"""Vocabulary: attribute names become lanes, strings become numbers, fields become boxes.

The kernels know only lanes of floating-point values. An attribute gets a lane for each way that
somebody asks about it, and only then, so names that nobody subscribed to cost nothing:

    number    the value itself
    token     a boolean or a string, as its number in the vocabulary; OTHER if nobody named it
    present   1 whenever the attribute is there
    absent    1 whenever it is not
    prefix n  the number of its first n characters

A field is a union of disjoint pieces, a piece a conjunction of bounds on lanes; a subscription
becomes the product of its fields' pieces, one box each, of which at most one can match. What
does not fit (long lists, integers beyond 2^53) gets a wider box and a residual check besides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import inf, nextafter
from typing import Any

from homing.push.index.kernels.layout import ALWAYS, EXCLUDE, NO_RESIDUAL
from homing.push.index.register import Register
from homing.push.subscription import (
    MAX_INTEGER,
    check_number,
    describe_field,
    excluded_values,
    parse_field,
)
from homing.push.values import (
    BELOW,
    FALSE,
    NO_STRINGS,
    TRUE,
    Cut,
    Field,
    Span,
    Strings,
    Value,
)

Bound = tuple[int, float, float]
Piece = tuple[Bound, ...]
# A box: lane, low, high of each bound, one after the other, and its residual check.
Box = tuple[list[float], int]
Residual = tuple[tuple[str, Field], ...]

FALSE_TOKEN, TRUE_TOKEN, OTHER_TOKEN, FIRST_TOKEN = 0.0, 1.0, 2.0, 3
EXACT_BELOW = 2**53
EXACT = float(EXACT_BELOW)  # the same, compared with floats in a fraction of the time
# Boxes of one subscription: past this a residual check is cheaper than the copies.
MAX_BOXES = 32
# Excluded values that bounds are kept for; longer lists are left to a residual check.
MAX_EXCLUDED = 32
# Each prefix length of an attribute costs every publication a slice and a lookup.
MAX_PREFIX_LENGTHS = 16
NO_LANE = -1


class Attribute:
    """The lanes of one attribute name; NO_LANE where nobody asked."""

    __slots__ = ("absent", "number", "prefixes", "present", "token")

    def __init__(self) -> None:
        self.number = NO_LANE
        self.token = NO_LANE
        self.present = NO_LANE
        self.absent = NO_LANE
        self.prefixes: dict[int, int] = {}


class Vocabulary:
    """Everything that has a number: lanes, strings, residual checks. Kept by the one writer."""

    def __init__(self) -> None:
        self.attributes: dict[str, Attribute] = {}
        self.register = Register(FIRST_TOKEN)
        self.residuals: dict[int, Residual] = {}
        self.absences: dict[str, int] = {}
        self.lanes = ALWAYS + 1
        # Counts the changes that give names other lanes: whoever remembers lanes compares it.
        self.lanes_changed = 0
        self._free_lanes: list[int] = []
        self._freed_lanes: list[int] = []
        self._residual_numbers: dict[Residual, int] = {}
        self._next_residual = 0
        # What subscriptions used while something is being forgotten.
        self._names_used: set[str] | None = None
        self._checks_used: set[int] | None = None

    # --- subscriptions ---------------------------------------------------------------------

    def boxes(self, fields: Mapping[str, Field]) -> list[Box]:
        """The boxes of a subscription, each with its residual check's number."""
        attributes, tokens = self.attributes, self.register.numbers
        if self._names_used is not None:
            self._names_used.update(fields)
            tokens = {}  # the register wants to hear of every string that is used now
        plain: list[float] = []
        others: list[tuple[str, Field]] = []
        for name, field in fields.items():
            # Nearly every field is one closed range of ordinary numbers, or one string: no piece,
            # no product, and no call either.
            known = attributes.get(name)
            if known is None or field.booleans or field.absent:
                others.append((name, field))
                continue
            numbers, strings = field.numbers, field.strings
            if strings is NO_STRINGS and len(numbers) == 1 and known.number != NO_LANE:
                (low, low_side), (high, high_side) = numbers[0]
                # Only the sides of a closed range ascend.
                if low_side < high_side and low > -EXACT and high < EXACT:
                    plain += (known.number, low, high)
                    continue
            elif not numbers and known.token != NO_LANE:
                named = strings.plus
                if len(named) == 1 and not strings.prefixes:
                    token = tokens.get(named[0])
                    if token is None:
                        token = self.register.number(named[0])
                    plain += (known.token, token, token)
                    continue
            others.append((name, field))
        return self._products(plain, others) if others else [(plain, NO_RESIDUAL)]

    def _products(self, plain: list[float], others: list[tuple[str, Field]]) -> list[Box]:
        parts: list[list[Piece]] = []
        checks: list[tuple[str, Field]] = []
        room = MAX_BOXES
        for name, field in others:
            if not field:
                return []  # no value satisfies it
            pieces, exact = self._pieces(name, field)
            if len(pieces) > room:
                pieces, exact = [self._hull(name, field)], False
            room //= len(pieces)
            parts.append(pieces)
            if not exact:
                checks.append((name, field))
        residual = self._residual(tuple(sorted(checks, key=_by_name))) if checks else NO_RESIDUAL
        return [
            (plain + [number for piece in pieces for bound in piece for number in bound], residual)
            for pieces in product(*parts)
        ]

    def _pieces(self, name: str, field: Field) -> tuple[list[Piece], bool]:
        """Disjoint pieces that together hold the field, and whether they hold nothing else."""
        known = self.attributes.get(name)
        if known is None:
            known = self.attributes[name] = Attribute()
        pieces: list[Piece] = []
        exact = True
        if field.absent:
            pieces.append(((self._absent(name, known), 1.0, 1.0),))
        excluded = excluded_values(field) if field.booleans or field.strings.prefixes else None
        if excluded is not None:
            piece, exact = self._all_but(known, excluded)
            return [*pieces, piece], exact
        for low, high in _as_floats(field.numbers):
            pieces.append(((self._number(known), low, high),))
        exact = all(_is_exact(low) and _is_exact(high) for low, high in field.numbers)
        named = field.strings.plus
        if field.strings.prefixes:
            starts = self._prefixes(known, field.strings)
            if starts is None:
                # Any string, those that are named as well.
                starts, named, exact = [((self._token(known), OTHER_TOKEN, inf),)], (), False
            pieces.extend(starts)
            exact = exact and len(field.strings.minus) <= MAX_EXCLUDED
        pieces.extend(self._tokens(known, field.booleans, named))
        return pieces, exact

    def _all_but(self, known: Attribute, excluded: list[Value]) -> tuple[Piece, bool]:
        bounds: list[Bound] = [(self._present(known), 1.0, 1.0)]
        exact = True
        for value in excluded[:MAX_EXCLUDED]:
            if isinstance(value, str | bool):
                token = self.register.number(value) if isinstance(value, str) else float(value)
                bounds.append((self._token(known) | EXCLUDE, token, token))
            elif abs(value) < EXACT_BELOW:
                bounds.append((self._number(known) | EXCLUDE, float(value), float(value)))
            else:
                exact = False
        return tuple(bounds), exact and len(excluded) <= MAX_EXCLUDED

    def _tokens(self, known: Attribute, booleans: int, named: Sequence[str]) -> list[Piece]:
        """Booleans and named strings; neighbouring numbers share a piece."""
        if not booleans and not named:
            return []
        lane = self._token(known)
        tokens = [float(bit == TRUE) for bit in (FALSE, TRUE) if booleans & bit]
        tokens.extend(sorted(self.register.number(text) for text in named))
        runs: list[tuple[float, float]] = []
        for token in tokens:
            if runs and runs[-1][1] == token - 1:
                runs[-1] = (runs[-1][0], token)
            else:
                runs.append((token, token))
        return [((lane, low, high),) for low, high in runs]

    def _prefixes(self, known: Attribute, strings: Strings) -> list[Piece] | None:
        """A piece for each prefix; None where there is no lane for one of their lengths."""
        pieces: list[Piece] = []
        for prefix in strings.prefixes:
            lane = self._prefix_lane(known, len(prefix))
            if lane == NO_LANE:
                return None
            token = self.register.number(prefix) if prefix else OTHER_TOKEN
            bounds: list[Bound] = [(lane, token, token if prefix else inf)]
            for text in strings.minus[:MAX_EXCLUDED]:
                if text.startswith(prefix):
                    number = self.register.number(text)
                    bounds.append((self._token(known) | EXCLUDE, number, number))
            pieces.append(tuple(bounds))
        return pieces

    def _hull(self, name: str, field: Field) -> Piece:
        """One piece around the whole field, however wide."""
        known = self.attributes[name]
        if field.absent:
            return ((ALWAYS, 0.0, 0.0),)
        if not field.strings and not field.booleans:
            low, high = field.numbers[0][0], field.numbers[-1][1]
            return ((self._number(known), _lowest(low), _highest(high)),)
        return ((self._present(known), 1.0, 1.0),)

    def _residual(self, checks: Residual) -> int:
        number = self._residual_numbers.get(checks)
        if number is None:
            number = self._next_residual
            self._next_residual += 1
            self._residual_numbers[checks] = number
            self.residuals[number] = checks
        if self._checks_used is not None:
            self._checks_used.add(number)
        return number

    # --- publications ----------------------------------------------------------------------

    def row(self, attributes: Mapping[str, Value]) -> tuple[list[int], list[float]]:
        """The lanes that a publication has and its values there."""
        lanes: list[int] = []
        values: list[float] = []
        for name, value in attributes.items():
            known = self.attributes.get(name)
            if known is None:
                continue
            if isinstance(value, str):
                self._text_row(value, known, lanes, values)
            elif isinstance(value, bool):
                if known.token != NO_LANE:
                    lanes.append(known.token)
                    values.append(TRUE_TOKEN if value else FALSE_TOKEN)
            elif known.number != NO_LANE:
                if not _is_ordinary(value):  # NaN, infinities and what is no value at all
                    check_number(value, name)
                lanes.append(known.number)
                values.append(value)
            if known.present != NO_LANE:
                lanes.append(known.present)
                values.append(1.0)
        for name, lane in self.absences.items():
            if name not in attributes:
                lanes.append(lane)
                values.append(1.0)
        return lanes, values

    def _text_row(self, text: str, known: Attribute, lanes: list[int], values: list[float]) -> None:
        if known.token != NO_LANE:
            lanes.append(known.token)
            values.append(self.register.numbers.get(text, OTHER_TOKEN))
        for length, lane in known.prefixes.items():
            token = self.register.numbers.get(text[:length])
            if token is not None and len(text) >= length:
                lanes.append(lane)
                values.append(token)

    # --- numbers for names -----------------------------------------------------------------

    def _number(self, known: Attribute) -> int:
        if known.number == NO_LANE:
            known.number = self._new_lane()
        return known.number

    def _token(self, known: Attribute) -> int:
        if known.token == NO_LANE:
            known.token = self._new_lane()
        return known.token

    def _present(self, known: Attribute) -> int:
        if known.present == NO_LANE:
            known.present = self._new_lane()
        return known.present

    def _absent(self, name: str, known: Attribute) -> int:
        if known.absent == NO_LANE:
            known.absent = self.absences[name] = self._new_lane()
        return known.absent

    def _prefix_lane(self, known: Attribute, length: int) -> int:
        if length == 0:
            return self._token(known)
        if length not in known.prefixes:
            if len(known.prefixes) >= MAX_PREFIX_LENGTHS:
                return NO_LANE
            known.prefixes[length] = self._new_lane()
        return known.prefixes[length]

    def _new_lane(self) -> int:
        self.lanes_changed += 1
        if self._free_lanes:
            return self._free_lanes.pop()
        self.lanes += 1
        return self.lanes - 1

    # --- keeping and forgetting ------------------------------------------------------------

    def dump(self) -> dict[str, object]:
        """What `restore` needs besides the texts and the checks, in plain containers."""
        return {
            "lanes": self.lanes,
            "free": [*self._free_lanes, *self._freed_lanes],
            "next": self._next_residual,
            "attributes": {
                name: [known.number, known.token, known.present, known.absent, known.prefixes]
                for name, known in self.attributes.items()
            },
        }

    def described_residuals(self, numbers: Sequence[int]) -> list[tuple[int, object]]:
        """These residual checks as `restore` takes them."""
        return [
            (number, [(name, describe_field(field)) for name, field in self.residuals[number]])
            for number in numbers
        ]

    @classmethod
    def restore(
        cls, dumped: Mapping[str, Any], texts: list[str | None], residuals: Iterable[Any]
    ) -> Vocabulary:
        """The vocabulary that was dumped."""
        self = cls()
        self.lanes, self._free_lanes = dumped["lanes"], dumped["free"]
        self.register = Register.restore(texts, FIRST_TOKEN)
        self._next_residual = dumped["next"]
        for number, described in residuals:
            checks = tuple((name, parse_field(field)) for name, field in described)
            self.residuals[number] = checks
            self._residual_numbers[checks] = number
        for name, (number, token, present, absent, prefixes) in dumped["attributes"].items():
            known = self.attributes[name] = Attribute()
            known.number, known.token, known.present, known.absent = number, token, present, absent
            known.prefixes = prefixes
            if absent != NO_LANE:
                self.absences[name] = absent
        return self

    @property
    def size(self) -> int:
        """How many lanes, strings and residual checks are remembered."""
        return self.lanes - len(self._free_lanes) + len(self.register) + len(self.residuals)

    def begin_forgetting(self) -> None:
        """From now on what subscriptions use is remembered, and not forgotten before the end."""
        self.register.begin()
        self._names_used = set()
        self._checks_used = set()

    def forget_residuals(self, numbers: Iterable[int]) -> None:
        """Drop these residual checks; their numbers are not given out again."""
        for number in numbers:
            if number in self.residuals and number not in (self._checks_used or ()):
                del self._residual_numbers[self.residuals.pop(number)]

    def forget_lanes(self, names: Iterable[str], alive: bytes) -> None:
        """Drop the lanes of these attributes that are not alive, and attributes without any."""
        for name in names:
            known = self.attributes.get(name)
            if known is not None and name not in (self._names_used or ()):
                self._forget_lanes_of(name, known, alive)

    def _forget_lanes_of(self, name: str, known: Attribute, alive: bytes) -> None:
        for kind in ("number", "token", "present", "absent"):
            setattr(known, kind, self._kept(getattr(known, kind), alive))
        known.prefixes = {
            length: lane
            for length, lane in known.prefixes.items()
            if self._kept(lane, alive) != NO_LANE
        }
        if known.absent == NO_LANE:
            self.absences.pop(name, None)
        kept = (known.number, known.token, known.present, known.absent)
        if not known.prefixes and kept == (NO_LANE,) * 4:
            del self.attributes[name]

    def _kept(self, lane: int, alive: bytes) -> int:
        if lane == NO_LANE or lane >= len(alive) or alive[lane]:
            return lane
        self.lanes_changed += 1
        self._freed_lanes.append(lane)
        return NO_LANE

    def end_forgetting(self) -> None:
        """Freed lanes and numbers may be given out: nobody reads by their old meaning any more."""
        self._free_lanes += self._freed_lanes
        self._freed_lanes = []
        self._names_used = self._checks_used = None
        self.register.end()


def _is_ordinary(value: Value) -> bool:
    try:
        return bool(-EXACT < value < EXACT)  # type: ignore[operator]
    except TypeError:
        return False


def _by_name(check: tuple[str, Field]) -> str:
    return check[0]


def _is_exact(cut: Cut) -> bool:
    """Whether comparing as floats decides as comparing exactly would."""
    return not EXACT_BELOW <= abs(cut[0]) <= MAX_INTEGER


def _as_floats(spans: Iterable[Span]) -> list[tuple[float, float]]:
    """Spans as the floats they hold; those that rounding makes overlap become one."""
    found: list[tuple[float, float]] = []
    for low, high in spans:
        lowest, highest = _lowest(low), _highest(high)
        if found and lowest <= found[-1][1]:
            found[-1] = (found[-1][0], highest)
        else:
            found.append((lowest, highest))
    return found


def _lowest(cut: Cut) -> float:
    """The lowest float above a cut."""
    bound = float(cut[0])
    if cut[1] == BELOW or not _is_exact(cut):
        return bound
    return nextafter(bound, inf)


def _highest(cut: Cut) -> float:
    """The highest float below a cut."""
    bound = float(cut[0])
    if cut[1] != BELOW or not _is_exact(cut):
        return bound
    return nextafter(bound, -inf)
