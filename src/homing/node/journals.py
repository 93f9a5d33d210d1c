"""Opens the journal of a node as the settings say."""

from __future__ import annotations

from pathlib import Path

from homing.config import Config
from homing.journal.events import NodeStarted
from homing.journal.log import Limits
from homing.journal.writer import open_journal
from homing.node.host import Host


def journal_directory(config: Config, role: str, name: str) -> Path:
    """Where a node's journal lies."""
    return Path(config.node.data) / config.journal.directory / f"{role}-{name}"


def start_journal(
    host: Host, config: Config, role: str, name: str, node: bytes, *, at_least: float = 0.0
) -> None:
    """Let a host journal from now on; the first event says that the node started.

    `at_least`: seconds between commits at a node where nobody waits for them.
    """
    settings = config.journal
    journal = open_journal(
        journal_directory(config, role, name),
        node,
        post=host.loop.call_soon_threadsafe,
        on_durable=host.durable,
        name=f"{role} {name}",
        durability=settings.durability,
        interval=max(settings.commit_interval, at_least),
        limits=Limits(
            segment_bytes=settings.segment_bytes,
            segment_age=settings.segment_age,
            retain_bytes=settings.retain_bytes,
            retain_age=settings.retain_age,
        ),
    )
    host.journal_writer = journal
    journal.append(NodeStarted(host.now(), role.encode(), name.encode()))
