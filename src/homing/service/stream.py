"""One TCP connection of a client or a worker: chunks in, whole messages out; one write a turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast

from homing.errors import HomingError, LinkError
from homing.wire.reader import ImageReader
from homing.wire.zmtp import Connection

# Seconds that the last bytes may take once we hang up.
LINGER: Final = 5.0
# What may wait, in a turn or in the transport, before senders are asked to wait.
HIGH_WATER: Final = 1 << 20


class Stream:
    """An asyncio protocol by shape, so that it can be a compiled class."""

    transport: asyncio.Transport

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        codec: Connection,
        received: Callable[[list[bytes]], None],
        resumed: Callable[[], None],
        skim: Callable[[bytes], int] | None = None,
    ) -> None:
        """`skim` takes what it knows from a chunk's beginning, and says where it stopped."""
        self.loop = loop
        self.codec = codec
        self.heard = loop.time()
        self.full = False  # the peer is behind: senders should wait for `Lifeline.room`
        self._paused = False
        self._queued = 0  # bytes that wait for the end of this turn
        self.ready: asyncio.Future[None] = loop.create_future()
        self.over: asyncio.Future[HomingError] = loop.create_future()
        self._received = received
        self._resumed = resumed
        self._skim = skim
        self._reader: ImageReader | None = None  # where messages stand in the bytes as they come
        self._out: list[bytes] = []
        self._to_flush = False  # the loop's next step does
        self._gone = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected; the handshake begins."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one by shape only
        self.transport.set_write_buffer_limits(HIGH_WATER)
        self.transport.write(self.codec.take())

    def data_received(self, data: bytes) -> None:
        """One chunk: decode it, hand its messages to the owner."""
        codec, skim, reader = self.codec, self._skim, self._reader
        self.heard = self.loop.time()
        if skim is not None and reader is not None and len(data) <= reader.skimmable:
            pending, self._to_flush = self._to_flush, True
            try:
                at = skim(data)
            finally:
                self._to_flush = pending
            reader.offset += at
            if self._out and not pending:
                self.flush()  # what was answered on the spot
            elif not pending:
                # Behind those who were told: what they send in return needs no turn of its own.
                self._flush_soon()
            if at == len(data):
                return
            data = data[at:]
        try:
            images = codec.receive(data)
        except HomingError as error:
            self.transport.write(codec.take())
            self.fail(error)
            return
        answer = codec.take()
        if answer:
            self.transport.write(answer)
        if codec.ready and not self.ready.done():
            self.ready.set_result(None)
            self._reader = codec.reader if codec.cipher is None else None
        if images:
            self._received(images)

    def send(self, image: bytes) -> None:
        """Queue one message for the end of this turn."""
        if not self._to_flush:
            self._flush_soon()
        self._out.append(image)
        self._queued += len(image)
        if self._queued > HIGH_WATER:
            self.full = True

    def send_all(self, images: list[bytes]) -> None:
        """Queue several, as `send` does one."""
        if not self._to_flush:
            self._flush_soon()
        self._out += images
        for image in images:
            self._queued += len(image)
        if self._queued > HIGH_WATER:
            self.full = True

    def _flush_soon(self) -> None:
        self._to_flush = True
        self.loop.call_soon(self._end_of_turn)

    def _end_of_turn(self) -> None:
        self._to_flush = False
        self.flush()

    def flush(self) -> None:
        """One write for all that was queued."""
        out = self._out
        if not out or self.over.done():
            return  # nothing to say, or nobody to say it to
        self._out = []
        self._queued = 0
        if self.codec.cipher is not None:
            out = [self.codec.encode(image) for image in out]
        self.transport.write(out[0] if len(out) == 1 else b"".join(out))
        if self.full and not self._paused:
            self.full = False
            self._resumed()

    def write(self, data: bytes) -> None:
        """Bytes that are no message: a command."""
        if not self.over.done():
            self.flush()
            self.transport.write(data)

    def fail(self, error: HomingError) -> None:
        """Over, for this reason, once the last words are out."""
        self._end(error)
        self.transport.close()
        self.loop.call_later(LINGER, self.abort)

    def abort(self) -> None:
        """Hang up at once. asyncio's transports do not like to be told twice."""
        if not self._gone:
            self._gone = True
            self.transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """Gone, by whomever."""
        self._gone = True
        self._end(LinkError(f"the connection was lost: {error or 'closed by the peer'}"))

    def eof_received(self) -> bool:
        """The peer is done; so is the connection."""
        return False

    def pause_writing(self) -> None:
        """The peer is behind."""
        self._paused = self.full = True

    def resume_writing(self) -> None:
        """And has caught up."""
        self._paused = self.full = False
        self._resumed()

    def _end(self, error: HomingError) -> None:
        self._out = []
        if not self.ready.done():
            self.ready.set_exception(error)
            # Whoever dialled may have given up before.
            self.ready.exception()
        if not self.over.done():
            self.over.set_result(error)
