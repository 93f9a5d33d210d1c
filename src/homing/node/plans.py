"""The placement plan in a file: read at the start, and again when it changes or on SIGHUP."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path

from homing.errors import ConfigError, Malformed
from homing.node.host import Host
from homing.push.matcher import Matcher
from homing.push.placement import MAX_PLAN_BYTES, Plan, load_plan

LOOK_SECONDS = 1.0
"""How often the file is looked at: a plan is made once in a while, by a job that takes minutes."""

Stamp = tuple[int, int, int]

_log = logging.getLogger("homing.push")
_tasks: set[asyncio.Task[None]] = set()  # the loop alone would let them be collected


def read_plan(path: str) -> Plan | None:
    """The plan in a file, None without one; ConfigError says what is wrong with it."""
    if not path:
        return None
    try:
        with Path(path).open("rb") as file:
            return load_plan(file.read(MAX_PLAN_BYTES + 1))
    except OSError as error:
        raise ConfigError([f"push.plan: {path}: {error.strerror or error}"]) from error
    except Malformed as error:
        hint = "`homing pipeline plan` writes one"
        raise ConfigError([f"push.plan: {path}: {error}"], hint=hint) from error


def start_plan(host: Host, matcher: Matcher, path: str) -> None:
    """Have a matcher follow the plan in a file for as long as its host's loop runs."""
    if path:
        signalled = asyncio.Event()
        host.rereads["push.plan"] = signalled.set
        keeping = _keep(host, matcher, path, _stamp(path), signalled)
        task = host.loop.create_task(keeping, name="plan")
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)


async def _keep(
    host: Host, matcher: Matcher, path: str, seen: Stamp, signalled: asyncio.Event
) -> None:
    while True:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                await signalled.wait()
        stamp = _stamp(path)
        if signalled.is_set() or stamp != seen:
            signalled.clear()
            seen = stamp
            follow(host, matcher, path)


def follow(host: Host, matcher: Matcher, path: str) -> bool:
    """Read the file now; a plan that is newer is followed, a broken one told and left alone."""
    try:
        plan = read_plan(path)
    except ConfigError as error:
        _log.error("%s; the plan of epoch %d stays", error, matcher.table.newest.plan.epoch)
        return False
    if plan is None or not matcher.neighbours.follow(plan, host.now()):
        _log.warning("%s holds no newer plan; its epoch must grow", path)
        return False
    _log.info("following the plan of epoch %d", plan.epoch)
    return True


def _stamp(path: str) -> Stamp:
    """What changes when a file does, or is replaced."""
    with contextlib.suppress(OSError):
        found = Path(path).stat()
        return found.st_mtime_ns, found.st_size, found.st_ino
    return 0, 0, 0
