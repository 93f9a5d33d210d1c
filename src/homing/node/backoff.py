"""Pauses between tries as every room makes them: homing.backoff."""

from __future__ import annotations

from homing.backoff import FIRST, LAST, Backoff

__all__ = ["FIRST", "LAST", "Backoff"]
