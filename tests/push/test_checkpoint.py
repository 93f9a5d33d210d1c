"""Checkpoints: the same state from fewer events; a damaged file is noticed, never believed."""

from __future__ import annotations

import asyncio
import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.config import Config, load
from homing.journal.events import Event, NodeStarted, SessionOpened, SubscriptionSet
from homing.journal.log import Limits
from homing.journal.reader import read
from homing.journal.writer import Journal, open_journal
from homing.node.checkpoint import (
    block,
    checkpoint_now,
    image,
    parse_checkpoint,
    read_checkpoint,
    start_checkpoints,
    write_checkpoint,
)
from homing.node.host import Host
from homing.node.journals import CHECKPOINT, journal_directory, reopen_journal
from homing.wire import relay
from tests.node.stage import Memory, until
from tests.push import test_matcher
from tests.push.desk import NODE, Desk, client_id, message_id

EVENTS: list[Event] = [
    SessionOpened(0.0, bytes(12), durable=True),
    SubscriptionSet(0.0, bytes(12), bytes(8), b"default", b'{"n":{"use":2}}'),
]


def test_a_connector_starts_from_its_checkpoint() -> None:
    desk = Desk()
    link = desk.subscribed(1, ack=True, resume=True)
    desk.subscribed(2, ack=True, resume=True)
    desk.subscribed(3)
    for number in range(4):
        desk.push(number, 1, 2, 3)
    desk.settle()
    desk.say(link, b"ack", message_id(1).hex().encode())
    desk.push(4, 1)  # not yet durable: its event counts as in the checkpoint
    again = Desk(recovered=list(desk.connector.checkpoint()))
    assert sorted(again.connector.sessions) == [client_id(1), client_id(2)]
    again.push(1, 1)  # it went there before, though nobody is owed it any more
    assert again.sent() == [relay.Ack(message_id(1), client_id(1), NODE)]
    assert again.ids(again.auth_resumed(1)) == [0, 2, 3, 4]
    assert again.ids(again.auth_resumed(2)) == [0, 1, 2, 3]


def test_a_matcher_starts_from_its_checkpoint() -> None:
    desk = test_matcher.Desk()
    for client in (1, 2):
        desk.subscribe(client)
    for number in range(3):
        desk.send(number)
    desk.sync_journal()
    desk.take_over(desk.relayed()[1])
    desk.send(3)  # not yet durable
    again = test_matcher.Desk(recovered=list(desk.matcher.checkpoint()), ready=False)
    again.hello(test_matcher.C1)
    pushed = [one.message_id for one in again.relayed() if isinstance(one, relay.Push)]
    assert pushed == [message_id(0), message_id(2), message_id(3)]
    assert len(again.matcher.table) == 2
    again.send(1)  # its ack was lost
    [answer] = again.answers()
    assert str(answer).endswith("matched=2)")


@given(st.integers(0, 400), st.integers(1, 255))
def test_damage_is_noticed(at: int, flip: int) -> None:
    whole = image(7, [block(EVENTS)])
    assert parse_checkpoint(whole) == (7, EVENTS)
    at %= len(whole)
    with pytest.raises(ValueError, match=r"checkpoint|damaged|end"):
        parse_checkpoint(whole[:at])
    broken = whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1 :]
    with pytest.raises(ValueError, match=r"checkpoint|damaged|end"):
        parse_checkpoint(broken)


