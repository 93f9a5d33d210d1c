"""Finds whole messages in a ZMTP byte stream, in chunks of any size.

`ImageReader.feed` is where every byte of the service plane comes in, so it is built as two
loops. The fast one only looks at frame headers and cuts each message that lies whole in the
chunk out of it with one slice. Whatever else can happen (a message cut by the chunk's end, a
header cut in two, a command, even between two frames of a message as libzmq sends its PINGs)
is left to `_walk`, which goes frame by frame and keeps what is under way.

A message that spans chunks is joined once, when its last byte is there. Its pieces are kept as
views of their chunks, so no byte is copied twice; but a piece under 4 KiB, or under half of its
chunk, is copied into one buffer, so that a peer that trickles cannot make us hold thousands of
tiny objects, nor pin big chunks by little pieces.

A message over a limit ends the connection, or, with `max_passed`, goes by: nothing of it is kept but its
beginning, which comes out in its place (homing.wire.frames.cut), so that its sender can be told. Where frames are
sealed each is a message here, and `watch` is asked for somebody to whom all bytes of one that goes by are shown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from homing.errors import RemoteProtocolError, TooLargeOnWire
from homing.wire.frames import COMMAND, LONG, MORE, SKIMMED_FRAMES, cut
from homing.wire.mechanisms import Watched

_SMALL_PIECE: Final = 4096
# Of a message that goes by: the frames that say whose it is and what it is about, a task's header among them.
KEPT: Final = 8 << 10
_KNOWN_FLAGS: Final = MORE | LONG | COMMAND


class ImageReader:
    """Chunks in, whole wire images out; commands come out as the frame they are.

    After `feed`, `commands` says whether any of its images is a command (first byte has the
    COMMAND bit), so that callers need not look at each one.
    """

    __slots__ = (
        "_frames",
        "_held",
        "_last",
        "_max_command",
        "_max_frames",
        "_max_message",
        "_max_passed",
        "_next",
        "_over",
        "_pieces",
        "_skimmable",
        "_suspect",
        "_torn",
        "commands",
        "offset",
        "skimmable",
        "watch",
        "watched",
    )

    def __init__(
        self,
        *,
        max_message: int,
        max_frames: int,
        max_command: int,
        max_passed: int = 0,
        offset: int = 0,
    ) -> None:
        """`max_passed`: how large a message may be that goes by; 0: none does."""
        self._max_message = max_message
        self._max_frames = max_frames
        self._max_command = max_command
        self._max_passed = max(max_passed, max_message)
        self._over = False  # the message under way goes by
        # A frame takes two bytes at least: shorter messages break neither limit.
        self._suspect = min(2 * max_frames, max_message)
        self._pieces: list[bytes | bytearray | memoryview] = []
        self._held = 0  # bytes in those pieces
        self._next = 0  # where, from the message's start, the next header or the end is
        self._last = False  # whether the frame that ends at _next is the last
        self._frames = 0
        self._torn = bytearray()  # a header, or a command, that the chunk's end cut in two
        self.commands = False
        self.watch: Callable[[], Watched] | None = None
        self.watched: list[
            Watched
        ] = []  # of the images that are cut, in their order; an empty deque weighs 600 bytes
        self.offset = offset  # of the next chunk, in the stream
        # How long a chunk may be whose beginning somebody else takes messages from: it begins with
        # one, and none in it can be over a limit. -1: it must be fed.
        self._skimmable = max_message if max_frames >= SKIMMED_FRAMES else -1
        self.skimmable = self._skimmable

    def feed(self, data: bytes) -> list[bytes]:
        """Every message and command that this chunk completes, in order."""
        images: list[bytes] = []
        self.commands = False
        size = len(data)
        suspect = self._suspect
        at = self._walk(data, 0, images) if self._pieces or self._torn else 0
        while at < size:
            start = at
            try:
                while True:
                    # Most frames are short and have others behind them.
                    while (flags := data[at]) == MORE:
                        at += data[at + 1] + 2
                    if flags == 0:
                        at += data[at + 1] + 2
                    elif flags < COMMAND:
                        at += int.from_bytes(data[at + 1 : at + 9], "big") + 9
                        if flags & MORE:
                            continue
                    else:
                        break
                    if at > size:
                        break
                    if at - start > suspect and self._goes_by(data, start, at):
                        if self.watch is not None:
                            self._show(data[start:at], self.watch)
                        images.append(cut(data[start : start + KEPT]))
                    else:
                        images.append(data[start:at])
                    start = at
                    if at == size:
                        break
            except IndexError:
                pass  # the chunk ends between two frames, or inside a header
            if start == size:
                break
            at = self._walk(data, start, images)
        self.offset += size
        self.skimmable = -1 if self._pieces or self._torn else self._skimmable
        return images

    def _goes_by(self, data: bytes, start: int, end: int) -> bool:
        """Whether a message breaks a limit though it came whole."""
        if end - start > self._max_message:
            return self._exceeds(end - start, start)
        frames = 0
        at = start
        while at < end:
            long = data[at] & LONG
            at += 9 + int.from_bytes(data[at + 1 : at + 9], "big") if long else 2 + data[at + 1]
            frames += 1
        return frames > self._max_frames and self._exceeds(end - start, start)

    def _exceeds(self, size: int, at: int) -> bool:
        """True: a message of so many bytes, or of too many frames, goes by. It may be too large even for that."""
        if size > self._max_passed or self._max_passed == self._max_message:
            limits = f"{self._max_message} bytes or {self._max_frames} frames"
            raise TooLargeOnWire(f"message over {limits}", self.offset + at)
        return True

    def _walk(self, data: bytes, at: int, images: list[bytes]) -> int:
        """Go on with what is under way; the offset behind it, or the chunk's end."""
        size = len(data)
        if self._torn:
            at = self._mend(data, at, images)
            if self._torn or not self._pieces:
                return at
        run = at
        at += self._next - self._held
        while not self._last and at < size:
            flags = data[at]
            length = self._announced(data, at)
            if length < 0 or flags & COMMAND:
                self._hold(data, run, at)
                self._next = self._held
                run = at = self._set_apart(data, at, length, images)
                if self._torn or not self._pieces:
                    return at
            else:
                at += (9 if flags & LONG else 2) + length
                self._count(flags, self._held + at - run)
        if self._last and at <= size:
            images.append(self._finish(data, run, at))
            return at
        self._next = self._held + at - run
        self._hold(data, run, size)
        return size

    def _announced(self, data: bytes | bytearray, at: int) -> int:
        """The length in the header at `at`; -1 when the header is not all there."""
        flags = data[at]
        if flags & ~_KNOWN_FLAGS or (flags & COMMAND and flags & MORE):
            raise RemoteProtocolError(f"frame flags {flags:#04x} have no meaning", self.offset + at)
        if flags & LONG:
            if at + 9 > len(data):
                return -1
            length = int.from_bytes(data[at + 1 : at + 9], "big")
        else:
            if at + 2 > len(data):
                return -1
            length = data[at + 1]
        limit = self._max_command if flags & COMMAND else self._max_passed
        if length > limit:
            raise TooLargeOnWire(f"frame of {length} bytes, limit {limit}", self.offset + at)
        return length

    def _count(self, flags: int, size: int) -> None:
        """One more frame of the message under way, which is now to be `size` bytes at least."""
        self._frames += 1
        self._last = not flags & MORE
        if (size > self._max_message or self._frames > self._max_frames) and self._exceeds(size, 0):
            self._let_go()

    def _let_go(self) -> None:
        """Of the message under way only the beginning is kept from now on."""
        if not self._over:
            self._over = True
            kept = bytearray()
            for piece in self._pieces:
                kept += piece[: KEPT - len(kept)]
            self._pieces = [kept]
            if self.watch is not None:
                self._show(bytes(kept), self.watch)

    def _show(self, beginning: bytes, watch: Callable[[], Watched]) -> None:
        """Somebody watches a message go by."""
        self.watched.append(watch())
        self.watched[-1].feed(beginning)

    def _set_apart(self, data: bytes, at: int, length: int, images: list[bytes]) -> int:
        """A command, or a header cut by the chunk's end; the offset behind it."""
        end = at + (9 if data[at] & LONG else 2) + length
        if length < 0 or end > len(data):
            self._torn += data[at:]
            return len(data)
        images.append(data[at:end])
        self.commands = True
        return end

    def _mend(self, data: bytes, at: int, images: list[bytes]) -> int:
        """Complete the torn header or command from this chunk; the offset behind its bytes."""
        torn = self._torn
        while True:
            length = self._announced(torn, 0)
            flags = torn[0]
            need = 9 if flags & LONG else 2
            if flags & COMMAND and length > 0:
                need += length
            missing = need - len(torn)
            if missing <= 0:
                break
            torn += data[at : at + missing]
            at = min(at + missing, len(data))
            if len(torn) < need:
                return at
        whole = bytes(torn)
        torn.clear()
        if flags & COMMAND:
            images.append(whole)
            self.commands = True
        else:
            self._count(flags, self._held + need + length)
            self._hold(whole, 0, need)
            self._next = self._held + length
        return at

    def _hold(self, data: bytes, start: int, end: int) -> None:
        """Keep a piece of the message under way until the rest of it comes."""
        size = end - start
        if size <= 0:
            return
        self._held += size
        pieces = self._pieces
        if self._over:
            kept = pieces[0]
            assert isinstance(kept, bytearray)
            kept += data[start : min(end, start + KEPT - len(kept))]
            if self.watch is not None:
                self.watched[-1].feed(data[start:end])
        elif size >= _SMALL_PIECE and 2 * size >= len(data):
            pieces.append(memoryview(data)[start:end])
        elif pieces and isinstance(pieces[-1], bytearray):
            pieces[-1] += data[start:end]
        else:
            pieces.append(bytearray(data[start:end]))

    def _finish(self, data: bytes, start: int, end: int) -> bytes:
        """The message under way, with its last piece, or what is left of it."""
        if self._over:
            self._hold(data, start, end)
            image = cut(bytes(self._pieces[0]))
            self._over = False
        else:
            self._pieces.append(memoryview(data)[start:end])
            image = b"".join(self._pieces)
        self._pieces = []
        self._held = self._next = self._frames = 0
        self._last = False
        return image
