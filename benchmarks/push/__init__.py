"""The push plane beside its peers: one publisher, many subscribers

The publisher and all subscribers are one C process on a core of its own (benchmarks/peers/fanout);
the server has the other core to itself, all of its processes together. CPU is the user and system
time of all the server's processes per delivery.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness import Cell, Report
from benchmarks.push.drive import Figures, bytes_per_connection, measure
from benchmarks.push.recovery import seconds_away, seconds_to_subscribe
from benchmarks.push.sdk import publications_per_second
from benchmarks.push.servers import MOSQUITTO, NATS, NODES, REDIS, Server, contestants
from benchmarks.service.brokers import plain_path

# Subscribers, as on the page of goals, and in a quick look.
SIZES = (64, 256)
SOME, MANY, MANY_QUICKLY = 1_000, 10_000, 2_000
MATCHING = 10
IDLE_BYTES = 3 * 1024
# A short run must not see a server that still sorts what ten thousand clients just asked for.
SECONDS, SETTLE = 1.2, 1.0

Case = tuple[str, str]  # server's name, what it was asked to do


def run(report: Report) -> None:
    """All tables, then the goals of the project's performance page."""
    with tempfile.TemporaryDirectory() as unpacked:
        plain = plain_path(Path(unpacked) / "plain")
        Bench(report, contestants(plain), plain).run()


class Bench:
    """One run over all servers; figures by (server's name, case)."""

    def __init__(self, report: Report, servers: list[Server], plain: str) -> None:
        self.report = report
        self.plain = plain
        self.servers = servers
        self.many = MANY_QUICKLY if report.quick else MANY
        self.fan_outs = ((SOME, 16), (self.many, 1), (self.many, 8))
        self.seen: dict[Case, Figures] = {}
        self.resident: dict[str, float] = {}

    def run(self) -> None:
        """Measure server by server, then table by table."""
        for server in self.servers:
            self.report.say(f"{server.name}: {len(self.cases())} cases")
            for case, got in measure(server, self.report.repeats, self.cases()).items():
                self.seen[server.name, case] = got
        self.fan_out()
        self.by_size()
        self.filtered()
        self.latency()
        self.memory()
        self.publishing()
        goals(self)
        self.changes()

    def cases(self) -> dict[str, dict[str, float]]:
        """What every server is asked to do, as the sink's options."""
        found: dict[str, dict[str, float]] = {
            "to one": {"subs": 1, "window": 1},
            "to 1 000": {"subs": SOME, "window": 1},
            **{f"{size} B": {"subs": SOME, "window": 16, "size": size} for size in SIZES},
            **{
                _fan_out(subs, window): {"warm": SETTLE, "subs": subs, "window": window}
                for subs, window in self.fan_outs
            },
            "filtered": {
                "warm": SETTLE,
                "subs": self.many,
                "window": 16,
                "groups": self.many // MATCHING,
            },
        }
        return {case: {"seconds": SECONDS, **options} for case, options in found.items()}

    def fan_out(self) -> None:
        """The main table: everybody gets every publication."""
        rows: list[list[Cell]] = []
        for server in self.servers:
            row: list[Cell] = [server.name]
            for subs, window in self.fan_outs:
                got = self.seen[server.name, _fan_out(subs, window)]
                row += [got.cpu_us, got.rate]
            rows.append(row)
        columns = ["server"]
        for subs, window in self.fan_outs:
            columns += [f"{_fan_out(subs, window)}, CPU µs", "deliveries/s"]
        self.report.table("Fan-out, 128 B", _distinct(columns), rows)
        self.report.plot("cpu", lambda axes: _bars(axes, self))

    def by_size(self) -> None:
        """Smaller and larger payloads."""
        rows: list[list[Cell]] = []
        for server in self.servers:
            sizes = [self.seen[server.name, f"{size} B"].cpu_us for size in SIZES]
            rows.append([server.name, *sizes])
        columns = ["server", *(f"{size} B, CPU µs" for size in SIZES)]
        self.report.table("By payload, 1 000 subscribers, W=16", columns, rows)

    def filtered(self) -> None:
        """Ten of ten thousand asked for it; who knows only topics sends it to all."""
        rows: list[list[Cell]] = []
        for server in self.servers:
            got = self.seen[server.name, "filtered"]
            rows.append([server.name, got.useful, got.useful_cpu_us, got.rate, got.p50_us])
        columns = ["server", "useful deliveries/s", "CPU µs a useful one", "deliveries/s", "p50 µs"]
        self.report.table(f"{MATCHING} of {self.many:,} match, W=16", columns, rows)

    def latency(self) -> None:
        """Publish to receive with one publication under way."""
        rows: list[list[Cell]] = []
        for server in self.servers:
            few, many = self.seen[server.name, "to one"], self.seen[server.name, "to 1 000"]
            rows.append([server.name, few.p50_us, few.p99_us, many.p50_us, many.p99_us])
        columns = ["server", "to 1, p50 µs", "p99 µs", "to 1 000, p50 µs", "to 1 000, p99 µs"]
        self.report.table("Publish to receive, W=1", columns, rows)

    def memory(self) -> None:
        """What an idle subscriber costs."""
        rows: list[list[Cell]] = []
        for server in self.servers:
            self.report.say(f"{server.name}: idle connections")
            first, held = bytes_per_connection(server, self.many)
            self.resident[server.name] = first
            rows.append([server.name, first / 1024, held / 1024])
        columns = ["server", "process with the connections, KiB each", "all processes, KiB each"]
        self.report.table(f"{self.many:,} idle subscribers", columns, rows)
        self.report.note(
            "homing keeps a connection and a session at the connector, and at the matcher a "
            "subscription of two fields in an index that has room for more."
        )

    def publishing(self) -> None:
        """homing's own Python publisher, acknowledged after the journal has it."""
        rows: list[list[Cell]] = [
            ["one at a time", self._published(1)],
            ["4 096 under way", self._published(4096)],
        ]
        self.report.table("homing.Publisher, acknowledged", ["", "publications/s"], rows)

    def _published(self, under_way: int) -> float:
        server, times = self.servers[0], range(self.report.repeats)
        return median(publications_per_second(server, under_way, SECONDS) for _ in times)

    def changes(self) -> None:
        """homing's Python clients on four nodes: another filter, and a node that is killed."""
        self.report.say("homing: filters that change, nodes that are killed")
        usual, slow = seconds_to_subscribe(self.plain, 100 if self.report.quick else 1000)
        away = seconds_away(self.plain, self.report.repeats)
        rows: list[list[Cell]] = [["a filter changes, until in force", usual, slow]]
        rows += [[f"kill -9 of a {kind}", median(took), max(took)] for kind, took in away.items()]
        self.report.table(
            "Until users have what they had, s", ["", "median", "p99, or worst"], rows
        )
        self.report.note(
            "A killed node is started again at once; the time counts from the kill until a durable subscriber "
            "receives something that was published after it. Every publication of the run was received."
        )
        self.report.goal("a changed filter in force, p99, s", slow, 0.05)
        worst = max(max(took) for took in away.values())
        self.report.goal("back after kill -9 of any node, worst, s", worst, 2.0)


