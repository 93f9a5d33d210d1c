"""Looks for the next message for a moment before the loop sleeps, where that has paid.

A processor with nothing to do is put to sleep, and waking it costs the woken process 30 to 40 µs on a virtual
machine: as much as a broker needs for a request. Whoever asks again as soon as it has an answer is there
before that. So after each turn with something to write the loop goes on turning for a moment; if that
finds nothing, it is tried ever more seldom until it does. Where more is under way than one at a time
sleeping is better, as what comes meanwhile is taken together, unless it comes by the dozen anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

# Messages that a look must bring: the last one's moment is always in vain, and costs what one saves.
WORTH: Final = 2
# Looks in vain after which one turn in 2**SELDOM begins another: a hundredth of the cost, and a peer that has become
# quick is noticed within some hundred of its messages.
SELDOM: Final = 7


class Lookout:
    """Stands between Turn and the loop: what Turn schedules tells that something came."""

    __slots__ = (
        "_call_soon",
        "_clock",
        "_found",
        "_give_way",
        "_looking",
        "_moment",
        "_skip",
        "_until",
        "_vain",
        "_worth",
    )

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], Any],
        clock: Callable[[], float],
        give_way: Callable[[], None],
        worth: Callable[[], bool],
        moment: float,
    ) -> None:
        """`give_way`: let other processes of this processor go first. `moment`: seconds.

        `worth`: whether so little is under way that looking may pay.
        """
        self._call_soon = call_soon
        self._clock = clock
        self._give_way = give_way
        self._worth = worth
        self._moment = moment
        self._looking = False
        self._until = 0.0
        self._found = 0
        self._vain = 0  # looks, one after the other
        self._skip = 0  # turns until the next

    def call_soon(self, call: Callable[[], None]) -> None:
        """Something came, and will be seen to in the loop's next step."""
        self._call_soon(call)
        if self._looking:
            self._found += 1
            self._until = self._clock() + self._moment
        elif self._skip:
            self._skip -= 1
        elif self._worth():
            self._looking = True
            self._found = 0
            self._until = self._clock() + self._moment
            self._call_soon(self._look)

    def _look(self) -> None:
        if self._clock() < self._until and self._worth():
            self._give_way()
            self._call_soon(self._look)
            return
        self._looking = False
        if self._found >= WORTH:
            self._vain = 0
        elif self._vain < SELDOM:
            self._vain += 1
        self._skip = (1 << self._vain) - 1
