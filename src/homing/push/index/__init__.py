"""Which subscriptions does a publication satisfy? The index, and the oracle it is checked with."""

from __future__ import annotations

from homing.push.index.index import Index
from homing.push.index.oracle import Oracle, matches

__all__ = ["Index", "Oracle", "matches"]
