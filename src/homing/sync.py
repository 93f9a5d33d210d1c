"""homing without asyncio: `from homing.sync import Client, Worker, Publisher, Subscriber`."""

from __future__ import annotations

from homing.push.blocking import Publisher, Subscriber
from homing.service.blocking import Client, Worker

__all__ = ["Client", "Publisher", "Subscriber", "Worker"]
