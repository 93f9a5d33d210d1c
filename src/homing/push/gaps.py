"""What a session lost, and where: each gap is told before the push that follows it.

A gap lies before a publication that is still owed, or at the end. It is over when that one is
acknowledged; a push that is replayed comes with the gap before it again.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from homing.errors import Malformed

END: Final = b""
"""The place after all that is owed."""
_TOLD: Final = b"gap "


class Lost(NamedTuple):
    """Publications dropped one after the other."""

    dropped: int
    first: bytes
    last: bytes

    def told(self) -> bytes:
        """As the reason of a checkpoint's Dropped."""
        return _TOLD + b"%d %b %b" % (
            self.dropped,
            self.first.hex().encode(),
            self.last.hex().encode(),
        )


def read_lost(reason: bytes) -> Lost | None:
    """What `told` made; None: another reason."""
    if not reason.startswith(_TOLD):
        return None
    try:
        count, first, last = reason[len(_TOLD) :].split(b" ")
        return Lost(int(count), bytes.fromhex(first.decode()), bytes.fromhex(last.decode()))
    except ValueError as error:
        raise Malformed(f"no gap: {reason[:80]!r}") from error


def joined(*parts: Lost | None) -> Lost | None:
    """Neighbours, in order, as one."""
    some = [part for part in parts if part is not None]
    if not some:
        return None
    return Lost(sum(part.dropped for part in some), some[0].first, some[-1].last)
