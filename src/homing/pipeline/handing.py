"""The stand-in matcher on real sockets, in a thread of the driver, for jobs that block.

with Handing(config, "live", node) as handing:
    handing.wait_ready(60)
    changes = handing.changes()
    handing.hand(rows)          # returns when all of it is durable
    handing.wait_done(60)       # and when every connector has taken it over
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple, TypeVar

from homing.clock import SystemClock
from homing.cluster.static import parse_members
from homing.config import Config
from homing.errors import PipelineError, QueueFull
from homing.loops import Closing
from homing.metrics import Sample
from homing.node.checkpoint import start_checkpoints
from homing.node.host import Host
from homing.node.instruments import PUBLICATIONS, SUBSCRIPTIONS, UNSETTLED
from homing.node.journals import CHECKPOINT, journal_directory, reopen_journal
from homing.node.plug import StreamPlug
from homing.node.push import NODE_BOUNDS, node_identity, node_tokens
from homing.node.status import start_status
from homing.pipeline.register import Entry
from homing.pipeline.standin import StandIn
from homing.wire.packet import PacketStream
from homing.wire.publish import Publish

# How often a full stand-in, and one that waits for others, is asked again.
PAUSE = 0.02
DRAIN_SECONDS = 5.0
READY_SECONDS = 30.0  # for dispatchers to tell their subscriptions, and to take over the last

T = TypeVar("T")


class Placed(NamedTuple):
    """A publication and whom it is for."""

    identity: bytes
    attributes: bytes
    payload: bytes
    places: bytes
    matched: int


class Handing(Closing):
    """A running StandIn. Its methods may be called from any thread but its own."""

    def __init__(self, config: Config, role: str, node: bytes, dispatchers: Sequence[str]) -> None:
        """`role`: what its journal is called beside the node's id."""
        self._config = config
        self._role_name = role
        self._node = node
        self._dispatchers = dispatchers
        self._started: Future[tuple[Host, StandIn]] = Future()
        self._end: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="homing-standin", daemon=True)
        self._thread.start()
        self._host, self.standin = self._started.result(60)

    def close(self) -> None:
        """Hang up and close the journal; what is still owed is in it."""
        if not self._end.done():
            self._end.set_result(None)
            self._thread.join(2 * DRAIN_SECONDS)

    def wait_ready(self, seconds: float) -> None:
        """Until every dispatcher has told of every subscription; PipelineError if none does."""
        if not self._wait(lambda: self.standin.ready, seconds):
            tried = ", ".join(self._dispatchers)
            raise PipelineError(f"no dispatcher has told its subscriptions: {tried}")

    def entries(self) -> dict[int, Entry]:
        """All subscriptions by number."""
        return self._call(lambda: dict(self.standin.register.entries))

    def changes(self) -> tuple[dict[int, Entry], set[int]] | None:
        """All subscriptions by number and which changed since this was last asked; None: none."""
        register = self.standin.register

        def look() -> tuple[dict[int, Entry], set[int]] | None:
            changed = register.take_changes()
            return (dict(register.entries), changed) if changed else None

        return self._call(look)

    def hand(self, rows: Iterable[Placed], *, again: bool = False) -> int:
        """Owe them all; how many were new. Returns when that is durable, however long it takes.

        `again`: also those that were handed before.
        """
        if again:
            self._call(self.standin.forget)
        taken, last = 0, 0
        left = list(rows)
        while left:
            done, numbers = self._call(partial(self._some, left))
            left = left[done:]
            taken += len(numbers)
            last = max([last, *numbers])
            if left:  # full: connectors or the disk are behind
                time.sleep(PAUSE)
        self._wait(lambda: self.standin.safe >= last, None)
        return taken

    def wait_done(self, seconds: float) -> bool:
        """Until connectors have taken over all that is owed; False if they have not in time."""
        return self._wait(lambda: len(self.standin.owed) == 0, seconds)

    def _some(self, rows: Sequence[Placed]) -> tuple[int, list[int]]:
        """On the loop: as many as it takes; how many were dealt with, the numbers of new ones."""
        numbers: list[int] = []
        now = self._host.now()
        for place, row in enumerate(rows):
            publication = Publish(row.attributes, row.payload, row.identity)
            try:
                number = self.standin.hand(publication, row.places, row.matched, now)
            except QueueFull:
                return place, numbers
            if number:
                numbers.append(number)
        return len(rows), numbers

    def _call(self, work: Callable[[], T]) -> T:
        """The result of work done on the loop."""
        result: Future[T] = Future()

        def run() -> None:
            try:
                result.set_result(work())
            except BaseException as error:
                result.set_exception(error)

        if not self._thread.is_alive():
            raise PipelineError("the stand-in matcher has ended")
        self._host.loop.call_soon_threadsafe(run)
        return result.result()

    def _wait(self, reached: Callable[[], bool], seconds: float | None) -> bool:
        give_up = None if seconds is None else SystemClock.monotonic() + seconds
        while not reached():
            if give_up is not None and SystemClock.monotonic() > give_up:
                return False
            if not self._thread.is_alive():
                raise PipelineError("the stand-in matcher has ended")
            time.sleep(PAUSE)
        return True

    # The thread

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as error:
            if self._started.done():
                raise
            self._started.set_exception(error)

    async def _live(self) -> None:
        host = Host(reconnect=(0.05, 1.0))
        try:
            standin = self._start(host)
            if self._config.node.metrics:
                start_status(host, self._config.node.metrics, partial(figures, standin))
            self._started.set_result((host, standin))
            await asyncio.wrap_future(self._end)
            await host.drain(host.now() + DRAIN_SECONDS)
        finally:
            host.stop()
            await asyncio.sleep(0)

    def _start(self, host: Host) -> StandIn:
        config = self._config
        recovered = reopen_journal(host, config, self._role_name, self._node)
        host.add(StreamPlug("dispatchers", PacketStream, bounds=NODE_BOUNDS))
        standin = StandIn(
            host,
            self._node,
            SystemClock.wall,
            dispatchers=self._dispatchers,
            tokens=node_tokens(config),
            recovered=recovered,
        )
        host.role = standin
        directory = journal_directory(config, self._role_name, self._node.hex())
        start_checkpoints(host, standin, directory / CHECKPOINT)
        return standin


def stand_in(config: Config, role: str) -> Handing:
    """One under the id that this machine keeps for the role, once it knows every subscription."""
    handing = Handing(config, role, node_identity(config, role, None), dispatchers_of(config))
    try:
        handing.wait_ready(READY_SECONDS)
    except BaseException:
        handing.close()
        raise
    return handing


def figures(standin: StandIn) -> Iterator[Sample]:
    """What a stand-in tells, under the names that a matcher uses."""
    yield Sample(SUBSCRIPTIONS, (), len(standin.register))
    yield Sample(UNSETTLED, (), len(standin.owed))
    yield Sample(PUBLICATIONS, (), standin.takes)


def dispatchers_of(config: Config) -> list[str]:
    """Where the dispatchers are, as matchers find them."""
    members = parse_members(config.cluster.members)
    found = [m.endpoints["nodes"] for m in members if "dispatcher" in m.roles]
    return found or [config.push.dispatcher]
