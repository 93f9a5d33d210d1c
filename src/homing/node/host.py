"""Runs one role on real sockets: the Port it asks, the listeners, dials and timers behind it.

    host = Host()
    host.role = Broker(host, …)
    host.add(ZmtpPlug("localfe", "ROUTER"))
    host.listen("localfe", "tcp://127.0.0.1:5555")
    …
    await host.drain(deadline)

All of it lives in one thread, that of the loop. A role that raises loses the link whose
message it could not stand, never the node.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, Protocol, cast, runtime_checkable

from homing.backoff import FIRST, LAST, Backoff
from homing.clock import SystemClock
from homing.config.settings import Node
from homing.endpoint import parse_endpoint
from homing.errors import ConfigError, JournalError
from homing.node.dial import Dial
from homing.node.joint import Joint
from homing.node.link import StreamLink
from homing.node.listener import BACKLOG, Listener, bind
from homing.node.lookout import Lookout
from homing.node.plug import Plug
from homing.node.rereads import Reread
from homing.node.turn import Turn
from homing.node.volley import OneByOne, Volley, make_volley
from homing.node.wheel import TICK, Wheel
from homing.ports import Link, Role

# Kept for all stuck peers together: what a node may spend on others' slowness.
HELD_LIMIT = 512 << 20
# Seconds that peers wait for a disk that is behind; then what it cannot take is refused.
PRESSED_SECONDS = 2.0
# How often a drain looks whether all is done.
DRAIN_STEP = 0.02
# Seconds for what a role says to those whose work did not end while it drained.
LAST_WORDS = 1.0
# Seconds that a timer may be late before what peers said meanwhile is read first: a node that was stopped, or busy, for
# longer than others may be silent would take all of them for dead.
STOOD_STILL = 0.1

_log = logging.getLogger("homing.node")


class JournalWriter(Protocol):
    """What the host needs of homing.journal.writer.Journal."""

    def append(self, event: Any) -> int: ...

    def close(self) -> None: ...


@runtime_checkable
class Draining(Protocol):
    """A role that has work to finish before the node ends, and refuses newcomers in words."""

    drained: bool

    def drain(self, now: float) -> None:
        """Take no new work; `drained` is true once the old is done."""
        ...


@runtime_checkable
class Parting(Draining, Protocol):
    """A role that has words for those whose work did not end in time."""

    def stop(self, now: float) -> None:
        """The drain is over, `drained` or not."""
        ...


@runtime_checkable
class Measuring(Protocol):
    """A role that wants to know of messages past the limits before their link is gone."""

    def overlong(self, link: Link, now: float) -> None:
        """A message of this link was too long; `closed` follows."""
        ...


class Host:
    """A homing.ports.Port on an asyncio loop."""

    _role: Role

    def __init__(
        self,
        *,
        held_limit: int = HELD_LIMIT,
        reconnect: tuple[float, float] = (FIRST, LAST),
        listen_backlog: int = BACKLOG,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.loop = loop or asyncio.get_running_loop()
        self.turn = Turn(self.loop.call_soon, self.loop.call_later)
        self.call_soon: Callable[..., Any] = self.loop.call_soon
        self.now: Callable[[], float] = SystemClock.monotonic
        self.plugs: dict[str, Plug] = {}
        self.held_bytes = 0
        self.turned_away = 0  # links closed for who is there, or what it sent
        self.unwritten: JournalError | None = None  # what its journal could not keep, at the end
        self.held_limit = held_limit
        self.rereads: dict[str, Reread] = {}  # what SIGHUP has read again, by setting
        self.journal: Callable[[Any], int] = _unjournaled
        self._journal_writer: JournalWriter | None = None
        self.draining = False
        self._waiting: list[StreamLink] = []
        self._relief: asyncio.TimerHandle | None = None
        self._reconnect = reconnect
        self._listen_backlog = listen_backlog
        self._listeners: list[Listener] = []
        self._dials: dict[tuple[str, str], Dial] = {}
        self._wheel = Wheel()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._reads_first = False  # the timer is late, and waits until the sockets were read
        self._next_id = random.getrandbits(32)
        self._volley: Volley | OneByOne | None = None  # made when it is first asked for

    @classmethod
    def configured(cls, node: Node) -> Host:
        """A host as the settings want it."""
        return cls(
            reconnect=(node.reconnect_first, node.reconnect_last),
            listen_backlog=node.listen_backlog,
        )

    # -- setting up -------------------------------------------------------------------------

    def look_out(self, moment: float, worth: Callable[[], bool]) -> None:
        """Look for more for so many seconds before sleeping, if `worth`; before there are links."""
        if moment > 0 and (os.cpu_count() or 1) > 1:  # with one, whoever sends more needs it
            lookout = Lookout(self.loop.call_soon, self.now, os.sched_yield, worth, moment)
            self.turn = Turn(lookout.call_soon, self.loop.call_later)

    def add(self, plug: Plug) -> None:
        """Make a plug known under its name."""
        self.plugs[plug.name] = plug
        if hasattr(self, "_role"):
            plug.deliver_to(self._role)

    @property
    def role(self) -> Role:
        """Whose decisions this host carries out; set once, before the loop goes on."""
        return self._role

    @role.setter
    def role(self, role: Role) -> None:
        self._role = role
        for plug in self.plugs.values():
            plug.deliver_to(role)

    @property
    def journal_writer(self) -> JournalWriter | None:
        """Where events go; `journal` is its `append` itself, as every message pays for the way."""
        return self._journal_writer

    @journal_writer.setter
    def journal_writer(self, writer: JournalWriter | None) -> None:
        self._journal_writer = writer
        self.journal = _unjournaled if writer is None else writer.append

    def listen(
        self,
        plug: str,
        endpoint: str,
        *,
        reuse_port: bool = False,
        backlog: int | None = None,
    ) -> str:
        """Accept connections for a plug; the endpoint, with its port, comes back."""
        where = parse_endpoint(endpoint)
        sock = bind(where, reuse_port=reuse_port, backlog=backlog or self._listen_backlog)
        if not where.path:
            where = where._replace(port=sock.getsockname()[1])
        listener = Listener(self, self._plug(plug), sock, where)
        self._listeners.append(listener)
        listener.start()
        return str(where)

    def _plug(self, name: str) -> Plug:
        if name not in self.plugs:
            raise ConfigError([f"no plug {name!r}; there are: {', '.join(self.plugs)}"])
        return self.plugs[name]

    # -- what a role asks for (homing.ports.Port) -------------------------------------------

    def connect(self, plug: str, endpoint: str) -> None:
        """Keep a link to `endpoint`, with back-off, until told otherwise."""
        if (plug, endpoint) not in self._dials:
            backoff = Backoff(random.random, *self._reconnect)
            where = parse_endpoint(endpoint)
            self._dials[plug, endpoint] = Dial(self, self._plug(plug), where, backoff)

    def disconnect(self, plug: str, endpoint: str) -> None:
        """Stop keeping it; an open link is closed."""
        dial = self._dials.pop((plug, endpoint), None)
        if dial is not None:
            dial.stop()

    def later(self, deadline: float, key: Hashable) -> None:
        """Wake the role at or soon after `deadline`."""
        self.watch(key, deadline)

    def cancel(self, key: Hashable) -> None:
        """Forget a `later`."""
        self._wheel.cancel(key)

    def durable(self, number: int) -> None:
        """Every event up to this number is durable: what a journal calls, on the loop."""
        if hasattr(self, "_role"):  # a start that fails has a journal before it has a role
            self._call(self.role.journaled, number)

    def press(self, on: bool) -> None:
        """The journal's disk is behind, or has caught up."""
        self.turn.pressed = on
        if self._relief is not None:
            self._relief.cancel()
            self._relief = None
        if on:
            self._relief = self.loop.call_later(PRESSED_SECONDS, self.press, False)
        else:
            waiting, self._waiting = self._waiting, []
            for link in waiting:
                link.resume()

    def together(self, links: Sequence[Link]) -> Joint:
        """Send to all of these links at once from now on."""
        return Joint(self.turn, cast("Sequence[StreamLink]", links), self.volley)

    @property
    def volley(self) -> Volley | OneByOne:
        """What writes to many links at once."""
        self._volley = self._volley or make_volley()
        return self._volley

    # -- what links ask for -----------------------------------------------------------------

    def wait(self, link: StreamLink) -> None:
        """Have a link resumed once the disk has caught up."""
        self._waiting.append(link)

    def watch(self, key: Hashable, deadline: float) -> None:
        """Call `check` of a link, or `wake` of the role, at or soon after `deadline`."""
        self._wheel.set(key, deadline)
        if self._timer is None or deadline + TICK < self._timer_at:
            self._arm()

    def unwatch(self, link: StreamLink) -> None:
        """Forget a `watch`."""
        self._wheel.cancel(link)

    def opened(self, link: StreamLink, now: float) -> None:
        """A link is there for the role to use."""
        try:
            self.role.opened(link, now)
        except Exception:
            _log.exception("%r broke the role as it opened; it is closed", link)
            link.lose("internal error")

    def overlong(self, link: StreamLink) -> None:
        """A link that the role knows brought more than it may, and is about to be closed."""
        if isinstance(self.role, Measuring):
            self._call(self.role.overlong, link)

    def closed(self, link: StreamLink) -> None:
        """A link that the role knew is gone."""
        self._call(self.role.closed, link)

    def routing_id(self) -> bytes:
        """A name for a peer that told none: a zero byte and a number."""
        self._next_id = (self._next_id + 1) & 0xFFFFFFFF
        return b"\0" + self._next_id.to_bytes(4, "big")

    # -- the end ----------------------------------------------------------------------------

    async def drain(self, deadline: float) -> None:
        """Take nothing new on, let the role finish until `deadline`, then close everything."""
        self.draining = True
        if isinstance(self.role, Draining):
            # Whoever comes meanwhile is told so, and whoever lost its link can fetch its answer.
            self.role.drain(self.now())
            await self._until(partial(getattr, self.role, "drained"), deadline)
        if isinstance(self.role, Parting):
            if not self.role.drained:
                self.role.stop(self.now())
            deadline = max(deadline, self.now() + LAST_WORDS)
        for listener in self._listeners:
            listener.close()
        self._stop_dials()
        for plug in self.plugs.values():
            for link in list(plug.links):
                link.close("shutting down")
        await self._until(self._no_links, deadline)
        self.stop()

    def _no_links(self) -> bool:
        return not any(plug.links for plug in self.plugs.values())

    async def _until(self, done: Callable[[], bool], deadline: float) -> None:
        # Asked again and again, since a role cannot await or tell; this is no hot path.
        while self.now() < deadline and not done():  # noqa: ASYNC110
            await asyncio.sleep(DRAIN_STEP)

    def stop(self) -> None:
        """End at once: sockets, dials, timers, journal; `unwritten` says what that one could not keep."""
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        self._stop_dials()
        for plug in self.plugs.values():
            for link in list(plug.links):
                link.abort()
        for timer in (self._timer, self._relief):
            if timer is not None:
                timer.cancel()
        self._timer = self._relief = None
        if self._volley is not None:
            self._volley.close()
            self._volley = None
        writer, self.journal_writer = self.journal_writer, None
        if writer is not None:
            try:
                writer.close()
            except JournalError as error:
                self.unwritten = error

    def _stop_dials(self) -> None:
        for dial in self._dials.values():
            dial.stop()
        self._dials.clear()

    # -- the timer --------------------------------------------------------------------------

    def _arm(self) -> None:
        """One timer of the loop, at the wheel's next tick."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self._wheel.next
        if due is not None:
            self._timer_at = due
            self._timer = self.loop.call_later(max(0.0, due - self.now()), self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = self.now()
        self._reads_first = not self._reads_first and now - self._timer_at > STOOD_STILL
        if self._reads_first:
            self._timer = self.loop.call_later(TICK, self._tick)
            return
        for key in self._wheel.advance(now):
            if isinstance(key, StreamLink):
                key.check(now)
            else:
                self._call(self.role.wake, key)
        self._arm()

    def _call(self, method: Callable[[Any, float], None], argument: Any) -> None:
        """Tell the role something; what it raises is a bug, and logged as one."""
        try:
            method(argument, self.now())
        except Exception:
            _log.exception("the role failed in %s", getattr(method, "__name__", method))


def _unjournaled(event: object) -> int:
    """Without a journal an event counts as durable at once and is number 0."""
    return 0
