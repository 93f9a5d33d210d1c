"""The journal's thread: durable callbacks, full and failing disks, closing."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from queue import Empty, SimpleQueue

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.clock import SystemClock
from homing.errors import DiskFull, JournalError
from homing.journal import writer
from homing.journal.body import decode, expand
from homing.journal.disk import Directory, OpenFile
from homing.journal.events import Delivered, Event, Gap, PublicationAccepted, RequestRun
from homing.journal.log import Log, segment_names
from homing.journal.segment import Block, read_header, scan
from homing.journal.writer import Durability, Journal, open_journal


class Loop:
    """Stands in for the event loop: runs what the thread posted, in this thread."""

    def __init__(self) -> None:
        self._posted: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.durable: list[int] = []
        self.sealed: list[str] = []

    def post(self, callback: Callable[[], None]) -> None:
        self._posted.put(callback)

    def run_until(self, done: Callable[[], bool], seconds: float = 10.0) -> None:
        deadline = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < deadline, "did not happen in time"
            try:
                self._posted.get(timeout=0.01)()
            except Empty:
                continue


class FaultyFile(OpenFile):
    """A real file whose writes and syncs fail while told to, after writing a part."""

    failure: OSError | None = None

    def write(self, data: bytes) -> None:
        if FaultyFile.failure is not None:
            super().write(data[: len(data) // 2])
            raise FaultyFile.failure
        super().write(data)


class FaultyDirectory(Directory):
    def open(self, name: str) -> OpenFile:
        return FaultyFile(self.path / name)


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def faulty(tmp_path: Path, loop: Loop) -> Iterator[Journal]:
    salts = count(1)
    log = Log(FaultyDirectory(tmp_path), b"n", wall=SystemClock.wall, salt=lambda: next(salts))
    journal = Journal(
        log, durability="fsync", post=loop.post, on_durable=loop.durable.append, interval=0.0
    )
    yield journal
    FaultyFile.failure = None
    if journal._scribe.is_alive():
        journal.close()


def opened(path: Path, loop: Loop, durability: Durability = "fsync") -> Journal:
    return open_journal(
        path,
        b"node0001",
        post=loop.post,
        on_durable=loop.durable.append,
        durability=durability,
        on_sealed=loop.sealed.append,
    )


def publication(i: int, payload: bytes = b"") -> PublicationAccepted:
    return PublicationAccepted(float(i), i.to_bytes(12, "big"), b"p", b"{}", payload)


def on_disk(path: Path) -> list[tuple[int, Event]]:
    found: list[tuple[int, Event]] = []
    for name in segment_names(os.listdir(path)):
        data = (path / name).read_bytes()
        for piece in scan(data, read_header(data).salt):
            assert isinstance(piece, Block)
            found += enumerate(decode(piece.body), piece.first)  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize("durability", ["fsync", "os", "none"])
def test_every_event_is_numbered_told_of_and_on_disk(
    tmp_path: Path, loop: Loop, durability: Durability
) -> None:
    journal = opened(tmp_path, loop, durability)
    numbers = [journal.append(publication(i)) for i in range(1, 1001)]
    assert numbers == list(range(1, 1001))
    loop.run_until(lambda: journal.durable == 1000)
    assert loop.durable == sorted(loop.durable)
    assert numbers == [journal.append(publication(i)) - 1000 for i in range(1001, 2001)]
    journal.close()
    assert on_disk(tmp_path) == [(i, publication(i)) for i in range(1, 2001)]
    assert not journal.backlog


def test_durable_is_told_only_after_it_is_on_disk(tmp_path: Path, loop: Loop) -> None:
    journal = opened(tmp_path, loop)
    for i in range(1, 51):
        journal.append(publication(i))
        loop.run_until(lambda: journal.durable == journal.number)
        assert on_disk(tmp_path)[-1] == (i, publication(i))
    journal.close()


def test_a_restart_goes_on_where_the_last_run_ended(tmp_path: Path, loop: Loop) -> None:
    for i in range(1, 4):
        journal = opened(tmp_path, loop)
        assert journal.recovered.number == journal.durable == i - 1
        assert journal.append(publication(i)) == i
        journal.close()
    assert on_disk(tmp_path) == [(i, publication(i)) for i in range(1, 4)]


def test_a_second_writer_is_refused(tmp_path: Path, loop: Loop) -> None:
    journal = opened(tmp_path, loop)
    with pytest.raises(JournalError, match="written by another process"):
        opened(tmp_path, loop)
    journal.close()
    opened(tmp_path, loop).close()


def test_full_disk_refuses_new_work_and_recovers(
    faulty: Journal, loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    faulty.append(publication(1))
    loop.run_until(lambda: faulty.durable == 1)
    FaultyFile.failure = OSError(errno.ENOSPC, "No space left on device")
    faulty.append(publication(2))
    loop.run_until(lambda: bool(faulty.trouble))
    with pytest.raises(DiskFull, match="No space left"):
        faulty.append(publication(3))
    assert faulty.append(Delivered(1.0, b"i", b"c")) == 3  # tells of what happened: waits
    assert loop.durable == [1]
    FaultyFile.failure = None
    loop.run_until(lambda: faulty.durable == 3)
    began, ended = (record.getMessage() for record in caplog.records)  # however often it was tried
    assert "takes nothing: [Errno 28] No space left on device" in began
    assert "written again" in ended
    assert faulty.append(publication(3)) == 4
    faulty.close()
    directory = faulty._log.disk
    assert isinstance(directory, Directory)
    assert [event for _, event in on_disk(directory.path)] == [
        publication(1),
        publication(2),
        Delivered(1.0, b"i", b"c"),
        publication(3),
    ]


def test_what_does_not_fit_the_backlog_is_counted_as_a_gap(
    faulty: Journal, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "BACKLOG_EVENTS", 10)
    FaultyFile.failure = OSError(errno.EIO, "Input/output error")
    faulty.append(Delivered(0.0, b"i", b"c"))
    loop.run_until(lambda: bool(faulty.trouble))
    numbers = [faulty.append(Delivered(float(i), b"i", b"c")) for i in range(1, 31)]
    assert [number for number in numbers if number] == list(range(2, 12))
    assert faulty.lost == 20
    FaultyFile.failure = None
    loop.run_until(lambda: faulty.durable == 11)
    faulty.append(Delivered(99.0, b"i", b"c"))
    faulty.close()
    directory = faulty._log.disk
    assert isinstance(directory, Directory)
    found = on_disk(directory.path)
    assert [number for number, _ in found] == list(range(1, 14))
    gap = found[11][1]
    assert isinstance(gap, Gap)
    assert (gap.lost, gap.since) == (20, 11.0)


def run_of(size: int) -> RequestRun:
    """So many requests, and twice as many events."""
    times = [float(at) for at in range(size)]
    parties = [(b"echo", b"client", b"", b"worker", b"")]
    who, sizes = [0] * size, [64] * size
    return RequestRun(0.0, 0, 2 * size, parties, who, times, times, times, sizes, sizes, {})


def test_a_run_has_the_numbers_of_its_events(faulty: Journal, loop: Loop) -> None:
    run, later = run_of(3), run_of(1)
    assert faulty.append(Delivered(1.0, b"i", b"c")) == 1
    assert faulty.append(run) == 7
    assert faulty.append(later) == 9
    assert faulty.append(Delivered(5.0, b"i", b"c")) == 10
    loop.run_until(lambda: faulty.durable == 10)
    assert faulty.backlog == 0
    faulty.close()
    directory = faulty._log.disk
    assert isinstance(directory, Directory)
    found = on_disk(directory.path)
    assert [number for number, _ in found] == list(range(1, 11))
    assert [event for _, event in found][1:9] == [*expand(run), *expand(later)]
    assert (run.first, later.first) == (2, 8)


def get_into_trouble(faulty: Journal, loop: Loop) -> None:
    """From now on the thread has its hands full with one event."""
    FaultyFile.failure = OSError(errno.EIO, "Input/output error")
    faulty.append(Delivered(1.0, b"i", b"c"))
    loop.run_until(lambda: bool(faulty.trouble))


def test_a_run_waits_for_a_disk_in_trouble_and_says_so(faulty: Journal, loop: Loop) -> None:
    get_into_trouble(faulty, loop)
    with pytest.raises(DiskFull):
        faulty.append(run_of(3))
    FaultyFile.failure = None
    loop.run_until(lambda: faulty.durable == 7)
    faulty.close()


def test_a_run_that_does_not_fit_the_backlog_is_a_gap(
    faulty: Journal, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "BACKLOG_EVENTS", 10)
    get_into_trouble(faulty, loop)
    with pytest.raises(DiskFull, match="behind"):
        faulty.append(run_of(6))
    assert faulty.lost == 12
    FaultyFile.failure = None
    loop.run_until(lambda: faulty.durable == 1)
    run = run_of(2)
    assert faulty.append(run) == 6
    assert run.first == 3
    faulty.close()
    directory = faulty._log.disk
    assert isinstance(directory, Directory)
    gap = on_disk(directory.path)[1][1]
    assert isinstance(gap, Gap)
    assert (gap.lost, gap.since) == (12, 0.0)


def test_a_run_can_press(faulty: Journal) -> None:
    pressed: list[bool] = []
    faulty._on_pressure = pressed.append
    faulty._pressed_at = 10
    FaultyFile.failure = OSError(errno.EIO, "Input/output error")
    faulty.append(run_of(4))
    assert not pressed
    faulty.append(run_of(5))
    assert pressed == [True]
    FaultyFile.failure = None
    faulty.close()


def test_relief_that_comes_late_does_not_undo_a_newer_pressure(faulty: Journal, loop: Loop) -> None:
    """The thread saw few events waiting; by the time the loop is told, many came."""
    pressed: list[bool] = []
    faulty._on_pressure = pressed.append
    faulty._pressed_at = 10
    get_into_trouble(faulty, loop)
    with pytest.raises(DiskFull):
        faulty.append(run_of(10))
    faulty._relieve()
    assert pressed == [True]
    faulty._pressed_at = 100
    faulty._relieve()
    faulty._relieve()
    assert pressed == [True, False]
    FaultyFile.failure = None
    faulty.close()


def test_payloads_waiting_for_the_disk_are_bounded(
    faulty: Journal, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "BACKLOG_BYTES", 1000)
    FaultyFile.failure = OSError(errno.ENOSPC, "No space left on device")
    faulty.append(Delivered(0.0, b"i", bytes(900)))
    assert faulty.append(Delivered(0.0, b"i", bytes(400))) == 0
    loop.run_until(lambda: bool(faulty.trouble))
    FaultyFile.failure = None
    loop.run_until(lambda: faulty.durable == faulty.number)
    assert faulty.append(publication(1, bytes(400)))


def test_closing_on_a_disk_that_refuses_says_what_is_lost(
    faulty: Journal, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "CLOSE_SECONDS", 0.1)
    FaultyFile.failure = OSError(errno.ENOSPC, "No space left on device")
    faulty.append(publication(1))
    loop.run_until(lambda: bool(faulty.trouble))
    with pytest.raises(JournalError, match=r"1 events not written: .*No space"):
        faulty.close()


def test_a_bug_in_the_thread_ends_all_promises_and_is_logged(
    faulty: Journal,
    loop: Loop,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(events: list[Event], skew: int) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(faulty._log, "append", broken)
    faulty.append(publication(1))
    loop.run_until(lambda: bool(faulty.trouble))
    with pytest.raises(DiskFull, match="thread failed"):
        faulty.append(publication(2))
    with pytest.raises(JournalError, match="1 events not written"):
        faulty.close()
    assert "takes nothing any more" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_a_closed_journal_promises_nothing(tmp_path: Path, loop: Loop) -> None:
    journal = opened(tmp_path, loop)
    journal.close()
    with pytest.raises(DiskFull, match="closed"):
        journal.append(publication(1))


def test_a_journal_that_cannot_be_opened_leaves_no_lock(
    tmp_path: Path, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(Directory, "names", lambda self: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            opened(tmp_path, loop)
    opened(tmp_path, loop).close()


def test_segments_are_announced_when_sealed(tmp_path: Path, loop: Loop) -> None:
    journal = opened(tmp_path, loop)
    journal.append(publication(1))
    journal.close()
    loop.run_until(lambda: loop.sealed == segment_names(os.listdir(tmp_path)))


_KILLED = """
import os, signal, sys
from pathlib import Path
from homing.journal.events import PublicationAccepted
from homing.journal.writer import open_journal
told = []
def tell(number):
    os.write(1, number.to_bytes(8, "big"))
