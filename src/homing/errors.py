"""Every exception homing raises on purpose, in one tree.

    HomingError                     code, hint, retryable
    ├── ConfigError                 config         a setting is wrong; names every one of them
    ├── WireError                   wire           bytes that break a protocol; has an offset
    │   ├── LocalProtocolError      local          our side asked the codec for something illegal
    │   └── RemoteProtocolError     remote         the peer sent something illegal
    │       └── TooLargeOnWire      too-large      the peer announced more than a limit allows
    ├── LinkError                   link           a connection could not be made or was lost
    │   ├── Unavailable             unavailable    nobody answers at any of the endpoints tried
    │   ├── HandshakeRefused        refused        the peer refused our mechanism, key or token
    │   ├── Replaced                replaced       somebody else connects with our client id
    │   └── Closed                  closed         it was closed, or cannot be used from here
    ├── Refused                     (NAK code)     a node said no; one class per NAK code
    │   ├── NoService               no-service
    │   ├── RequestTimeout          timeout        also a TimeoutError
    │   ├── QueueFull               queue-full
    │   ├── TooLarge                too-large
    │   ├── Malformed               malformed
    │   ├── Denied                  denied
    │   ├── WorkerLost              worker-lost
    │   ├── Failed                  failed         the worker's own code raised
    │   └── ShuttingDown            shutting-down
    ├── SubscriptionError           subscription   a field or attribute set that has no meaning
    │   └── FilterError             filter         a filter that does not parse; has a column
    ├── JournalError                journal        the journal cannot be read or written
    │   ├── DiskFull                disk-full
    │   └── CorruptSegment          corrupt        has a path and an offset
    └── PipelineError               pipeline       a Spark job cannot run or found a violation
        └── NoSpark                 no-spark       Java or Spark itself is missing

`code` is short, stable and safe to log or switch on; `hint` says what to do about it;
`retryable` says whether the same call may succeed later without anyone changing anything.
"""

from __future__ import annotations


class HomingError(Exception):
    """The root: catch this to catch everything homing raises on purpose."""

    code: str = "error"
    hint: str = ""
    retryable: bool = False

    def __init__(self, message: str = "", *, hint: str | None = None) -> None:
        super().__init__(message or self.code)
        if hint is not None:
            self.hint = hint


class ConfigError(HomingError):
    """One or more settings are wrong; `problems` holds one line for each."""

    code = "config"
    hint = "run `homing config show` to see where each value comes from"

    def __init__(self, problems: list[str], *, hint: str | None = None) -> None:
        super().__init__("\n".join(problems), hint=hint)
        self.problems = problems


class WireError(HomingError):
    """Bytes that break a protocol, at `offset` from the start of the stream or message."""

    code = "wire"

    def __init__(self, message: str, offset: int = 0) -> None:
        super().__init__(f"{message} (at byte {offset})")
        self.reason = message
        self.offset = offset


class LocalProtocolError(WireError):
    """Our own side asked a codec for something its protocol does not allow."""

    code = "local"


class RemoteProtocolError(WireError):
    """The peer sent something its protocol does not allow."""

    code = "remote"


class TooLargeOnWire(RemoteProtocolError):
    """The peer announced more bytes, frames or parts than a limit allows."""

    code = "too-large"


class LinkError(HomingError):
    """A connection could not be made or was lost."""

    code = "link"
    retryable = True


class Unavailable(LinkError):
    """Nobody answers at any of the endpoints tried; the message names them all."""

    code = "unavailable"
    hint = "is it running, and there? `homing up` starts a whole fabric on this machine"


class HandshakeRefused(LinkError):
    """The peer refused our mechanism, key or token."""

    code = "refused"
    hint = "is it the key, password or token that is asked for there? A broker with CURVE wants --key and --broker-key, one with PLAIN --user"
    retryable = False


class Replaced(LinkError):
    """Somebody else connects with our client id, and the newer connection wins."""

    code = "replaced"
    hint = "one client id, one subscriber: give each its own, or stop the other"
    retryable = False


class Closed(LinkError):
    """A client, publisher or subscriber that was closed, or that another loop or process has."""

    code = "closed"
    hint = "make a new one where you need it, and close it last: `async with` does"
    retryable = False


