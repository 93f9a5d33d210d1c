"""Readers: everything once, in order; damage told; the open end followed without a gap."""

from __future__ import annotations

from pathlib import Path

import pytest

from homing.errors import CorruptSegment, JournalError
from homing.journal.events import Delivered
from homing.journal.log import recover, segment_name
from homing.journal.reader import Tail, blocks, journals, read, segments
from homing.journal.segment import BLOCKS_AT, write_block
from tests.journal.conftest import SKEW, MakeLog


def event(i: int) -> Delivered:
    return Delivered(float(i), i.to_bytes(12, "big"), b"")


def test_reads_all_segments_with_wall_time(tmp_path: Path, make_log: MakeLog) -> None:
    log = make_log(tmp_path, segment_bytes=BLOCKS_AT + 1)
    for i in range(1, 8, 2):
        log.append([event(i), event(i + 1)], SKEW)
    found = list(read(tmp_path))
    assert [(each.number, each.event) for each in found] == [(i, event(i)) for i in range(1, 9)]
    assert [each.wall for each in found] == [SKEW + i * 1_000_000 for i in range(1, 9)]
    assert [each.number for each in read(tmp_path, start=4)] == [4, 5, 6, 7, 8]
    assert [segment.sealed for segment in segments(tmp_path)] == [True, True, True, False]


def test_damage_is_told_and_passed_over(tmp_path: Path, make_log: MakeLog) -> None:
    log = make_log(tmp_path, segment_bytes=BLOCKS_AT + 150)
    for i in range(1, 10):
        log.append([event(i)], SKEW)
    first, second, *_ = segments(tmp_path)
    spoil(first.path, next(iter(blocks(first))).start + 45)
    spoil(second.path, 3)
    spoil(second.path, 4096 + 3)
    told: list[CorruptSegment] = []
    numbers = [each.number for each in read(tmp_path, on_damage=told.append)]
    assert numbers == [2, 3, 7, 8, 9]
    assert [(Path(each.path), each.reason) for each in told] == [
        (second.path, "no whole segment header"),
        (first.path, "checksum of events 1–1 wrong"),
    ]
    with pytest.raises(CorruptSegment):
        list(read(tmp_path))


def spoil(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(data)


def test_events_written_again_elsewhere_count_once(tmp_path: Path, make_log: MakeLog) -> None:
    """After a failed fsync a group is written again to a new segment; the old copy may live."""
    make_log(tmp_path / "a").append([event(1)], SKEW)
    [segment] = segments(tmp_path / "a")
    body = next(iter(blocks(segment))).body
    with segment.path.open("ab") as file:
        file.write(write_block(2, 1, SKEW, body, segment.header.salt))
    (tmp_path / "b").mkdir()
    copied = tmp_path / "b" / segment.path.name
    copied.write_bytes(segment.path.read_bytes())
    log = make_log(tmp_path / "c")
    log.number = 1
    log.append([event(2)], SKEW)
    [again] = segments(tmp_path / "c")
    (tmp_path / "b" / again.path.name).write_bytes(again.path.read_bytes())
    assert [(r.number, r.event) for r in read(tmp_path / "b")] == [(1, event(1)), (2, event(2))]


def test_a_tail_follows_appends_rotation_and_restarts(tmp_path: Path, make_log: MakeLog) -> None:
    log = make_log(tmp_path, segment_bytes=BLOCKS_AT + 200)
    tail = Tail(tmp_path)
    found: list[int] = []
    for i in range(1, 31):
        log.append([event(i)], SKEW)
        if i % 3 == 0:
            while new := tail.poll():
                found += [record.number for record in new]
            assert found == list(range(1, i + 1))
    assert tail.poll() == []
    assert [r.number for r in Tail(tmp_path, start=29).poll()] == [29, 30]


def test_a_half_written_block_is_not_there_yet(tmp_path: Path, make_log: MakeLog) -> None:
    log = make_log(tmp_path)
    log.append([event(1)], SKEW)
    log.append([event(2)], SKEW)
    [segment] = segments(tmp_path)
    data = segment.path.read_bytes()
    segment.path.write_bytes(data[:-5])
    tail = Tail(tmp_path)
    assert [record.number for record in tail.poll()] == [1]
    assert tail.poll() == []
    segment.path.write_bytes(data)
    assert [record.number for record in tail.poll()] == [2]


def test_a_segment_that_retention_took_away_is_told(tmp_path: Path, make_log: MakeLog) -> None:
    make_log(tmp_path).append([event(1)], SKEW)
    [segment] = segments(tmp_path)
    segment.path.unlink()
    with pytest.raises(CorruptSegment, match="removed before it was read"):
        list(blocks(segment))


def test_finds_the_journals_below_a_directory(tmp_path: Path, make_log: MakeLog) -> None:
    for name in ("b", "a", "c/deep"):
        make_log(tmp_path / name).append([event(1)], SKEW)
    (tmp_path / "no-journal").mkdir()
    assert journals(tmp_path) == [tmp_path / name for name in ("a", "b", "c/deep")]
    with pytest.raises(JournalError, match="not a directory"):
        journals(tmp_path / "absent")


def test_an_empty_journal_is_empty(tmp_path: Path) -> None:
    assert list(read(tmp_path)) == []
    assert Tail(tmp_path).poll() == []


def test_bytes_that_are_all_there_and_wrong_are_damage_at_the_end_too(
    tmp_path: Path, make_log: MakeLog
) -> None:
    log = make_log(tmp_path)
    for i in range(1, 4):
        log.append([event(i)], SKEW)
    [segment] = segments(tmp_path)
    spoil(segment.path, segment.path.stat().st_size - 1)
    told: list[CorruptSegment] = []
    assert [each.number for each in read(tmp_path, on_damage=told.append)] == [1, 2]
    assert [each.reason for each in told] == ["checksum of events 3–3 wrong"]
    tail = Tail(tmp_path, on_damage=told.append)
    assert [[each.number for each in tail.poll()] for _ in range(3)] == [[1, 2], [], []]
    assert len(told) == 2  # looked at each time, told once


def test_only_files_that_are_named_so_are_segments(tmp_path: Path, make_log: MakeLog) -> None:
    log = make_log(tmp_path)
    log.append([event(1)], SKEW)
    [segment] = segments(tmp_path)
    for name in ("1.hj", "²³.hj", "copy of 1.hj"):
        (tmp_path / name).write_bytes(segment.path.read_bytes())
    (tmp_path / segment_name(500)).mkdir()
    (tmp_path / segment_name(501)).symlink_to(tmp_path / "nowhere")
    assert [each.number for each in read(tmp_path)] == [1]
    assert recover(log.disk).number == 1


def test_a_segment_under_another_name_is_told_and_left_out(
    tmp_path: Path, make_log: MakeLog
) -> None:
    make_log(tmp_path).append([event(1), event(2)], SKEW)
    [segment] = segments(tmp_path)
    (tmp_path / segment_name(500)).write_bytes(segment.path.read_bytes())
    told: list[CorruptSegment] = []
    assert [each.number for each in read(tmp_path, on_damage=told.append)] == [1, 2]
    assert [each.reason for each in told] == ["its header is that of segment 1"]
