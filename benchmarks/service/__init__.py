"""The service plane beside its peers: requests through a broker

Every client and worker is one C process on a core of its own (benchmarks/peers/load); the
broker has the other core to itself. Workers answer at once with the body they got. CPU is the
broker's user and system time per request: request in, to a worker, report in, to the client.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import Cell, Report
from benchmarks.service.brokers import (
    COMPILED,
    FLOOR,
    NATS,
    PLAIN,
    YARDSTICK,
    Broker,
    compiled_path,
    contestants,
    federation,
    floor,
    plain_path,
)
from benchmarks.service.drive import (
    PATIENT,
    Figures,
    bytes_per_request,
    bytes_per_worker,
    idle_share,
    measure,
    middle,
)
from benchmarks.service.local import LOCAL, by_unix_sockets
from benchmarks.service.sdk import NATS_PY, libraries, measure_library

WORKERS = (1, 4, 32)
SIZES = (64, 1024, 65536)
CREDIT = 25
# What the project promises of one broker: a million waiting requests in a gigabyte, ten
# thousand idle workers for next to no CPU.
WAITING, WAITING_BYTES = 1_000_000, 1 << 30
IDLE, IDLE_SHARE = 10_000, 0.02

Case = tuple[str, str]  # broker's name, what it was asked to do

# Goals that sockets bound: no broker serves a worker without reading and writing its socket, for each request or,
# with credit, for some of them.
BOUND: tuple[tuple[str, str, str, Case, str], ...] = (
    ("CPU", "cpu_us", "4 workers", (YARDSTICK, "4 workers"), "≤ 0.4"),
    ("CPU", "cpu_us", "32 workers", (NATS, "32 workers"), "≤ 0.7"),
    ("CPU", "cpu_us", f"32 workers {LOCAL}", (NATS, "32 workers"), "≤ 0.7"),
    ("CPU", "cpu_us", "credit", (NATS, "4 workers"), "≤ 0.5"),
    ("requests/s", "rate", "credit", (NATS, "4 workers"), "≥ 2"),
    ("median", "p50_us", "1 in flight", (YARDSTICK, "1 in flight"), "≤ 0.5"),
    ("median", "p50_us", "1 in flight", (NATS, "1 in flight"), "≤ 1"),
)


def run(report: Report) -> None:
    """All tables, then the goals of the project's performance page."""
    with tempfile.TemporaryDirectory() as unpacked:
        plain = plain_path(Path(unpacked) / "plain")
        compiled = compiled_path(Path(unpacked) / "compiled")
        Bench(report, contestants(plain, compiled), plain, compiled).run()


