"""The filter language: subscriptions as people write them.

    price in 10..20 and city = "Paris" and tag in ("a", "b") and exists(vip)
    price > 100 or urgent

    filter   = all { "or" all }                       several subscriptions, unless the sides
    all      = term { "and" term }                    differ in one attribute only
    term     = "(" filter ")"
             | [ "not" ] "exists" "(" name ")"
             | [ "not" ] name                         the boolean true, or false
             | name ( "=" | "!=" | "<" | "<=" | ">" | ">=" ) value
             | name [ "not" ] "in" "(" value { "," value } ")"
             | name "in" [ number ] ".." [ number ]   both ends belong to it
             | name "starts" "with" string
    name     = letter { letter | digit | "_" | "." | "-" } | "`" any but "`" "`"
    value    = number | string | "true" | "false"
    string   = JSON string, or the same in single quotes

Words of the language may be written in any case; an attribute that is called like one of them goes
between backquotes. `parse_filter` gives subscriptions as subscription.py knows them, in the order
of the `or`s; `format_filter` writes any subscription so that it parses back to the same fields.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import inf
from typing import NamedTuple, NoReturn

import msgspec

from homing.errors import FilterError, SubscriptionError
from homing.push.subscription import (
    MAX_FIELDS,
    MAX_NAME,
    Fields,
    can_match,
    check_fields,
    check_value,
    comparison,
    excluded_values,
)
from homing.push.values import (
    ABOVE,
    ABSENT,
    BELOW,
    FALSE,
    LEFT_END,
    PRESENT,
    RIGHT_END,
    TRUE,
    Cut,
    Field,
    Number,
    Span,
    Value,
    any_of,
    none_of,
    one_of,
    span,
    with_prefix,
)

# Subscriptions of one filter: `(a or b) and (c or d) and …` doubles with every pair of brackets.
MAX_SUBSCRIPTIONS = 64
# A longer filter was written by a program, which should send fields.
MAX_TEXT = 65_536
# Brackets within brackets; the parser descends once for each.
MAX_DEPTH = 32
# Digits of an integer that are read at all: 2^63 has 19.
MAX_DIGITS = 32

_WORDS = frozenset({"and", "or", "not", "in", "exists", "starts", "with", "true", "false"})
# What other languages write, and what is written here.
_ELSEWHERE = {"==": "=", "&&": "and", "||": "or", "&": "and", "|": "or", "<>": "!=", "!": "not"}
_COMPARISONS = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>[-+]?(?:[0-9]+(?:\.(?!\.)[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)
    | (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | `(?P<quoted>[^`]*)`
    | (?P<name>[^\W\d][\w.-]*)
    | (?P<symbol>\.\.|[<>!]=|=(?!=)|<(?!>)|[>(),])
    )""",
    re.VERBOSE | re.DOTALL,
)
_QUOTES = re.compile(r'\\.|"', re.DOTALL)
_PLAIN_NAME = re.compile(r"[^\W\d][\w.-]*")


class _Token(NamedTuple):
    kind: str  # number, string, quoted, name, word, symbol or end
    text: str
    column: int


def parse_filter(text: str) -> list[Fields]:
    """The subscriptions that a filter stands for; FilterError points at what it cannot read."""
    if len(text) > MAX_TEXT:
        raise FilterError(f"longer than {MAX_TEXT} characters", text, MAX_TEXT + 1)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise FilterError("not a character", text, error.start + 1) from None
    parser = _Parser(text)
    found = parser.any()
    parser.expect_end()
    return found


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    end = len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            column = at + len(text[at:]) - len(text[at:].lstrip()) + 1
            raise FilterError(_unread(text, column), text, column)
        kind = match.lastgroup or ""
        word = match.group(kind)
        column = match.start(kind) + 1
        if kind == "name" and word.lower() in _WORDS:
            kind, word = "word", word.lower()
        tokens.append(_Token(kind, word, column))
        at = match.end()
    tokens.append(_Token("end", "the end", len(text) + 1))
    return tokens