journal = open_journal(Path(sys.argv[1]), b"node0001", post=lambda run: run(), on_durable=tell)
i = journal.number
while True:
    i += 1
    journal.append(PublicationAccepted(1.0, i.to_bytes(12, "big"), b"p", b"{}", bytes(i % 50)))
    while journal.backlog > 500:
        pass
"""


def test_kill_9_loses_nothing_that_was_told_durable(tmp_path: Path, loop: Loop) -> None:
    durable = 0
    for round_ in range(4):
        with subprocess.Popen(
            [sys.executable, "-c", _KILLED, str(tmp_path)], stdout=subprocess.PIPE
        ) as child:
            assert child.stdout is not None
            for _ in range(5 + 10 * round_):
                durable = int.from_bytes(child.stdout.read(8), "big")
            child.kill()
            rest = child.stdout.read()
            if len(rest) >= 8:
                durable = int.from_bytes(rest[len(rest) // 8 * 8 - 8 :][:8], "big")
        journal = opened(tmp_path, loop)
        assert journal.number >= durable
        journal.close()
    assert durable > 0
    numbers = [number for number, _ in on_disk(tmp_path)]
    assert numbers == sorted(set(numbers))
    ids = [event.id for _, event in on_disk(tmp_path) if isinstance(event, PublicationAccepted)]
    assert ids == [number.to_bytes(12, "big") for number in numbers]


def test_a_disk_that_is_behind_presses_and_relieves(
    tmp_path: Path, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "PRESSED_EVENTS", 100)
    gate, pressure = threading.Event(), list[bool]()

    class SlowFile(OpenFile):
        def write(self, data: bytes) -> None:
            gate.wait(60)
            super().write(data)

    class SlowDirectory(Directory):
        def open(self, name: str) -> OpenFile:
            return SlowFile(self.path / name)

    log = Log(SlowDirectory(tmp_path), b"n", wall=SystemClock.wall, salt=lambda: 1)
    journal = Journal(
        log,
        durability="os",
        post=loop.post,
        on_durable=loop.durable.append,
        interval=0.0,
        on_pressure=pressure.append,
    )
    number = journal.append(publication(0))
    loop.run_until(lambda: journal._in_hand != [])  # the disk has it, and does not answer
    for i in range(1, 151):
        assert pressure == ([True] if i > 101 else [])
        number = journal.append(publication(i))
    gate.set()
    loop.run_until(lambda: pressure == [True, False])
    loop.run_until(lambda: loop.durable[-1:] == [number])
    journal.close()
    assert [found for found, _ in on_disk(tmp_path)] == list(range(1, number + 1))


@given(st.floats(0, 100), st.floats(0, 1), st.floats(0, 10))
def test_the_thread_rests_in_proportion(took: float, least: float, most: float) -> None:
    rested = writer.rest(took, least, most)
    assert rested in (least, most, writer.RESTS * took)
    assert least <= rested <= max(least, most)


def test_what_gathers_fast_ends_the_rest(tmp_path: Path, loop: Loop) -> None:
    """Peers waited for the rest to be over, with nobody at work: no broker did more than 315 000 requests a second."""
    journal = open_journal(
        tmp_path,
        bytes(8),
        durability="os",
        post=loop.post,
        on_durable=loop.durable.append,
        at_least=3600.0,
    )
    journal.append(publication(0))
    loop.run_until(lambda: loop.durable != [])  # and now it rests
    for i in range(writer.PRESSED_EVENTS // 2 + 1):
        journal.append(publication(i))
    assert journal._behind < writer.PRESSED_EVENTS
    loop.run_until(lambda: loop.durable[-1:] == [journal.number])
    journal.close()  # which ends a rest too
