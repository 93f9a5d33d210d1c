"""Snapshots: what is saved comes back, stays changeable, and damage is noticed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from homing.errors import CorruptSegment
from homing.push.index import Index, Oracle
from homing.push.index import kernels as compiled
from tests.push.index.test_index import answers, churn, compare


def filled(seed: int) -> tuple[Index, Oracle]:
    index, oracle = Index(background=False), Oracle()
    churn(index, oracle, random.Random(seed), 1500, 1000)
    index.replace(5000, {})
    oracle.replace(5000, {})
    return index, oracle


def test_a_snapshot_comes_back_and_goes_on(tmp_path: Path) -> None:
    index, oracle = filled(1)
    index.snapshot(tmp_path / "index")
    again = Index.load(tmp_path / "index", background=False)
    chance = random.Random(2)
    assert len(again) == len(oracle)
    assert 5000 in again
    compare(again, oracle, chance, 50)
    churn(again, oracle, chance, 800, 1000)
    compare(again, oracle, chance, 50)
    again.compact()
    compare(again, oracle, chance, 50)
    again.snapshot(tmp_path / "index")
    compare(Index.load(tmp_path / "index", background=False), oracle, chance, 50)


def test_changes_after_loading_leave_the_file_alone(tmp_path: Path) -> None:
    index, oracle = filled(3)
    index.snapshot(tmp_path / "index")
    before = (tmp_path / "index").read_bytes()
    again = Index.load(tmp_path / "index", background=False)
    for subscription in range(1000):
        if subscription in again:
            again.remove(subscription)
    assert (tmp_path / "index").read_bytes() == before
    compare(Index.load(tmp_path / "index", background=False), oracle, random.Random(4), 20)


def test_a_loaded_index_answers_before_the_kernels_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, oracle = filled(5)
    index.snapshot(tmp_path / "index")
    monkeypatch.setattr(compiled, "_loaded", None)
    again = Index.load(tmp_path / "index", background=False)
    compare(again, oracle, random.Random(6), 10)
    victim = next(iter(s for s in range(1000) if s in oracle))
    again.remove(victim)
    oracle.remove(victim)
    compare(again, oracle, random.Random(7), 10)


def test_an_empty_index_has_a_snapshot_too(tmp_path: Path) -> None:
    Index(background=False).snapshot(tmp_path / "index")
    again = Index.load(tmp_path / "index", background=False)
    assert len(again) == 0
    assert answers(again, {"a": 1}) == []


@pytest.mark.parametrize("damage", ["empty", "short", "magic", "version", "cut", "flipped"])
def test_damage_is_noticed(tmp_path: Path, damage: str) -> None:
    index, _ = filled(8)
    path = tmp_path / "index"
    index.snapshot(path)
    data = bytearray(path.read_bytes())
    if damage == "empty":
        data = bytearray()
    elif damage == "short":
        data = data[:20]
    elif damage == "magic":
        data[0] ^= 1
    elif damage == "version":
        data[8] ^= 64
    elif damage == "cut":
        data = data[:-5000]
    else:
        data[len(data) // 2] ^= 4
    path.write_bytes(data)
    with pytest.raises(CorruptSegment):
        Index.load(path, background=False)


def test_every_byte_of_the_head_counts(tmp_path: Path) -> None:
    index, _ = filled(8)
    path = tmp_path / "index"
    index.snapshot(path)
    whole = path.read_bytes()
    for at in range(64):
        for bit in (1, 64):
            damaged = bytearray(whole)
            damaged[at] ^= bit
            path.write_bytes(damaged)
            with pytest.raises(CorruptSegment):
                Index.load(path, background=False)


def test_a_damaged_vocabulary_is_noticed_without_a_checksum_too(tmp_path: Path) -> None:
    index, _ = filled(8)
    path = tmp_path / "index"
    index.snapshot(path)
    data = bytearray(path.read_bytes())
    data[64:68] = (3).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(CorruptSegment):
        Index.load(path, background=False, verify=False)


def test_a_failed_save_leaves_the_old_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, oracle = filled(9)
    index.snapshot(tmp_path / "index")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="space"):
        index.snapshot(tmp_path / "index")
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["index"]
    compare(Index.load(tmp_path / "index", background=False), oracle, random.Random(10), 10)
