"""Pieces of a journal become files: a whole sealed segment as it is, any other part anew."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from homing.errors import CorruptSegment
from homing.journal.columns import SCHEMA
from homing.journal.positions import Range, between
from homing.journal.sealing import seal_all
from homing.pipeline import reading, source
from homing.pipeline.asked import Asked, parse
from homing.pipeline.pieces import _events, writing
from homing.pipeline.reading import coded, read_range, repeating, whole_copy
from homing.pipeline.schema import EVENTS, RANGES
from tests.pipeline.conftest import WriteJournal
from tests.pipeline.test_crash import story


@pytest.fixture
def journal(tmp_path: Path, write_journal: WriteJournal) -> Path:
    """Several sealed segments of several blocks, and one that is still written."""
    write_journal(tmp_path / "journal/broker", *story(), segment_bytes=30_000, name="broker paris")
    assert len(list(seal_all(tmp_path / "journal/broker"))) > 1
    return tmp_path / "journal"


def ranges(asked: Asked) -> list[Range]:
    end = asked.place.advance({}, None, asked.on_damage)
    return asked.place.between({}, end, asked.on_damage)


def read(asked: Asked, piece: Range) -> pa.Table:
    return pa.Table.from_batches(read_range(asked, piece), SCHEMA)


def test_a_whole_segment_is_its_copy(journal: Path) -> None:
    asked = parse({"path": str(journal)}, EVENTS)
    *sealed, last = ranges(asked)
    assert whole_copy(asked, last) is None
    for piece in sealed:
        copy = whole_copy(asked, piece)
        assert copy == Path(piece.path).with_suffix(".parquet")
        events = read(asked, piece)
        assert pq.read_table(copy).equals(events)
        texts = coded(copy, ["kind", "number", "worker"])
        assert texts.to_pylist() == events.select(texts.column_names).to_pylist()


def test_a_part_of_a_segment_is_not(journal: Path) -> None:
    asked = parse({"path": str(journal)}, EVENTS)
    piece = ranges(asked)[0]
    name = piece.journal
    half = between(
        journal, {}, {name: {"segment": piece.first, "at": (piece.start + piece.end) // 2}}
    )
    assert half[0].last < piece.last
    assert whole_copy(asked, half[0]) is None
    for options in ({"kinds": "RequestAnswered"}, {"since": "1"}, {"until": "1"}):
        assert whole_copy(parse({"path": str(journal), **options}, EVENTS), piece) is None


def test_a_damaged_copy_gives_what_its_segment_gives(
    journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it is hit."""
    asked = parse({"path": str(journal)}, EVENTS)
    piece = ranges(asked)[0]
    copy = whole_copy(asked, piece)
    assert copy is not None
    good, right = copy.read_bytes(), read(asked, piece)
    told: list[CorruptSegment] = []
    monkeypatch.setattr(asked, "on_damage", told.append)
    for at in [*range(0, len(good) - 8, len(good) // 200), *range(len(good) - 8, len(good))]:
        copy.write_bytes(good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :])
        assert read(asked, piece).equals(right)
        written = _events(asked, piece, tmp_path / "some.parquet")(SCHEMA.names)
        assert written.to_pylist() == right.to_pylist()
        assert pq.read_table(tmp_path / "some.parquet").equals(right)
    copy.write_bytes(b"")
    assert read(asked, piece).equals(right)
    assert {each.path for each in told} == {str(copy)}


def test_a_copy_that_fails_midway_is_named(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that were given cannot be taken back, and nobody knows which they were."""
    asked = parse({"path": str(journal)}, EVENTS)
    piece = ranges(asked)[0]
    first = read(asked, piece).to_batches()[0]

    def broken(*_: object) -> Iterator[pa.RecordBatch]:
        yield first
        raise pa.ArrowInvalid("torn")

    monkeypatch.setattr(reading, "_from_parquet", broken)
    with pytest.raises(CorruptSegment, match=r"parquet: this copy .* \(torn\); remove it"):
        read(asked, piece)


def test_a_copy_that_lacks_a_column_is_written_anew(journal: Path, tmp_path: Path) -> None:
    asked = parse({"path": str(journal)}, EVENTS)
    piece = ranges(asked)[0]
    copy = Path(piece.path).with_suffix(".parquet")
    pq.write_table(pq.read_table(copy).drop_columns("extra"), copy)
    assert whole_copy(asked, piece) is None
    rows = pa.RecordBatch.from_pylist([piece._asdict()], RANGES)
    list(writing({"path": str(journal)}, tmp_path, 0)([rows]))
    [written] = (tmp_path / "events/batch=0").glob("*.parquet")
    assert pq.ParquetFile(written).schema_arrow.names == SCHEMA.names


def test_a_copy_from_before_the_column_gets_the_role_from_its_segment(journal: Path) -> None:
    asked = parse({"path": str(journal)}, EVENTS)
    piece = ranges(asked)[0]
    expected = read(asked, piece)
    assert set(expected.column("role").to_pylist()) == {"broker"}
    copy = Path(piece.path).with_suffix(".parquet")
    pq.write_table(pq.read_table(copy).drop_columns("role"), copy)
    assert whole_copy(asked, piece) is None
    assert read(asked, piece).to_pylist() == expected.to_pylist()


def test_both_ways_give_the_same_files(journal: Path, tmp_path: Path) -> None:
    """Copies in one run, the segments' blocks in the other."""
    asked = parse({"path": str(journal)}, EVENTS)
    rows = pa.RecordBatch.from_pylist([piece._asdict() for piece in ranges(asked)], RANGES)
    told = []
    for name in ("copied", "made"):
        work = writing({"path": str(journal)}, tmp_path / name, 0)
        told.append([batch.to_pylist() for batch in work([rows])])
        for copy in journal.rglob("*.parquet"):
            copy.unlink()
    assert told[0] == told[1]
    for path in (tmp_path / "copied").rglob("*.parquet"):
        other = tmp_path / "made" / path.relative_to(tmp_path / "copied")
        found, expected = (pq.ParquetFile(each).read() for each in (path, other))
        assert found.to_pylist() == expected.to_pylist()
        assert found.schema.equals(expected.schema) or "events" in path.parts
    assert len(list((tmp_path / "made").rglob("*.parquet"))) > len(rows)


def test_a_task_reads_several_sealed_segments_or_one_range_of_blocks(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = parse({"path": str(journal)}, EVENTS)
    pieces = ranges(asked)
    *_, unsealed = pieces
    monkeypatch.setattr(source, "SMALL_BYTES", unsealed.end - unsealed.start)
    for most in (1, 1000, 2000, 1 << 20):
        monkeypatch.setattr(source, "TASK_EVENTS", most)
        *tasks, last = source.tasks(asked, [*pieces, unsealed])
        assert [piece for task in tasks for piece in task.pieces] == pieces
        assert last.pieces == (unsealed,) == tasks[-1].pieces
        sizes = [[piece.last - piece.first + 1 for piece in task.pieces] for task in tasks[:-1]]
        total, largest = sum(map(sum, sizes)), max(map(max, sizes))
        share = total / ceil(total / most)
        assert all(share - largest <= sum(each) <= share + largest for each in sizes)
        assert len(sizes) == min(ceil(total / most), len(pieces) - 1)
        rows = [row for task in tasks for row in source.read_partition(asked, task)]
        numbers = pa.Table.from_batches(rows).column("number").to_pylist()
        assert numbers == list(range(1, unsealed.last + 1))


def test_a_small_range_of_blocks_is_no_task_of_its_own(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = parse({"path": str(journal)}, EVENTS)
    pieces = ranges(asked)
    *_, unsealed = pieces
    monkeypatch.setattr(source, "SMALL_BYTES", unsealed.end - unsealed.start + 1)
    [task] = source.tasks(asked, pieces)
    assert list(task.pieces) == pieces
    rows = pa.Table.from_batches(source.read_partition(asked, task))
    assert rows.column("number").to_pylist() == list(range(1, unsealed.last + 1))


@pytest.mark.parametrize("dictionary", [True, False, ["kind"]])
def test_a_copy_reads_the_same_however_its_texts_are_kept(
    journal: Path, dictionary: bool | list[str]
) -> None:
    asked = parse({"path": str(journal)}, EVENTS)
    piece, *_ = ranges(asked)
    expected = pa.Table.from_batches(read_range(asked, piece))
    copy = Path(piece.path).with_suffix(".parquet")
    pq.write_table(pq.read_table(copy), copy, use_dictionary=dictionary, compression="none")
    found = pa.Table.from_batches(read_range(asked, piece))
    assert found.schema.equals(SCHEMA)
    assert found.to_pylist() == expected.to_pylist()
    assert ("kind" in repeating(pq.read_metadata(copy), SCHEMA.names)) is bool(dictionary)
