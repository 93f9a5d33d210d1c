"""homing without asyncio: `from homing.sync import Client, Worker`."""

from __future__ import annotations

from homing.service.blocking import Client, Worker

__all__ = ["Client", "Worker"]
