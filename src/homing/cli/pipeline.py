"""Run the Spark jobs over the journal: into tables, and audits and figures out of them.

Local by default. --master spark://… or yarn runs the same jobs on a cluster, --remote sc://…
over Spark Connect. The journal is read where the nodes write it; tables are files (Parquet)
below --tables. Needs `pip install 'homing[spark]'` and Java 17.

Examples:
  homing pipeline ingest --journal homing-data --tables tables
  homing pipeline ingest --follow         # and what comes, until interrupted
  homing pipeline ledger                  # exit code 1 if anything is missing
  homing pipeline slo                     # rates, errors, percentiles by minute
  homing pipeline match --filter 'price in 10..20 and city = "Paris"'
  homing pipeline live                    # Spark in the matchers' place
  homing pipeline replay --since 2026-11-01 --until 2026-11-02 --rate 500
  homing pipeline replay --client 64f0…   # what one subscriber missed
  homing pipeline plan --matchers 8       # a placement for so many matchers
  homing pipeline compact --keep 30       # few files, thirty days
  homing pipeline export requests --to lake.homing.requests --using iceberg
  homing pipeline report --out report.html
  homing pipeline show requests --where "outcome <> 'answered'"
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from homing.cli.outcome import FAILED, OK
from homing.cli.pipeline_flags import HERE, Where, busy
from homing.cli.verb import NO_FLAGS, ConfigFlags, misused, verb

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row
    from pyspark.sql.streaming.query import StreamingQuery

    from homing.pipeline.tables import Tables

app = verb("pipeline", __doc__)

POLL_SECONDS = 0.5
_STARTED = time.monotonic()  # the verb's module is loaded when the command begins

MaxEvents = Annotated[
    int, Parameter(help="about so many events in a batch", validator=Number(gte=1))
]


@app.command
def ingest(
    *,
    journal: Annotated[Path | None, Parameter(help="a directory of journals")] = None,
    endpoint: Annotated[str | None, Parameter(help="instead: journal servers, host:port")] = None,
    follow: Annotated[bool, Parameter(help="go on with what comes")] = False,
    max_events: MaxEvents = 2_000_000,
    where: Where = HERE,
    flags: ConfigFlags = NO_FLAGS,
) -> int:
    """Read the journals into tables, from where the last run stopped."""
    from homing.pipeline import ingest as job
    from homing.pipeline.agreeing import alone

    source = where.source(flags.load(), journal, endpoint)
    tables = where.open(flags)
    if where.explain:
        job.reading(tables, source).explain("formatted")
        return OK
    with alone(tables):
        _follow(lambda: job.start(tables, source, follow=follow, max_events=max_events), follow)
    markers = tables.markers()
    total = sum(marker.events for marker in markers)
    print(f"{total:,} events in {len(markers)} batches at {tables.root}")
    _note(tables, "ingest", f"{total:,} events in {len(markers)} batches")
    return OK


@app.command
def ledger(
    *,
    grace: Annotated[
        float,
        Parameter(help="seconds after which a missing end is a loss", validator=Number(gte=0)),
    ] = 60.0,
    late: Annotated[
        float, Parameter(help="seconds after which a delivery is late", validator=Number(gte=0))
    ] = 60.0,
    where: Where = HERE,
    flags: ConfigFlags = NO_FLAGS,
) -> int:
    """Audit every request and publication; exit code 1, and their names, if any is off."""
    from homing.pipeline import ledger as job

    tables = where.read(flags)
    terms = job.Terms(grace, late)
    if where.explain:
        job.violations(tables, terms).explain("formatted")
        return OK
    with busy("auditing"):
        found = job.run(tables, terms)
    print(
        "accounted for: " + ", ".join(f"{count:,} {name}" for name, count in found.totals.items())
    )
    for row in found.named:
        print(
            f"{row.problem:<10} {row.plane:<8} {row.key} {row.client or '-'} at {row.at}Z: {row.detail}"
        )
    off = "; ".join(f"{count:,} {problem}" for problem, count in sorted(found.problems.items()))
    verdict = off or "nothing lost, doubled, orphaned or late"
    print(verdict)
    _note(tables, "ledger", verdict, well=not off)
    return FAILED if off else OK


@app.command
def slo(*, where: Where = HERE, flags: ConfigFlags = NO_FLAGS) -> int:
    """Rates, errors, percentiles and saturation per service and minute, into slo_minutes."""
    from homing.pipeline import slo as job

    tables = where.read(flags)
    if where.explain:
        job.figures(tables).explain("formatted")
        return OK
    with busy("counting minutes"):
        found = job.run(tables).orderBy("service", "minute")
        odd = found.where("odd_rate or odd_latency or odd_errors").count()
        _note(tables, "slo", f"{found.count():,} minutes of services, {odd:,} unusual")
    columns = ("service", "minute", "requests", "errors", "p50_us", "p99_us", "in_flight")
    return _show(found.select(*columns, "odd_rate", "odd_latency", "odd_errors"), where, 50)


@app.command
def match(
    *,
    filter: Annotated[str | None, Parameter(help="a subscription that might be")] = None,
    as_of: Annotated[datetime | None, Parameter(help="subscriptions that held then")] = None,
    shards: Annotated[
        int, Parameter(help="parts of a set too large for one executor", validator=Number(gte=1))
    ] = 1,
    where: Where = HERE,
    flags: ConfigFlags = NO_FLAGS,
) -> int:
    """Match all publications with today's subscriptions, or with one that might be."""
    from homing.pipeline import match as job
    from homing.push.filters import parse_filter

    alternatives = None if filter is None else parse_filter(filter)  # before Spark starts
    tables = where.read(flags)
    publications = tables.read("publications")
    if alternatives is None:
        subscriptions = job.as_of(tables.read("subscriptions"), as_of)
    else:
        subscriptions = job.what_if(tables.spark, alternatives)
    found = job.match(publications, subscriptions, shards)
    if where.explain:
        found.explain("formatted")
        return OK
    with busy("matching"):
        tables.replace(found, "what_if")
        pairs = tables.derived("what_if")
        told = f"{pairs.count():,} matches of {publications.count():,} publications"
    print(f"{told}, in what_if")
    _note(tables, "match", told)
    return OK


