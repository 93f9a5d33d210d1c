"""SIGHUP: files that are read again while a node runs.

A node says which (`host.rereads`): the users file of a broker, a connector's certificate, a matcher's plan. All else
is read at the start. A file that is broken is told, and what it said before stays in force.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from homing.errors import ConfigError

Reread = Callable[[], None]
"""Reads a file and puts it in force; ConfigError or OSError leaves everything as it is."""

_log = logging.getLogger("homing.node")


def read_again(rereads: Iterable[tuple[str, Reread]]) -> None:
    """Read all of these, by the settings that name the files."""
    found = list(rereads)
    if not found:
        _log.info("SIGHUP: nothing to read again; settings are read at the start")
    for setting, reread in found:
        try:
            reread()
        except (ConfigError, OSError) as error:
            _log.error("%s cannot be read, what it said stays in force: %s", setting, error)
        else:
            _log.info("%s was read again", setting)
