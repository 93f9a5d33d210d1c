"""A link over a byte stream: chunks in, messages to the role; messages out, one write a turn.

    connection_made ─► handshake ─► open ─► closing ─► connection_lost
                          │           │
                          └───────────┴── broken, silent, too far behind ─► lost

The loop calls the asyncio protocol methods; the role calls `send`, `close` and `backlog`. A
peer that does not take what it is sent becomes *stuck*: the link's write function is swapped
for one that keeps the bytes, so that nobody else pays for it, and once too much is kept the
link is lost. A peer that floods is read one chunk a turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from homing.errors import HomingError, TooLargeOnWire
from homing.ports import Link

if TYPE_CHECKING:
    from homing.node.dial import Dial
    from homing.node.host import Host
    from homing.node.joint import Joint
    from homing.node.plug import Codec, Deliver, Plug

# uvloop reads up to 256 000 bytes at once, and goes on reading while that much is there.
FLOOD_BYTES: Final = 256_000
# Messages that share one write well enough, where whoever gets them has some to do meanwhile: more would let it run dry.
GATHERED: Final = 8
# The same where requests stand in line: one more saves less than a hundredth of a request's cost.
TOGETHER: Final = 16
# Seconds that a closed link may take to bring its last bytes to the peer.
LINGER = 5.0

_log = logging.getLogger("homing.node")


class StreamLink(Link):
    """One connection; an asyncio protocol by shape, so that it can be a compiled class."""

    __slots__ = (
        "_deliver",
        "_encode",
        "_held",
        "_host",
        "_joint",
        "_now",
        "_out",
        "_pauses",
        "_plug",
        "_put_off",
        "_queued",
        "_transport",
        "_turn",
        "_write",
        "codec",
        "dial",
        "heard",
        "held_bytes",
        "open",
        "over",
        "since",
    )

    _transport: asyncio.Transport
    _write: Callable[[bytes], None]
    codec: Codec
    _deliver: Deliver

    def __init__(self, host: Host, plug: Plug, dial: Dial | None) -> None:
        super().__init__(plug.name)
        self.dial = dial
        self.open = False  # the role knows it and may use it
        self.over = False  # closed or lost: nothing goes in or out any more
        self.heard = 0.0  # when the peer last sent a byte
        self.since = 0.0  # when it was opened
        self.held_bytes = 0
        self._host = host
        self._plug = plug
        self._turn = host.turn
        self._now = host.now
        self._out: list[bytes] = []
        self._queued = 0
        self._joint: Joint | None = None  # what it is sent in this turn, together with others
        self._put_off = False  # what is queued may wait for more
        self._held: list[bytes] | None = None  # only a stuck peer has one: most never are
        self._pauses = 0
        self._encode: Callable[[bytes], bytes] | None = None

    def __repr__(self) -> str:
        return f"<{self.plug} {self.peer.hex() or 'unnamed'} {self.user}>"

    # -- what a role calls ------------------------------------------------------------------

    def send(self, message: bytes) -> None:
        """Queue one message for the end of this turn; nothing happens on a link that is over."""
        out = self._out
        if not out:
            if self.over:
                return
            if self._joint is None:
                self._turn.add(self)
            else:
                out = self._leave_joint(self._joint)
        elif self._put_off:
            self._put_off = False
            self._turn.add(self)
        out.append(message)
        self._queued += len(message)

    def send_with_others(self, message: bytes) -> None:
        """Queue one message that may wait a few turns for others, if the loop is busy."""
        out = self._out
        if not out:
            if self.over or self._joint is not None:
                self.send(message)
                return
            self._put_off = True
            self._turn.put_off(self)
        out.append(message)
        self._queued += len(message)

    def send_soon(self, message: bytes) -> None:
        """Queue one message that may wait for those of the turns that come at once."""
        out = self._out
        if not out:
            if self.over or self._joint is not None:
                self.send(message)
                return
            self._put_off = True
            self._turn.gather(self)
        out.append(message)
        self._queued += len(message)
        if self._put_off and len(out) >= GATHERED:
            self._put_off = False
            self._turn.add(self)

    def ripe(self) -> bool:
        """Whether what was put off is enough for a write of its own, or is gone."""
        return not self._put_off or len(self._out) >= TOGETHER

    def close(self, reason: str = "") -> None:
        """Send what is queued, then close."""
        if not self.over:
            _log.debug("closing %r: %s", self, reason)
            self._finish()

    @property
    def backlog(self) -> int:
        """Bytes queued and not yet taken by the peer's side of the connection."""
        if self.over:
            return 0
        queued = self._queued if self._joint is None else self._joint.queued
        return queued + self.held_bytes + self._transport.get_write_buffer_size()

    # -- what the loop calls ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:
        """The connection is there; the handshake begins."""
        bounds = self._plug.bounds
        self._transport = transport
        self._write = transport.write
        transport.set_write_buffer_limits(bounds.high_water, bounds.low_water)
        self._plug.links[self] = None
        self.codec = self._plug.codec()
        self.heard = now = self._now()
        if self.codec.ready:
            self._open(now)
        else:
            self._host.watch(self, now + bounds.handshake)
            self._write(self.codec.take())

    def data_received(self, data: bytes) -> None:
        """One chunk: the role takes what it knows, the rest is decoded and handed to it."""
        if self.over:
            return
        self.heard = now = self._now()
        turn = self._turn
        turn.news = True
        turn.reads += 1
        try:
            at = 0 if self.skim is None else self.skimmed(data, now)
            if at < len(data):
                self._decode(data[at:] if at else data, now)
        except HomingError as error:
            self._refuse(error)
        except Exception:
            _log.exception("a message of %r broke the role; the link is closed", self)
            self.lose("internal error")
        if turn.alone is not None and turn.alone():
            turn.hasten()
        if turn.pressed:
            self._wait_for_disk()
        if len(data) >= FLOOD_BYTES and self._plug.bounds.breathe:
            self._breathe()

    def skimmed(self, data: bytes, now: float) -> int:
        """How much of a chunk the role has taken as it stands: nothing, but on links that can tell."""
        return 0

    def _decode(self, data: bytes, now: float) -> None:
        messages = self.codec.receive(data)
        if not self.open:
            self._shake(now)
        answer = self.codec.take()
        if answer:
            self._write(answer)
        if messages and self._plug.deliver_all is not None:
            self._plug.deliver_all(self, messages, now)
        elif messages:
            deliver = self._deliver
            for message in messages:
                if not self.open:  # the role closed it
                    return
                deliver(self, message, now)

    def eof_received(self) -> bool:
        """The peer is done; so is the link."""
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is gone, by whomever."""
        self._host.unwatch(self)
        if not self.over:
            self._end("closed by the peer" if error is None else str(error))
        self._plug.forget(self)
        if self.dial is not None:
            self.dial.lost(self)

    def pause_writing(self) -> None:
        """The peer is stuck: keep what it gets until it is not."""
        self._write = self._hold
        if self._plug.bounds.wait_for_reader:
            self._pause()

    def resume_writing(self) -> None:
        """The peer takes again: hand over what was kept."""
        self._write = self._transport.write
        if self._plug.bounds.wait_for_reader:
            self.resume()
        self._release()

    # -- what the host calls ----------------------------------------------------------------

    def flush(self) -> None:
        """The turn ends: one write."""
        out = self._out
        if not out:
            return
        self._out = []
        self._queued = 0
        self._put_off = False
        if self._encode is not None:
            out = [self._encode(message) for message in out]
        self.write(out[0] if len(out) == 1 else b"".join(out))

    def write(self, data: bytes) -> None:
        """Hand bytes to the connection."""
        try:
            self._write(data)
        except RuntimeError:
            # uvloop has found the connection broken; connection_lost comes in its next turn.
            _log.debug("%r took nothing more", self)

    def fileno(self) -> int:
        """The socket, for those who write to it past the loop; -1 if only the loop may."""
        if self._plug.tls is not None or self.over:
            return -1
        sock = self._transport.get_extra_info("socket")
        return -1 if sock is None else sock.fileno()

    def is_clear(self) -> bool:
        """Whether nothing stands between it and its socket; the loop closes that only when it is over."""
        return self._held is None and not self._transport.get_write_buffer_size()

    def _leave_joint(self, joint: Joint) -> list[bytes]:
        self._joint = None
        self._out = joint.out.copy()
        self._queued = joint.queued
        joint.left(self)
        self._turn.add(self)
        return self._out

    def check(self, now: float) -> None:
        """A moment asked for with `watch` has come: is the peer still there?"""
        if self.over:
            self._transport.abort()
        elif not self.open:
            self.lose("no handshake in time")
        elif now >= self.limit():
            self.lose("silent for too long")
        else:
            self._host.watch(self, self.look_again(now))

    def limit(self) -> float:
        """When the peer, if it stays silent, is given up."""
        return self.heard + self._plug.bounds.silence

    def look_again(self, now: float) -> float:
        """When to check next."""
        return self.limit()

    def lose(self, reason: str) -> None:
        """Give the link up now, with all that is queued; the role is told."""
        if not self.over:
            self._end(reason)
            self._transport.abort()

    def abort(self) -> None:
        """Be gone, silently: the node ends."""
        if not self.over:
            self._settle()
        self._transport.abort()

    # -- handshake --------------------------------------------------------------------------

    def _shake(self, now: float) -> None:
        """Write what the handshake wants; open the link once it is done."""
        if not self.codec.ready:
            return
        answer = self.codec.take()
        if answer:
            self._write(answer)
        self._open(now)

    def _open(self, now: float) -> None:
        codec = self.codec
        self.user = codec.user
        self._plug.admit(self)
        self.open = True
        self.since = now
        self._deliver = self._plug.deliver
        if self._plug.bounds.silence:
            self._host.watch(self, self.look_again(now))
        else:
            self._host.unwatch(self)
        self._plug.greet(self)
        self._host.opened(self, now)

    def _refuse(self, error: HomingError) -> None:
        """The peer broke the protocol or was turned away: tell it if the codec can, and close."""
        self._tell(error)
        if self.over:
            return
        if self.open and isinstance(error, TooLargeOnWire):
            self._host.overlong(self)
        self._part(str(error))

    def _part(self, reason: str) -> None:
        """Close after what the codec still has to say."""
        self._end(reason)
        last_words = self.codec.take()
        if last_words and not self._transport.is_closing():
            self._transport.write(last_words)
        self._transport.close()
        self._host.watch(self, self._now() + LINGER)

    def _tell(self, error: HomingError) -> None:
        """As a warning, so that whoever comes again and again is not written down each time."""
        address = str(self._transport.get_extra_info("peername"))
        told = {"link": repr(self), "address": address, "why": str(error)}
        if self.dial is None:
            self._host.turned_away += 1
            _log.warning("a peer was turned away", extra=told)
        else:
            _log.warning("a link that we opened was given up", extra=told)

    # -- the end ----------------------------------------------------------------------------

    def _finish(self) -> None:
        """Close after what is queued; a peer that does not take it in time loses it."""
        if self._joint is not None:
            self._leave_joint(self._joint)
        self.flush()
        if self.over:
            return  # keeping it was too much
        held = b"".join(self._held or ())
        self._settle()
        if held and not self._transport.is_closing():
            self._transport.write(held)
        self._transport.close()
        self._host.watch(self, self._now() + LINGER)

    def _end(self, reason: str) -> None:
        """Nothing goes in or out any more; the role is told if it knew the link."""
        known = self.open
        self._settle()
        if known:
            _log.debug("lost %r: %s", self, reason)
            self._host.closed(self)

    def _settle(self) -> None:
        self.over = True
        self.open = False
        self._joint = None
        self._out = []
        self._queued = 0
        self._host.held_bytes -= self.held_bytes
        self.held_bytes = 0
        self._held = None

    # -- a stuck peer, and one that floods --------------------------------------------------

    def _hold(self, data: bytes) -> None:
        """The write function of a stuck peer."""
        if self.over:
            return
        host = self._host
        if self._held is None:
            self._held = []
        self._held.append(data)
        self.held_bytes += len(data)
        host.held_bytes += len(data)
        if self.held_bytes > self._plug.bounds.backlog or host.held_bytes > host.held_limit:
            _log.warning("%r takes nothing and is %d bytes behind", self, self.held_bytes)
            self.lose("too far behind")

    def _release(self) -> None:
        held = b"".join(self._held or ())
        if held and not self.over:
            self._held = None
            self._host.held_bytes -= self.held_bytes
            self.held_bytes = 0
            if not self._transport.is_closing():
                self._write(held)

    def _breathe(self) -> None:
        """A chunk as large as they come: the others get their turn before the next."""
        if not self.over:
            self._pause()
            self._host.call_soon(self.resume)

    def _wait_for_disk(self) -> None:
        if not self.over:
            self._pause()
            self._host.wait(self)

    def _pause(self) -> None:
        self._pauses += 1
        if self._pauses == 1 and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        """One reason less not to read from the peer."""
        self._pauses -= 1
        if self._pauses == 0 and not self._transport.is_closing():
            self._transport.resume_reading()


def by_shape(link: StreamLink) -> Callable[[], asyncio.Protocol]:
    """The link as the loop wants it: by shape it is an asyncio protocol, though not by name."""
    return cast("Callable[[], asyncio.Protocol]", lambda: link)
