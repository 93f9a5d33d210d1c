"""The demo's audit finds what it is there to find."""

from __future__ import annotations

from homing.demo.ledger import Ledger, enter
from homing.journal.events import (
    Event,
    RequestAccepted,
    RequestAnswered,
    RequestRefused,
    RequestReposted,
    RequestRequeued,
)
from homing.journal.reader import Record


def _ledger(*events: Event) -> Ledger:
    ledger = Ledger()
    enter(ledger, [Record(number, 0, event) for number, event in enumerate(events, 1)])
    return ledger


def _accepted() -> Event:
    return RequestAccepted(0.0, b"quote", b"client", 5)


def test_every_request_that_ends_once_balances() -> None:
    ledger = _ledger(
        _accepted(),
        RequestReposted(0.0, 1, b"lyon"),
        _accepted(),
        RequestRequeued(0.0, 3, b"worker"),
        RequestAnswered(0.0, 1, b"", 5),
        RequestRefused(0.0, 3, b"queue-full"),
    )
    assert ledger.balances
    assert (ledger.accepted, ledger.answered, ledger.refused) == (2, 1, 1)
    assert (ledger.reposted, ledger.requeued) == (1, 1)


def test_a_request_without_an_end_is_lost() -> None:
    ledger = _ledger(_accepted(), _accepted(), RequestAnswered(0.0, 1, b"w", 5))
    assert (ledger.lost, ledger.balances) == (1, False)


def test_a_request_that_ends_twice_is_found() -> None:
    answered = RequestAnswered(0.0, 1, b"w", 5)
    assert _ledger(_accepted(), answered, answered).twice == 1
    assert not _ledger(_accepted(), answered, RequestRefused(0.0, 1, b"timeout")).balances


def test_a_refusal_at_the_door_was_never_accepted() -> None:
    ledger = _ledger(RequestRefused(0.0, 0, b"denied"), RequestRefused(0.0, 0, b"denied"))
    assert ledger.balances
    assert ledger.refused == 0
