"""Router processes: the program, and how a broker starts and keeps them.

broker   tasks ROUTER      ◄── DEALER   router 1 … N
         decisions SUB     ◄── PUB
"""

from __future__ import annotations

import atexit
import logging
import shutil
import signal
import sys
import tempfile
from importlib import import_module
from pathlib import Path

import msgspec

from homing.config import Config
from homing.errors import ConfigError
from homing.node.host import Host
from homing.node.logs import Format, logging_to
from homing.node.plug import Bounds
from homing.node.run import run_node
from homing.node.supervisor import READY, Supervisor
from homing.node.zmtp import ZmtpPlug
from homing.service.access import Access
from homing.service.router import Route, Router
from homing.service.router_process import RouterProcess
from homing.wire.zmtp import Limits

# Both ends are ours: neither waits for the other to read, and what piles up is bounded by the
# tickets a broker has open.
_BETWEEN = Bounds(wait_for_reader=False, backlog=1 << 30, inside=True)

_log = logging.getLogger("homing.node")


class Task(msgspec.Struct):
    """What a router process is told on its command line, as JSON."""

    name: str
    tasks: str
    decisions: str
    route: str
    users: str
    max_message: int
    log_level: str
    log_format: Format


_IMPORTABLE = "the broker imports it: install the module, or name its directory, as in PYTHONPATH=. homing broker …"


def load_route(text: str) -> Route | None:
    """The function that `module:function` names; None for an empty text."""
    if not text:
        return None
    module, colon, name = text.partition(":")
    try:
        route = getattr(import_module(module), name) if colon else None
    except (ImportError, AttributeError) as error:
        raise ConfigError([f"service.route: {text!r}: {error}"], hint=_IMPORTABLE) from error
    if not callable(route):
        raise ConfigError([f"service.route: {text!r} is not module:function of a callable"])
    return route  # type: ignore[no-any-return]


class Routers:
    """The router processes of one broker; they end with it."""

    def __init__(self, host: Host, config: Config, limits: Limits, access: Access) -> None:
        self._config = config
        self._folder = Path(tempfile.mkdtemp(prefix="homing-"))
        atexit.register(shutil.rmtree, self._folder, ignore_errors=True)
        self._users = self._folder / "users"
        self._write(access)
        host.add(ZmtpPlug("tasks", "ROUTER", limits=limits, bounds=_BETWEEN, handover=True))
        host.add(ZmtpPlug("decisions", "SUB", topics=(b"",), limits=limits, bounds=_BETWEEN))
        self.supervisor = Supervisor(self._hear)
        self._changed = False  # the users file was read again

    def start(self, host: Host) -> None:
        """Open the two sockets, in a folder that only this user can enter, and start the processes.

        Nobody waits for them: what comes before the first one is there is kept.
        """
        service = self._config.service
        tasks, decisions = (f"ipc://{self._folder}/{plug}" for plug in ("tasks", "decisions"))
        host.listen("tasks", tasks)
        host.listen("decisions", decisions)
        for number in range(service.routers):
            task = Task(
                f"router-{number}",
                tasks,
                decisions,
                service.route,
                str(self._users),
                service.max_message,
                self._config.node.log_level,
                self._config.node.log_format,
            )
            words = [sys.executable, "-m", __name__, msgspec.json.encode(task).decode()]
            # It has nothing to finish, and a route that loops lets it hear of no other signal.
            self.supervisor.start(task.name, words, orphaned=signal.SIGKILL)

    def allow(self, access: Access) -> None:
        """Other allow-lists, of which each has its own."""
        self._write(access)
        self._changed = True
        for child in self.supervisor.children.values():
            if child.ready.is_set():  # one that is not would not know the signal yet
                child.signal(signal.SIGHUP)

    def _write(self, access: Access) -> None:
        """For them to read, and who starts anew: what the broker goes by, not what the users file may say by now."""
        fresh = self._users.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(access.clients))
        fresh.replace(self._users)

    def _hear(self, name: str, line: str) -> None:
        _log.info("%s: %s", name, line)
        if self._changed and line.startswith(READY):  # it may have read the file before it changed
            self.supervisor.children[name].signal(signal.SIGHUP)

    def kill(self, router: bytes, seconds: float) -> None:
        """End one that hangs; it is started anew."""
        name = router.decode()
        child = self.supervisor.children.get(name)
        if child is not None:
            _log.warning("%s sat over one message for %.1f s and is killed", name, seconds)
            child.signal(signal.SIGKILL)


def main() -> int:
    """Run one router process to its end."""
    task = msgspec.json.decode(sys.argv[1], type=Task)
    try:
        access = _read(task.users)
    except FileNotFoundError:  # it was just starting when its broker ended
        raise SystemExit(f"{task.name}: its broker keeps no {task.users} any more") from None
    router = Router(access, load_route(task.route))
    limits = Limits(message=task.max_message + (1 << 17))

    def reread() -> None:
        router.access = _read(task.users)

    async def start(host: Host) -> None:
        name = task.name.encode()
        host.add(ZmtpPlug("tasks", "DEALER", identity=name, limits=limits, bounds=_BETWEEN))
        host.add(ZmtpPlug("decisions", "PUB", limits=limits, bounds=_BETWEEN))
        host.role = RouterProcess(host, router, name, task.tasks, task.decisions)
        host.rereads["security.users_file"] = reread
        print(f"ready {task.name}", flush=True)

    with logging_to(task.log_level, task.log_format, sys.stderr):
        try:
            return run_node(start)
        except BrokenPipeError:  # the same, a moment later
            raise SystemExit(f"{task.name}: its broker hears no more that it is ready") from None


def _read(users: str) -> Access:
    """Who may call what: all that a router is asked."""
    clients = msgspec.json.decode(Path(users).read_bytes(), type=dict[str, list[str]] | None)
    return Access(clients)


if __name__ == "__main__":
    raise SystemExit(main())
