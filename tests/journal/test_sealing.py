"""Sealing: Parquet says what the segment says, is complete or absent, and goes with it."""

from __future__ import annotations

import fcntl
import threading
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from homing.cli import main
from homing.errors import CorruptSegment
from homing.journal import sealing
from homing.journal.columns import SCHEMA
from homing.journal.events import Delivered, Event, RequestAccepted
from homing.journal.reader import blocks, segments
from homing.journal.sealing import seal, seal_all, unsealed
from homing.journal.segment import BLOCKS_AT
from tests.journal.conftest import SKEW, MakeLog


@pytest.fixture
def journal(tmp_path: Path, make_log: MakeLog) -> Path:
    """Three finished segments of 10 events and an open one of 2."""
    log = make_log(tmp_path, segment_bytes=BLOCKS_AT + 300)
    for i in range(16):
        pair: list[Event] = [
            RequestAccepted(float(i), b"echo", b"c", i),
            Delivered(float(i), bytes(12), bytes(24)),
        ]
        log.append(pair, SKEW)
    return tmp_path


def test_sealed_segments_become_parquet(journal: Path) -> None:
    finished = [segment.parquet for segment in unsealed(journal)]
    assert len(finished) == len(segments(journal)) - 1 >= 2
    assert list(seal_all(journal)) == finished
    assert unsealed(journal) == []
    table = pq.read_table(finished[0])
    assert table.schema.equals(SCHEMA, check_metadata=False)
    assert table.schema.metadata[b"homing.node"] == b"node0001"
    assert table.column("number").to_pylist() == list(range(1, table.num_rows + 1))
    assert table.column("size").to_pylist()[::2] == list(range(table.num_rows // 2))
    codec = pq.ParquetFile(finished[0]).metadata.row_group(0).column(0).compression
    assert codec == "ZSTD"


def test_two_at_once_do_not_write_the_same_copy(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, flock = threading.Event(), fcntl.flock

    def told(file: IO[bytes], how: int) -> None:
        asked.set()
        flock(file, how)

    first = seal_all(journal)
    made = [next(first)]
    monkeypatch.setattr("homing.journal.sealing.fcntl.flock", told)
    others: list[Path] = []
    second = threading.Thread(target=lambda: others.extend(seal_all(journal)))
    second.start()
    assert asked.wait(60)  # it waits, or is about to
    made += first
    second.join()
    assert others == []
    assert made == sorted(journal.glob("*.parquet"))


def test_what_a_killed_process_left_goes(journal: Path) -> None:
    half = journal / "00000000000000000001.partial"
    half.write_bytes(b"PAR1")
    gone = journal / "00000000000000000000.partial"  # of a segment that retention took
    gone.write_bytes(b"PAR1")
    assert len(list(seal_all(journal))) == len(segments(journal)) - 1
    assert not half.exists()
    assert not gone.exists()


def test_row_groups_are_cut(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "ROW_GROUP", 4)
    first = unsealed(journal)[0]
    count = sum(block.count for block in blocks(first))
    assert pq.ParquetFile(seal(first)).num_row_groups == -(-count // 4)


def test_damage_is_told_and_the_rest_is_kept(journal: Path) -> None:
    first = unsealed(journal)[0]
    data = bytearray(first.path.read_bytes())
    data[BLOCKS_AT + 45] ^= 0xFF
    first.path.write_bytes(data)
    with pytest.raises(CorruptSegment):
        seal(first)
    assert not first.parquet.exists()
    told: list[CorruptSegment] = []
    numbers = pq.read_table(seal(first, told.append)).column("number").to_pylist()
    assert numbers[0] == 3
    assert [each.offset for each in told] == [BLOCKS_AT]


def test_a_copy_goes_with_its_segment(journal: Path) -> None:
    first = unsealed(journal)[0]
    list(seal_all(journal))
    first.path.unlink()
    assert list(seal_all(journal)) == []
    assert not first.parquet.exists()
    assert len(list(journal.glob("*.parquet"))) >= 1


def test_nobody_else_s_files_go(journal: Path) -> None:
    for name in ("figures.parquet", "1.parquet"):
        (journal / name).write_text("mine")
    list(seal_all(journal))
    assert (journal / "figures.parquet").exists()
    assert (journal / "1.parquet").exists()


def test_what_could_not_be_written_leaves_nothing(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sealing, "batch", full)
    with pytest.raises(OSError, match="No space"):
        seal(unsealed(journal)[0])
    assert list(journal.glob("*.partial")) == []


def test_verify_reads_copies_too(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, *_ = seal_all(journal)
    assert main(["journal", "verify", str(journal)]) == 0
    data = bytearray(first.read_bytes())
    data[len(data) // 5] ^= 0x10
    first.write_bytes(data)
    second.write_bytes(second.read_bytes()[:-5])
    assert main(["journal", "verify", str(journal)]) == 65
    told = capsys.readouterr().err.splitlines()
    assert [line.partition(": this copy of a segment cannot be read")[0] for line in told] == [
        f"homing: {first}",
        f"homing: {second}",
    ]


def test_a_bit_of_a_footer_is_missed(journal: Path) -> None:
    """Arrow gives other rows for some of them, and ends the process for others: it is not asked."""
    copy = next(iter(seal_all(journal)))
    whole = copy.read_bytes()
    sealing.check_footer(copy)
    length = int.from_bytes(whole[-8:-4], "little")
    for place in range(len(whole) - 8 - length, len(whole) - 8, 7):
        copy.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with pytest.raises(pa.ArrowInvalid, match="footer"):
            sealing.check_footer(copy)
    damages: list[CorruptSegment] = []
    sealing.check_copies(journal, damages.append)
    assert [str(damage.path) for damage in damages] == [str(copy)]


def test_copies_of_earlier_versions_say_nothing_of_their_footers(journal: Path) -> None:
    copy = next(iter(seal_all(journal)))
    rows = pq.read_table(copy)
    pq.write_table(rows, copy)
    sealing.check_footer(copy)
