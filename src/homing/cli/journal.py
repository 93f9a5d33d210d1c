"""Look into journals: what a node did, whether it is whole, how much there is.

DIR is a journal or any directory above journals; without it, the one in the settings
(node.data). Reading never disturbs a node that writes.

Examples:
  homing journal ls                           # segments: numbers, times, sizes
  homing journal cat --kind RequestRefused    # events, one JSON object a line
  homing journal cat --follow                 # and those to come
  homing journal cat --from 1200 --limit 10
  homing journal verify                       # exit code 65 if it is damaged
  homing journal stats                        # events, bytes and rates by kind
  homing journal seal                         # Parquet of finished segments
  homing journal serve --listen 0.0.0.0:7010  # to Spark on other machines
"""

from __future__ import annotations

import errno
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter
from cyclopts.validators import Number

from homing.cli.outcome import DATA, OK
from homing.cli.verb import NO_FLAGS, ConfigFlags, misused, verb
from homing.errors import CorruptSegment
from homing.journal import report
from homing.journal.events import KINDS
from homing.journal.reader import Record, Tail, journals, read
from homing.journal.text import describe

app = verb("journal", __doc__)

Where = Annotated[Path | None, Parameter(help="a journal, or a directory above some")]
Json = Annotated[bool, Parameter(help="as JSON, for programs")]

POLL_SECONDS = 0.2
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@app.command
def ls(where: Where = None, /, *, json: Json = False, flags: ConfigFlags = NO_FLAGS) -> int:
    """List the segments of every journal."""
    rows = [
        row for directory in _journals(where, flags) for row in report.listing(directory, _complain)
    ]
    if json:
        _print_json(rows)
        return OK
    columns = ("journal", "segment", "numbers", "from", "bytes", "state")
    _print_table(
        columns,
        [
            (
                str(row.directory),
                row.path.name,
                f"{row.first}–{row.last}" if row.last >= row.first else "–",
                clock(row.created),
                f"{row.size:,}",
                row.state,
            )
            for row in rows
        ],
    )
    return OK


@app.command
def cat(
    where: Where = None,
    /,
    *,
    kind: Annotated[tuple[str, ...], Parameter(help="only these kinds")] = (),
    from_: Annotated[
        int, Parameter(name="--from", help="begin at this number", validator=Number(gte=0))
    ] = 1,
    limit: Annotated[
        int | None, Parameter(help="stop after so many", validator=Number(gte=0))
    ] = None,
    follow: Annotated[bool, Parameter(help="wait for more")] = False,
    flags: ConfigFlags = NO_FLAGS,
) -> int:
    """Print events, one JSON object a line."""
    _check_kinds(kind)
    found = _journals(where, flags)
    stream = _follow(found, from_) if follow else _read(found, from_)
    left = sys.maxsize if limit is None else limit
    for record in stream:
        if left <= 0:
            break
        if not kind or type(record.event).__name__ in kind:
            left -= 1
            print(msgspec.json.encode(describe(record)).decode(), flush=follow)
    return OK


@app.command
def verify(where: Where = None, /, *, flags: ConfigFlags = NO_FLAGS) -> int:
    """Read every byte and check every checksum; exit code 65 if something is damaged."""
    damaged = 0
    for directory in _journals(where, flags):
        told: list[CorruptSegment] = []
        found = report.stats(directory, told.append)
        if any(directory.glob("*.parquet")):
            from homing.journal.sealing import check_copies

            check_copies(directory, told.append)
        verdict = "whole" if not told else f"{len(told)} damaged places"
        print(f"{directory}: {found.events:,} events in {found.segments} segments: {verdict}")
        for each in told:
            _complain(each)
        damaged += len(told)
    return DATA if damaged else OK


@app.command
def stats(where: Where = None, /, *, json: Json = False, flags: ConfigFlags = NO_FLAGS) -> int:
    """Count events, bytes and rates by kind."""
    found = {str(path): report.stats(path, _complain) for path in _journals(where, flags)}
    if json:
        _print_json(found)
        return OK
    for path, each in found.items():
        print(f"{path}: node {each.node}, {each.events:,} events, {each.size:,} bytes")
        seconds = (each.last - each.first) / 1e6
        _print_table(
            ("kind", "events", "share", "per second"),
            [
                (name, f"{count:,}", f"{count / each.events:.1%}", _rate(count, seconds))
                for name, count in sorted(each.kinds.items(), key=lambda item: -item[1])
            ],
        )
    return OK


def _rate(count: int, seconds: float) -> str:
    return f"{count / seconds:,.1f}" if seconds > 0 else "–"


@app.command
def seal(where: Where = None, /, *, flags: ConfigFlags = NO_FLAGS) -> int:
    """Write Parquet beside every finished segment that has none."""
    from homing.journal.sealing import seal_all

    for directory in _journals(where, flags):
        for path in seal_all(directory, _complain):
            print(path)
    return OK


@app.command
def serve(
    where: Where = None,
    /,
    *,
    listen: Annotated[str, Parameter(help="where readers connect to")] = "127.0.0.1:7010",
    flags: ConfigFlags = NO_FLAGS,
) -> int:
    """Let Spark on other machines read the journals, until interrupted."""
    from homing.endpoint import parse_endpoint
    from homing.errors import ConfigError
    from homing.node.journal_pages import MAX_CONNECTIONS, JournalPages
    from homing.node.run import Ending, run
    from homing.node.web import WebServer

    config = flags.load()
    root = where if where is not None else Path(config.node.data)
    if not config.journal.token and parse_endpoint(listen).host not in _LOOPBACK:
        raise ConfigError(["journals hold payloads: set journal.token to serve them to others"])
    found = _journals(root, flags)

    async def live() -> int:
        server = WebServer(JournalPages(root, config.journal.token).app, MAX_CONNECTIONS)
        with Ending() as ending:
            print(f"serving {len(found)} journals at {server.start(listen)}", flush=True)
            await ending.first.wait()
            await server.stop()
        return OK

    return run(live())


def _journals(where: Path | None, flags: ConfigFlags) -> list[Path]:
    """The journals meant; an error if there are none, for that is seldom what is meant."""
    root = where if where is not None else Path(flags.load().node.data)
    found = journals(root) if root.exists() else []
    if not found:
        raise FileNotFoundError(errno.ENOENT, "there is no journal here", str(root))
    return found


def _check_kinds(kinds: tuple[str, ...]) -> None:
    known = {kind.__name__ for kind in KINDS.values()} | {"Unknown"}
    for kind in kinds:
        if kind not in known:
            raise misused(f"no kind {kind!r}; there are {', '.join(sorted(known))}")


def _read(found: list[Path], start: int) -> Iterator[Record]:
    for directory in found:
        yield from read(directory, start, _complain)


def _follow(found: list[Path], start: int) -> Iterator[Record]:
    tails = [Tail(directory, start, _complain) for directory in found]
    while True:
        new = [record for tail in tails for record in tail.poll()]
        yield from new
        if not new:
            time.sleep(POLL_SECONDS)


def _complain(damage: CorruptSegment) -> None:
    print(f"homing: {damage}", file=sys.stderr)


def clock(micros: int) -> str:
    """A time as people read it, in UTC."""
    return datetime.fromtimestamp(micros / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _print_json(value: Any) -> None:
    text = msgspec.json.encode(value, enc_hook=str)
    print(msgspec.json.format(text).decode())


def _print_table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
    for row in [columns, *rows]:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )
