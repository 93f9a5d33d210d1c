"""Subscriber ↔ connector framing, both directions, both sides (protocol §5.1, §5.2, §5.4).

    subscriber → connector    #<bytes that follow>\\r\\n *<elements>\\r\\n ($<bytes>\\r\\n <element>\\r\\n)…
    connector → subscriber    +text\\r\\n   -text\\r\\n   #<bytes of json and CR LF>\\r\\n <json>\\r\\n

`CommandStream` cuts the subscriber's stream into whole commands without looking inside, so a
heartbeat is recognised by its exact bytes (`HEARTBEAT`) and never parsed; `elements` opens
one. An element may hold any bytes and keeps its case. Broken outer framing is a
RemoteProtocolError and ends the connection; a command that is broken inside its frame raises
the same from `elements`, and the connector answers `-command error` and goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from homing.errors import RemoteProtocolError, TooLargeOnWire

HEARTBEAT: Final = b"#12\r\n*1\r\n$2\r\nhb\r\n"
HEARTBEAT_ANSWER: Final = b"+h\r\n"

MAX_COMMAND: Final = 1 << 18
"""Bytes of one command: a subscription of some thousand fields, each with a long list."""
MAX_ELEMENTS: Final = 4096
"""Elements of one command: far more fields than a subscription may have."""
MAX_STATUS: Final = 1024
"""Bytes of a status line: a code and a reason for people."""
MAX_PUSH: Final = 8 << 20
"""Bytes of a push: JSON escapes can make six bytes of one of a 1 MiB payload."""

_NUMBER_DIGITS: Final = 8
_COUNT_LINE: Final = 1 + _NUMBER_DIGITS + 2
"""`#`, `*` or `$`, a number and CR LF: no longer line is waited for."""

_HASH, _PLUS, _MINUS = b"#+-"


def command(parts: Sequence[bytes]) -> bytes:
    """A subscriber's command as it travels."""
    pieces = [b"*%d\r\n" % len(parts)]
    for element in parts:
        pieces += (b"$%d\r\n" % len(element), element, b"\r\n")
    size = sum([len(piece) for piece in pieces])
    return b"#%d\r\n%b" % (size, b"".join(pieces))


def status(ok: bool, text: str) -> bytes:
    """A status line; line ends inside `text` would start another and become spaces."""
    line = text.replace("\r", " ").replace("\n", " ").encode()[: MAX_STATUS - 3]
    return b"%b%b\r\n" % (b"+" if ok else b"-", line)


def framed(json: bytes) -> bytes:
    """A push around its JSON."""
    return b"#%d\r\n%b\r\n" % (len(json) + 2, json)


def elements(frame: bytes) -> list[bytes]:
    """The elements of one whole command; RemoteProtocolError, with an offset, if it is broken."""
    at = frame.find(b"\r\n") + 2
    count, at = _number(frame, at, b"*")
    if count < 1 or count > MAX_ELEMENTS:
        raise RemoteProtocolError(f"1 to {MAX_ELEMENTS} elements, got {count}", at)
    parts: list[bytes] = []
    for _ in range(count):
        size, at = _number(frame, at, b"$")
        end = at + size
        if frame[end : end + 2] != b"\r\n":
            raise RemoteProtocolError("element does not end where it says", at)
        parts.append(frame[at:end])
        at = end + 2
    if at != len(frame):
        raise RemoteProtocolError("bytes after the last element", at)
    return parts


def _number(frame: bytes, at: int, mark: bytes) -> tuple[int, int]:
    """The number of a `*` or `$` line, and the offset after the line."""
    end = frame.find(b"\r\n", at, at + _COUNT_LINE)
    digits = frame[at + 1 : end] if end > at else b""
    if frame[at : at + 1] != mark or not digits.isdigit():
        raise RemoteProtocolError(f"expected {mark.decode()}<number>", at)
    return int(digits), end + 2


_NOTHING: Final = bytearray()
"""Held by every stream between two messages, and never added to: there are many idle ones."""


