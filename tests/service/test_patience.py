"""Which messages of a broker may wait for others: whoever gets them has enough to do."""

from __future__ import annotations

import pytest

from homing.service.handing import BUSY, LINE
from homing.testing import RecordingLink
from homing.wire.mdp_messages import Dialect, Ready
from tests.service.stage import D0X, Stage


class Patient(RecordingLink):
    """Counts the messages that may wait for others."""

    waited = 0
    soon = 0

    def send_with_others(self, message: bytes) -> None:
        self.waited += 1
        self.send(message)

    def send_soon(self, message: bytes) -> None:
        self.soon += 1
        self.send(message)


@pytest.mark.parametrize("dialect", Dialect)
def test_answers_may_wait_for_others_only_while_a_line_stands(dialect: Dialect) -> None:
    stage = Stage()
    worker, client = stage.worker(b"echo"), Patient("localfe", b"alice")
    stage.broker.opened(client, stage.now)
    for _ in range(LINE + 2):  # the worker has one, and one more than a line waits
        stage.ask(client, dialect=dialect)
    for waited in (1, 2, 2, 2):
        stage.answer(worker, b"done")
        assert client.waited == waited
    assert len(client.take()) == 4


def test_messages_gather_for_those_who_have_enough_to_do() -> None:
    stage = Stage()
    worker, client = Patient("localbe", b"busy"), Patient("localfe", b"alice")
    for link in (worker, client):
        stage.broker.opened(link, stage.now)
    stage.say(worker, Ready(D0X, b"echo", 2 * BUSY))
    for _ in range(2 * BUSY):
        stage.ask(client)
    assert worker.soon == BUSY, "the first ones find it with little to do"
    for _ in range(2 * BUSY):
        stage.answer(worker, b"done")
    assert client.soon == BUSY, "the last ones are waited for"
    assert (len(client.take()), client.waited) == (2 * BUSY, 0)


@pytest.mark.parametrize("dialect", Dialect)
def test_a_client_with_one_request_hears_at_once_whoever_stands_in_line(dialect: Dialect) -> None:
    stage = Stage()
    worker, lone, many = (
        stage.worker(b"echo"),
        Patient("localfe", b"lone"),
        Patient("localfe", b"many"),
    )
    for link in (lone, many):
        stage.broker.opened(link, stage.now)
    stage.ask(lone, dialect=dialect)
    for _ in range(LINE + 1):
        stage.ask(many, dialect=dialect)
    stage.answer(worker, b"done")
    assert (len(lone.take()), lone.waited) == (1, 0)
