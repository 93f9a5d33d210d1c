"""A whole fabric in one process: when it says that it is ready, everybody is served."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from homing.config import load
from homing.node.up import Nodes
from homing.push.authority import Authority


def test_the_authority_knows_a_connector_once_all_have_met(tmp_path: Path) -> None:
    async def live() -> str:
        flags: dict[str, Any] = {"node.data": str(tmp_path), "dashboard.enabled": False}
        service = ("localfe", "localbe", "cloudfe", "statebe", "taskfe", "taskbe")
        push = ("publishers", "status", "dispatcher", "connector", "subscribers")
        flags |= {f"service.{plug}": f"ipc://{tmp_path}/{plug}" for plug in service}
        flags |= {f"push.{plug}": f"ipc://{tmp_path}/{plug}" for plug in push}
        flags |= {"push.authority": "127.0.0.1:0"}
        nodes = Nodes(load(Path("/dev/null"), flags=flags, environment={}))
        try:
            nodes.start()
            await nodes.meet()
            authority = nodes.hosts["authority"].role
            assert isinstance(authority, Authority)
            return authority.issue("0" * 24).connector
        finally:
            nodes.stop()

    assert asyncio.run(live()) == f"ipc://{tmp_path}/subscribers"
