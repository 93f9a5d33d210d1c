"""What `homing worker` and `task-worker` do with a body: give it back, or hand it to a command."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import shutil
import sys
from collections.abc import Awaitable, Callable

from homing.cli.verb import misused
from homing.errors import ConfigError, Refused

Serve = Callable[[bytes], Awaitable[bytes]]


def what_to_do(echo: bool, command: str | None) -> Serve:
    """The function that the flags mean; exactly one of them must be given."""
    if echo == (command is not None):
        raise misused("say what to do with a body: either --echo or --exec COMMAND")
    return _echo if command is None else _run(_words(command))


async def _echo(body: bytes) -> bytes:
    return body


def _words(command: str) -> list[str]:
    """The command's words, as a shell would part them; the first must be there to run."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ConfigError([f"--exec: {error}: {command}"]) from None
    if not words or shutil.which(words[0]) is None:
        raise ConfigError([f"--exec: there is no command {' '.join(words[:1])!r}"])
    return words


def _run(words: list[str]) -> Serve:
    """A function that gives each body to a new process of this command."""

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
            last = complaint.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise Refused(f"exit code {process.returncode} {last}"[:200])
        return answer

    return run
