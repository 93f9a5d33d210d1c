"""Processes for functions that need one; when one of them dies the others go, and new ones come."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


class Processes(Executor):
    """A ProcessPoolExecutor that is replaced when it has broken.

    One of Python's own takes nothing more once a process of its was killed, by the kernel for want of memory say: a worker
    would go on asking for work, and fail all of it.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._pool = ProcessPoolExecutor(count)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """As Executor has it."""
        try:
            return self._pool.submit(fn, *args, **kwargs)
        except BrokenProcessPool:
            self._pool.shutdown(wait=False)
            self._pool = ProcessPoolExecutor(self._count)
            return self._pool.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """As Executor has it."""
        self._pool.shutdown(wait, cancel_futures=cancel_futures)
