"""The log on a disk that tears, forgets and fills up: what was synced is there, once, in order."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from homing.errors import DiskFull
from homing.journal.body import decode
from homing.journal.events import Delivered, Event, PublicationAccepted
from homing.journal.log import Limits, Log, Recovery, segment_name, segment_names
from homing.journal.segment import BLOCKS_AT, Block, Damage, read_header, scan
from homing.testing.disk import Disk

NODE = b"node0001"


class Wall:
    """A wall clock set by hand."""

    now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


def log(disk: Disk, wall: Wall | None = None, **limits: float) -> Log:
    salts = count(disk.used + 1)
    kept = Limits(**limits)  # type: ignore[arg-type]
    return Log(disk, NODE, limits=kept, wall=wall or Wall(), salt=lambda: next(salts))


def event(i: int) -> Delivered:
    return Delivered(float(i), i.to_bytes(12, "big"), b"client______")


def on_disk(disk: Disk) -> list[tuple[int, Event]]:
    """Every (number, event) of every whole block."""
    found: list[tuple[int, Event]] = []
    for name in segment_names(disk.names()):
        data = disk.read(name)
        for piece in scan(data, read_header(data).salt):
            assert isinstance(piece, Block)
            found += enumerate(decode(piece.body), piece.first)  # type: ignore[arg-type]
    return found


def test_numbers_go_on_over_restarts_and_segments() -> None:
    disk = Disk()
    first = log(disk)
    assert first.append([event(1), event(2)], skew=0) == 2
    assert first.append([event(3)], skew=0) == 3
    second = log(disk)
    assert second.recovered.number == 3
    assert second.recovered.torn is None
    assert second.append([event(4)], skew=0) == 4
    assert disk.names() == [segment_name(1), segment_name(4)]
    assert on_disk(disk) == [(i, event(i)) for i in range(1, 5)]


@settings(max_examples=60)
@given(st.randoms(use_true_random=False), st.lists(st.integers(1, 5), min_size=1, max_size=12))
def test_crashes_lose_nothing_that_was_appended(random: Random, groups: list[int]) -> None:
    """append() returns after a sync: whatever the crash does, it is there after recovery."""
    disk = Disk()
    writer = log(disk, segment_bytes=BLOCKS_AT + 300)
    expected: list[Event] = []
    for size in groups:
        batch: list[Event] = [event(len(expected) + i) for i in range(size)]
        writer.append(batch, skew=0)
        expected += batch
        if random.random() < 0.4:
            if random.random() < 0.5:  # in the middle of a write that was not yet synced
                disk.open(disk.names()[-1]).write(random.randbytes(random.randrange(1, 200)))
            disk.crash(random)
            writer = log(disk, segment_bytes=BLOCKS_AT + 300)
    found = on_disk(disk)
    assert [each for _, each in found] == expected
    numbers = [number for number, _ in found]
    assert numbers == sorted(set(numbers))


def test_a_torn_tail_is_cut_reported_and_its_numbers_left_out() -> None:
    disk = Disk()
    log(disk).append([event(1)], skew=0)
    file = disk.open(segment_name(1))
    size = file.size
    file.write(b"\xf0HJB" + bytes(51))
    again = log(disk)
    assert again.recovered.torn == (segment_name(1), 55, "block header broken")
    assert disk.open(segment_name(1)).size == size
    assert again.append([event(2)], skew=0) == 1 + 5 + 1  # 55 bytes held five events at most


def test_damage_inside_the_last_segment_is_reported_and_left_alone() -> None:
    disk = Disk()
    writer = log(disk)
    for i in range(3):
        writer.append([event(i)], skew=0)
    file = disk.open(segment_name(1))
    file.data[BLOCKS_AT + 50] ^= 1
    again = log(disk)
    assert again.recovered.number == 3
    assert again.recovered.torn is None
    [(name, damage)] = again.recovered.damage
    assert (name, damage.start) == (segment_name(1), BLOCKS_AT)
    assert "events 1–1 wrong" in damage.reason


def test_a_last_segment_without_header_is_not_written_over() -> None:
    disk = Disk()
    log(disk).append([event(1)], skew=0)
    disk.open(segment_name(1)).data[:BLOCKS_AT] = bytes(BLOCKS_AT)
    lost = disk.open(segment_name(1)).size - BLOCKS_AT
    again = log(disk)
    assert again.recovered.damage == [
        (segment_name(1), Damage(0, lost + BLOCKS_AT, "no whole segment header"))
    ]
    assert again.append([event(2)], skew=0) > 1
    assert disk.open(segment_name(1)).size == lost + BLOCKS_AT


@pytest.mark.parametrize("number", [2**62, 2**63, 10**20 - 1])
def test_a_number_that_no_journal_comes_to_is_no_segments(
    number: int, caplog: pytest.LogCaptureFixture
) -> None:
    """It was taken for the newest: no block holds a number beyond it, and the thread ended there."""
    disk = Disk()
    log(disk).append([event(1)], skew=0)
    disk.open(segment_name(number)).write(b"somebody's")
    again = log(disk, segment_bytes=1, retain_bytes=1)
    assert again.recovered == Recovery(1, 1)
    assert [again.append([event(n)], skew=0) for n in (2, 3, 4)] == [2, 3, 4]
    assert disk.read(segment_name(number)) == b"somebody's"
    assert disk.names() == [segment_name(n) for n in (3, 4, number)]
    assert caplog.text.count(f"{segment_name(number)} is no segment") == 1


def test_a_segment_that_never_got_its_header_goes() -> None:
    disk = Disk()
    log(disk).append([event(1)], skew=0)
    disk.open(segment_name(2)).write(b"HOMING")
    again = log(disk)
    assert again.recovered.torn == (segment_name(2), 6, "no whole segment header")
    assert again.append([event(2)], skew=0) == 2


def test_full_disk_takes_nothing_back_and_goes_on_when_there_is_room() -> None:
    disk = Disk()
    writer = log(disk)
    writer.append([event(1)], skew=0)
    disk.full = True
    for _ in range(3):
        with pytest.raises(DiskFull):
            writer.append([event(2)], skew=0)
    disk.full = False
    assert writer.append([event(2)], skew=0) == 2
    assert on_disk(disk) == [(1, event(1)), (2, event(2))]
    assert disk.names() == [segment_name(1)]


def test_full_from_the_start() -> None:
    disk = Disk()
    disk.full = True
    writer = log(disk)
    with pytest.raises(DiskFull):
        writer.append([event(1)], skew=0)
    disk.full = False
    writer.append([event(1)], skew=0)
    assert on_disk(disk) == [(1, event(1))]


def test_after_a_failed_sync_the_group_goes_to_another_segment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = Disk()
    writer = log(disk)
    writer.append([event(1)], skew=0)
    file_type = type(disk.open(segment_name(1)))
    with monkeypatch.context() as broken:

        def sync(self: object, upto: int | None = None) -> None:
            raise OSError(5, "Input/output error")

        broken.setattr(file_type, "sync", sync)
        with pytest.raises(OSError, match="Input/output"):
            writer.append([event(2)], skew=0)
    writer.append([event(2)], skew=0)
    assert disk.names() == [segment_name(1), segment_name(2)]
    assert on_disk(disk) == [(1, event(1)), (2, event(2))]


def test_a_large_group_is_cut_into_blocks() -> None:
    disk = Disk()
    big: list[Event] = [
        PublicationAccepted(1.0, b"i", b"p", b"{}", bytes(1 << 20)) for _ in range(9)
    ]
    writer = log(disk)
    assert writer.append(big, skew=0) == 9
    data = disk.read(segment_name(1))
    pieces = list(scan(data, read_header(data).salt))
    assert len(pieces) == 4
    assert on_disk(disk) == list(enumerate(big, 1))


def test_rotation_by_size_and_retention_by_bytes() -> None:
    disk = Disk()
    writer = log(disk, segment_bytes=BLOCKS_AT + 1, retain_bytes=3 * (BLOCKS_AT + 500))
    for i in range(1, 11):
        writer.append([event(i)], skew=0)
    names = segment_names(disk.names())
    assert len(names) == 4  # those that fit, and the open one
    assert on_disk(disk)[-1] == (10, event(10))
    assert writer.sealed == [segment_name(i) for i in range(1, 10)]


def test_retention_by_age_and_what_it_must_hold() -> None:
    disk, wall = Disk(), Wall()
    writer = log(disk, wall, segment_bytes=BLOCKS_AT + 1, retain_age=100.0)
    for i in range(1, 5):
        writer.append([event(i)], skew=0)
        wall.now += 60
    writer.hold = 2
    wall.now += 1000
    writer.rotate()
    assert segment_names(disk.names()) == [segment_name(i) for i in (2, 3, 4)]
    writer.hold = None
    writer.retain()
    assert segment_names(disk.names()) == [segment_name(4)]


def test_who_holds_half_of_what_may_stay_is_told() -> None:
    disk, wall = Disk(), Wall()
    size = BLOCKS_AT + 500
    writer = log(disk, wall, segment_bytes=BLOCKS_AT + 1, retain_bytes=10 * size, retain_age=100.0)

    def crowded(numbers: Iterable[int], hold: int) -> bool:
        writer.hold = hold
        for i in numbers:
            writer.append([event(i)], skew=0)
        return writer.crowded

    assert not crowded(range(1, 4), hold=1)
    wall.now += 51
    assert crowded([4], hold=1)  # by age
    assert not crowded([5], hold=4)
    assert crowded(range(6, 20), hold=1)  # by size
    assert len(segment_names(disk.names())) == 19


def test_what_cannot_be_removed_stays_and_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Disk()

    def remove(name: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(disk, "remove", remove)
    writer = log(disk, segment_bytes=BLOCKS_AT + 1, retain_bytes=1)
    for i in range(1, 5):
        writer.append([event(i)], skew=0)
    assert on_disk(disk) == [(i, event(i)) for i in range(1, 5)]
    assert "retention cannot remove" in caplog.text


def test_a_damaged_header_makes_its_neighbour_no_older() -> None:
    disk, wall = Disk(), Wall()
    writer = log(disk, wall, segment_bytes=BLOCKS_AT + 1, retain_age=1000.0)
    for i in range(1, 4):
        writer.append([event(i)], skew=0)
    disk.open(segment_name(2)).data[:BLOCKS_AT] = bytes(BLOCKS_AT)
    assert writer.retain() == []
    wall.now += 2000
    writer.append([event(4)], skew=0)
    assert segment_names(disk.names()) == [segment_name(i) for i in (3, 4)]


def test_a_quiet_segment_is_sealed_by_age() -> None:
    disk, wall = Disk(), Wall()
    writer = log(disk, wall, segment_age=60.0)
    writer.append([event(1)], skew=0)
    writer.idle()
    assert writer.sealed == []
    wall.now += 61
    writer.idle()
    writer.idle()
    assert writer.sealed == [segment_name(1)]
    writer.append([event(2)], skew=0)
    assert segment_names(disk.names()) == [segment_name(1), segment_name(2)]


@pytest.mark.parametrize("step", [100.0, -86_400.0])
def test_a_segment_is_sealed_by_age_though_the_clock_was_set_back(step: float) -> None:
    wall = Wall()
    writer = log(Disk(), wall, segment_age=60.0)
    writer.append([event(1)], skew=0)
    writer.idle()
    assert writer.sealed == []
    wall.now += step
    writer.idle()
    assert writer.sealed == [segment_name(1)]