@app.command
def live(
    *,
    journal: Annotated[Path | None, Parameter(help="where the matchers' journals are")] = None,
    endpoint: Annotated[str | None, Parameter(help="instead: journal servers, host:port")] = None,
    checkpoint: Annotated[str | None, Parameter(help="how far it has come is kept here")] = None,
    max_events: MaxEvents = 20_000,
    drain: Annotated[bool, Parameter(help="end when all that is there is matched")] = False,
    where: Where = HERE,
    flags: ConfigFlags = NO_FLAGS,
) -> int:
    """Match publications in the matchers' place and hand them to the dispatchers."""
    from homing.pipeline import live as job
    from homing.pipeline.handing import READY_SECONDS, stand_in

    config = flags.load()
    source = where.source(config, journal, endpoint)
    tables = where.open(flags)
    if where.explain:
        job.reading(tables.spark, source).explain("formatted")
        return OK
    start = partial(job.start, tables.spark, follow=not drain, max_events=max_events)
    rest = (source, checkpoint or f"{tables.root}/_live")
    if where.server(config):
        sent = job.Sent(config, drain=drain)
        _follow(lambda: start(sent, *rest), not drain)
        left = sent.left(tables.spark)
    else:
        with stand_in(config, "live") as handing:
            _follow(lambda: start(handing, *rest), not drain)
            left = 0 if handing.wait_done(READY_SECONDS) else len(handing.standin.owed)
    done = "all handed over" if drain or not where.server(config) else "stopped"
    print(f"{left:,} publications still owed, in the journal" if left else done)
    return OK


