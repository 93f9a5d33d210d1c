"""Positions: two offsets always enclose the same events, whatever the limits are."""

from __future__ import annotations

from pathlib import Path
from shutil import rmtree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from homing.errors import CorruptSegment, JournalError
from homing.journal import positions
from homing.journal.events import Event, NodeStarted, NodeStopped
from homing.journal.positions import Offset, advance, between
from homing.journal.reader import segments
from homing.journal.segment import BLOCKS_AT
from tests.pipeline.conftest import WriteJournal


def group(size: int) -> list[Event]:
    return [NodeStopped(1.0)] * size


def numbers(root: Path, start: Offset, end: Offset) -> list[tuple[str, int]]:
    return [
        (each.journal, number)
        for each in between(root, start, end)
        for number in range(each.first, each.last + 1)
    ]


def everything(root: Path, most: int | None) -> list[tuple[str, int]]:
    """All events, read in steps of about `most`."""
    found, offset = [], Offset()
    while (after := advance(root, offset, most)) != offset:
        found += numbers(root, offset, after)
        offset = after
    return found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(1, 12))
def test_steps_of_any_size_give_every_event_once(
    tmp_path_factory: pytest.TempPathFactory,
    write_journal: WriteJournal,
    sizes: list[int],
    most: int,
) -> None:
    root = tmp_path_factory.mktemp("journals")
    for name in ("a", "b/deep"):
        groups = [group(size) for size in sizes]
        write_journal(root / name, *groups, segment_bytes=BLOCKS_AT + 120)
    total = sum(sizes)
    expected = [(name, i) for name in ("a", "b/deep") for i in range(1, total + 1)]
    assert sorted(everything(root, most)) == expected
    assert everything(root, None) == expected


def test_nothing_new_is_the_same_offset(tmp_path: Path, write_journal: WriteJournal) -> None:
    log = write_journal(tmp_path / "a", group(3))
    offset = advance(tmp_path, {})
    assert advance(tmp_path, offset) == offset
    log.append(group(2), 0)
    after = advance(tmp_path, offset)
    assert numbers(tmp_path, offset, after) == [("a", 4), ("a", 5)]
    write_journal(tmp_path / "b", group(1))
    assert numbers(tmp_path, after, advance(tmp_path, after)) == [("b", 1)]


def test_an_unfinished_block_waits(tmp_path: Path, write_journal: WriteJournal) -> None:
    write_journal(tmp_path / "a", group(1), group(1))
    [segment] = segments(tmp_path / "a")
    whole = segment.path.read_bytes()
    segment.path.write_bytes(whole[:-3])
    offset = advance(tmp_path, {})
    assert numbers(tmp_path, {}, offset) == [("a", 1)]
    segment.path.write_bytes(whole)
    assert numbers(tmp_path, offset, advance(tmp_path, offset)) == [("a", 2)]


