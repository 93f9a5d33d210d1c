"""Recent: where the subscriptions are that no paged block has yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from homing.push.index.blocks import ids_of
from homing.push.index.tail import Tail


class Recent:
    """All tails by number, and for each subscription in them its tail's number << 32 | entry.

    Dictionaries of numbers are nothing to the garbage collector, however large. Of a tail that is
    gone, which `tails` does not have any more, places are forgotten later, tail by tail.
    """

    def __init__(self, tail: Tail) -> None:
        self.tails: dict[int, Tail] = {0: tail}
        self.places: dict[int, int] = {}
        # The number of the tail that takes what is new, which is the highest.
        self.newest = 0
        self.gone: deque[tuple[int, Tail]] = deque()

    def begin(self, tail: Tail) -> None:
        """From now on this tail takes what is new."""
        if not len(self.tails[self.newest]):
            del self.tails[self.newest]
        self.newest += 1
        self.tails[self.newest] = tail

    def restore(self, tails: Sequence[Tail]) -> None:
        """Put these in front of the one that takes what is new."""
        taking = self.tails.pop(self.newest)
        for tail in tails:
            self.tails[self.newest] = tail
            places = tail.living().items()
            self.places |= {number: self.newest << 32 | entry for number, entry in places}
            self.newest += 1
        self.tails[self.newest] = taking

    def merged(self, tails: Sequence[Tail]) -> None:
        """Paged blocks have what was in these."""
        these = {id(tail) for tail in tails}
        numbers = [number for number, tail in self.tails.items() if id(tail) in these]
        self.gone.extend((number, self.tails.pop(number)) for number in numbers)

    def forget_one(self) -> None:
        """Forget the places in one tail that is gone, if there is one: a tenth of a millisecond."""
        if not self.gone:
            return
        number, tail = self.gone.popleft()
        places = self.places
        for subscription in ids_of(tail.words).tolist():
            if places.get(subscription, -1) >> 32 == number:
                del places[subscription]