def _unread(text: str, column: int) -> str:
    """Why no token begins here; signs of other languages have a word in this one."""
    sign = text[column - 1]
    for other, word in _ELSEWHERE.items():
        if text.startswith(other, column - 1):
            return f"`{other}` is written `{word}` here"
    return f"cannot read {sign!r}" + (": the string has no end" if sign in "\"'" else "")


class _Parser:
    """Recursive descent; each method reads one rule of the grammar."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = _tokens(text)
        self.at = 0
        self.depth = 0

    # --- tokens ----------------------------------------------------------------------------

    @property
    def next(self) -> _Token:
        return self.tokens[self.at]

    def fail(self, message: str, token: _Token | None = None) -> NoReturn:
        raise FilterError(message, self.text, (token or self.next).column)

    def skip(self, kind: str, *texts: str) -> _Token | None:
        """The next token if it is one of these, which is then behind us."""
        token = self.next
        if token.kind != kind or (texts and token.text not in texts):
            return None
        self.at += 1
        return token

    def need(self, what: str, kind: str, *texts: str) -> _Token:
        token = self.skip(kind, *texts)
        if token is None:
            self.fail(f"{what} is missing here, before {self.next.text!r}")
        return token

    def expect_end(self) -> None:
        if self.next.kind != "end":
            self.fail(f"`and` or `or` is missing here, before {self.next.text!r}")

    # --- rules -----------------------------------------------------------------------------

    def any(self) -> list[Fields]:
        start = self.next
        found = _Alternatives(self.all())
        while self.skip("word", "or"):
            for fields in self.all():
                found.add(fields)
            if len(found) > MAX_SUBSCRIPTIONS:
                self.fail(f"stands for more than {MAX_SUBSCRIPTIONS} subscriptions", start)
        joined = found.joined()
        self.check(joined, start)
        return joined

    def all(self) -> list[Fields]:
        start = self.next
        found = self.term()
        plain: list[Fields] = []  # terms that say one thing only, not yet joined
        while True:
            more = self.skip("word", "and") is not None
            right = self.term() if more else []
            if len(right) == 1:
                plain += right
                continue
            if plain:
                found = self.joined(found, [_all_of(plain)], start)
                plain = []
            if not more:
                break
            found = self.joined(found, right, start)
        self.check(found, start)
        return found

    def joined(self, left: list[Fields], right: list[Fields], start: _Token) -> list[Fields]:
        """What satisfies one of the left and one of the right."""
        if len(left) * len(right) > MAX_SUBSCRIPTIONS:
            self.fail(f"stands for more than {MAX_SUBSCRIPTIONS} subscriptions", start)
        found = [fields for a in left for b in right if can_match(fields := _both(a, b))]
        if not found:
            self.fail("no publication can satisfy all of this", start)
        return found

    def check(self, found: list[Fields], start: _Token) -> None:
        try:
            for fields in found:
                check_fields(fields)
                if not can_match(fields):
                    raise SubscriptionError("no publication can satisfy this")
        except SubscriptionError as error:
            self.fail(str(error), start)

    def term(self) -> list[Fields]:
        if self.skip("symbol", "("):
            self.depth += 1
            if self.depth > MAX_DEPTH:
                self.fail(f"brackets are nested more than {MAX_DEPTH} deep")
            found = self.any()
            self.need("`)`", "symbol", ")")
            self.depth -= 1
            return found
        denied = self.skip("word", "not") is not None
        if self.skip("word", "exists"):
            self.need("`(`", "symbol", "(")
            name = self.name()
            self.need("`)`", "symbol", ")")
            return [{name: ABSENT if denied else PRESENT}]
        name = self.name()
        return [{name: one_of([False]) if denied else self.test()}]

    def name(self) -> str:
        token = self.skip("name") or self.skip("quoted")
        if token is None:
            if self.next.kind == "word":
                self.fail(
                    f"`{self.next.text}` is a word of the language; a name goes into backquotes"
                )
            self.fail(f"the name of an attribute is missing here, before {self.next.text!r}")
        if not 0 < len(token.text) <= MAX_NAME:
            self.fail(f"a name has 1 to {MAX_NAME} characters", token)
        return token.text

    def test(self) -> Field:
        """What stands behind a name; nothing: it is a boolean that must be true."""
        if operator := self.skip("symbol", "=", "!=", "<", "<=", ">", ">="):
            token = self.next
            value = self.value()
            if operator.text in ("=", "!="):
                return one_of([value]) if operator.text == "=" else none_of([value])
            if isinstance(value, bool | str):
                self.fail(f"`{operator.text}` compares numbers", token)
            return comparison(_COMPARISONS[operator.text], value)
        if self.skip("word", "in"):
            return self.range() if self.next.text != "(" else one_of(self.values())
        if self.skip("word", "not"):
            self.need("`in`", "word", "in")
            return none_of(self.values())
        if self.skip("word", "starts"):
            self.need("`with`", "word", "with")
            token = self.next
            prefix = self.value()
            if not isinstance(prefix, str):
                self.fail("`starts with` takes a string", token)
            return with_prefix(prefix)
        return one_of([True])

    def range(self) -> Field:
        start = self.next
        low = self.number() if self.next.kind == "number" else None
        self.need("`..` or `(`", "symbol", "..")
        high = self.number() if self.next.kind == "number" else None
        field = span(
            LEFT_END if low is None else (low, BELOW), RIGHT_END if high is None else (high, ABOVE)
        )
        if not field:
            self.fail(f"no number lies between {low} and {high}", start)
        return field

    def values(self) -> list[Value]:
        self.need("`(`", "symbol", "(")
        found = [self.value()]
        while self.skip("symbol", ","):
            found.append(self.value())
        self.need("`,` or `)`", "symbol", ")")
        return found

    def number(self) -> Number:
        token = self.next
        value = self.value()
        if isinstance(value, bool | str):
            self.fail("a number is missing here", token)
        return value

    def value(self) -> Value:
        token = self.next
        is_boolean = token.kind == "word" and token.text in ("true", "false")
        if not is_boolean and token.kind not in ("number", "string"):
            self.fail(f"a number, a string, true or false is missing here, before {token.text!r}")
        self.at += 1
        if is_boolean:
            return token.text == "true"
        try:
            return check_value(_literal(token), "the value")
        except SubscriptionError as error:
            self.fail(str(error), token)


def _literal(token: _Token) -> object:
    text = token.text
    if token.kind == "number":
        if not text.lstrip("+-").isdigit():
            return float(text)
        if len(text.lstrip("+-0")) > MAX_DIGITS:
            raise SubscriptionError("an integer of more than 64 bits, with its sign")
        return int(text)
    if text[0] == "'":
        text = '"' + _QUOTES.sub(_requoted, text[1:-1]) + '"'
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise SubscriptionError(f"not a string: {error}") from None


def _requoted(found: re.Match[str]) -> str:
    """One character, or one escape, of a string in single quotes as it is written in double ones."""
    return {"\\'": "'", '"': '\\"'}.get(found[0], found[0])


def _both(left: Fields, right: Fields) -> Fields:
    """One subscription that asks for both."""
    joined = dict(left)
    for name, field in right.items():
        joined[name] = joined[name] & field if name in joined else field
    return joined


def _all_of(many: list[Fields]) -> Fields:
    """One subscription that asks for all of these, joined two by two: a long list takes no longer than it must."""
    while len(many) > 1:
        pairs = [_both(many[i], many[i + 1]) for i in range(0, len(many) - 1, 2)]
        many = [*pairs, *many[2 * len(pairs) :]]
    return many[0]


class _Alternatives:
    """Ways to match, of which those that differ in a single attribute are one."""

    def __init__(self, found: list[Fields]) -> None:
        self._found: list[Fields] = []
        # What else those with one attribute take, by its name: there is one of each name at most.
        self._more: dict[str, list[Field]] = {}
        for fields in found:
            self.add(fields)

    def __len__(self) -> int:
        return len(self._found)

    def add(self, fields: Fields) -> None:
        """One more way to match."""
        if len(fields) == 1:
            ((name, field),) = fields.items()
            if name in self._more:
                self._more[name].append(field)
                return
            self._more[name] = []
        for i, other in enumerate(self._found if len(fields) > 1 else ()):
            if other.keys() != fields.keys():
                continue
            differing = [name for name in other if other[name] != fields[name]]
            if len(differing) <= 1:
                self._found[i] = {name: other[name] | fields[name] for name in other}
                return
        self._found.append(fields)

    def joined(self) -> list[Fields]:
        """All of them, in the order in which they came."""
        return [
            {name: any_of([field, *self._more[name]]) for name, field in fields.items()}
            if len(fields) == 1
            else fields
            for fields in self._found
        ]


# --- back to text --------------------------------------------------------------------------


def format_filter(fields: Mapping[str, Field]) -> str:
    """A filter that parses to exactly these fields; there is none for a subscription without."""
    if not 0 < len(fields) <= MAX_FIELDS:
        raise SubscriptionError("a filter has at least one field")
    if not can_match(fields):
        raise SubscriptionError("no filter stands for what nothing can satisfy")
    return " and ".join(_field_text(_name_text(name), fields[name]) for name in sorted(fields))


def _name_text(name: str) -> str:
    if _PLAIN_NAME.fullmatch(name) and name.lower() not in _WORDS:
        return name
    if "`" in name:
        raise SubscriptionError(f"a filter cannot name {name!r}: it contains a backquote")
    return f"`{name}`"


def _field_text(name: str, field: Field) -> str:
    parts = [f"not exists({name})"] if field.absent else []
    excluded = excluded_values(field)
    if excluded is not None:
        parts.append(_excluded_text(name, excluded))
    else:
        parts.extend(_present_texts(name, field))
    return parts[0] if len(parts) == 1 else f"({' or '.join(parts)})"


def _excluded_text(name: str, excluded: list[Value]) -> str:
    if not excluded:
        return f"exists({name})"
    if len(excluded) == 1:
        return f"{name} != {_value_text(excluded[0])}"
    return f"{name} not in ({', '.join(map(_value_text, excluded))})"


def _present_texts(name: str, field: Field) -> list[str]:
    if field.booleans in (FALSE, TRUE) and not field.numbers and not field.strings:
        return [name if field.booleans == TRUE else f"not {name}"]
    listed: list[Value] = [bit == TRUE for bit in (FALSE, TRUE) if field.booleans & bit]
    listed.extend(low[0] for low, high in field.numbers if low[0] == high[0])
    listed.extend(field.strings.plus)
    texts = [_span_text(name, ends) for ends in field.numbers if ends[0][0] != ends[1][0]]
    if len(listed) == 1:
        texts.append(f"{name} = {_value_text(listed[0])}")
    elif listed:
        texts.append(f"{name} in ({', '.join(map(_value_text, listed))})")
    for prefix in field.strings.prefixes:
        missing = [text for text in field.strings.minus if text.startswith(prefix)]
        text = f"{name} starts with {_value_text(prefix)}"
        texts.append(f"{text} and {_excluded_text(name, [*missing])}" if missing else text)
    return texts


def _span_text(name: str, ends: Span) -> str:
    low, high = ends
    if low[1] == BELOW and high[1] == ABOVE:
        return f"{name} in {_end_text(low)}..{_end_text(high)}"
    sides = [
        f"{name} {'>=' if low[1] == BELOW else '>'} {_end_text(low)}",
        f"{name} {'<=' if high[1] == ABOVE else '<'} {_end_text(high)}",
    ]
    return " and ".join(side for side, end in zip(sides, ends, strict=True) if abs(end[0]) != inf)


def _end_text(end: Cut) -> str:
    return "" if abs(end[0]) == inf else _value_text(end[0])


def _value_text(value: Value) -> str:
    return msgspec.json.encode(value).decode()
