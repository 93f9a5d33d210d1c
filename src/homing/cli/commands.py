"""What a worker of the shell does with a body: give it back, or hand it to a command."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shlex
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterator

from homing.cli.verb import misused
from homing.errors import ConfigError, Failed

Serve = Callable[[bytes], Awaitable[bytes]]


def serve_with(echo: bool, command: str | None) -> Serve:
    """The function that `--echo` or `--exec COMMAND` asks for."""
    if echo == (command is not None):
        raise misused("say what to do with what comes: either --echo or --exec COMMAND")
    return _echo if command is None else _run(command)


async def _echo(body: bytes) -> bytes:
    return body


def _run(command: str) -> Serve:
    """A function that gives each body to a new process of this command."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ConfigError([f"--exec: {command!r}: {str(error).lower()}"]) from None
    if not words or shutil.which(words[0]) is None:
        raise ConfigError([f"--exec: there is no command {' '.join(words[:1])!r}"])

    async def run(body: bytes) -> bytes:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe, stderr=pipe)
        try:
            answer, complaint = await process.communicate(body)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        if process.returncode:
            sys.stderr.buffer.write(complaint)
            sys.stderr.buffer.flush()
            last = complaint.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise Failed(f"exit code {process.returncode} {last}".strip())
        return answer

    return run


@contextlib.contextmanager
def telling() -> Iterator[None]:
    """Say what a worker that goes on and on would otherwise keep to itself: that nobody answers, or lets it in."""
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(_Line())
    logger = logging.getLogger("homing")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _Line(logging.Formatter):
    """One line, as every other word of the command's."""

    def format(self, record: logging.LogRecord) -> str:
        return f"homing: {record.getMessage()}"
