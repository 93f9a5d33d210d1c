"""The demo's push plane: a matcher, a dispatcher and a connector that know each other."""

from __future__ import annotations

import secrets
import signal
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from homing.clock import SystemClock
from homing.demo.stage import environment, free_ports
from homing.node.supervisor import Supervisor
from homing.push.tokens import Keyring

PLUGS = ("publishers", "status", "dispatcher", "connector", "subscribers")
ROLES = ("connector", "dispatcher", "matcher")


class PushStage:
    """Everything that runs; `async with` leaves nothing behind."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._key = secrets.token_hex(16)
        self._supervisor = Supervisor(watch=lambda _name, _line: None)
        self.ends = {
            plug: f"127.0.0.1:{port}"
            for plug, port in zip(PLUGS, free_ports(len(PLUGS)), strict=True)
        }

    async def __aenter__(self) -> Self:
        settings = [f"push.{plug}={end}" for plug, end in self.ends.items()]
        settings += [f"security.token_key={self._key}", "node.log_level=error"]
        flags = [word for setting in settings for word in ("--set", setting)]
        for role in ROLES:
            words = [sys.executable, "-m", "homing.cli", role, "--data", str(self._data / role)]
            self._supervisor.start(role, [*words, *flags], environment())
        await self._supervisor.ready()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._supervisor.stop()

    def credentials(self, client: str) -> tuple[int, str]:
        """What the authority would give this client: a timestamp and a token."""
        now = int(SystemClock.wall())
        return now, Keyring([self._key.encode()]).issue(client, now)

    def kill(self, role: str) -> None:
        """kill -9; the supervisor starts it again."""
        self._supervisor.children[role].signal(signal.SIGKILL)
