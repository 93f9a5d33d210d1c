"""Files that cannot be opened, and files and directories that somebody removes under a journal."""

from __future__ import annotations

from pathlib import Path

import pytest

from homing.journal.disk import OpenFile


def test_a_file_that_could_not_be_opened_has_nothing_to_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", raised.append)
    with pytest.raises(FileNotFoundError):
        OpenFile(tmp_path / "gone" / "file")
    assert not raised
