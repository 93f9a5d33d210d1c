"""The demo's push plane: a matcher, a dispatcher and a connector that know each other."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from homing.demo.stage import Company, free_ports

PLUGS = ("publishers", "status", "dispatcher", "connector", "subscribers")
ROLES = ("connector", "dispatcher", "matcher")


class PushStage(Company):
    """The demo's push plane."""

    def __init__(self, data: Path) -> None:
        super().__init__(data)
        self.ends = {
            plug: f"127.0.0.1:{port}"
            for plug, port in zip(PLUGS, free_ports(len(PLUGS)), strict=True)
        }

    async def __aenter__(self) -> Self:
        settings = {f"push__{plug}": end for plug, end in self.ends.items()}
        for role in ROLES:
            self.start_node(role, role, security__token_key=self._key, **settings)
        await self._supervisor.ready()
        return self
