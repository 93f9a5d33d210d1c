"""The brokers on their own machine: clients and workers come by unix sockets, which not every broker has."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from benchmarks.harness import Cell
from benchmarks.peers import floor_program, majordomo_program
from benchmarks.service.brokers import (
    COMPILED,
    FLOOR,
    NATS,
    PLAIN,
    YARDSTICK,
    Broker,
    homing,
    one_path,
)

if TYPE_CHECKING:
    from benchmarks.service import Bench

WORKERS = (1, 4, 32)
CREDIT = 25
LOCAL = "over ipc"  # ends the names of these cases


def by_unix_sockets(bench: Bench) -> None:
    """The main table once more, and latency and credit with it; beside the one that only has TCP."""
    rows = [_row(bench, broker) for broker in _contestants(bench)]
    nats = [bench.seen.get((NATS, f"{count} workers")) for count in WORKERS]
    if all(nats):
        cells: list[Cell] = [got.cpu_us for got in nats if got]
        alone = bench.seen.get((NATS, "1 in flight"))
        rows.append(
            [
                f"{NATS}, over TCP",
                *cells,
                bench.seen[NATS, f"{WORKERS[-1]} workers"].rate,
                bench.seen[NATS, "4 workers"].cpu_us,
                alone.p50_us if alone else None,
            ]
        )
    columns = ["broker", *(f"{count} workers, CPU µs" for count in WORKERS)]
    columns += [f"{WORKERS[-1]} workers, requests/s", f"credit {CREDIT}, 4 workers, CPU µs"]
    columns += ["1 in flight, p50 µs"]
    bench.report.table("On the broker's machine, over unix sockets", columns, rows)
    bench.report.note(
        "100 in flight and 64 B, but for the last column. homing listens on TCP and on unix sockets at once, as it would with others elsewhere. nats-server has no "
        "unix sockets: its figures are those over TCP, of the same run."
    )


def _contestants(bench: Bench) -> list[Broker]:
    """Those that can, with the sockets alone."""
    forms = {PLAIN: bench.paths[f"{PLAIN} (0X)"], COMPILED: bench.paths[f"{COMPILED} (0X)"]}
    found = [
        replace(broker, start=homing(path, local=True))
        for name, path in forms.items()
        for broker in bench.brokers
        if path and broker.name in (f"{name} (01)", f"{name} (0X)")
    ]
    yardstick = majordomo_program()
    if yardstick is not None:
        start = one_path(lambda path: [str(yardstick), path, "heartbeat"])
        found.append(Broker(YARDSTICK, "mdp01", start))
    return [*found, _floor(1)]


def _floor(credit: int) -> Broker:
    program = str(floor_program())
    return Broker(FLOOR, "mdp01", one_path(lambda path: [program, path, str(credit)]))


def _row(bench: Bench, broker: Broker) -> list[Cell]:
    by_count = [
        bench.figures(broker, f"{count} workers {LOCAL}", workers=count) for count in WORKERS
    ]
    held: Cell = None
    if broker.protocol == "mdp0x":
        held = bench.figures(broker, f"credit {LOCAL}", workers=4, credit=CREDIT).cpu_us
    elif broker.name == FLOOR:
        held = bench.figures(_floor(CREDIT), f"credit {LOCAL}", workers=4).cpu_us
    alone = bench.figures(broker, f"1 in flight {LOCAL}", workers=4, clients=1, inflight=1)
    return [broker.name, *(got.cpu_us for got in by_count), by_count[-1].rate, held, alone.p50_us]
