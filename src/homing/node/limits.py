"""The process's own limits: open files."""

from __future__ import annotations

import errno
import os
import resource

SPARE = 32
"""Descriptors that connections leave for what a node opens itself: segments, checkpoints, children, links to peers. A quarter at most.
Half of them nodes and processes of the same fabric may take that come to us."""


def raise_file_limit() -> int:
    """Lift the soft limit on open files to the hard one; what holds now comes back.

    The usual soft limit of 1024 would turn away the 1025th connection, and nothing homing
    uses (epoll, not select) breaks above it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def keep_spare(file: int, inside: bool) -> None:
    """OSError if another connection would take one of those; `file` is any open one. `inside`: it comes from the same fabric.

    The kernel gives the lowest number that is free: what a copy gets says how many are taken.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = min(SPARE, soft // 4) // (2 if inside else 1)
    copy = os.dup(file)
    os.close(copy)
    if soft != resource.RLIM_INFINITY and copy >= soft - spare:
        told = f"Too many open files, the last {spare} are for the journal and the like"
        raise OSError(errno.EMFILE, told)
