"""The simulated disk keeps what was synced, whatever the crash; and really tears the rest."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from homing.errors import DiskFull
from homing.testing import Disk


@given(st.binary(max_size=200), st.binary(max_size=200), st.integers(0, 2**32))
def test_synced_bytes_survive_and_nothing_appears_beyond_what_was_written(
    safe: bytes, unsafe: bytes, seed: int
) -> None:
    disk = Disk()
    file = disk.open("journal")
    disk.sync()
    file.write(safe)
    file.sync()
    file.write(unsafe)
    disk.crash(Random(seed))
    after = disk.read("journal")
    assert after.startswith(safe)
    assert len(after) <= len(safe + unsafe)


def test_a_crash_tears_in_every_way() -> None:
    """Over some seeds: all lost, all kept, cut in the middle, zeros, garbage."""
    written = bytes(range(1, 101))
    seen = set()
    for seed in range(200):
        disk = Disk()
        file = disk.open("f")
        disk.sync()
        file.write(written)
        disk.crash(Random(seed))
        after = disk.read("f")
        if written.startswith(after):
            seen.add({0: "lost", 100: "kept"}.get(len(after), "cut"))
        else:
            seen.add("zeros" if after.endswith(b"\0") else "garbage")
    assert seen == {"lost", "kept", "cut", "zeros", "garbage"}


def test_a_name_is_safe_only_once_the_directory_is() -> None:
    fates = set()
    for seed in range(50):
        disk = Disk()
        disk.open("old").write(b"1")
        disk.open("old").sync()
        disk.sync()
        disk.open("new").write(b"22")
        disk.open("new").sync()
        disk.rename("new", "old")
        disk.crash(Random(seed))
        fates.add((tuple(disk.names()), disk.read("old")))
    assert fates >= {(("old",), b"1"), (("old",), b"22")}
    assert all(content in (b"1", b"22") for _, content in fates)


def test_a_synced_directory_holds_after_any_crash() -> None:
    for seed in range(50):
        disk = Disk()
        disk.open("a").write(b"1")
        disk.open("a").sync()
        disk.rename("a", "b")
        disk.sync()
        disk.crash(Random(seed))
        assert disk.names() == ["b"]
        assert disk.read("b") == b"1"


def test_full_disks_refuse_whole_writes() -> None:
    disk = Disk(capacity=10)
    file = disk.open("f")
    file.write(b"12345678")
    with pytest.raises(DiskFull):
        file.write(b"9ab")
    assert file.read() == b"12345678"
    file.truncate(4)
    file.write(b"567890")
    disk.full += 1
    with pytest.raises(DiskFull):
        file.write(b"")
    assert disk.used == 10


def test_what_is_not_there_is_said() -> None:
    disk = Disk()
    for missing in (
        lambda: disk.read("x"),
        lambda: disk.remove("x"),
        lambda: disk.rename("x", "y"),
    ):
        with pytest.raises(FileNotFoundError, match="x"):
            missing()


class DiskAgainstModel(RuleBasedStateMachine):
    """Without a crash a disk is a dict of bytes; used room is what the files hold."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = Disk()
        self.model: dict[str, bytes] = {}

    @rule(name=st.sampled_from("abc"), data=st.binary(max_size=20))
    def write(self, name: str, data: bytes) -> None:
        self.disk.open(name).write(data)
        self.model[name] = self.model.get(name, b"") + data

    @rule(name=st.sampled_from("abc"), size=st.integers(0, 30))
    def truncate(self, name: str, size: int) -> None:
        if name in self.model:
            size = min(size, len(self.model[name]))
            self.disk.open(name).truncate(size)
            self.model[name] = self.model[name][:size]

    @rule(old=st.sampled_from("abc"), new=st.sampled_from("abc"))
    def rename(self, old: str, new: str) -> None:
        if old in self.model and old != new:
            self.disk.rename(old, new)
            self.model[new] = self.model.pop(old)

    @rule(name=st.sampled_from("abc"))
    def remove(self, name: str) -> None:
        if self.model.pop(name, None) is not None:
            self.disk.remove(name)

    @rule(seed=st.integers(0, 1000))
    def sync_all_and_crash(self, seed: int) -> None:
        for name in self.model:
            self.disk.open(name).sync()
        self.disk.sync()
        self.disk.crash(Random(seed))

    @invariant()
    def same_as_model(self) -> None:
        assert {name: self.disk.read(name) for name in self.disk.names()} == self.model
        assert self.disk.used == sum(map(len, self.model.values()))


TestDiskAgainstModel = DiskAgainstModel.TestCase