def test_ranges_are_cut_for_parallel_tasks(
    tmp_path: Path, write_journal: WriteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(positions, "RANGE_BYTES", 200)
    write_journal(tmp_path / "a", *[group(1)] * 12)
    pieces = between(tmp_path, {}, advance(tmp_path, {}))
    assert len(pieces) > 3
    assert all(piece.end - piece.start <= 200 for piece in pieces)
    assert [(one.last + 1) for one in pieces[:-1]] == [two.first for two in pieces[1:]]


def test_damage_lies_inside_a_range(tmp_path: Path, write_journal: WriteJournal) -> None:
    write_journal(tmp_path / "a", group(1), group(1), group(1))
    [segment] = segments(tmp_path / "a")
    data = bytearray(segment.path.read_bytes())
    at = BLOCKS_AT + (len(data) - BLOCKS_AT) // 3
    data[at] ^= 0xFF
    segment.path.write_bytes(data)
    [piece] = between(tmp_path, {}, advance(tmp_path, {}))
    assert (piece.first, piece.last) == (1, 3)
    assert piece.start < at < piece.end


def test_a_segment_gone_before_it_was_read_is_told(
    tmp_path: Path, write_journal: WriteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_journal(tmp_path / "a", group(1))
    listed = segments(tmp_path / "a")
    monkeypatch.setattr(positions, "segments", lambda *_: listed)
    listed[0].path.unlink()
    told: list[CorruptSegment] = []
    monkeypatch.setattr(positions, "journals", lambda _: [tmp_path / "a"])
    assert advance(tmp_path, {}, None, told.append) == {}
    assert "removed before it was read" in told[0].reason


def test_events_that_are_gone_between_ranges_are_told(
    tmp_path: Path, write_journal: WriteJournal
) -> None:
    log = write_journal(tmp_path / "a", *[group(2)] * 4, segment_bytes=BLOCKS_AT + 1)
    start = advance(tmp_path, {}, 2)
    one, two, *_ = segments(tmp_path / "a")
    data = bytearray(two.path.read_bytes())
    data[BLOCKS_AT + 5] ^= 0xFF  # in a block's header: no range has it
    two.path.write_bytes(data)
    end = advance(tmp_path, start, None)
    told: list[CorruptSegment] = []
    assert [each.first for each in between(tmp_path, start, end, told.append)] == [5, 7]
    assert [each.reason for each in told] == ["events 3–4 are missing before it"]
    one.path.unlink()  # all of it was read
    two.path.unlink()
    assert [each.first for each in between(tmp_path, start, end, told.append)] == [5, 7]
    assert len(told) == 2
    with pytest.raises(CorruptSegment, match="events 3–4"):
        between(tmp_path, start, end)
    log.append([NodeStarted(1.0, b"broker")], 0)
    log.number += 3
    log.rotate()
    log.append([NodeStarted(1.0, b"broker")], 0)  # what is left out before it was never whole
    between(tmp_path, end, advance(tmp_path, end, None), told.append)
    assert len(told) == 2


def test_a_journal_that_is_gone_keeps_nobody_from_the_others(
    tmp_path: Path, write_journal: WriteJournal
) -> None:
    write_journal(tmp_path / "a", group(2))
    log = write_journal(tmp_path / "b", group(2))
    half = advance(tmp_path, {}, 2)
    whole = advance(tmp_path, {}, None)
    rmtree(tmp_path / "a")
    log.append(group(1), 0)
    after = advance(tmp_path, whole, None)
    assert numbers(tmp_path, whole, after) == [("b", 3)]
    assert numbers(tmp_path, half, after) == [("b", 1), ("b", 2), ("b", 3)]
    told: list[CorruptSegment] = []
    between(tmp_path, {}, after, told.append)
    assert [each.reason for each in told] == ["removed before it was read"]


def test_a_journal_that_begins_anew_is_another_one(
    tmp_path: Path, write_journal: WriteJournal
) -> None:
    write_journal(tmp_path / "a", group(2), group(2), segment_bytes=BLOCKS_AT + 1)
    offset = advance(tmp_path, {}, None)
    rmtree(tmp_path / "a")
    write_journal(tmp_path / "a", group(2))
    with pytest.raises(JournalError, match="was made anew: its segment 3"):
        advance(tmp_path, offset, None)
    rmtree(tmp_path / "a")
    write_journal(tmp_path / "a", group(2), group(2), group(9), segment_bytes=BLOCKS_AT + 1)
    with pytest.raises(JournalError, match="was made anew: its segment 3"):
        advance(tmp_path, offset, None)


def test_offsets_of_earlier_versions_are_read(tmp_path: Path, write_journal: WriteJournal) -> None:
    log = write_journal(tmp_path / "a", group(2))
    now = advance(tmp_path, {}, None)
    earlier = {"a": {key: now["a"][key] for key in ("segment", "at")}}
    assert advance(tmp_path, earlier, None) == earlier
    log.append(group(1), 0)
    assert numbers(tmp_path, earlier, advance(tmp_path, earlier, None)) == [("a", 3)]


def test_a_journal_is_not_read_twice_from_another_directory(
    tmp_path: Path, write_journal: WriteJournal
) -> None:
    write_journal(tmp_path / "data/broker", group(2))
    offset = advance(tmp_path, {}, None)
    assert advance(tmp_path, offset, None) == offset
    with pytest.raises(JournalError, match="was read before, as data/broker"):
        advance(tmp_path / "data", offset, None)
    write_journal(tmp_path / "data/matcher", group(2))
    assert advance(tmp_path, offset, None).keys() == {"data/broker", "data/matcher"}
