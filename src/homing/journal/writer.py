"""The journal a node writes to: append on the event loop, group commit on a thread.

`append` costs the loop a list entry and a number. One thread takes what has gathered, writes
it as one block, syncs it if asked to, and posts `on_durable(number)` back to the loop; while
it waits for the disk the next group gathers. After a commit it rests in proportion to what that took, up to
`interval`: a slow disk, or one that has much to write, gets large groups, and a quick one has hardly anybody wait.
Half of what makes peers wait ends a rest: the other half may gather while that is written.

A disk that is behind makes peers wait: from `PRESSED_EVENTS` on the host reads no more of them
(`on_pressure`) until half of that is written.

When the disk takes no more, the group in hand is tried again until it does. Meanwhile an
event that takes work on (events.PROMISES) is refused with DiskFull, and the others wait up to
`BACKLOG_EVENTS`, then are counted and their loss recorded as a Gap.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from homing.clock import Clock, SystemClock
from homing.errors import DiskFull, JournalError
from homing.journal.body import width
from homing.journal.disk import Directory
from homing.journal.events import (
    PROMISES,
    Acknowledged,
    Delivered,
    DeliveryQueued,
    Dropped,
    Event,
    Gap,
    PublicationAccepted,
    PublicationMatched,
    PublicationTaken,
    Redelivered,
    RequestRun,
    SubscriptionSet,
)
from homing.journal.log import DEFAULT_LIMITS, Limits, Log, Recovery

_log = logging.getLogger(__name__)

Durability = Literal["fsync", "os", "none"]
Post = Callable[[Callable[[], None]], Any]

# At a million events/s, what the fastest broker makes, 30 ms of a disk that is slow.
PRESSED_EVENTS = 32_768
# Four times that, some 40 MB: every peer may still bring one chunk that was under way.
BACKLOG_EVENTS = 131_072
# Payloads and client lists waiting for the disk, whatever their number.
BACKLOG_BYTES = 64 << 20
# Events in one write: bounds the thread's memory and how long one write may take; a slow disk
# catches up only if a write takes more than what came meanwhile.
GROUP_EVENTS = 32_768
# The thread rests so many times as long as it was busy: for two thirds of the time the loop has the interpreter to itself,
# and the next group gathers (ADR 0049).
RESTS: Final = 2.0
# How often a disk that took no more is tried again: soon enough for a person who freed space.
RETRY_SECONDS = 0.25
# How long close() tries to write the last group to a disk that refuses it.
CLOSE_SECONDS = 5.0

# The fields that can be large, for those kinds that have such.
_BULK: Final[dict[type[Event], Callable[[Any], int]]] = {
    PublicationAccepted: lambda event: len(event.payload) + len(event.attrs),
    PublicationMatched: lambda event: len(event.clients),
    PublicationTaken: lambda event: len(event.payload) + len(event.attrs) + len(event.clients),
    SubscriptionSet: lambda event: len(event.fields),
    Delivered: lambda event: len(event.clients),
    DeliveryQueued: lambda event: len(event.payload) + len(event.attrs) + len(event.clients),
    Redelivered: lambda event: len(event.clients),
    Acknowledged: lambda event: len(event.clients),
    Dropped: lambda event: len(event.clients),
}


def rest(took: float, least: float, most: float) -> float:
    """How long to rest after a commit that took so long."""
    return max(least, min(RESTS * took, most))


class Journal:
    """One node's journal, open for writing. Everything but the thread is the loop's."""

    def __init__(
        self,
        log: Log,
        *,
        durability: Durability,
        post: Post,
        on_durable: Callable[[int], None],
        interval: float = 0.002,
        at_least: float = 0.0,
        clock: Clock | None = None,
        on_sealed: Callable[[str], None] | None = None,
        on_pressure: Callable[[bool], None] | None = None,
    ) -> None:
        """`post` runs a callable on the loop (call_soon_threadsafe); all others get there too.

        `interval`, `at_least`: the longest and the shortest rest after a commit, in seconds.
        """
        self.number = log.number  # the last event appended
        self.durable = log.number  # the last one that is as durable as configured
        self.lost = 0  # events left out and not yet told of in a Gap
        self.trouble = ""  # why the disk takes nothing; empty: it does
        self._log = log
        self._instant = durability == "none"
        self._post = post
        self._on_durable = on_durable
        self._on_sealed = on_sealed
        self._on_pressure = on_pressure
        self._pressed = False
        self._pressed_at = PRESSED_EVENTS
        self._much = PRESSED_EVENTS // 2  # events that end a rest
        self._interval = interval
        self._at_least = at_least
        self._clock = clock or SystemClock()
        self._lost_since = 0.0
        self._pending: list[Event] = []
        self._taken = log.number  # the last one in a group; written by the thread only
        self._bulk_in = 0  # written by the loop only
        self._bulk_out = 0  # written by the thread only
        self._owed = False
        self._rung = False  # so that only the first event of a group pays for the bell
        self._bell = threading.Event()
        self._closing = threading.Event()
        self._rested = threading.Event()  # much has gathered, or it is the end: no more rest
        self._in_hand: list[Event] = []  # the group being written
        self._scribe = threading.Thread(target=self._run, name="journal", daemon=True)
        self._scribe.start()

    @property
    def recovered(self) -> Recovery:
        """What opening it found."""
        return self._log.recovered

    @property
    def backlog(self) -> int:
        """Events appended and not yet taken by the disk."""
        return self.number - self._log.number

    @property
    def _behind(self) -> int:
        """Events that no group has yet."""
        return self.number - self._taken

    def append(self, event: Event) -> int:
        """Take one event; its number (of a run: the last), or 0 if it was left out (never one of PROMISES).

        Raises DiskFull for one of PROMISES while the disk takes nothing.
        """
        if event.__class__ is RequestRun:
            return self._append_run(event)
        behind = self.number - self._taken
        if (self.trouble or self.lost or behind >= self._much) and not self._admit(event):
            return 0
        if event.__class__ in _BULK and not self._admit_bulk(event):
            return 0
        self._pending.append(event)
        self.number = number = self.number + 1
        if not self._rung:
            self._ring()
        return number

    def _append_run(self, run: RequestRun) -> int:
        """Take what is done, whatever the disk says: it waits for it while there is room."""
        if self.lost and not self.trouble:
            self._tell_of_gap()
        if self._behind + run.count > BACKLOG_EVENTS:
            if self.lost == 0:
                self._lost_since = run.at
            self.lost += run.count
            raise DiskFull(f"the disk is {BACKLOG_EVENTS} events behind")
        run.first = self.number + 1
        self._pending.append(run)
        self.number += run.count
        self._press()
        if not self._rung:
            self._ring()
        if self.trouble:
            raise DiskFull(self.trouble)
        return self.number

    def _ring(self) -> None:
        """Once a group: wake the thread, and where nothing is waited for say so next turn.

        The bell rings when this turn of the loop is over: all that it appends is one group, and
        the thread does not ask for the interpreter in the middle of it.
        """
        self._rung = True
        self._notify(self._bell.set)
        if self._instant and not self._owed:
            self._owed = True
            self._post(self._tell_instantly)

    def _admit_bulk(self, event: Event) -> bool:
        size = _BULK[event.__class__](event)
        if self._bulk_in - self._bulk_out + size > BACKLOG_BYTES:
            return self._refuse(event, f"the disk is {BACKLOG_BYTES >> 20} MiB behind")
        self._bulk_in += size
        return True

    def _admit(self, event: Event) -> bool:
        """The rare ways in: the disk is behind or in trouble, or was and is not any more."""
        if self.trouble and type(event) in PROMISES:
            return self._refuse(event, self.trouble)
        if self._behind >= BACKLOG_EVENTS:
            return self._refuse(event, f"the disk is {BACKLOG_EVENTS} events behind")
        if self.lost and not self.trouble:
            self._tell_of_gap()
        self._press()
        return True

    def _press(self) -> None:
        """What has gathered ends a rest; what is too much has peers wait."""
        if self._behind >= self._much and not self._rested.is_set():
            self._rested.set()
        if not self._pressed and self._behind >= self._pressed_at and self._on_pressure:
            self._pressed = True
            self._on_pressure(True)

    def _relieve(self) -> None:
        """On the loop, as `_press` is: told by the thread, it could undo a pressure that is newer."""
        if self._pressed and self._behind < self._pressed_at // 2 and self._on_pressure:
            self._pressed = False
            self._on_pressure(False)

    def _refuse(self, event: Event, why: str) -> bool:
        if type(event) in PROMISES:
            raise DiskFull(why)
        if self.lost == 0:
            self._lost_since = event.at
        self.lost += 1
        return False

    def _tell_of_gap(self) -> None:
        gap = Gap(self._clock.monotonic(), self.lost, self._lost_since)
        self.lost = 0
        self._pending.append(gap)
        self.number += 1

    def _tell_instantly(self) -> None:
        self._owed = False
        self._tell(self.number)

    def _tell(self, number: int) -> None:
        if number > self.durable:
            self.durable = number
            self._on_durable(number)

    def hold(self, number: int | None) -> None:
        """Keep this event and all after it, whatever retention says."""
        self._log.hold = number

    @property
    def held(self) -> int | None:
        """The first event that is kept whatever retention says."""
        return self._log.hold

    @property
    def crowded(self) -> bool:
        """Whether retention will soon want what is held: who can do without it should let it go."""
        return self._log.crowded

    @property
    def holes(self) -> int:
        """How often somebody removed what was written: what it was worth only its role knows now."""
        return self._log.holes

    def close(self) -> None:
        """Write what is pending and stop; JournalError if the disk refused the last of it."""
        if self.lost and not self.trouble:
            self._tell_of_gap()
        self._closing.set()
        self._rested.set()
        self._bell.set()
        self._scribe.join()
        disk = self._log.disk
        if isinstance(disk, Directory):
            disk.close()
        if self.backlog:
            unwritten = self.backlog + self.lost
            told = f"the journal of {self._log.name}: {unwritten} events not written"
            raise JournalError(f"{told}: {self.trouble}")
        self.trouble = "the journal is closed"

    # --- the thread ---------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not (self._closing.is_set() and not self._pending):
                # Woken for the segment's age too, where nothing is appended for long.
                self._bell.wait(1.0)
                self._bell.clear()
                self._rung = False
                self._rested.clear()
                began = self._clock.monotonic()
                if self._pending and not self._commit():
                    return
                self._log.idle()
                self._announce_sealed()
                if not self._closing.is_set():
                    took = self._clock.monotonic() - began
                    self._rested.wait(rest(took, self._at_least, self._interval))
            self._log.rotate()
            self._announce_sealed()
        except BaseException as error:
            # A bug, not a full disk: from now on nothing is promised any more.
            self.trouble = f"the journal's thread failed: {error!r}"
            _log.error("the journal of %s takes nothing any more", self._log.name, exc_info=error)

    def _commit(self) -> bool:
        """Write one group, as often as it takes; False if closing and it cannot be."""
        size = min(len(self._pending), GROUP_EVENTS)
        # The loop appends meanwhile: each of these steps is one the interpreter does not divide.
        group = self._in_hand = self._pending[:size]
        del self._pending[:size]
        self._taken += width(group)
        if not self._write(group):
            return False
        self._in_hand = []
        if self._bulk_in > self._bulk_out:
            self._bulk_out += sum(
                _BULK[event.__class__](event) for event in group if event.__class__ in _BULK
            )
        if self._pressed and self._behind < self._pressed_at // 2:
            self._notify(self._relieve)
        if self._pending:
            self._bell.set()
        return True

    def _write(self, group: list[Event]) -> bool:
        """Until the disk takes it; False if it still refuses while the journal is closed."""
        give_up: float | None = None
        while not self._try(group):
            if self._closing.is_set():
                give_up = give_up or self._clock.monotonic() + CLOSE_SECONDS
                if self._clock.monotonic() >= give_up:
                    return False
            self._log.retain()
            time.sleep(RETRY_SECONDS)
        return True

    def _try(self, group: list[Event]) -> bool:
        skew = int((self._clock.wall() - self._clock.monotonic()) * 1e6)
        try:
            number = self._log.append(group, skew)
        except (OSError, JournalError) as error:
            if not self.trouble:
                _log.error("the journal of %s takes nothing: %s", self._log.name, error)
            self.trouble = f"{error.__class__.__name__}: {error}"
            return False
        if self.trouble:
            _log.warning("the journal of %s is written again", self._log.name)
        self.trouble = ""
        self._notify(partial(self._tell, number))
        return True

    def _announce_sealed(self) -> None:
        sealed, self._log.sealed = self._log.sealed, []
        if self._on_sealed is not None:
            for name in sealed:
                self._notify(partial(self._on_sealed, name))

    def _notify(self, callback: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody is left to be told
            self._post(callback)


def open_journal(
    directory: Path,
    node: bytes,
    *,
    post: Post,
    on_durable: Callable[[int], None],
    name: str = "",
    durability: Durability = "fsync",
    interval: float = 0.002,
    at_least: float = 0.0,
    limits: Limits = DEFAULT_LIMITS,
    on_sealed: Callable[[str], None] | None = None,
    on_pressure: Callable[[bool], None] | None = None,
) -> Journal:
    """Lock a directory, recover what is there and begin to write after it."""
    disk = Directory(directory)
    try:
        log = Log(
            disk,
            node,
            name=name,
            limits=limits,
            durable=durability == "fsync",
            wall=SystemClock.wall,
            salt=lambda: int.from_bytes(os.urandom(4), "big"),
        )
    except BaseException:
        disk.close()
        raise
    return Journal(
        log,
        durability=durability,
        post=post,
        on_durable=on_durable,
        interval=interval,
        at_least=at_least,
        on_sealed=on_sealed,
        on_pressure=on_pressure,
    )