class Bench:
    """One run over all brokers; figures by (broker's name, case)."""

    def __init__(self, report: Report, brokers: list[Broker], plain: str, compiled: str) -> None:
        self.report = report
        self.brokers = brokers
        self.paths = {f"{PLAIN} (0X)": plain, f"{COMPILED} (0X)": compiled}
        self.seconds = 0.5 if report.quick else 2.0
        self.resting = 1.0 if report.quick else 10.0
        self.seen: dict[Case, Figures] = {}
        self.floor = floor()

    def run(self) -> None:
        """Table by table."""
        self.by_workers()
        self.one_in_flight()
        self.by_size()
        self.half_load()
        self.credit()
        by_unix_sockets(self)
        self.federation()
        self.python()
        self.memory()
        self.scale()
        self.machine()
        goals(self)

    def figures(self, broker: Broker, case: str, **options: float) -> Figures:
        """Measured once, then remembered."""
        if (broker.name, case) not in self.seen:
            self.report.say(f"{broker.name}: {case}")
            options = {"seconds": self.seconds, **options}
            self.seen[broker.name, case] = measure(broker, self.report.repeats, **options)
        return self.seen[broker.name, case]

    def by_workers(self) -> None:
        """The main table: 100 requests under way, 64-byte bodies, workers take one at a time."""
        rows: list[list[Cell]] = []
        for broker in (*self.brokers, self.floor):
            row: list[Cell] = [broker.name]
            for count in WORKERS:
                got = self.figures(broker, f"{count} workers", workers=count)
                row += [got.cpu_us, got.rate]
            rows.append(row)
        columns = ["broker"]
        for count in WORKERS:
            columns += [f"{count} workers, CPU µs", f"{count} workers, requests/s"]
        self.report.table("100 in flight, 64 B", columns, rows)
        self.report.plot(
            "cpu",
            lambda axes: _bars(axes, self, [f"{count} workers" for count in WORKERS]),
        )

    def one_in_flight(self) -> None:
        """Latency without a queue."""
        rows: list[list[Cell]] = []
        for broker in (*self.brokers, self.floor):
            got = self.figures(broker, "1 in flight", workers=4, clients=1, inflight=1)
            rows.append([broker.name, got.p50_us, got.p99_us, got.cpu_us])
        self.report.table("1 in flight, 64 B", ["broker", "p50 µs", "p99 µs", "CPU µs"], rows)

    def by_size(self) -> None:
        """Bodies that the broker should not look at."""
        rows: list[list[Cell]] = []
        for broker in self.brokers:
            row: list[Cell] = [broker.name]
            for size in SIZES:
                case = "4 workers" if size == 64 else f"{size} B"
                row.append(self.figures(broker, case, workers=4, size=size).cpu_us)
            rows.append(row)
        columns = ["broker", *(f"{size} B, CPU µs" for size in SIZES)]
        self.report.table("By body, 4 workers, 100 in flight", columns, rows)

    def half_load(self) -> None:
        """Open loop at half of what each broker reached; latency from when a request was due."""
        rows: list[list[Cell]] = []
        for broker in self.brokers:
            rate = self.figures(broker, "4 workers", workers=4).rate / 2
            got = self.figures(broker, "half load", workers=4, rate=rate)
            rows.append([broker.name, rate, got.p50_us, got.p99_us])
        columns = ["broker", "requests/s", "p50 µs", "p99 µs"]
        self.report.table("At half of each broker's own load, 4 workers", columns, rows)

    def credit(self) -> None:
        """Workers that hold several requests; NATS workers always do."""
        rows: list[list[Cell]] = []
        for broker in self.brokers:
            if broker.protocol == "mdp0x":
                got = self.figures(broker, "credit", workers=4, credit=CREDIT)
            elif broker.protocol == "nats":
                got = self.figures(broker, "4 workers", workers=4)
            else:
                continue
            rows.append([broker.name, got.cpu_us, got.rate])
        got = self.figures(floor(CREDIT), "credit", workers=4)
        rows.append([FLOOR, got.cpu_us, got.rate])
        self.report.table(f"Credit {CREDIT}, 4 workers", ["broker", "CPU µs", "requests/s"], rows)

    def federation(self) -> None:
        """Clients at one broker, workers at its peer; CPU of both brokers together."""
        rows: list[list[Cell]] = []
        for name, path in self.paths.items():
            if (name, "4 workers") in self.seen:
                pair = Broker(name, "mdp0x", partial(federation, path), {"envelope": 1})
                # Brokers tell each other of free workers every so often: wait for it.
                hop = self.figures(pair, "one hop", workers=4, settle=3.0).cpu_us
                local = self.seen[name, "4 workers"].cpu_us
                rows.append([name, local, hop, hop / local])
        if rows:
            columns = ["broker", "local, CPU µs", "one hop, CPU µs", "ratio"]
            self.report.table("Federation", columns, rows)

    def python(self) -> None:
        """Client libraries in Python: what most users' programs spend their time in."""
        rows: list[list[Cell]] = []
        for library in libraries(self.brokers):
            self.report.say(library.name)
            runs = [measure_library(library) for _ in range(self.report.repeats)]
            got = self.seen[library.name, "python"] = middle(runs)
            rows.append([library.name, got.rate, got.cpu_us])
        columns = ["library and broker", "requests/s", "CPU µs of the client"]
        self.report.table("All in Python, 64 in flight, credit 16", columns, rows)
        self.report.note(
            "Client and worker share a core, the broker has the other. aio-pika's channels are without publisher confirms; its worker acknowledges each request."
        )

    def memory(self) -> None:
        """What idle workers and waiting requests weigh."""
        workers, waiting = (100, 10_000) if self.report.quick else (1000, 100_000)
        rows: list[list[Cell]] = []
        for broker in self.brokers:
            self.report.say(f"{broker.name}: memory")
            idle = bytes_per_worker(broker, workers)
            # A NATS server hands every request on at once: none waits in it.
            held = None if broker.protocol == "nats" else bytes_per_request(broker, waiting)
            rows.append([broker.name, idle, held])
        columns = ["broker", "bytes per idle worker", "bytes per waiting request"]
        self.report.table("Memory", columns, rows)

    def scale(self) -> None:
        """Many idle workers, many waiting requests: homing alone, against fixed limits."""
        waiting, idle = (10_000, 100) if self.report.quick else (WAITING, IDLE)
        rows: list[list[Cell]] = []
        for broker in self.brokers:
            if broker.protocol == "mdp0x":
                self.report.say(f"{broker.name}: {waiting} waiting requests, {idle} idle workers")
                weight = bytes_per_request(broker, waiting) * WAITING
                self.report.goal(
                    f"{broker.name}: bytes of a million waiting", weight, WAITING_BYTES
                )
                often = idle_share(broker, idle, seconds=self.resting)
                asked = idle_share(broker, idle, seconds=self.resting, patient=PATIENT)
                rows.append([broker.name, often, asked])
                self.report.goal(f"{broker.name}: cores for {idle} idle workers", asked, IDLE_SHARE)
        rows.append([FLOOR, idle_share(self.floor, idle, seconds=self.resting), None])
        columns = ["broker", "cores, every 2.5 s", "cores, as seldom as the broker asks"]
        self.report.table(f"{idle:,} idle workers and their heartbeats", columns, rows)

    def machine(self) -> None:
        """The goals that sockets bound, as the sockets alone do in them."""
        rows: list[list[Cell]] = [
            [f"{name}, {case} / {peer[0]}", wanted, self.ratio(figure, (FLOOR, case), peer)]
            for name, figure, case, peer, wanted in BOUND
            if peer in self.seen
        ]
        columns = ["goal", "wanted", FLOOR]
        self.report.table("What this machine leaves to a broker", columns, rows)
        self.report.note(
            "The sockets alone are a Majordomo in C that reads and writes them and nothing else, one call a socket and turn: no liveness, "
            "deadline, limit or journal. A broker can need less only by letting peers wait, so that more travels with a call."
        )

    def ratio(self, figure: str, mine: Case, other: Case) -> float:
        """One measured figure in multiples of another."""
        mine_is: float = getattr(self.seen[mine], figure)
        other_is: float = getattr(self.seen[other], figure)
        return mine_is / other_is