@app.command
def replay(
    *,
    since: Annotated[datetime | None, Parameter(help="accepted at or after")] = None,
    until: Annotated[datetime | None, Parameter(help="accepted before")] = None,
    client: Annotated[str | None, Parameter(help="only what this one missed (24 hex)")] = None,
    again: Annotated[bool, Parameter(help="also to those who have got it")] = False,
    rate: Annotated[
        float | None, Parameter(help="publications a second", validator=Number(gt=0))
    ] = None,
    where: Where = HERE,
    flags: ConfigFlags = NO_FLAGS,
) -> int:
    """Send publications again, under their own ids, to those who have not got them."""
    from homing.ids import parse_id
    from homing.pipeline import replay as job
    from homing.pipeline.handing import stand_in

    if client is not None:
        client = parse_id(client).hex()
    elif since is None and until is None:
        raise misused("say what to send again: --since and --until, or --client")
    tables = where.read(flags)
    asked = job.Asked(since, until, client, again, rate)
    with stand_in(flags.load(), "replay") as handing:
        found = job.plan(tables, list(handing.entries().values()), asked)
        if where.explain:
            found.explain("formatted")
            return OK
        with busy("sending again"):
            done = job.run(found, handing, asked)
    told = f"{done.publications:,} publications to {done.deliveries:,} clients in all"
    print(told)
    _note(tables, "replay", told)
    return OK


@app.command
def plan(
    *,
    matchers: Annotated[
        str | None, Parameter(help="their ids, comma-separated, or how many there will be")
    ] = None,
    out: Annotated[Path, Parameter(help="the plan to write")] = Path("plan.json"),
    epoch: Annotated[
        int | None,
        Parameter(help="the plan's number; matchers take the highest", validator=Number(gte=1)),
    ] = None,
    where: Where = HERE,
    flags: ConfigFlags = NO_FLAGS,
) -> int:
    """Compute a placement plan from what is subscribed and published, and show its balance."""
    from homing.pipeline import plan as job
    from homing.pipeline.match import as_of
    from homing.push.placement import dump_plan

    _check_place(out)
    tables = where.read(flags)
    names = job.names(matchers) if matchers else job.matchers_of(tables)
    publications = tables.read("publications")
    subscriptions = as_of(tables.read("subscriptions"), None)
    with busy("planning"):
        made, forecast = job.make(epoch or int(time.time()), names, publications, subscriptions)
    found = job.tiles(publications, subscriptions, made)
    if where.explain:
        found.explain("formatted")
        return OK
    with busy("laying everything onto the plan"):
        measured = job.balance(made, names, found, subscriptions.count(), publications.count())
    out.write_bytes(dump_plan(made))
    print(f"{out}: epoch {made.epoch}, {len(made.trees)} trees, {measured.tiles} tiles")
    for what, (foretold, seen) in job.told(forecast, measured).items():
        print(f"{what}: {foretold:.2f} foretold, {seen:.2f} measured")
    _note(tables, "plan", f"{measured.tiles} tiles, busiest / mean {measured.max_over_mean:.2f}")
    return OK


@app.command
def compact(
    *,
    keep: Annotated[
        float | None, Parameter(help="days of history; the rest goes", validator=Number(gt=0))
    ] = None,
    where: Where = HERE,
    flags: ConfigFlags = NO_FLAGS,
) -> int:
    """Rewrite the tables in few files, without what is too old, and say what they hold."""
    from homing.pipeline import compact as job

    cutoff = None if keep is None else datetime.now(UTC) - timedelta(days=keep)
    tables = where.read(flags)
    if where.explain:
        job.kept(tables.closed("events"), "events", cutoff).explain("formatted")
        return OK
    with busy("rewriting tables"):
        found = job.run(tables, cutoff)
    rows = sum(each.rows for each in found)
    for each in found:
        span = f"{each.first} – {each.last}" if each.first else "–"
        print(
            f"{each.table:<14}{each.rows:>14,} rows {each.files:>6} files {each.bytes:>16,} bytes  {span}"
        )
    _note(tables, "compact", f"{rows:,} rows in {sum(each.files for each in found)} files")
    return OK


@app.command
def export(
    table: str,
    /,
    *,
    to: Annotated[str, Parameter(help="a table of a catalog that this Spark knows")],
    using: Annotated[str, Parameter(help="its format: parquet, orc, delta, iceberg…")] = "parquet",
    columns: Annotated[tuple[str, ...], Parameter(help="only these")] = (),
    where: Where = HERE,
    flags: ConfigFlags = NO_FLAGS,
) -> int:
    """Write a table, whole, into any catalog and format; give its settings with --conf."""
    tables = where.read(flags)
    found = tables.read(table).select(*(columns or ("*",)))
    if where.explain:
        found.explain("formatted")
        return OK
    with busy("writing"):
        found.write.format(using).mode("overwrite").saveAsTable(to)
        rows = tables.spark.table(to).count()
    print(f"{rows:,} rows in {to}")
    return OK


