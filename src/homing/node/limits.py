"""The process's own limits: open files."""

from __future__ import annotations

import resource


def raise_file_limit() -> int:
    """Lift the soft limit on open files to the hard one; what holds now comes back.

    The usual soft limit of 1024 would turn away the 1025th connection, and nothing homing
    uses (epoll, not select) breaks above it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
