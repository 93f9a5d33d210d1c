"""Three sites, one federation: a site whose workers are busy, or gone, uses those of the others.

    python examples/three_sites.py

Starts a broker in Paris, Lyon and Nice, each a peer of the other two, with one worker for
`resize` at each site. A client in Paris then asks for more than Paris can do: its neighbours help.
Lyon is killed (-9) while it works; every request is answered all the same.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import homing

SITES = ("paris", "lyon", "nice")
PLUGS = ("localfe", "localbe", "cloudfe", "statebe", "taskfe", "taskbe")
REQUESTS = 60


def endpoints() -> dict[str, dict[str, str]]:
    """A free port for every socket of every site."""
    held = {
        site: {plug: socket.create_server(("127.0.0.1", 0)) for plug in PLUGS} for site in SITES
    }
    found = {
        site: {plug: f"tcp://127.0.0.1:{one.getsockname()[1]}" for plug, one in sockets.items()}
        for site, sockets in held.items()
    }
    for sockets in held.values():
        for one in sockets.values():
            one.close()
    return found


def start(site: str, ends: dict[str, dict[str, str]], data: Path) -> subprocess.Popen[str]:
    """`homing broker` for one site, knowing the other two."""
    words = ["--name", site, "--data", str(data / site), "--set", "service.heartbeat=200ms"]
    for plug, endpoint in ends[site].items():
        words += ["--set", f"service.{plug}={endpoint}"]
    for peer in SITES:
        if peer != site:
            words += ["--peer", f"{peer}={ends[peer]['cloudfe']},{ends[peer]['statebe']}"]
    argv = [sys.executable, "-m", "homing.cli", "broker", *words]
    broker = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert broker.stdout is not None
    print(broker.stdout.readline().split(" localfe")[0])
    return broker


def worker_at(site: str, endpoint: str) -> homing.Worker:
    """A worker that takes 20 ms for everything and says where it stands."""
    worker = homing.Worker(endpoint, heartbeat=0.2)

    @worker.service("resize", concurrency=2)
    async def resize(body: bytes) -> bytes:
        await asyncio.sleep(0.02)
        return site.encode()

    return worker


async def ask(client: homing.Client, count: int) -> Counter[str]:
    """So many requests at once; how many each site answered."""
    answers = await asyncio.gather(
        *(client.request("resize", b"picture %d" % n, timeout=20.0) for n in range(count))
    )
    return Counter(answer.decode() for answer in answers)


async def tell(ends: dict[str, dict[str, str]], brokers: dict[str, subprocess.Popen[str]]) -> None:
    """The story, told as it happens."""
    workers = [worker_at(site, ends[site]["localbe"]) for site in SITES]
    runs = [asyncio.create_task(worker.run(grace=0.0)) for worker in workers]
    await asyncio.gather(*(worker.ready() for worker in workers))
    async with homing.Client(ends["paris"]["localfe"]) as client:
        while len(await ask(client, REQUESTS)) < len(SITES):  # noqa: ASYNC110
            await asyncio.sleep(0.1)  # until the peers have heard of each other
        print(f"asked Paris {REQUESTS} times, answered by: {dict(await ask(client, REQUESTS))}")
        under_way = asyncio.create_task(ask(client, REQUESTS))
        await asyncio.sleep(0.05)
        brokers["lyon"].kill()
        print(f"Lyon killed meanwhile, answered by: {dict(await under_way)}")
    for run in runs:
        run.cancel()
    await asyncio.gather(*runs, return_exceptions=True)


def main() -> None:
    """Start the sites, tell the story, leave nothing behind."""
    ends = endpoints()
    with tempfile.TemporaryDirectory() as data:
        brokers = {site: start(site, ends, Path(data)) for site in SITES}
        try:
            asyncio.run(tell(ends, brokers))
        finally:
            for broker in brokers.values():
                broker.kill()
                broker.wait()
                assert broker.stdout is not None
                broker.stdout.close()


if __name__ == "__main__":
    main()
