"""What a broker writes down, and what it does while nothing can be written."""

from __future__ import annotations

from homing.journal.events import RequestAccepted, RequestAnswered, RequestRefused
from homing.service.policy import BrokerPolicy
from homing.wire import mdp
from homing.wire.mdp_messages import Nak, Report
from tests.service.stage import Stage


def test_the_journal_tells_the_story() -> None:
    stage = Stage()
    worker, client = stage.worker(b"echo"), stage.client()
    stage.ask(client)
    stage.answer(worker, b"")
    kinds = [type(event) for event in stage.port.events]
    assert kinds.index(RequestAccepted) < kinds.index(RequestAnswered)
    assert RequestRefused not in kinds


def test_a_full_disk_takes_no_new_request_and_keeps_no_answer_back() -> None:
    stage = Stage()
    worker, client = stage.worker(b"echo"), stage.client()
    stage.ask(client)
    stage.port.full = True
    stage.answer(worker, b"done")
    stage.ask(client)
    report, nak = (mdp.read_to_client(image) for image in client.take())
    assert isinstance(report, Report)
    assert isinstance(nak, Nak)
    assert nak.reason.startswith(b"queue-full")
    assert stage.broker.core.live == 0
    stage.port.full = False
    stage.ask(client)
    stage.answer(worker, b"again")
    assert isinstance(mdp.read_to_client(client.take()[0]), Report)


def test_a_full_disk_stops_nobody_where_the_policy_says_so() -> None:
    stage = Stage(BrokerPolicy(refuse_unjournaled=False))
    worker, client = stage.worker(b"echo"), stage.client()
    stage.port.full = True
    stage.ask(client)
    stage.answer(worker, b"")
    assert isinstance(mdp.read_to_client(client.take()[0]), Report)
    assert stage.broker.record.unwritten == 2
