"""The demo's screen: every figure is one that this run measured."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from homing.demo.ledger import Ledger
from homing.demo.pushes import Pushes
from homing.demo.requests import BUSY, IN_FLIGHT, VICTIM, Requests, workers
from homing.demo.stage import SITES
from homing.demo.tables import MATCHERS, Findings


def print_requests(console: Console, seen: Requests) -> None:
    """What the clients saw."""
    table = _table()
    shares = ", ".join(f"{site} {seen.answered[site]:,}" for site in SITES)
    table.add_row("asked", f"{seen.asked:,} requests of {BUSY}, {IN_FLIGHT} at a time")
    table.add_row("answered", f"{seen.answered.total():,} ({shares}), {seen.wrong} mixed up")
    table.add_row(
        "killed", f"worker {VICTIM}, half-way, with -9; it is back for its life {seen.victim_lives}"
    )
    table.add_row("took", f"{seen.seconds:.2f} s, {seen.rate:,.0f} requests/s")
    p50, p99 = (seen.round_trips.percentile(share) * 1e3 for share in (0.5, 0.99))
    table.add_row("round trip", f"p50 {p50:.1f} ms, p99 {p99:.1f} ms, of which 4 ms are the work")
    cpu = seen.brokers_cpu / seen.asked * 1e6
    table.add_row("brokers' CPU", f"{cpu:.0f} µs a request, both together, journal on")
    console.print(f"[bold]Service plane[/]  brokers {' and '.join(SITES)}, {workers()} workers")
    console.print(table)


def print_pushes(console: Console, seen: Pushes) -> None:
    """What publishers and subscribers saw."""
    table = _table()
    took = f"in {seen.seconds:.1f} s, the matcher's recovery included"
    table.add_row("published", f"{seen.published:,} readings, all acknowledged, {took}")
    table.add_row("killed", "the matcher, half-way, with -9; it recovered from its journal")
    table.add_row("asked for", f"{seen.expected:,} pushes, by brute force over all filters")
    table.add_row(
        "delivered", f"{seen.delivered:,}, {seen.missing} missing, {seen.uncalled} uncalled for"
    )
    table.add_row("again", f"{seen.again} flagged as such, {seen.twice} not")
    console.print(
        f"\n[bold]Push plane[/]  {seen.subscribers:,} subscribers, each with a filter of its own"
    )
    console.print(table)


def print_ledger(console: Console, ledger: Ledger) -> None:
    """What the journals say."""
    table = _table()
    table.add_row(
        "read",
        f"{ledger.journals} journals, {ledger.events:,} events, {len(ledger.damage)} damaged",
    )
    table.add_row(
        "began, ended",
        f"{ledger.accepted:,} accepted = {ledger.answered:,} answered + {ledger.refused:,} bounced",
    )
    table.add_row(
        "on the way", f"{ledger.reposted:,} went to the peer, {ledger.requeued} ran again elsewhere"
    )
    table.add_row("lost, twice", f"{ledger.lost} lost, {ledger.twice} ended twice")
    console.print("\n[bold]Journal[/]  every request a broker took on, peers' included")
    console.print(table)


def print_findings(console: Console, found: Findings, report: Path) -> None:
    """What Spark makes of the journals."""
    table = _table()
    table.add_row("took", f"{found.seconds:.0f} s after the load; Spark started while it ran")
    off = ", ".join(f"{count:,} {problem}" for problem, count in found.problems.items())
    table.add_row("ledger", f"{found.totals.get('requests', 0):,} requests, {off or 'none off'}")
    for service, requests, errors, p50, p99 in found.levels:
        times = f"p50 {p50 / 1e3:.1f} ms, p99 {p99 / 1e3:.1f} ms"
        table.add_row(
            "service level", f"{service}: {requests:,} requests, {errors:,} errors, {times}"
        )
    table.add_row(
        "plan",
        f"for {MATCHERS} matchers: {found.tiles} tiles, {found.copies:.2f} copies of a subscription, "
        f"busiest / mean {found.busiest:.2f}",
    )
    table.add_row("report", str(report))
    console.print("\n[bold]Pipeline[/]  Spark over the same journals")
    console.print(table)


def _table() -> Table:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    return table
