"""A worker of the demo: `python -m homing.demo.worker ENDPOINT SITE`.

Serves `quote`: a few milliseconds of waiting, as for a database, then an answer that says which
site it came from.
"""

from __future__ import annotations

import asyncio
import sys

from homing.service.worker import Worker

SERVICE = "quote"
WORK_SECONDS = 0.004
CREDIT = 8


async def serve(endpoint: str, site: str) -> None:
    """Serve until ended from outside; says `ready` once a broker knows of it."""
    worker = Worker(endpoint)

    @worker.service(SERVICE, concurrency=CREDIT)
    async def quote(body: bytes) -> bytes:
        await asyncio.sleep(WORK_SECONDS)
        return site.encode() + b" " + body

    running = asyncio.create_task(worker.run())
    await worker.ready()
    print("ready", site, flush=True)
    await running


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2]))
