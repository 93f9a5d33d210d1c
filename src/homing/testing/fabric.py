"""A fabric for your own tests: real nodes in this process, gone when the test is over.

    def test_thumbnails() -> None:
        with fabric() as here, here.serving(my_worker(here.workers)):
            with homing.sync.Client(here.clients) as client:
                assert client.request("resize", picture) == thumbnail

    async def prices() -> None:
        with fabric(push=True) as here:
            async with here.subscriber() as subscriber, homing.Publisher(here.publishers) as publisher:
                await subscriber.subscribe("price > 10")
                await publisher.publish({"price": 12.5}, b"hello")

It runs on a thread of its own, so it serves blocking tests and coroutines alike. Its sockets lie in
a temporary directory, so any number of tests may run at once. `settings` are
`section.key=value` as in `homing broker --set`.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

from homing.clock import SystemClock
from homing.ids import ID_BYTES, NODE_ID_BYTES

if TYPE_CHECKING:
    from homing.config import Config
    from homing.node.host import Host
    from homing.push.subscriber import Subscriber
    from homing.service.worker import Worker

# What a test waits for a stop or a worker's announcement before it is told why not; a matcher's
# start may have to compile its index first.
PATIENCE = 10.0
START = 60.0
_SERVICE = ("localfe", "localbe", "cloudfe", "statebe", "taskfe", "taskbe")
_PUSH = ("publishers", "status", "dispatcher", "connector", "subscribers")
# Signs the subscribers' tokens of every test: no secret, but not empty either.
_TOKEN_KEY = "homing.testing"

T = TypeVar("T")


class Fabric:
    """Running nodes: where to connect to, and a loop to run workers on."""

    def __init__(self, loop: asyncio.AbstractEventLoop, config: Config) -> None:
        self._loop = loop
        self._config = config

    @property
    def clients(self) -> str:
        """Where a homing.Client connects to."""
        return self._config.service.localfe[0]

    @property
    def workers(self) -> str:
        """Where a homing.Worker connects to."""
        return self._config.service.localbe[0]

    @property
    def publishers(self) -> str:
        """Where a homing.Publisher connects to."""
        return self._config.push.publishers

    @property
    def subscribers(self) -> str:
        """Where a homing.Subscriber connects to."""
        return self._config.push.subscribers

    def credentials(self, client_id: str) -> tuple[int, str]:
        """A timestamp and a token that the connector accepts, as an authority issues them."""
        from homing.push.tokens import Keyring

        now = int(SystemClock.wall())
        return now, Keyring([_TOKEN_KEY.encode()]).issue(client_id, now)

    def subscriber(self, client_id: str = "", **options: Any) -> Subscriber:
        """A homing.Subscriber with its credentials, under a new client id if none is given."""
        from homing.push.subscriber import Subscriber

        name = client_id or secrets.token_hex(ID_BYTES)
        return Subscriber(
            name, self.subscribers, credentials=partial(self.credentials, name), **options
        )

    @contextmanager
    def serving(self, worker: Worker) -> Iterator[Worker]:
        """Run a worker beside the broker; its services are announced when this enters."""
        running = self._submit(worker.run(grace=PATIENCE))
        try:
            self._submit(_announced(worker, running)).result(PATIENCE)
            yield worker
        finally:
            self._loop.call_soon_threadsafe(worker.stop)
            running.result(2 * PATIENCE)

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)


@contextmanager
def fabric(*settings: str, push: bool = False, journal: bool = False) -> Iterator[Fabric]:
    """A broker and, with `push`, a matcher, a dispatcher and a connector.

    Without `journal` nothing is written down: durable sessions then last as long as the fabric.
    """
    from homing.config import load

    with TemporaryDirectory(prefix="homing-") as folder:
        flags: dict[str, Any] = {f"service.{plug}": f"ipc://{folder}/{plug}" for plug in _SERVICE}
        flags |= {f"push.{plug}": f"ipc://{folder}/{plug}" for plug in _PUSH}
        flags |= {"service.name": "fabric", "node.data": folder, "journal.enabled": journal}
        flags |= {"security.token_key": _TOKEN_KEY}
        config = load(Path("/dev/null"), flags=flags, assignments=settings, environment={})
        thread = _Nodes(config, push)
        try:
            yield thread.started()
        finally:
            thread.stop()


class _Nodes:
    """All nodes on one loop, in one thread, from start to drain."""

    def __init__(self, config: Config, push: bool) -> None:
        self._config = config
        self._push = push
        self._fabric: Future[Fabric] = Future()
        self._end: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="homing-fabric", daemon=True)
        self._thread.start()

    def started(self) -> Fabric:
        """The fabric, or whatever kept it from starting."""
        return self._fabric.result(START)

    def stop(self) -> None:
        """Drain, close, and wait for the thread."""
        if not self._end.done():
            self._end.set_result(None)
        self._thread.join(2 * PATIENCE)
        if self._thread.is_alive():
            raise TimeoutError("the fabric's nodes did not stop")

    def _run(self) -> None:
        from homing.loops import fastest_loop

        with asyncio.Runner(loop_factory=fastest_loop()) as runner:
            try:
                runner.run(self._live())
            except Exception as error:
                if self._fabric.done():
                    raise  # too late to tell the test in another way
                self._fabric.set_exception(error)

    async def _live(self) -> None:
        hosts: list[Host] = []
        try:
            self._start(hosts)
            self._fabric.set_result(Fabric(asyncio.get_running_loop(), self._config))
            await asyncio.wrap_future(self._end)
            for host in reversed(hosts):  # nobody misses one that is gone before it
                await host.drain(host.now() + PATIENCE)
        finally:
            for host in hosts:
                host.stop()
            await asyncio.sleep(0)  # aborted transports tell their links in the next turn
        for host in hosts:
            if host.unwritten is not None:
                raise host.unwritten

    def _start(self, hosts: list[Host]) -> None:
        from homing.node.broker import start_broker
        from homing.node.host import Host

        hosts.append(Host())
        start_broker(hosts[-1], self._config)
        if self._push:
            from homing.node.push import start_connector, start_dispatcher, start_matcher

            # Listeners first, so that no dial has to be repeated.
            for number, start in enumerate((start_connector, start_dispatcher, start_matcher), 1):
                hosts.append(Host(reconnect=(0.01, 0.1)))
                start(hosts[-1], self._config, number.to_bytes(NODE_ID_BYTES, "big"))


async def _announced(worker: Worker, running: Future[None]) -> None:
    """Wait for the services' announcement, or for what ended the worker before it."""
    ready = asyncio.ensure_future(worker.ready())
    ended = asyncio.wrap_future(running)
    await asyncio.wait((ready, ended), return_when=asyncio.FIRST_COMPLETED)
    ready.cancel()
    if ended.done():
        ended.result()