def test_a_file_that_cannot_be_trusted_counts_as_none(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    assert read_checkpoint(path) == (0, [])
    path.write_bytes(b"HOMINGC1 but not really")
    assert read_checkpoint(path) == (0, [])
    write_checkpoint(path, 9, [block(EVENTS)])
    assert read_checkpoint(path) == (9, EVENTS)


def test_a_checkpoint_waits_for_its_journal(tmp_path: Path) -> None:
    class Role:
        def checkpoint(self) -> list[Event]:
            return EVENTS * 3000

    async def main() -> None:
        loop = asyncio.get_running_loop()
        journal = open_journal(
            tmp_path, bytes(8), post=loop.call_soon_threadsafe, on_durable=lambda number: None
        )
        for event in EVENTS:
            journal.append(event)
        assert await checkpoint_now(Role(), journal, tmp_path / "checkpoint") == 2
        assert journal.durable >= 2
        journal.close()

    asyncio.run(main())
    number, events = read_checkpoint(tmp_path / "checkpoint")
    assert (number, len(events)) == (2, 6000)


def test_a_checkpoint_that_finds_no_room_leaves_none_of_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / CHECKPOINT
    write_checkpoint(path, 7, [block(EVENTS)])

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_checkpoint(path, 8, [block(EVENTS)])
    assert list(tmp_path.iterdir()) == [path]
    assert read_checkpoint(path) == (7, EVENTS)


class Teller(Memory):
    """A role that tells the same in each checkpoint."""

    def checkpoint(self) -> list[Event]:
        return EVENTS


def at_home(data: Path) -> tuple[Config, Path]:
    """A connector's settings, and where its journal is."""
    config = load(Path("/dev/null"), flags={"node.data": str(data)}, environment={})
    return config, journal_directory(config, "connector", NODE.hex())


def test_retention_takes_only_what_a_checkpoint_includes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("homing.node.journals.Limits", lambda **_: Limits(1, 60.0, 1, 60.0))
    monkeypatch.setattr("homing.node.checkpoint.LOOK_SECONDS", 0.01)
    config, directory = at_home(tmp_path)
    opened = EVENTS[0]

    async def life(remembers: bool) -> list[object]:
        host = Host()
        host.role = role = Teller()
        recovered = reopen_journal(host, config, "connector", NODE)
        journal = host.journal_writer
        assert isinstance(journal, Journal)
        if not remembers:  # this life is too short for one
            journal.append(opened)
        else:
            start_checkpoints(host, role, directory / CHECKPOINT)
        async with asyncio.timeout(60):
            for _ in range(5):  # so that segments are finished
                journal.append(NodeStarted(0.0, b"", b""))
                await until(lambda: journal.durable == journal.number)
            while remembers and opened in kept():
                journal.append(NodeStarted(0.0, b"", b""))
                await asyncio.sleep(0.01)
        host.stop()
        return recovered

    def kept() -> list[object]:
        return [record.event for record in read(directory, 1)]

    async def lives() -> None:
        await life(remembers=False)
        for _ in range(2):
            assert opened in await life(remembers=False)
        assert opened in await life(remembers=True)
        assert opened not in kept()
        assert opened in await life(remembers=False)

    asyncio.run(lives())


def test_a_life_that_is_short_makes_a_checkpoint_of_what_those_before_it_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that is started again and again never gets to look; its journal grew past all limits."""
    monkeypatch.setattr("homing.node.journals.Limits", lambda **_: Limits(1, 60.0, 1, 60.0))
    monkeypatch.setattr("homing.node.checkpoint.LOOK_SECONDS", 3600.0)
    config, directory = at_home(tmp_path)
    path = directory / CHECKPOINT

    async def life(done: Callable[[Journal], bool], *events: Event) -> None:
        host = Host()
        host.role = role = Teller()
        reopen_journal(host, config, "connector", NODE)
        journal = host.journal_writer
        assert isinstance(journal, Journal)
        start_checkpoints(host, role, path)
        for event in events:
            await until(lambda: journal.durable == journal.number)
            journal.append(event)
        await until(lambda: done(journal))
        monkeypatch.setattr(journal._log, "rotate", lambda: None)  # it is killed
        host.stop()

    def first() -> str:
        return min(path.parent.glob("*.hj")).name

    async def lives() -> None:
        await life(lambda journal: journal.durable == journal.number, *EVENTS, *EVENTS)
        assert not path.exists()  # there was nothing to make one of
        oldest = first()
        await life(lambda _: path.exists())
        await life(lambda _: first() != oldest)

    asyncio.run(lives())


def test_what_somebody_removes_of_a_journal_its_role_tells_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("homing.node.checkpoint.LOOK_SECONDS", 0.01)
    config, directory = at_home(tmp_path)

    async def life(harm: bool) -> list[object]:
        host = Host()
        host.role = role = Teller()
        recovered = reopen_journal(host, config, "connector", NODE)
        journal = host.journal_writer
        assert isinstance(journal, Journal)
        start_checkpoints(host, role, directory / CHECKPOINT)
        await until(lambda: journal.durable == journal.number)
        if harm:
            shutil.rmtree(directory)
            journal.append(NodeStarted(0.0, b"", b""))
            await until((directory / CHECKPOINT).exists)
        host.stop()
        return recovered

    async def lives() -> None:
        await life(harm=True)
        assert (await life(harm=False))[: len(EVENTS)] == EVENTS

    asyncio.run(lives())
