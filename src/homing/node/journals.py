"""Opens the journal of a node as the settings say."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

from homing.config import Config
from homing.errors import CorruptSegment
from homing.journal.events import NodeStarted
from homing.journal.log import Limits, Recovery
from homing.journal.reader import read
from homing.journal.writer import open_journal
from homing.node.checkpoint import read_checkpoint
from homing.node.host import Host
from homing.node.sealer import Sealer

CHECKPOINT = "checkpoint"
"""A role's state, beside its segments."""
LONG_NAME = 200
"""Characters of a broker's name that are spelled out: a directory's name has 255 at most."""

_log = logging.getLogger("homing.node")


def journal_directory(config: Config, role: str, name: str) -> Path:
    """Where a node's journal lies."""
    return Path(config.node.data) / config.journal.directory / f"{role}-{_spelled(name)}"


def _spelled(name: str) -> str:
    """A name as one step of a path: brokers may be called `a/b`, or be named at length."""
    spelled = name.replace("%", "%25").replace("/", "%2F")
    if len(spelled) <= LONG_NAME:
        return spelled
    return f"{spelled[:LONG_NAME]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def start_journal(
    host: Host,
    config: Config,
    role: str,
    name: str,
    node: bytes,
    *,
    at_least: float = 0.0,
    hold: int | None = None,
) -> None:
    """Let a host journal from now on; the first event says that the node started.

    `at_least`: seconds from a commit to the next at a node where nobody waits for them. `hold`: the
    first event that a later life will need.
    """
    settings = config.journal
    directory = journal_directory(config, role, name)
    sealer = Sealer(directory, settings.seal_interval) if settings.seal_interval else None
    journal = open_journal(
        directory,
        node,
        post=host.loop.call_soon_threadsafe,
        on_durable=host.durable,
        name=f"{role} {name}",
        durability=settings.durability,
        interval=settings.commit_interval,
        at_least=at_least,
        limits=Limits(
            segment_bytes=settings.segment_bytes,
            segment_age=settings.segment_age,
            retain_bytes=settings.retain_bytes,
            retain_age=settings.retain_age,
        ),
        on_sealed=sealer.finished if sealer else None,
        on_pressure=host.press,
    )
    _tell_found(directory, journal.recovered)
    journal.hold(hold)
    if sealer:
        sealer.start(host)
    host.journal_writer = journal
    journal.append(NodeStarted(host.now(), role.encode(), name.encode()))


def reopen_journal(host: Host, config: Config, role: str, node: bytes) -> list[object]:
    """Let a node journal from now on; what its earlier lives wrote comes back.

    Its role keeps checkpoints: what none of them includes is held.
    """
    if not config.journal.enabled:
        return []
    directory = journal_directory(config, role, node.hex())
    directory.mkdir(parents=True, exist_ok=True)
    number, events = read_checkpoint(directory / CHECKPOINT)
    since = read(directory, number + 1, on_damage=_tell_damage)
    recovered: list[object] = [*events, *[record.event for record in since]]
    start_journal(host, config, role, node.hex(), node, hold=number + 1)
    return recovered


def _tell_found(directory: Path, found: Recovery) -> None:
    """A kill in the middle of a write is nothing to worry about; other damage is."""
    if found.torn is not None:
        name, size, reason = found.torn
        level = logging.INFO if reason.startswith("ends inside") else logging.WARNING
        _log.log(level, "%d bytes were cut off the end of %s: %s", size, directory / name, reason)
    for name, damage in found.damage:
        _tell_damage(CorruptSegment(str(directory / name), damage.start, damage.reason))


def _tell_damage(damage: CorruptSegment) -> None:
    _log.error("the journal is damaged, and goes on after it: %s", damage)
