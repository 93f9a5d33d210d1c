"""What the brokers' journals say: every request taken on ended exactly once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct, field

from homing.errors import CorruptSegment
from homing.journal.events import (
    RequestAccepted,
    RequestAnswered,
    RequestRefused,
    RequestReposted,
    RequestRequeued,
)
from homing.journal.reader import Record, journals, read


class Ledger(Struct):
    """Requests by how they went, over all journals."""

    journals: int = 0
    events: int = 0
    accepted: int = 0
    answered: int = 0
    refused: int = 0  # at a peer: bounced back to the site that asked
    reposted: int = 0
    requeued: int = 0
    lost: int = 0  # accepted and never ended
    twice: int = 0  # ended more than once
    damage: list[str] = field(default_factory=list)

    @property
    def balances(self) -> bool:
        return not (self.lost or self.twice or self.damage)


def balance(directory: Path) -> Ledger:
    """Read every journal below a directory and hold what began against what ended."""
    ledger = Ledger()

    def damaged(damage: CorruptSegment) -> None:
        ledger.damage.append(str(damage))

    for journal in journals(directory):
        enter(ledger, read(journal, on_damage=damaged))
    return ledger


def enter(ledger: Ledger, records: Iterable[Record]) -> None:
    """Add one node's journal."""
    begun: set[int] = set()
    ends: Counter[int] = Counter()
    for record in records:
        ledger.events += 1
        match record.event:
            case RequestAccepted():
                begun.add(record.number)
            case RequestAnswered(request=request):
                ends[request] += 1
                ledger.answered += 1
            case RequestRefused(request=request) if request:
                ends[request] += 1
                ledger.refused += 1
            case RequestReposted():
                ledger.reposted += 1
            case RequestRequeued():
                ledger.requeued += 1
    ledger.journals += 1
    ledger.accepted += len(begun)
    ledger.lost += sum(1 for number in begun if not ends[number])
    ledger.twice += sum(1 for times in ends.values() if times > 1)
