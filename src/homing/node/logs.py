"""Logs of a node: stdlib loggers everywhere, rendered here. Human on a terminal, else JSON.

    log = logging.getLogger(__name__)
    log.warning("link lost", extra={"peer": "paris", "plug": "cloudbe"})

The message is a constant that can be searched for; what varies goes into `extra`. Repeated
warnings are thinned out, and a log reader that stalls never stalls a node: lines leave through
a bounded queue and a thread.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import sys
from collections import OrderedDict
from collections.abc import Iterator
from datetime import UTC, datetime
from logging.handlers import QueueHandler, QueueListener
from typing import TYPE_CHECKING, Literal, TextIO

from homing.clock import SystemClock

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor

# A burst of one message, then one line per window with the count of those left out.
REPEAT_BURST = 5
REPEAT_WINDOW = 10.0
# Different messages remembered at once; the least recent is forgotten (and may speak again).
MAX_REMEMBERED = 1024
# Lines that may wait for a stalled reader: at ~300 bytes each, 3 MB.
MAX_QUEUED = 10_000

Format = Literal["auto", "human", "json"]


class Repeats:
    """Decides which repetitions of a message are worth a line. Pure."""

    def __init__(self, burst: int = REPEAT_BURST, window: float = REPEAT_WINDOW) -> None:
        self._burst = burst
        self._window = window
        # key -> [start of the window, lines in it, lines left out]
        self._seen: OrderedDict[object, list[float]] = OrderedDict()

    def admit(self, key: object, now: float) -> int | None:
        """None: leave it out. A number: write it; so many were left out since the last one."""
        entry = self._seen.setdefault(key, [now, 0, 0])
        self._seen.move_to_end(key)
        if len(self._seen) > MAX_REMEMBERED:
            self._seen.popitem(last=False)
        if now - entry[0] >= self._window:
            entry[0], entry[1] = now, 0
        if entry[1] >= self._burst:
            entry[2] += 1
            return None
        left_out, entry[1], entry[2] = int(entry[2]), entry[1] + 1, 0
        return left_out


class _ThinOut(logging.Filter):
    """Repeats, applied to warnings and errors of the same logger and message."""

    def __init__(self) -> None:
        super().__init__()
        self._repeats = Repeats()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        left_out = self._repeats.admit((record.name, record.msg), SystemClock.monotonic())
        if left_out:
            record.left_out = left_out
        return left_out is not None


class _BoundedQueue(QueueHandler):
    """Never blocks: what does not fit is dropped, and counted in the next line that does."""

    def __init__(self, lines: queue.Queue[logging.LogRecord]) -> None:
        super().__init__(lines)
        self._dropped = 0

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        return record  # rendered in the listener's thread of the same process

    def enqueue(self, record: logging.LogRecord) -> None:
        if self._dropped:
            record.dropped_lines = self._dropped
        try:
            self.queue.put_nowait(record)
            self._dropped = 0
        except queue.Full:
            self._dropped += 1


@contextlib.contextmanager
def logging_to(
    level: str = "info", form: Format = "auto", stream: TextIO | None = None
) -> Iterator[None]:
    """Render every logger's lines on `stream` (stderr) until the block is left."""
    target = sys.stderr if stream is None else stream
    human = form == "human" or (form == "auto" and target.isatty())
    writer = logging.StreamHandler(target)
    writer.setFormatter(_Rendered(human, target.isatty()))
    lines: queue.Queue[logging.LogRecord] = queue.Queue(MAX_QUEUED)
    entrance = _BoundedQueue(lines)
    entrance.addFilter(_ThinOut())
    root = logging.getLogger()
    before = root.level
    root.addHandler(entrance)
    root.setLevel(level.upper())
    listener = QueueListener(lines, writer)
    listener.start()
    try:
        yield
    finally:
        root.removeHandler(entrance)
        root.setLevel(before)
        listener.stop()


class _Rendered(logging.Formatter):
    """Lines by structlog, which is loaded for the first of them, in the thread that writes.

    It takes a third of the time that a node needs to be there, most of it for tracebacks in colour.
    """

    def __init__(self, human: bool, colours: bool) -> None:
        super().__init__()
        self._human = human
        self._colours = colours
        self._structlog: logging.Formatter | None = None

    def format(self, record: logging.LogRecord) -> str:
        if self._structlog is None:
            self._structlog = _formatter(self._human, self._colours)
        return self._structlog.format(record)


def _formatter(human: bool, colours: bool) -> logging.Formatter:
    import structlog

    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        _local_time if human else _utc_time,
    ]
    last: list[Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if human:
        last.append(structlog.dev.ConsoleRenderer(colors=colours, pad_event_to=36))
    else:
        last += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    return structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=last)


def _local_time(_logger: object, _method: str, line: EventDict) -> EventDict:
    """Put the moment it was logged, not written, first; drop what other handlers added."""
    made = datetime.fromtimestamp(line["_record"].created)
    line.pop("message", None)
    return {"timestamp": f"{made:%H:%M:%S}.{made.microsecond // 1000:03}", **line}


def _utc_time(_logger: object, _method: str, line: EventDict) -> EventDict:
    """The same for machines: UTC, to the microsecond."""
    made = datetime.fromtimestamp(line["_record"].created, UTC)
    line.pop("message", None)
    return {"timestamp": made.isoformat(timespec="microseconds").replace("+00:00", "Z"), **line}
