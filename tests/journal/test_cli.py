"""`homing journal`: what it prints and how it ends."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from homing.cli import main
from homing.journal.events import Event, NodeStarted, RequestAccepted, RequestAnswered
from homing.journal.log import Log
from homing.journal.reader import segments
from homing.journal.segment import BLOCKS_AT
from tests.journal.conftest import SKEW, MakeLog


@pytest.fixture
def journal(tmp_path: Path, make_log: MakeLog) -> Path:
    log = make_log(tmp_path / "broker", segment_bytes=BLOCKS_AT + 1)
    log.append([NodeStarted(0.0, b"broker", b"paris")], SKEW)
    pair: list[Event] = [
        RequestAccepted(1.0, b"echo", b"\x00c", 64),
        RequestAnswered(1.5, 2, b"w", 64),
    ]
    log.append(pair, SKEW)
    return tmp_path


def test_ls(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["journal", "seal", str(journal)]) == 0
    assert main(["journal", "ls", str(journal)]) == 0
    sealed, header, first, second = capsys.readouterr().out.splitlines()
    assert Path(sealed).suffix == ".parquet"
    assert header.split() == ["journal", "segment", "numbers", "from", "bytes", "state"]
    assert first.split()[2] == "1–1"
    assert first.endswith("sealed")
    assert second.split()[2] == "2–3"
    assert second.endswith("open")


def test_ls_json(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["journal", "ls", "--json", str(journal)]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["first"], row["last"], row["state"]) for row in rows] == [
        (1, 1, "finished"),
        (2, 3, "open"),
    ]


def test_cat(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["journal", "cat", str(journal)]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["kind"] for row in rows] == ["NodeStarted", "RequestAccepted", "RequestAnswered"]
    assert rows[1]["at"] == "2023-11-14T22:13:21+00:00"
    assert (rows[1]["service"], rows[1]["client"]) == ("echo", "0x0063")
    chosen = ["--kind", "RequestAnswered", "--kind", "NodeStarted", "--from", "2", "--limit", "5"]
    assert main(["journal", "cat", str(journal), *chosen]) == 0
    [line] = capsys.readouterr().out.splitlines()
    assert json.loads(line)["number"] == 3


def test_one_event_has_no_rate(
    tmp_path: Path, make_log: MakeLog, capsys: pytest.CaptureFixture[str]
) -> None:
    make_log(tmp_path / "broker").append([NodeStarted(0.0, b"broker", b"paris")], SKEW)
    assert main(["journal", "stats", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[-1] == "–"


def test_an_unknown_kind_is_named(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["journal", "cat", str(journal), "--kind", "Requests"]) == 64
    assert "no kind 'Requests'" in capsys.readouterr().err


def test_verify_whole_and_damaged(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["journal", "verify", str(journal)]) == 0
    assert "3 events in 2 segments: whole" in capsys.readouterr().out
    path = segments(journal / "broker")[0].path
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert main(["journal", "verify", str(journal)]) == 65
    printed = capsys.readouterr()
    assert "2 events in 2 segments: 1 damaged places" in printed.out
    assert f"{path}: checksum of events 1–1 wrong (at byte {BLOCKS_AT})" in printed.err


def test_verify_misses_what_is_gone(
    tmp_path: Path, make_log: MakeLog, capsys: pytest.CaptureFixture[str]
) -> None:
    log = make_log(tmp_path, segment_bytes=BLOCKS_AT + 1)
    for i in range(1, 5):
        log.append([RequestAccepted(float(i), b"echo", b"c", 64)], SKEW)
    segments(tmp_path)[0].path.unlink()  # as retention does
    assert main(["journal", "verify", str(tmp_path)]) == 0
    os.truncate(segments(tmp_path)[1].path, BLOCKS_AT)
    assert main(["journal", "verify", str(tmp_path)]) == 65
    assert "events 3–3 are missing before it" in capsys.readouterr().err
    segments(tmp_path)[1].path.unlink()
    assert main(["journal", "verify", str(tmp_path)]) == 65
    assert "2 events in 2 segments: 1 damaged places" in capsys.readouterr().out


def test_numbers_that_a_crash_left_out_are_not_missed(tmp_path: Path, make_log: MakeLog) -> None:
    log = make_log(tmp_path)
    log.append([RequestAccepted(1.0, b"echo", b"c", 64)], SKEW)
    [segment] = segments(tmp_path)
    with segment.path.open("ab") as file:
        file.write(b"\xf0HJB" + bytes(500))
    again = Log(log.disk, b"node0001", wall=lambda: 1.7e9, salt=lambda: 7)
    assert again.recovered.torn is not None
    again.append([NodeStarted(2.0, b"broker", b"paris")], SKEW)
    assert segments(tmp_path)[1].header.first > 2
    assert main(["journal", "verify", str(tmp_path)]) == 0


def test_stats(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["journal", "stats", "--json", str(journal)]) == 0
    [found] = json.loads(capsys.readouterr().out).values()
    assert found["kinds"] == {"NodeStarted": 1, "RequestAccepted": 1, "RequestAnswered": 1}
    assert found["last"] - found["first"] == 1_500_000
    assert main(["journal", "stats", str(journal)]) == 0
    assert "33.3%" in capsys.readouterr().out


def test_no_journal_is_said_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["journal", "ls", str(tmp_path)]) == 66
    assert "there is no journal here" in capsys.readouterr().err
    assert main(["journal", "ls", str(tmp_path / "absent")]) != 0
