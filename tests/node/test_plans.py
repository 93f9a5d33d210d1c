"""A placement plan in a file: read, followed, refused when it is none."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import time
from pathlib import Path

import pytest

from homing.errors import ConfigError
from homing.node.host import Host
from homing.node.plans import follow, read_plan, start_plan
from homing.node.rereads import read_again
from homing.node.run import Ending
from homing.push.index.oracle import Oracle
from homing.push.matcher import Matcher
from homing.push.placement import EVERYWHERE, MAX_PLAN_BYTES, Plan, dump_plan


def matcher(host: Host) -> Matcher:
    counter = itertools.count()
    ids = (number.to_bytes(12, "big") for number in counter)
    host.role = made = Matcher(
        host, b"match001", time.time, lambda: next(ids), Oracle, dispatchers=()
    )
    return made


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"nonsense", "not a placement plan"),
        (b'{"epoch": 1, "trees": []}', "1 to 8 trees"),
        (b" " * (MAX_PLAN_BYTES + 1), "at most"),
        (None, "No such file"),
    ],
)
def test_what_is_no_plan_is_told_with_its_file(
    tmp_path: Path, text: bytes | None, told: str
) -> None:
    path = tmp_path / "plan.json"
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(ConfigError, match=told) as caught:
        read_plan(str(path))
    assert str(path) in str(caught.value)
    assert read_plan("") is None


def write(path: Path, epoch: int) -> None:
    path.write_bytes(dump_plan(Plan(epoch, EVERYWHERE.trees)))


def spoil(path: Path) -> None:
    path.write_bytes(b"broken")


def write_unnoticed(path: Path, epoch: int) -> None:
    """The file looks as it did before."""
    stamp = path.stat()
    write(path, epoch)
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))


async def followed(path: Path) -> None:
    host = Host()
    role = matcher(host)
    try:
        write(path, 1)
        assert follow(host, role, str(path))
        assert not follow(host, role, str(path))  # no newer than what is followed
        spoil(path)
        assert not follow(host, role, str(path))
        assert role.table.newest.plan.epoch == 1
        start_plan(host, role, str(path))
        write(path, 2)
        await until_epoch(role, 2)
        write_unnoticed(path, 3)
        with Ending(lambda: read_again(host.rereads.items())):
            os.kill(os.getpid(), signal.SIGHUP)
            await until_epoch(role, 3)
    finally:
        host.stop()


async def until_epoch(role: Matcher, epoch: int) -> None:
    async with asyncio.timeout(30):
        while role.table.newest.plan.epoch != epoch:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def test_a_plan_is_followed_when_its_file_changes_and_on_sighup(tmp_path: Path) -> None:
    asyncio.run(followed(tmp_path / "plan.json"))
