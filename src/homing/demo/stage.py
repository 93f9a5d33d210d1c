"""The demo's processes, and its service plane: two brokers, each other's peer, and workers at both."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import sys
from pathlib import Path
from typing import NamedTuple, Self

from homing.clock import SystemClock
from homing.node.supervisor import Child, Supervisor
from homing.push.tokens import Keyring

PLUGS = ("localfe", "localbe", "cloudfe", "statebe", "taskfe", "taskbe")
# Below those that the kernel gives to connections: one of these stays free until a node has it.
PORTS = range(10_000, 32_000)
# Workers per site: the first is asked for everything and has too few.
SITES = {"paris": 2, "lyon": 4}


class Site(NamedTuple):
    """A broker of the demo: its process, where it listens, where its journal is."""

    name: str
    ends: dict[str, str]
    data: Path
    child: Child


class Company:
    """Processes that are watched over; `async with` leaves nothing behind."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._key = secrets.token_hex(16)
        self._supervisor = Supervisor(watch=lambda _name, _line: None)

    async def __aexit__(self, *_: object) -> None:
        await self._supervisor.stop()

    def kill(self, name: str) -> None:
        """kill -9; the supervisor starts it again."""
        self._supervisor.children[name].signal(signal.SIGKILL)

    def credentials(self, client: str) -> tuple[int, str]:
        """What the authority would give this client: a timestamp and a token."""
        now = int(SystemClock.wall())
        return now, Keyring([self._key.encode()]).issue(client, now)

    def start_node(self, name: str, verb: str, *words: str, **settings: str) -> Child:
        """A node with its data under its name; `section__setting=value`."""
        argv = [sys.executable, "-m", "homing.cli", verb, "--data", str(self._data / name), *words]
        for setting, value in {"node__log_level": "error", **settings}.items():
            argv += ["--set", f"{setting.replace('__', '.')}={value}"]
        return self._supervisor.start(name, argv, environment())

    def start_workers(self, doors: dict[str, str]) -> None:
        """The workers of every site, at its broker's door."""
        for site, workers in SITES.items():
            for number in range(workers):
                argv = [sys.executable, "-m", "homing.demo.worker", doors[site], site]
                self._supervisor.start(f"{site}-{number + 1}", argv, environment())


class Stage(Company):
    """The demo's service plane."""

    def __init__(self, data: Path) -> None:
        super().__init__(data)
        self.sites: dict[str, Site] = {}

    async def __aenter__(self) -> Self:
        ends = {name: free_endpoints() for name in SITES}
        for name in SITES:
            self.sites[name] = self._start_broker(name, ends)
        await self._supervisor.ready()
        self.start_workers({name: site.ends["localbe"] for name, site in self.sites.items()})
        await self._supervisor.ready()
        return self

    async def __aexit__(self, *_: object) -> None:
        # Workers first: they need not hear of the brokers' end.
        await self._supervisor.stop(names=self._supervisor.children.keys() - self.sites.keys())
        await self._supervisor.stop()

    def lives(self, name: str) -> int:
        """How often a process has been started."""
        return self._supervisor.children[name].lives

    def brokers_cpu(self) -> float:
        """User and system seconds that the brokers have used so far."""
        return sum(_cpu_seconds(site.child.pid) for site in self.sites.values())

    def _start_broker(self, name: str, ends: dict[str, dict[str, str]]) -> Site:
        words = ["--name", name]
        for peer in ends.keys() - {name}:
            words += ["--peer", f"{peer}={ends[peer]['cloudfe']},{ends[peer]['statebe']}"]
        settings = {f"service__{plug}": end for plug, end in ends[name].items()}
        child = self.start_node(name, "broker", *words, **settings)
        return Site(name, ends[name], self._data / name, child)


def free_endpoints() -> dict[str, str]:
    """A free port of this machine for every plug of a broker."""
    ports = free_ports(len(PLUGS))
    return {plug: f"tcp://127.0.0.1:{port}" for plug, port in zip(PLUGS, ports, strict=True)}


def free_ports(count: int) -> list[int]:
    """Ports that nobody has just now."""
    ports: dict[int, None] = {}
    while len(ports) < count:
        port = secrets.choice(PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            ports[port] = None
    return list(ports)


def environment() -> dict[str, str]:
    """The demo's own settings hold, whatever the user has set for other fabrics."""
    return {key: value for key, value in os.environ.items() if not key.startswith("HOMING_")}


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
