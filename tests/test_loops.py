"""Blocking objects where nobody would ever answer: in a forked process, and within a call of their own."""

from __future__ import annotations

import inspect
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import homing
import homing.sync
from homing.errors import Closed
from homing.testing import fabric
from homing.testing.fabric import Fabric

CLIENT = "cd" * 12
# A child that hangs is ended by its own alarm.
PATIENCE = 20


@pytest.fixture(scope="module")
def here() -> Iterator[Fabric]:
    with fabric(push=True) as nodes:
        yield nodes


def child_is_told(work: Callable[[], Any]) -> bool:
    """Whether a forked process that does this gets Closed; without a word of its own to anybody."""
    process = os.fork()
    if process:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 7
    signal.alarm(PATIENCE)
    code = 1
    try:
        work()
        code = 0
    except Closed as error:
        code = 7 if "fork" in str(error) else 2
    finally:
        os._exit(code)


def test_a_forked_process_is_told_and_the_parent_goes_on(here: Fabric) -> None:
    """It waited for ever for a thread that only its parent has; so did its close."""

    def closed_only(one: Any) -> None:
        one.close()
        raise Closed("nothing to do after a fork")

    with (
        homing.sync.Client(here.clients) as client,
        homing.sync.Publisher(here.publishers) as publisher,
        homing.sync.Subscriber(
            CLIENT, here.subscribers, credentials=lambda: here.credentials(CLIENT)
        ) as subscriber,
    ):
        subscriber.subscribe("a = 1")
        assert child_is_told(lambda: client.request("mmi.services"))
        assert child_is_told(lambda: publisher.publish({"a": 1}))
        assert child_is_told(lambda: next(subscriber))
        for one in (client, publisher, subscriber):
            assert child_is_told(lambda one=one: closed_only(one))  # type: ignore[misc]
        assert client.request("mmi.services") == b"{}"
        assert publisher.publish({"a": 1}) == 1
        assert isinstance(subscriber.get(PATIENCE), homing.Push)


def test_publications_may_be_made_of_what_others_matched(here: Fabric) -> None:
    """They are taken in another thread: both waited for each other, and whoever called it later too."""
    with homing.sync.Publisher(here.publishers) as publisher:

        def publications() -> Iterator[tuple[dict[str, Any], bytes]]:
            yield {"n": publisher.publish({"b": 1})}, b""

        assert publisher.publish_all(publications()) == [0]
        assert publisher.publish({"b": 1}) == 0


def test_what_is_called_by_the_object_itself_cannot_wait_for_it(here: Fabric) -> None:
    with homing.sync.Publisher(here.publishers) as publisher:

        class Asking(list[Any]):
            def __iter__(self) -> Iterator[Any]:
                yield {"n": publisher.publish({"b": 1})}, b""

        with pytest.raises(RuntimeError, match="a blocking call within another"):
            publisher.publish_all(Asking([1]))
        assert publisher.publish({"b": 1}) == 0


@pytest.mark.parametrize("name", ["Client", "Publisher", "Subscriber", "Worker"])
def test_blocking_names_take_what_the_others_take_and_say_so(name: str) -> None:
    """Type checkers and `help` saw `*arguments, **settings`: a word that was misspelt showed when it ran."""
    blocking, other = getattr(homing.sync, name), getattr(homing, name)
    assert inspect.signature(blocking) == inspect.signature(other)
    assert inspect.getdoc(blocking.__init__) == inspect.getdoc(other.__init__)