def goals(bench: Bench) -> None:
    """The ratios that the project set itself; a goal one of whose sides is missing is left out."""
    for form, to_yardstick, to_nats in ((PLAIN, 0.7, 1.5), (COMPILED, 0.4, 0.5)):
        public, own = f"{form} (01)", f"{form} (0X)"
        compare(bench, "cpu_us", (public, "4 workers"), (YARDSTICK, "4 workers"), to_yardstick)
        compare(bench, "cpu_us", (public, "32 workers"), (NATS, "32 workers"), 0.7)
        compare(bench, "cpu_us", (public, f"32 workers {LOCAL}"), (NATS, "32 workers"), 0.7)
        compare(bench, "p50_us", (public, "1 in flight"), (YARDSTICK, "1 in flight"), 0.5)
        compare(bench, "p50_us", (public, "1 in flight"), (NATS, "1 in flight"), 1.0)
        compare(bench, "cpu_us", (own, "credit"), (NATS, "4 workers"), to_nats)
        compare(bench, "cpu_us", (own, "one hop"), (own, "4 workers"), 2.0)
        own_client = (f"homing.Client + {form}", "python")
        compare(bench, "rate", own_client, (NATS_PY, "python"), 5.0, at_least=True)
    fast = (f"{COMPILED} (0X)", "credit")
    compare(bench, "rate", fast, (NATS, "4 workers"), 2.0, at_least=True)


def compare(bench: Bench, figure: str, mine: Case, other: Case, limit: float, **how: bool) -> None:
    """One ratio of two measured figures against its goal."""
    if mine in bench.seen and other in bench.seen:
        ratio = bench.ratio(figure, mine, other)
        bench.report.goal(f"{figure}: {', '.join(mine)} / {', '.join(other)}", ratio, limit, **how)


def _bars(axes: Any, bench: Bench, cases: list[str]) -> None:
    names = [broker.name for broker in bench.brokers]
    height = 0.8 / len(cases)
    for shift, case in enumerate(cases):
        values = [bench.seen[name, case].cpu_us for name in names]
        places = [row + shift * height for row in range(len(names))]
        axes.barh(places, values, height, label=case)
    axes.set_yticks([row + 0.4 - height / 2 for row in range(len(names))], names)
    axes.invert_yaxis()
    axes.set_xlabel("broker CPU µs per request (less is better)")
    axes.legend()
