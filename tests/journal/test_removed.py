"""Files that cannot be opened, or not be read at once, and those that somebody removes under a journal."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from homing.errors import JournalError
from homing.journal.disk import Directory, OpenFile
from homing.journal.events import Delivered
from homing.journal.log import Log, recover, segment_name
from homing.journal.reader import read
from homing.journal.segment import BLOCKS_AT
from tests.journal.conftest import MakeLog


def event(i: int) -> Delivered:
    return Delivered(float(i), i.to_bytes(12, "big"), b"client______")


def numbers(path: Path) -> list[int]:
    return [record.number for record in read(path)]


def test_a_file_that_could_not_be_opened_has_nothing_to_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", raised.append)
    with pytest.raises(FileNotFoundError):
        OpenFile(tmp_path / "gone" / "file")
    assert not raised


def test_a_segment_that_the_kernel_gives_in_parts_is_not_cut(
    tmp_path: Path, make_log: MakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gives 2 GiB at most: what was behind that was taken for torn."""
    log = make_log(tmp_path)
    for i in range(1, 100):
        log.append([event(i)], skew=0)
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda file, size, at: pread(file, min(size, 9000), at))
    found = recover(log.disk)
    assert found.torn is None
    assert found.number == 99


def remove_file(path: Path) -> None:
    (path / segment_name(1)).unlink()


def replace_file(path: Path) -> None:
    (path / segment_name(1)).rename(path / "moved")
    (path / segment_name(1)).touch()


def move_directory(path: Path) -> None:
    path.rename(path.with_name("moved"))


@pytest.mark.parametrize("harm", [remove_file, shutil.rmtree, move_directory])
def test_a_journal_does_not_write_into_a_file_that_was_removed(
    tmp_path: Path,
    make_log: MakeLog,
    caplog: pytest.LogCaptureFixture,
    harm: Callable[[Path], None],
) -> None:
    path = tmp_path / "journal"
    log = make_log(path)
    log.append([event(1), event(2)], skew=0)
    harm(path)
    assert log.append([event(3)], skew=0) == 3
    assert log.append([event(4)], skew=0) == 4
    assert numbers(path) == [3, 4]
    (told,) = (record.getMessage() for record in caplog.records)
    assert "somebody removed or replaced" in told
    assert "events 1 to 2 are gone" in told
    with pytest.raises(JournalError, match="written by another process"):
        Directory(path)


def test_a_journal_does_not_write_beside_a_file_of_its_name(
    tmp_path: Path, make_log: MakeLog
) -> None:
    log = make_log(tmp_path)
    log.append([event(1)], skew=0)
    replace_file(tmp_path)
    log.append([event(2)], skew=0)
    assert segment_name(2) in {path.name for path in tmp_path.iterdir()}


def test_a_directory_that_another_writes_meanwhile_stays_its_own(
    tmp_path: Path, make_log: MakeLog
) -> None:
    path = tmp_path / "journal"
    log = make_log(path)
    log.append([event(1)], skew=0)
    shutil.rmtree(path)
    other = make_log(path)
    other.append([event(1)], skew=0)
    with pytest.raises(JournalError, match="written by another process"):
        log.append([event(2)], skew=0)
    assert numbers(path) == [1]


def test_retention_does_not_make_what_somebody_removed(tmp_path: Path, make_log: MakeLog) -> None:
    log = make_log(tmp_path, segment_bytes=BLOCKS_AT + 1)
    for i in range(1, 6):
        log.append([event(i)], skew=0)
    for i in (2, 3):
        (tmp_path / segment_name(i)).unlink()
    log.retain()
    assert numbers(tmp_path) == [1, 4, 5]
    assert not (tmp_path / segment_name(2)).exists()


def reopened(path: Path, make_log: MakeLog) -> Log:
    """A log of one event a segment, in its second life, whose retention holds all."""
    former = path.with_name("former")
    first = make_log(former, segment_bytes=BLOCKS_AT + 1)
    for i in range(1, 6):
        first.append([event(i)], skew=0)
    shutil.copytree(former, path)
    log = make_log(path, segment_bytes=BLOCKS_AT + 1)
    log.hold = 1
    return log


@pytest.mark.parametrize("harm", [lambda path: (path / segment_name(2)).unlink(), shutil.rmtree])
def test_who_asks_whether_a_journal_is_crowded_makes_nothing(
    tmp_path: Path, make_log: MakeLog, harm: Callable[[Path], None]
) -> None:
    """It is another thread than the one that writes: both made what was removed, and locked each other out."""
    path = tmp_path / "journal"
    log = reopened(path, make_log)
    harm(path)
    before = sorted(tmp_path.rglob("*"))
    assert not log.crowded
    assert sorted(tmp_path.rglob("*")) == before


def test_what_cannot_be_looked_for_is_not_written_twice(
    tmp_path: Path, make_log: MakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = make_log(tmp_path)
    log.append([event(1)], skew=0)
    stat = os.stat

    def unsearchable(path: Path) -> os.stat_result:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "stat", unsearchable)
    with pytest.raises(PermissionError):
        log.append([event(2)], skew=0)
    monkeypatch.setattr(os, "stat", stat)
    log.append([event(2)], skew=0)
    assert numbers(tmp_path) == [1, 2]


def test_a_segment_that_is_held_and_removed_is_a_hole(tmp_path: Path, make_log: MakeLog) -> None:
    path = tmp_path / "journal"
    log = reopened(path, make_log)
    log.hold = 3
    (path / segment_name(2)).unlink()
    log.retain()
    assert log.holes == 0  # a checkpoint has it
    (path / segment_name(3)).unlink()
    log.retain()
    log.retain()
    assert log.holes == 1
