"""Job `report`: one self-contained HTML page of what the fabric did.

Figures come from the tables, plots are SVG drawn here, nothing is loaded from anywhere: the
page can be mailed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from homing.errors import SubscriptionError
from homing.pipeline import ledger, slo, spread
from homing.pipeline.plots import Line, bars, lines
from homing.pipeline.tables import Tables
from homing.push.filters import format_filter
from homing.push.subscription import parse_fields

TOP = 10
# What a point of a plot may stand for: the longest of these that leaves enough points for a curve.
# The longest is at most 24 times the one before, so there are never more than 720 of them but for
# runs of years.
STEPS = {
    1: "second",
    10: "10 seconds",
    60: "minute",
    600: "10 minutes",
    3600: "hour",
    86_400: "day",
}
LEAST_POINTS = 30

_STYLE = """
:root { color-scheme: light dark; --ink: #1f2430; --soft: #6b7280; --line: #d5d9e2; --ok: #1a7f4b; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8ee; --soft: #9aa3b2; --line: #3a4152; --ok: #55c98a; --bad: #ff8a80; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.1rem; margin-top: 2.2rem; border-bottom: 1px solid var(--line); }
table { border-collapse: collapse; width: 100%; margin-bottom: 1.2rem; } th, td { text-align: left; padding: .25rem .6rem .25rem 0; border-bottom: 1px solid var(--line); }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; } svg { width: 100%; min-width: 34rem; height: auto; }
section { overflow-x: auto; }
.ok { color: var(--ok); } .bad { color: var(--bad); } .soft { color: var(--soft); }
"""


def write(
    tables: Tables,
    path: Path,
    terms: ledger.Terms = ledger.DEFAULT_TERMS,
    *,
    audit: ledger.Audit | None = None,
    minutes: DataFrame | None = None,
) -> None:
    """Make the page; the audit and the minutes anew unless they were just made."""
    if minutes is None:
        minutes = slo.anomalies(slo.minutes(slo.histogram(tables.read("requests"))))
    rows = _rows(minutes)
    step, points = _points(tables.read("requests"), rows)
    audit = audit or ledger.run(tables, terms)
    parts = [
        _section("Audit", _audit(audit)),
        _section("Throughput", _throughput(points, step)),
        _section("Latency of answered requests", _latency(points, step)),
        _section("Balance", _balance(tables)),
        _section("Services", _services(rows)),
        _section("Filters matched most", _top_filters(tables)),
        _section("Clients matched most", _top_clients(tables)),
    ]
    path.write_text(_page("\n".join(parts)), encoding="utf-8")


def step_of(span: float) -> int:
    """Seconds that a point stands for in a plot of so many."""
    fitting = [step for step in STEPS if span / step >= LEAST_POINTS]
    return max(fitting, default=min(STEPS))


def _points(requests: DataFrame, minutes: list[dict[str, Any]]) -> tuple[int, list[dict[str, Any]]]:
    """How long a point of the plots stands for, and the figures of each; minutes are made already."""
    if not minutes:
        return slo.MINUTE, []
    span = F.unix_micros(F.max("ended_at")) - F.unix_micros(F.min("ended_at"))
    [(micros,)] = requests.where("not open").agg(span).collect()
    step = step_of((micros or 0) / 1e6)
    if step == slo.MINUTE:
        return step, minutes
    return step, _rows(slo.minutes(slo.histogram(requests, step), step))


def _rows(minutes: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in minutes.orderBy("minute", "service").collect()]


def _page(body: str) -> str:
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><title>homing report</title>'
        f"<style>{_STYLE}</style></head><body><h1>What the fabric did</h1>"
        f'<p class="soft">Made {made} from the journal.</p>\n{body}\n</body></html>\n'
    )


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>\n{body}</section>"


def _audit(found: ledger.Audit) -> str:
    rows = [(name, count) for name, count in found.totals.items()]
    if not found.problems:
        verdict = '<p class="ok">Everything is accounted for.</p>'
        return verdict + _table(("recorded", "count"), rows)
    told = ", ".join(f"{count:,} {name}" for name, count in sorted(found.problems.items()))
    named = [(r.problem, r.plane, r.key, r.client or "–", r.detail) for r in found.named]
    return (
        f'<p class="bad">Not accounted for: {escape(told)}.</p>'
        + _table(("problem", "plane", "key", "client", "detail"), named)
        + _table(("recorded", "count"), rows)
    )


def _throughput(points: list[dict[str, Any]], step: int) -> str:
    good: dict[float, float] = {}
    bad: dict[float, float] = {}
    for row in points:
        at = row["minute"].timestamp()
        good[at] = good.get(at, 0) + (row["requests"] - row["errors"]) / step
        bad[at] = bad.get(at, 0) + row["errors"] / step
    series = [Line("answered", _with_pauses(good, step)), Line("refused", _with_pauses(bad, step))]
    return lines(f"requests/s, by {STEPS[step]}", series)


def _with_pauses(points: dict[float, float], step: int) -> dict[float, float]:
    """While nothing ended the rate was 0: where a pause begins and where it ends."""
    found = dict(points)
    times = sorted(points)
    for before, after in pairwise(times):
        if after - before > step:
            found |= {before + step: 0.0, after - step: 0.0}
    return found


def _latency(points: list[dict[str, Any]], step: int) -> str:
    """The worst service of each: an average over services would hide it."""
    series = []
    for name, column in (("p50", "p50_us"), ("p99", "p99_us"), ("p99.9", "p999_us")):
        worst: dict[float, float] = {}
        for row in points:
            if row[column] is not None:
                at = row["minute"].timestamp()
                worst[at] = max(worst.get(at, 0.0), row[column] / 1000)
        series.append(Line(name, worst))
    return lines(f"ms, worst service, by {STEPS[step]}", series, logarithmic=True)


def _balance(tables: Tables) -> str:
    """How evenly nodes of a kind share their work; a kind with no work is left out."""
    names = ("events", "requests", "matched", "deliveries")
    done = spread.over_nodes(*[tables.read(name) for name in names]).orderBy(F.desc("count"))
    rows = done.collect()
    parts = []
    for work in spread.WORK:
        counts = [(row.name or row.node, row["count"]) for row in rows if row.work == work]
        if counts:
            mean = sum(count for _, count in counts) / len(counts)
            told = f"{work}: {len(counts)} at work, busiest / mean {counts[0][1] / mean:.2f}"
            parts.append(f"<p>{told}</p>{bars(counts[:TOP])}")
    return "".join(parts) or bars([])


def _services(minutes: list[dict[str, Any]]) -> str:
    totals: dict[str, list[float]] = {}
    for row in minutes:
        each = totals.setdefault(row["service"] or "–", [0, 0, 0.0, 0.0])
        each[0] += row["requests"]
        each[1] += row["errors"]
        each[2] = max(each[2], row["p99_us"] or 0.0)
        each[3] = max(each[3], row["in_flight"] or 0.0)
    busiest = sorted(totals.items(), key=lambda item: -item[1][0])[:TOP]
    rows = [
        (name, int(all_), int(errors), p99 / 1000, flight)
        for name, (all_, errors, p99, flight) in busiest
    ]
    odd = [r for r in minutes if r["odd_rate"] or r["odd_latency"] or r["odd_errors"]]
    told = f'<p class="{"bad" if odd else "soft"}">{len(odd)} unusual minutes.</p>'
    head = ("service", "requests", "errors", "worst p99, ms", "most in flight")
    return bars([(name, count) for name, count, *_ in rows]) + _table(head, rows) + told


def _top_filters(tables: Tables) -> str:
    asked = spread.over_filters(tables.read("events"), tables.read("matches"))
    found = asked.orderBy(F.desc("matches"), F.desc("clients"), "fields").limit(TOP).collect()
    rows = [(_filter_text(row.fields), row.clients, row.matches) for row in found]
    head = ("filter", "clients", "matches of their clients")
    return bars([(text, matches) for text, _, matches in rows]) + _table(head, rows)


def _filter_text(fields: str) -> str:
    """As people write it; what a later version recorded as it stands."""
    try:
        return format_filter(parse_fields(fields))
    except SubscriptionError:
        return fields


def _top_clients(tables: Tables) -> str:
    found = tables.read("matches").groupBy("client").count().orderBy(F.desc("count"), "client")
    return bars([(row.client, row["count"]) for row in found.limit(TOP).collect()])


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    if not rows:
        return '<p class="soft">None.</p>'
    numeric = [isinstance(value, int | float) for value in rows[0]]
    kind = [' class="n"' if number else "" for number in numeric]
    top = "".join(f"<th{k}>{escape(name)}</th>" for k, name in zip(kind, head, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f"<td{k}>{_cell(v)}</td>" for k, v in zip(kind, row, strict=True))
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else escape(str(value))
