"""Router processes: where they pay and where they cost

One broker, 4 workers with credit 25, 100 requests in flight from the load generator, and a policy
(`service.route`) asked of every request: inside the broker (routers = 0) or by router processes. CPU
counts the broker and its routers together.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from timeit import timeit

from benchmarks.harness import Cell, Report, cpu_seconds, free_port, server, wait_for_port
from benchmarks.routers import policy
from benchmarks.service.brokers import Running
from benchmarks.service.drive import expect, loading

POLICIES = ("cheap", "validate", "heavy")
ROUTERS = (0, 1, 2)
ROOT = Path(__file__).parent.parent.parent
PLUGS = ("localfe", "localbe", "cloudfe", "statebe", "taskfe", "taskbe")


def run(report: Report) -> None:
    """Every policy with every number of routers."""
    rows: list[list[Cell]] = []
    for name in POLICIES:
        asked = partial(getattr(policy, name), "", b"echo", b"x" * 64)
        cost = timeit(asked, number=200) / 200 * 1e6
        for routers in (0, 1) if report.quick else ROUTERS:
            report.say(f"{name}, {routers} routers")
            rate, cpu, p50 = measure(name, routers, 0.5 if report.quick else 2.0)
            rows.append([name, round(cost, 1), routers, round(rate), round(cpu, 1), round(p50)])
    columns = ["policy", "its cost, µs", "routers", "requests/s", "CPU µs per request", "p50 µs"]
    report.table("policies", columns, rows)
    report.note(
        f"Measured on {os.cpu_count()} cores, of which the load generator takes one: routers "
        "pay where the policy costs more than the two hops to them, and only with cores to spare."
    )


def measure(name: str, routers: int, seconds: float) -> tuple[float, float, float]:
    """Requests/s, CPU µs per request of broker and routers, and the median latency."""
    ports = {plug: free_port() for plug in PLUGS}
    sets = [f"service.{plug}=tcp://127.0.0.1:{port}" for plug, port in ports.items()]
    sets += [f"service.route=benchmarks.routers.policy:{name}", f"service.routers={routers}"]
    argv = [sys.executable, "-m", "homing.cli", "broker", "--name", "bench"]
    argv += [word for text in sets for word in ("--set", text)]
    env = {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    with (
        tempfile.TemporaryDirectory() as data,
        server([*argv, "--data", data], ports["localfe"], env=env) as process,
    ):
        wait_for_port(ports["localbe"])
        time.sleep(1.5 if routers else 0.0)  # routers are there a moment after the broker
        running = Running((process.pid,), ports["localfe"], ports["localbe"])
        options = {"workers": 4, "credit": 25, "inflight": 100, "seconds": seconds}
        with loading(running, "mdp0x", options) as output:
            expect(output, "start")
            before = cpu_seconds(process.pid)
            told = json.loads(expect(output, "end"))
            spent = cpu_seconds(process.pid) - before
    return told["requests"] / told["seconds"], spent / told["requests"] * 1e6, told["p50_us"]