def goals(bench: Bench) -> None:
    """What the project set out to reach, in ratios within this run."""
    report, seen = bench.report, bench.seen
    wide = _fan_out(bench.many, 8)
    ours = seen[NODES, wide]
    report.goal(f"CPU µs a delivery, {wide}", ours.cpu_us, 2.5)
    report.goal("deliveries/s there", ours.rate, 400_000, at_least=True)
    for name, limit in ((REDIS, 1.0), (NATS, 0.5), (MOSQUITTO, 0.1)):
        if (name, wide) in seen:
            report.goal(f"CPU beside {name}'s, there", ours.cpu_us / seen[name, wide].cpu_us, limit)
    for name in (REDIS, NATS, MOSQUITTO):
        if (name, "filtered") in seen:
            ratio = seen[NODES, "filtered"].useful / seen[name, "filtered"].useful
            report.goal(f"useful deliveries/s beside {name}'s, filtered", ratio, 20, at_least=True)
    report.goal("bytes an idle connection, connector", bench.resident[NODES], IDLE_BYTES)


def _fan_out(subs: int, window: int) -> str:
    return f"{subs:,} subs, W={window}"


def _distinct(columns: list[str]) -> list[str]:
    """`deliveries/s` named by its case, as a column's name must be its own."""
    return [
        f"{columns[place - 1].removesuffix('CPU µs')}{name}" if name == "deliveries/s" else name
        for place, name in enumerate(columns)
    ]


def _bars(axes: Any, bench: Bench) -> None:
    width = 0.8 / len(bench.servers)
    cases = [_fan_out(subs, window) for subs, window in bench.fan_outs]
    for place, server in enumerate(bench.servers):
        heights = [bench.seen[server.name, case].cpu_us for case in cases]
        places = [number + place * width for number in range(len(cases))]
        axes.bar(places, heights, width, label=server.name)
    axes.set_xticks([number + 0.4 - width / 2 for number in range(len(cases))], cases)
    axes.set_ylabel("server CPU µs per delivery")
    axes.set_yscale("log")
    axes.legend(fontsize=8)