@app.command
def report(
    *,
    out: Annotated[Path, Parameter(help="the page to write")] = Path("report.html"),
    where: Where = HERE,
    flags: ConfigFlags = NO_FLAGS,
) -> int:
    """Write one self-contained HTML page: audit, throughput, latency, balance, services, filters."""
    from homing.pipeline import ledger, slo
    from homing.pipeline import report as job

    _check_place(out)
    tables = where.read(flags)
    if where.explain:  # of what takes the time
        ledger.violations(tables).explain("formatted")
        slo.figures(tables).explain("formatted")
        return OK
    with busy("drawing the report"):
        job.write(tables, out)
    print(out)
    _note(tables, "report", str(out))
    return OK


@app.command
def show(
    table: str,
    /,
    *,
    condition: Annotated[str | None, Parameter(name="--where", help="a condition in SQL")] = None,
    limit: Annotated[int, Parameter(help="so many rows", validator=Number(gte=0))] = 20,
    where: Where = HERE,
    flags: ConfigFlags = NO_FLAGS,
) -> int:
    """Print rows of a table."""
    tables = where.read(flags)
    derived = table.startswith("slo_") or table == "what_if"
    found = tables.derived(table) if derived else tables.read(table)
    return _show(found.where(condition) if condition else found, where, limit)


def _check_place(out: Path) -> None:
    """Before minutes of work: whether a file can lie there."""
    if not out.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such directory", str(out.parent))
    if out.is_dir():
        raise IsADirectoryError(errno.EISDIR, "a file is meant, this is a directory", str(out))
    if not os.access(out if out.exists() else out.parent, os.W_OK):
        raise PermissionError(errno.EACCES, "it cannot be written here", str(out))


def _note(tables: Tables, job: str, result: str, *, well: bool = True) -> None:
    """Leave what a run found for the dashboard."""
    from homing.node.runs import Run, note_run

    note_run(tables.root, Run(job, time.time(), time.monotonic() - _STARTED, result, well))


def _show(found: DataFrame, where: Where, limit: int) -> int:
    if where.explain:
        found.explain("formatted")
        return OK
    with busy("reading"):
        rows = found.limit(limit).collect()
    _print(found.columns, rows)
    return OK


def _print(columns: list[str], rows: list[Row]) -> None:
    cells = [tuple(columns), *(tuple(_cell(value) for value in row) for row in rows)]
    widths = [min(40, max(len(row[i]) for row in cells)) for i in range(len(columns))]
    for row in cells:
        line = "  ".join(cell[:40].ljust(width) for cell, width in zip(row, widths, strict=True))
        print(line.rstrip())


def _cell(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:,.1f}" if isinstance(value, float) else str(value)


def _follow(start: Callable[[], StreamingQuery], follow: bool) -> None:
    from homing.pipeline.session import finish

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # how services are stopped
    try:
        finish(start, lambda query: _watch(query, follow))
    finally:
        signal.signal(signal.SIGTERM, before)


def _events_of(progress: Mapping[str, Any]) -> int:
    """Of a stream's last batch: ingest counts them itself, as its rows are ranges of them."""
    from homing.pipeline.ingest import PROGRESS

    told = (progress.get("observedMetrics") or {}).get(PROGRESS)
    if told and "values" in told:  # Spark Connect tells a row as its values and their schema
        return int(told["values"][0] or 0)
    return int((told["events"] if told else progress.get("numInputRows")) or 0)


def _watch(query: StreamingQuery, follow: bool) -> None:
    """Wait for a stream, telling how far it is; an interrupt ends one that follows."""
    from rich.console import Console

    console = Console(stderr=True)
    try:
        with console.status("starting…") as status:
            while query.isActive:
                progress = query.lastProgress
                if progress:
                    rows = _events_of(progress)
                    rate = rows / max(0.001, progress["batchDuration"] / 1000)
                    batch = progress.get("batchId")
                    status.update(f"batch {batch}: {rows:,} events, {rate:,.0f} events/s")
                time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        query.stop()
        if not follow:
            raise