class _Framed:
    """A stream of `#<n>\\r\\n` frames, and of lines where the subclass takes them.

    What is incomplete waits in one buffer until its last byte is there: neither a trickle
    nor a huge frame is looked at, or copied, again with every chunk.
    """

    __slots__ = ("_buffer", "_limit", "_needed", "_offset")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = _NOTHING
        self._needed = 0
        self._offset = 0

    @property
    def held(self) -> int:
        """Bytes kept of an unfinished message."""
        return len(self._buffer)

    def _gather(self, data: bytes) -> bytes | None:
        """What is held and `data` in one piece, or None while a known frame is incomplete."""
        if not self._buffer:
            return data
        self._buffer += data
        if len(self._buffer) < self._needed:
            return None
        whole = bytes(self._buffer)
        self._buffer = _NOTHING
        return whole

    def _keep(self, rest: bytes, needed: int) -> None:
        """Hold an unfinished message; `needed` bytes at least, 0 while that is not known."""
        self._buffer = bytearray(rest)
        self._needed = needed

    def _frame_end(self, data: bytes, at: int) -> tuple[int, int]:
        """Where the body of the frame at `at` begins and ends; (0, 0): its line is incomplete."""
        body = data.find(b"\n", at, at + _COUNT_LINE) + 1
        if not body:
            line = data[at : at + _COUNT_LINE]
            if len(line) == _COUNT_LINE or not _begins_number(line):
                raise RemoteProtocolError("expected #<number>", self._offset + at)
            return 0, 0
        digits = data[at + 1 : body - 2]
        if data[body - 2] != 13 or not digits.isdigit():
            raise RemoteProtocolError("expected #<number>", self._offset + at)
        size = int(digits)
        if size > self._limit:
            raise TooLargeOnWire(
                f"{size} bytes announced, {self._limit} at most", self._offset + at
            )
        return body, body + size


class CommandStream(_Framed):
    """The connector's side: whole commands out of a subscriber's bytes, uninspected."""

    __slots__ = ("last_words",)

    def __init__(self, limit: int = MAX_COMMAND) -> None:
        super().__init__(limit)
        self.last_words = b""  # to a subscriber whose framing is broken, before we hang up

    def receive(self, data: bytes) -> list[bytes]:
        """Whole commands, each as the frame it came in."""
        if data == HEARTBEAT and not self._buffer:
            self._offset += len(data)
            return [HEARTBEAT]
        whole = self._gather(data)
        if whole is None:
            return []
        try:
            return self._cut(whole)
        except RemoteProtocolError as error:
            self.last_words = status(False, f"command error: {error}")
            raise

    def _cut(self, whole: bytes) -> list[bytes]:
        commands: list[bytes] = []
        at = 0
        size = len(whole)
        while at < size:
            if whole[at] != _HASH:
                raise RemoteProtocolError("expected #<number>", self._offset + at)
            _, end = self._frame_end(whole, at)
            if end == 0 or end > size:
                self._keep(whole[at:], end and end - at)
                break
            commands.append(whole[at:end] if at or end < size else whole)
            at = end
        self._offset += at
        return commands


class Status:
    """A `+` or `-` line."""

    __slots__ = ("ok", "text")

    def __init__(self, ok: bool, text: str) -> None:
        self.ok = ok
        self.text = text

    def __repr__(self) -> str:
        return f"Status({'+' if self.ok else '-'}{self.text})"


class AnswerStream(_Framed):
    """The subscriber's side: status lines, and the JSON of pushes as bytes."""

    __slots__ = ()

    def __init__(self, limit: int = MAX_PUSH) -> None:
        super().__init__(limit)

    def receive(self, data: bytes) -> list[Status | bytes]:
        """Status lines and pushes, in order."""
        whole = self._gather(data)
        if whole is None:
            return []
        answers: list[Status | bytes] = []
        at = 0
        size = len(whole)
        while at < size:
            start, end = self._answer_end(whole, at)
            if end == 0 or end > size:
                self._keep(whole[at:], end and end - at)
                break
            if whole[end - 2 : end] != b"\r\n":
                raise RemoteProtocolError("push does not end where it says", self._offset + at)
            body = whole[start : end - 2]
            answers.append(body if whole[at] == _HASH else _status(whole[at], body))
            at = end
        self._offset += at
        return answers

    def _answer_end(self, data: bytes, at: int) -> tuple[int, int]:
        first = data[at]
        if first == _HASH:
            start, end = self._frame_end(data, at)
            if end and end < start + 2:
                raise RemoteProtocolError("a push ends with CR LF", self._offset + at)
            return start, end
        if first != _PLUS and first != _MINUS:
            raise RemoteProtocolError("expected +, - or #", self._offset + at)
        end = data.find(b"\r\n", at, at + MAX_STATUS) + 2
        if end == 1:
            if len(data) - at >= MAX_STATUS:
                raise TooLargeOnWire(f"status line over {MAX_STATUS} bytes", self._offset + at)
            return 0, 0
        return at + 1, end


def _begins_number(line: bytes) -> bool:
    """Whether `#`, digits and perhaps a CR is all there is: more may come."""
    digits = line[1:-1] if line.endswith(b"\r") else line[1:]
    return not digits or digits.isdigit()


def _status(first: int, body: bytes) -> Status:
    return Status(first == _PLUS, body.decode("utf-8", "replace"))
