"""A ZMTP connection that is kept: dialled, watched, written once a turn, dialled again.

What a client and a worker have in common. Whoever owns a Lifeline is told three things:

    opened()            the handshake is done, messages can be sent
    received(images)    whole messages, all that one read brought
    lost(error)         it is gone; the next one is being dialled, unless the error says
                        that trying again is of no use (HandshakeRefused)
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from homing.backoff import Backoff
from homing.endpoint import Endpoint, parse_endpoint, why_unreachable
from homing.errors import HandshakeRefused, HomingError, LinkError, Unavailable
from homing.service.stream import LINGER, Stream
from homing.wire.mechanisms import Mechanism
from homing.wire.zmtp import Connection

_log = logging.getLogger("homing.lifeline")

# Seconds for TCP and the handshake together; a node that is there needs a hundredth of it.
CONNECT_TIMEOUT = 5.0
# Seconds within which a broker sends away whom it never took; one that ends was of use before.
AT_ONCE = 1.0
# Peers that hang up on a CURVE HELLO, one time after the other, before we believe that it was sealed for another key; one that
# ends just then does so once.
UNHEARD = 3


class Owner(Protocol):
    """Who is told what happens to a lifeline."""

    def opened(self) -> None: ...

    def received(self, images: list[bytes]) -> None: ...

    def lost(self, error: HomingError) -> None: ...


class Lifeline:
    """One connection to one of several endpoints, kept until `close`."""

    def __init__(
        self,
        endpoints: str | Sequence[str],
        owner: Owner,
        *,
        mechanism: Mechanism,
        identity: bytes = b"",
        skim: Callable[[bytes], int] | None = None,
    ) -> None:
        """`skim`: see Stream."""
        texts = [endpoints] if isinstance(endpoints, str) else list(endpoints)
        if not texts:
            raise ValueError("at least one endpoint")
        self._endpoints: list[Endpoint] = [parse_endpoint(text) for text in texts]
        self._owner = owner
        self._skim = skim
        self._mechanism = mechanism
        self._identity = identity
        self.stream: Stream | None = None  # the connection, while there is one
        self._task: asyncio.Task[None] | None = None
        self._room: asyncio.Event = asyncio.Event()
        self._tried: dict[Endpoint, str] = {}
        self._leaving = False
        self._sent_away = False
        self._unheard = 0  # times that one hung up on our HELLO
        self._opened = 0.0

    # -- what the owner calls ---------------------------------------------------------------

    def start(self) -> None:
        """Begin to dial, if nobody does yet."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._keep(), name="homing-dial")

    @property
    def up(self) -> bool:
        """Whether messages can be sent now."""
        return self.stream is not None

    @property
    def sent_away(self) -> bool:
        """Whether the last connection ended with that, at once."""
        return self._sent_away

    async def room(self) -> None:
        """Wait until the peer has taken what was sent, or is gone."""
        while self.stream is not None and self.stream.full:
            self._room.clear()
            await self._room.wait()

    def send(self, image: bytes) -> None:
        """Queue one message for the end of this turn; it is dropped if the link is gone."""
        if self.stream is not None:
            self.stream.send(image)

    @property
    def heard(self) -> float:
        """When, on the loop's clock, the peer last sent a byte; infinity when there is no peer."""
        return float("inf") if self.stream is None else self.stream.heard

    def ping(self) -> bool:
        """Ask the peer for a sign of life; a 3.0 peer need not know how, and is not asked.

        Without a TTL: that would bid the peer hang up on us once we have nothing more to ask.
        """
        if self.stream is None or not self.stream.codec.minor:
            return False
        self.stream.write(self.stream.codec.ping())
        return True

    def drop(self, reason: str, *, sent_away: bool = False) -> None:
        """Give the present connection up and dial a new one.

        Who is `sent_away` at once, again and again, comes back ever later.
        """
        if self.stream is not None:
            lasted = asyncio.get_running_loop().time() - self._opened
            self._sent_away = sent_away and lasted < AT_ONCE
            if self._sent_away:
                reason += " at once, as who may not serve this there"
            self.stream.fail(LinkError(reason))
            self.stream.abort()

    def leave(self, reason: str) -> None:
        """Go to the next endpoint, if there is another."""
        if len(self._endpoints) > 1 and self.stream is not None:
            self._leaving = True
            self.drop(reason)

    async def close(self) -> None:
        """Send what is queued, hang up, dial no more."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        stream, self.stream = self.stream, None
        if stream is not None:
            stream.flush()
            stream.transport.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LINGER):
                    await stream.over
            stream.abort()
        self._room.set()

    def unavailable(self) -> Unavailable:
        """The error that names every endpoint tried and what each said."""
        silent = "no answer yet, or none that is ZeroMQ's"
        said = [f"{each}: {self._tried.get(each, silent)}" for each in self._endpoints]
        return Unavailable(f"cannot reach {'; '.join(said)}")

    # -- dialling ---------------------------------------------------------------------------

    async def _keep(self) -> None:
        pauses = Backoff(random.random)
        turn = 0
        while True:
            endpoint = self._endpoints[turn % len(self._endpoints)]
            turn += 1
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT):
                    stream = await self._dial(endpoint)
            except HandshakeRefused as refusal:
                self._owner.lost(refusal)
                return
            except (OSError, HomingError) as error:
                self._note(endpoint, why_unreachable(error))
            else:
                if not self._sent_away:
                    pauses.reset()
                self._sent_away = False
                self._tried.clear()
                self.stream = stream
                self._opened = asyncio.get_running_loop().time()
                self._owner.opened()
                reason = await asyncio.shield(stream.over)
                self.stream = None
                self._room.set()
                self._owner.lost(reason)
                if not self._leaving:
                    turn -= 1  # the one that worked is tried first
                self._leaving = False
            await asyncio.sleep(pauses.pause())

    def _note(self, endpoint: Endpoint, said: str) -> None:
        """Log it once for each endpoint and outage; who waits longer is told by an exception."""
        level = logging.DEBUG if endpoint in self._tried else logging.WARNING
        self._tried[endpoint] = said
        _log.log(level, "%s does not answer, trying on: %s", endpoint, said)

    async def _dial(self, endpoint: Endpoint) -> Stream:
        """TCP and the whole handshake; raises what went wrong."""
        loop = asyncio.get_running_loop()
        codec = Connection("DEALER", identity=self._identity, mechanism=self._mechanism)
        stream = Stream(loop, codec, self._owner.received, self._room.set, self._skim)
        make: Callable[[], Any] = lambda: stream  # noqa: E731
        if endpoint.path:
            await loop.create_unix_connection(make, endpoint.path)
        else:
            await loop.create_connection(make, endpoint.host or "127.0.0.1", endpoint.port)
        try:
            await stream.ready
        except BaseException as error:
            stream.abort()
            raise self._judged(error, codec.unheard) from None
        self._unheard = 0
        return stream

    def _judged(self, error: BaseException, unheard: bool) -> BaseException:
        """What ended a handshake: a CURVE server says no word to who has the wrong key for it."""
        if not unheard or not isinstance(error, LinkError):
            self._unheard = 0
            return error
        self._unheard += 1
        kind = HandshakeRefused if self._unheard >= UNHEARD else LinkError
        return kind("the peer hangs up on our CURVE HELLO: its public key may be another one")


class Pulse:
    """Asks a silent peer for signs of life while somebody waits for it, and gives up in the end."""

    def __init__(
        self, lifeline: Lifeline, waiting: Callable[[], int], interval: float, liveness: int
    ) -> None:
        """`waiting` tells how many wait; PINGs stop when nobody does."""
        self._lifeline = lifeline
        self._waiting = waiting
        self._interval = interval
        self._liveness = liveness
        self.running = False
        self._timer: asyncio.TimerHandle | None = None
        self._pinged = 0.0
        self._unanswered = 0  # PINGs since something was heard

    def start(self) -> None:
        """Begin, unless it has."""
        if not self.running:
            self.running = True
            self._timer = asyncio.get_running_loop().call_later(self._interval, self._beat)

    def stop(self) -> None:
        """No more."""
        self.running = False
        if self._timer is not None:
            self._timer.cancel()

    def _beat(self) -> None:
        self.running = False
        if not self._waiting():
            return
        now = asyncio.get_running_loop().time()
        heard = self._lifeline.heard
        if heard >= self._pinged:
            self._unanswered = 0
        if self._unanswered >= self._liveness:
            self._lifeline.drop("the broker is silent")
        elif heard < now - self._interval / 2:
            # Counted from the first that stays unanswered: an idle connection is no silent one.
            if self._lifeline.ping():
                self._unanswered += 1
            self._pinged = now
        self.start()
