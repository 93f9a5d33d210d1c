"""Publish: attributes as words, and a payload; or many publications from a file.

Prints how many subscriptions each publication matched. A value that reads as a number or
as true/false is one; quote it twice to send text.

A file is read to its end before anything of it is published: a line that is wrong is told, and
nothing is sent. From a pipe (- is the standard input) lines are published as they come, up to a
wrong one. Lines that have an "id" (24 hex digits) may be published again, after an
interrupt for example: matchers recognise the last 65,536 ids, and pass none on a second time.

Examples:
  homing publish price=12.5 city=Paris --payload "hello"
  homing publish 'zip="01234"' vip=true --to 10.0.0.1:7001
  homing publish --from publications.jsonl
  tail -f readings.jsonl | homing publish --from -
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterable, Iterable, Iterator
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from cyclopts import Parameter

from homing.cli.verb import NO_FLAGS, ConfigFlags, misused, seconds_of, verb
from homing.cli.waiting import awaited
from homing.errors import Malformed, RequestTimeout, SubscriptionError, Unavailable

app = verb("publish", __doc__)

STDIN: Final = "-"
AHEAD: Final = 1024
"""Lines of a pipe read ahead of those being published: some milliseconds of them."""

Line: TypeAlias = tuple[dict[str, Any], str, bytes]


@app.default
async def publish(
    *attributes: Annotated[str, Parameter(help="name=value, once for each")],
    payload: Annotated[str, Parameter(help="text to send along")] = "",
    source: Annotated[
        str | None,
        Parameter(
            name="--from",
            allow_leading_hyphen=True,
            help='file of lines {"attrs": {…}, "payload": "…", "id": "…"}; - reads stdin',
        ),
    ] = None,
    to: Annotated[tuple[str, ...], Parameter(help="HOST:PORT of a matcher; several: tried")] = (),
    token: Annotated[str, Parameter(help="what publishers must know there")] = "",
    patience: Annotated[
        str, Parameter(name="--timeout", help="how long to wait for an ack")
    ] = "30s",
    port_offset: Annotated[int | None, Parameter(help="added to the default port")] = None,
    flags: ConfigFlags = NO_FLAGS,
) -> int:
    """Publish and print the match counts."""
    from homing.push.publisher import Publisher

    if source is None and not attributes and not payload:
        raise misused("nothing to publish: say name=value, a --payload, or a file with --from")
    if source is not None and _is_file(source):
        for _ in read_publications(source):  # a wrong line is told before anything is published
            pass
    matchers = to or (flags.load({"node.port_offset": port_offset}).push.publishers,)
    async with Publisher(*matchers, token=token, timeout=seconds_of(patience)) as publisher:
        try:
            if source is None:
                publishing = publisher.publish(parse_attributes(attributes), payload)
                print(
                    await awaited(publishing, f"waiting for a matcher at {' or '.join(matchers)}")
                )
                return 0
            if attributes or payload:
                raise misused("attributes and payloads stand in the file")
            return await _publish_file(publisher, source)
        except RequestTimeout as late:
            if publisher.connected:
                raise
            raise Unavailable(str(late)) from late


async def _publish_file(publisher: Any, source: str) -> int:
    from rich.progress import Progress, SpinnerColumn, TextColumn

    total = matched = 0
    lines = _Lines(source)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.completed:,.0f} published, {task.fields[m]:,} matches"),
    )
    with Progress(*columns, disable=not sys.stderr.isatty()) as progress:
        bar = progress.add_task("publish", total=None, m=0)
        async for count in publisher.publish_all(lines.as_they_come()):
            total, matched = total + 1, matched + count
            progress.update(bar, completed=total, m=matched)
    if lines.bad is not None:
        raise Malformed(f"{lines.bad} ({total} published: all before it)") from lines.bad
    print(f"{total} published, {matched} matches")
    return 0


class _Lines:
    """The publications up to the first bad line: those of a pipe that stand before it are published, and counted."""

    def __init__(self, source: str) -> None:
        self.bad: Malformed | None = None
        self._source = source

    def as_they_come(self) -> Iterable[Line] | AsyncIterable[Line]:
        """What a pipe has is published while the next line is waited for."""
        from homing.loops import Elsewhere

        return self if _is_file(self._source) else Elsewhere(self, AHEAD)

    def __iter__(self) -> Iterator[Line]:
        try:
            yield from read_publications(self._source)
        except Malformed as bad:
            self.bad = bad


def _is_file(source: str) -> bool:
    """Whether it can be read twice; a file that is called - is meant by ./- only."""
    return source != STDIN and os.path.isfile(source)


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    attrs: dict[str, bool | int | float | str]
    payload: str = ""
    id: str = ""


def read_publications(source: str) -> Iterator[Line]:
    """The publications of a file, one a line; a bad line is named."""
    from homing.ids import parse_id
    from homing.push.subscription import check_attributes

    # Not Python's own: at its end it would wait for the thread that waits for the next line.
    with os.fdopen(os.dup(0), "rb") if source == STDIN else open(source, "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                read = msgspec.json.decode(line, type=_Line)
                check_attributes(dict(read.attrs))
                identity = parse_id(read.id) if read.id else b""
            except (msgspec.DecodeError, UnicodeError, SubscriptionError, Malformed) as error:
                name = "standard input" if source == STDIN else source
                raise Malformed(f"{name}:{number}: {error}") from error
            yield read.attrs, read.payload, identity


def parse_attributes(words: tuple[str, ...]) -> dict[str, Any]:
    """`name=value` words; JSON numbers, booleans and strings are what they say, others text."""
    attributes: dict[str, Any] = {}
    for word in words:
        name, mark, text = word.partition("=")
        if not mark or not name:
            raise Malformed(
                f"{word!r} is not name=value",
                hint="for example: homing publish price=12.5 city=Paris",
            )
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            value = text
        attributes[name] = value if isinstance(value, bool | int | float | str) else text
    return attributes
