"""A shell that lives as long as a page: its reader's terminal.

Pages use the default ports, as a reader would. Where the kernel lets us, each page has a network of
its own, so that neither another page nor anybody else on this machine can be in the way.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

# Nothing a page asks a reader to wait for is longer, on a machine that runs other tests too.
MAX_SECONDS = 120.0


ALONE = ("unshare", "--user", "--map-root-user", "--net")
# A new network's loopback is down: SIOCSIFFLAGS with IFF_UP.
LOOPBACK_UP = (
    "import fcntl, socket, struct;"
    "fcntl.ioctl(socket.socket(), 0x8914, struct.pack('16sh22x', b'lo', 1))"
)


@cache
def _alone() -> tuple[str, ...]:
    """How to start a program in a network of its own; nothing where that is not allowed."""
    try:
        test = [*ALONE, sys.executable, "-c", LOOPBACK_UP]
        allowed = subprocess.run(test, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        allowed = False
    return ALONE if allowed else ()


class Shell:
    """bash in a directory, with this interpreter's programs first on the path."""

    def __init__(self, directory: Path) -> None:
        programs = Path(sys.executable).parent
        self._process = subprocess.Popen(
            [*_alone(), "bash", "--noprofile", "--norc"],
            cwd=directory,
            env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "COLUMNS": "100"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._mark = f"--{os.urandom(8).hex()}--"
        if _alone():
            self.run(f'"{sys.executable}" -c "{LOOPBACK_UP}"')

    def run(self, command: str) -> tuple[int, str]:
        """Exit code and everything printed."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\necho '{self._mark}' $?\n".encode())
        self._process.stdin.flush()
        printed, _, code = self._read_to_mark().partition(self._mark)
        return int(code or -1), printed

    def _read_to_mark(self) -> str:
        assert self._process.stdout is not None
        printed, deadline = b"", time.monotonic() + MAX_SECONDS
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not (self._mark.encode() in printed and printed.endswith(b"\n")):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError(f"no prompt after {MAX_SECONDS:.0f} s; printed: {printed!r}")
                chunk = os.read(self._process.stdout.fileno(), 65536)
                if not chunk:
                    break
                printed += chunk
        return printed.decode()

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, *_: object) -> None:
        """End the shell and whatever it left running."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
        self._process.communicate()
