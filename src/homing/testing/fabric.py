"""A fabric for your own tests: a real broker in this process, gone when the test is over.

    def test_thumbnails() -> None:
        with fabric() as here, here.serving(my_worker(here.workers)):
            with homing.sync.Client(here.clients) as client:
                assert client.request("resize", picture) == thumbnail

It runs on a thread of its own, so it serves blocking tests and coroutines alike. Its sockets lie in
a temporary directory, so any number of tests may run at once. Nothing is journaled unless
`journal=True`; `settings` are `section.key=value` as in `homing broker --set`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from homing.config import Config
    from homing.node.host import Host
    from homing.service.worker import Worker

# What a test waits for a start, a stop or a worker's announcement before it is told why not.
PATIENCE = 10.0
_PLUGS = ("localfe", "localbe", "cloudfe", "statebe", "taskfe", "taskbe")

T = TypeVar("T")


class Fabric:
    """A running broker: where to connect to, and a loop to run workers on."""

    def __init__(self, loop: asyncio.AbstractEventLoop, endpoints: dict[str, str]) -> None:
        self.endpoints = endpoints
        self._loop = loop

    @property
    def clients(self) -> str:
        """Where a homing.Client connects to."""
        return self.endpoints["localfe"]

    @property
    def workers(self) -> str:
        """Where a homing.Worker connects to."""
        return self.endpoints["localbe"]

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
def fabric(*settings: str, journal: bool = False) -> Iterator[Fabric]:
    """A broker on sockets of its own; see the module's docstring."""
    from homing.config import load

    with TemporaryDirectory(prefix="homing-") as folder:
        flags: dict[str, Any] = {f"service.{plug}": f"ipc://{folder}/{plug}" for plug in _PLUGS}
        flags |= {"service.name": "fabric", "node.data": folder, "journal.enabled": journal}
        config = load(Path("/dev/null"), flags=flags, assignments=settings, environment={})
        thread = _BrokerThread(config)
        try:
            yield thread.started()
        finally:
            thread.stop()


class _BrokerThread:
    """Runs the broker's loop from start to drain."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._fabric: Future[Fabric] = Future()
        self._end: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="homing-fabric", daemon=True)
        self._thread.start()

    def started(self) -> Fabric:
        """The fabric, or whatever kept it from starting."""
        return self._fabric.result(PATIENCE)

    def stop(self) -> None:
        """Drain, close, and wait for the thread."""
        if not self._end.done():
            self._end.set_result(None)
        self._thread.join(2 * PATIENCE)
        if self._thread.is_alive():
            raise TimeoutError("the fabric's broker did not stop")

    def _run(self) -> None:
        from homing.service.worker import fastest_loop

        with asyncio.Runner(loop_factory=fastest_loop()) as runner:
            try:
                runner.run(self._live())
            except Exception as error:
                if self._fabric.done():
                    raise  # too late to tell the test in another way
                self._fabric.set_exception(error)

    async def _live(self) -> None:
        from homing.node.host import Host

        host = Host()
        try:
            self._start(host)
            await asyncio.wrap_future(self._end)
            await host.drain(host.now() + PATIENCE)
        finally:
            host.stop()
            await asyncio.sleep(0)  # aborted transports tell their links in the next turn

    def _start(self, host: Host) -> None:
        from homing.node.broker import start_broker

        endpoints = start_broker(host, self._config)
        self._fabric.set_result(Fabric(host.loop, endpoints))


async def _announced(worker: Worker, running: Future[None]) -> None:
    """Wait for the services' announcement, or for what ended the worker before it."""
    ready = asyncio.ensure_future(worker.ready())
    ended = asyncio.wrap_future(running)
    await asyncio.wait((ready, ended), return_when=asyncio.FIRST_COMPLETED)
    ready.cancel()
    if ended.done():
        ended.result()
