"""Real brokers and workers as processes of their own, always reaped."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parent.parent.parent
PLUGS = ("localfe", "localbe", "cloudfe", "statebe", "taskfe", "taskbe")


class Process:
    """One child; its first `ready` line is waited for."""

    def __init__(self, command: list[str], cwd: Path) -> None:
        paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        self.errors = (cwd / f"stderr-{time.monotonic_ns()}").open("w+")
        self.child = subprocess.Popen(
            command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=self.errors, text=True
        )
        assert self.child.stdout is not None
        self.ready = read_line(self.child.stdout, 30.0)
        if not self.ready.startswith("ready"):
            self.kill()
            self.errors.seek(0)
            raise AssertionError(f"not ready: {self.ready!r}\n{self.errors.read()[-3000:]}")

    def kill(self) -> None:
        """kill -9."""
        self.child.kill()
        self.wait()

    def terminate(self) -> None:
        self.child.send_signal(signal.SIGTERM)

    def wait(self, seconds: float = 20.0) -> int:
        code = self.child.wait(seconds)
        if self.child.stdout is not None:
            self.child.stdout.close()
        return code

    def stderr(self) -> str:
        self.errors.seek(0)
        return self.errors.read()


def read_line(stream: IO[str], seconds: float) -> str:
    """The next line, or an empty text when none comes in time."""
    found, _, _ = select.select([stream], [], [], seconds)
    return stream.readline() if found else ""


class BrokerProcess(Process):
    """`homing broker` on free ports, or on those of an earlier one."""

    def __init__(self, cwd: Path, name: str = "here", *flags: str, **settings: str) -> None:
        chosen = {f"service.{plug}": "tcp://127.0.0.1:0" for plug in PLUGS}
        chosen["service.heartbeat"] = "200ms"
        chosen["service.absent_grace"] = "20s"  # a busy machine starts workers slowly
        chosen |= {key.replace("__", "."): value for key, value in settings.items()}
        sets = [word for key, value in chosen.items() for word in ("--set", f"{key}={value}")]
        run = [sys.executable, "-m", "homing.cli", "broker", "--name", name, "--data", str(cwd)]
        super().__init__([*run, *flags, *sets], cwd)
        words = dict(word.partition("=")[::2] for word in self.ready.split() if "=" in word)
        self.ends: dict[str, str] = words

    @property
    def same_ports(self) -> dict[str, str]:
        """Settings that give a successor the same endpoints."""
        return {f"service__{plug}": end for plug, end in self.ends.items()}


class WorkerProcess(Process):
    """tests.service.foreign's worker."""

    def __init__(self, cwd: Path, endpoint: str, service: str, dialect: str = "01") -> None:
        words = [sys.executable, "-m", "tests.service.foreign", endpoint, service, dialect]
        super().__init__(words, cwd)


class Reaper:
    """Starts processes; none outlives the block."""

    def __init__(self, cwd: Path) -> None:
        self.cwd = cwd
        self._all: list[Process] = []

    def broker(self, name: str = "here", *flags: str, **settings: str) -> BrokerProcess:
        process = BrokerProcess(self.cwd, name, *flags, **settings)
        self._all.append(process)
        return process

    def worker(self, endpoint: str, service: str = "echo", dialect: str = "01") -> WorkerProcess:
        process = WorkerProcess(self.cwd, endpoint, service, dialect)
        self._all.append(process)
        return process

    def reap(self) -> None:
        for process in self._all:
            if process.child.poll() is None:
                process.kill()
            process.errors.close()


@contextlib.contextmanager
def processes(cwd: Path) -> Iterator[Reaper]:
    reaper = Reaper(cwd)
    try:
        yield reaper
    finally:
        reaper.reap()