class Refused(HomingError):
    """A node said no. `code` is the first word of the NAK, the message is the rest."""

    code = "refused"
    meaning = "a node said no"
    """What a NAK that gives no reason means."""

    @staticmethod
    def from_reason(reason: str) -> Refused:
        """The typed exception for a NAK reason such as `queue-full echo holds 1000`."""
        code, _, rest = reason.partition(" ")
        kind = _BY_CODE.get(code)
        if kind is None:
            return Refused(reason)
        return kind(rest or kind.meaning)


class NoService(Refused):
    """No worker serves this, here or at any peer."""

    code = "no-service"
    meaning = "no worker serves this, here or at any peer"
    hint = "`homing services` lists what is served; `homing worker NAME --echo` serves something"
    retryable = True


class RequestTimeout(Refused, TimeoutError):
    """The deadline passed before an answer came."""

    code = "timeout"
    meaning = "no answer came in time"
    hint = "is it running (`homing up`, `homing services`), or slow (a longer timeout)?"
    retryable = True


class QueueFull(Refused):
    """A limit on waiting work was reached."""

    code = "queue-full"
    meaning = "too much is waiting"
    retryable = True


class TooLarge(Refused):
    """The message is larger than the node takes."""

    code = "too-large"
    meaning = "the message is larger than the node takes"


class Malformed(Refused):
    """The node could not make sense of the message."""

    code = "malformed"
    meaning = "the node could not make sense of the message"


class Denied(Refused):
    """The key or token does not allow this."""

    code = "denied"
    meaning = "the key or token does not allow this"
    hint = (
        "is it the right key or token, and not expired? `homing config show` tells what is set here"
    )


class WorkerLost(Refused):
    """The worker died with an at-most-once request in its hands."""

    code = "worker-lost"
    meaning = "the worker died with the request in its hands"
    retryable = True


class Failed(Refused):
    """The worker's own code raised an exception; the message has its name and text."""

    code = "failed"
    meaning = "the worker's own code raised"


class ShuttingDown(Refused):
    """The node drains and takes no new work."""

    code = "shutting-down"
    meaning = "the node takes no new work"
    retryable = True


class SubscriptionError(HomingError):
    """A subscription field or a publication attribute that has no meaning."""

    code = "subscription"


# Characters of a filter that are shown on either side of what is wrong.
_AROUND = 60


def _pointed_at(text: str, column: int) -> str:
    """A line of the text and a mark below the column, whatever is in the text and however long it is."""
    begin = max(column - 1 - _AROUND, 0)
    shown = "".join(c if c.isprintable() else " " for c in text[begin : column + _AROUND])
    front = "…" if begin else ""
    back = "…" if column + _AROUND < len(text) else ""
    return f"  {front}{shown}{back}\n  {' ' * (len(front) + column - 1 - begin)}^"


class FilterError(SubscriptionError):
    """A filter that does not parse; `column` counts from 1."""

    code = "filter"
    hint = 'for example: price in 10..20 and city = "Paris" and not exists(sold)'

    def __init__(self, message: str, text: str, column: int) -> None:
        super().__init__(f"{message}\n{_pointed_at(text, column)} column {column}")
        self.reason = message
        self.text = text
        self.column = column


class JournalError(HomingError):
    """The journal cannot be read or written."""

    code = "journal"


class DiskFull(JournalError):
    """No space is left for the journal: acknowledged work is refused until there is."""

    code = "disk-full"
    retryable = True
    hint = "free space on the journal's disk, or lower journal.retain_bytes"


class CorruptSegment(JournalError):
    """A block whose checksum or length is wrong."""

    code = "corrupt"

    def __init__(self, path: str, offset: int, message: str) -> None:
        super().__init__(f"{path}: {message} (at byte {offset})")
        self.path = path
        self.offset = offset
        self.reason = message


class PipelineError(HomingError):
    """A Spark job cannot run, or found what must not be."""

    code = "pipeline"


class NoSpark(PipelineError):
    """Spark cannot start: Java or a package is missing or too old."""

    code = "no-spark"
    hint = "install Java 17 or newer (Debian: apt-get install openjdk-17-jre-headless)"


NAK_CLASSES: tuple[type[Refused], ...] = (
    NoService,
    RequestTimeout,
    QueueFull,
    TooLarge,
    Malformed,
    Denied,
    WorkerLost,
    Failed,
    ShuttingDown,
)
_BY_CODE: dict[str, type[Refused]] = {kind.code: kind for kind in NAK_CLASSES}
