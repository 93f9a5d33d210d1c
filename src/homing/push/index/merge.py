"""Which blocks to merge: the decision alone.

New subscriptions arrive in tails of 512 entries, which are scanned one by one until they are
paged. Paged blocks are kept in tiers, each four times the size of the one below, and four blocks
of a tier become one of the next: a subscription is rewritten about log4(n) times, and a match
meets at most three blocks of each tier.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from homing.push.index.tail import ENTRIES

FANOUT = 4
# A block in which this share is dead is written anew: the dead cost memory and candidates.
MAX_DEAD = 0.25


class Size(NamedTuple):
    """How many subscribers a paged block has, and how many of them were removed."""

    subscribers: int
    dead: int


def tier(subscribers: int) -> int:
    """0 for a block of up to four tails, one more for each factor of FANOUT."""
    level = 0
    while subscribers > FANOUT * ENTRIES:
        subscribers //= FANOUT
        level += 1
    return level


def choose_merge(waiting: int, sizes: Sequence[Size]) -> list[int] | None:
    """The paged blocks to merge with `waiting` new entries; None: leave everything as it is."""
    worn = [i for i, size in enumerate(sizes) if size.dead > MAX_DEAD * size.subscribers]
    chosen = set(worn)
    total = waiting + sum(sizes[i].subscribers - sizes[i].dead for i in worn)
    grown = True
    while grown:
        grown = False
        level = tier(total)
        peers = [
            i for i, size in enumerate(sizes) if i not in chosen and tier(size.subscribers) <= level
        ]
        if (total > 0 and len(peers) >= FANOUT - 1) or len(peers) >= FANOUT:
            chosen.update(peers)
            total += sum(sizes[i].subscribers for i in peers)
            grown = True
    if waiting == 0 and not chosen:
        return None
    return sorted(chosen)
