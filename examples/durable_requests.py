"""Requests that outlive everybody: ask now, be answered whenever, whoever is killed meanwhile.

    python examples/durable_requests.py [PORT_OFFSET]

A request over the service plane lives as long as its client waits. One that must outlive client,
worker and fabric goes over the push plane instead: an order is *published*, the billing office is a
*durable* subscriber that acknowledges an order only once its answer is published, and whoever asked
is a durable subscriber of the answers. Each step is in a journal before it is acknowledged.

Here the shop orders while the office is closed, then the whole fabric is killed with -9, then the
office breaks down half-way with an order in its hands. Work may be done twice ("at least once");
an answer's message id is made from its order, and the fabric passes an id on once.
"""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
import sys
import tempfile
import time

import homing
from homing.push.subscription import Attributes
from homing.push.tokens import Keyring

ORDERS = 100
KEY = "the secret of an example"
OFFICE, SHOP = f"{1:024x}", f"{2:024x}"  # client ids are the application's own, and stable


class Fabric:
    """`homing up` on ports of its own, which may be killed and started again."""

    def __init__(self, data: str, offset: int) -> None:
        flags = ["--data", data, "--port-offset", str(offset), "--set", "dashboard.enabled=false"]
        flags += ["--set", f"security.token_key={KEY}"]
        self._argv = [sys.executable, "-m", "homing.cli", "up", *flags]
        self.publishers = f"127.0.0.1:{7001 + offset}"
        self.subscribers = f"127.0.0.1:{7005 + offset}"
        self.start()

    def start(self) -> None:
        """Until it takes work."""
        self._process = subprocess.Popen(self._argv, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert any(line.startswith("ready") for line in self._process.stdout), "it did not start"

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.communicate()

    def subscriber(self, client: str) -> homing.Subscriber:
        """A durable one that says itself when something is dealt with."""

        def credentials() -> tuple[int, str]:  # an application would ask the authority
            now = int(time.time())
            return now, Keyring([KEY.encode()]).issue(client, now)

        return homing.Subscriber(
            client, self.subscribers, credentials=credentials, durable=True, ack="manual"
        )


async def enrol(fabric: Fabric) -> None:
    """Once in a lifetime: from here on everything is kept for them, here or away."""
    async with fabric.subscriber(OFFICE) as office, fabric.subscriber(SHOP) as shop:
        await office.subscribe('kind = "order"')
        await shop.subscribe('kind = "invoice"')


async def order(fabric: Fabric, first: int, last: int) -> None:
    """Returns when the fabric has them all, for good."""
    wanted: list[tuple[Attributes, bytes]] = [
        ({"kind": "order", "order": number}, b"") for number in range(first, last)
    ]
    async with homing.Publisher(fabric.publishers) as shop:
        assert [1] * len(wanted) == [matched async for matched in shop.publish_all(wanted)]


async def bill(fabric: Fabric, most: int, *, breaks_down: bool = False) -> None:
    """The office opens and answers so many; one that breaks down does not acknowledge the last."""
    async with fabric.subscriber(OFFICE) as office, homing.Publisher(fabric.publishers) as answers:
        for left in reversed(range(most)):
            asked = await anext(office)
            assert isinstance(asked, homing.Push), "nothing was dropped"
            number = int(asked.attrs["order"])
            told: Attributes = {"kind": "invoice", "order": number}
            identity = hashlib.blake2b(b"invoice %d" % number, digest_size=12).digest()
            await answers.publish(told, f"{12.5 * number:.2f} EUR", identity=identity)
            if left or not breaks_down:
                await office.ack(asked)


async def collect(fabric: Fabric) -> dict[int, str]:
    """The shop takes its invoices, each once."""
    got: dict[int, str] = {}
    async with fabric.subscriber(SHOP) as shop:
        while len(got) < ORDERS:
            invoice = await anext(shop)
            assert isinstance(invoice, homing.Push), "nothing was dropped"
            assert invoice.attrs["order"] not in got, "an answer given twice arrives once"
            got[int(invoice.attrs["order"])] = invoice.payload
            await shop.ack(invoice)
    return got


async def tell(fabric: Fabric) -> None:
    """The story."""
    await enrol(fabric)
    await order(fabric, 0, ORDERS)
    print(f"{ORDERS} orders taken; the office is closed")
    fabric.kill()
    print("the fabric is killed with -9, and started again")
    fabric.start()
    half = ORDERS // 2
    await bill(fabric, half, breaks_down=True)
    print(f"the office answered {half} and broke down before it acknowledged the last")
    await bill(fabric, ORDERS - half + 1)
    print(f"it answered the other {ORDERS - half}, and that one again")
    got = await collect(fabric)
    assert got == {number: f"{12.5 * number:.2f} EUR" for number in range(ORDERS)}
    print(f"the shop has {len(got)} invoices, each once")


async def main(offset: int) -> None:
    """A fabric to kill, the story, nothing left behind."""
    with tempfile.TemporaryDirectory() as data:
        fabric = Fabric(data, offset)
        try:
            await tell(fabric)
        finally:
            fabric.kill()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000))
