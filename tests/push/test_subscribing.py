"""The subscriber's role alone: what it says again, when it goes on after being replaced, when it gives way."""

from __future__ import annotations

from homing.errors import HomingError, Malformed, QueueFull, Replaced
from homing.push.links import BEAT
from homing.push.subscribing import AGAIN_SECONDS, RIVAL_SECONDS, SILENCE_SECONDS, Subscribing
from homing.push.subscription import parse_fields
from homing.testing.recording import RecordingLink, RecordingPort
from homing.wire.pushed import Auth
from homing.wire.session import elements


class Scene:
    """A subscriber with two connectors to choose from."""

    def __init__(self) -> None:
        self.port = RecordingPort()
        self.told: list[HomingError | None] = []
        self.role = Subscribing(
            self.port,
            ["a:1", "b:1"],
            lambda: Auth("ab" * 12, 0, ""),
            lambda _: None,
            failed=self.told.append,
        )

    def replaced(self, now: float) -> None:
        """Connects, is let in, and is replaced."""
        link = RecordingLink("connector")
        self.role.opened(link, now)
        self.role.receive(link, b"+authsuccess\r\n", now)
        assert self.role.welcome
        self.role.receive(link, b"-replaced\r\n", now)
        self.role.closed(link, now)


def test_replaced_now_and_then_it_goes_on() -> None:
    scene = Scene()
    for number in range(5):
        scene.replaced(number * RIVAL_SECONDS)
    assert scene.told == []
    assert scene.port.connected == [("connector", "a:1")]


def test_replaced_again_at_once_it_gives_way_for_good() -> None:
    scene = Scene()
    scene.replaced(100.0)
    scene.replaced(100.0 + RIVAL_SECONDS / 2)
    [rival] = scene.told
    assert isinstance(rival, Replaced)
    assert "its own" in rival.hint
    for now in (200.0, 300.0, 400.0):
        for key in scene.port.due(now):
            scene.role.wake(key, now)
    assert scene.port.connected == []
    settled: list[HomingError | None] = []
    scene.role.subscribe({}, "late", settled.append)
    scene.role.unsubscribe("late", settled.append)
    scene.role.unsubscribe("late")
    assert settled == [rival, rival]


class Talk:
    """A subscriber on links that a test opens and closes; what it says on the newest."""

    def __init__(self) -> None:
        self.port = RecordingPort()
        self.role = Subscribing(
            self.port, ["a:1"], lambda: Auth("ab" * 12, 0, "", ack=True), lambda _: None
        )
        self.settled: list[HomingError | None] = []
        self.link = RecordingLink("connector")

    def open(self) -> list[list[bytes]]:
        """Let in on a new link; what is said there at once, but for `auth`."""
        self.role.closed(self.link, 0.0)
        self.link = RecordingLink("connector")
        self.role.opened(self.link, 0.0)
        self.answer(b"+authsuccess")
        return self.said()[1:]

    def said(self) -> list[list[bytes]]:
        return [elements(one) for one in self.link.take()]

    def answer(self, *lines: bytes) -> None:
        self.role.receive(self.link, b"".join([line + b"\r\n" for line in lines]), 0.0)


A, B = parse_fields(b'{"a": {"use": 2}}'), parse_fields(b'{"b": {"use": 2}}')


def test_what_a_connector_refused_is_not_said_again() -> None:
    """One that is too large for it ended every connection that came after."""
    talk = Talk()
    talk.open()
    talk.role.subscribe(A, "one")
    talk.role.subscribe(A, "two", talk.settled.append)
    talk.answer(b"+sub", b"-command error: too large")
    [refusal] = talk.settled
    assert isinstance(refusal, Malformed)
    assert [words[:2] for words in talk.open()] == [[b"subn", b"one"]]


FULL = b"-command error: queue-full no space left"


def test_a_refusal_that_will_pass_is_told_from_one_that_will_not() -> None:
    talk = Talk()
    talk.open()
    talk.role.subscribe(A, "one", talk.settled.append)
    talk.answer(FULL)
    [refusal] = talk.settled
    assert isinstance(refusal, QueueFull)
    assert (refusal.retryable, str(refusal)) == (True, "no space left")


def test_what_a_new_connector_cannot_take_for_now_is_said_again() -> None:
    """Nobody waits for it there: the subscriber was connected, and got nothing, for as long as the link held."""
    talk = Talk()
    talk.open()
    talk.role.subscribe(A, "one")
    talk.role.subscribe(A, "two")
    talk.answer(b"+sub", b"+sub")
    assert len(talk.open()) == 2
    talk.answer(FULL, b"+sub")
    for _ in range(2):
        for key in talk.port.due(AGAIN_SECONDS):
            talk.role.wake(key, AGAIN_SECONDS)
        assert [words[:2] for words in talk.said() if words[0] == b"subn"] == [[b"subn", b"one"]]
        talk.answer(FULL)
    talk.role.unsubscribe("one")
    talk.answer(b"+unsub")
    for key in talk.port.due(2 * AGAIN_SECONDS):
        talk.role.wake(key, 2 * AGAIN_SECONDS)
    assert not [words for words in talk.said() if words[0] == b"subn"]


def test_what_held_before_a_refusal_holds_after_a_reconnect() -> None:
    talk = Talk()
    talk.open()
    talk.role.subscribe(A)
    talk.role.subscribe(B)
    talk.answer(b"+sub", b"-command error: not that")
    [[verb, name, attribute, _]] = talk.open()
    assert (verb, name, attribute) == (b"subn", b"default", b"a")


def test_a_removal_that_was_not_confirmed_is_said_again() -> None:
    """A durable session has the subscription still; it used to be told as done, and was not."""
    talk = Talk()
    talk.open()
    talk.role.subscribe(A, "one")
    talk.role.subscribe(A, "two")
    talk.answer(b"+sub", b"+sub")
    talk.said()
    talk.role.unsubscribe("two", talk.settled.append)
    talk.role.closed(talk.link, 0.0)
    talk.role.unsubscribe("one", talk.settled.append)
    assert sorted(talk.open()) == [[b"unsub", b"one"], [b"unsub", b"two"]]
    assert talk.settled == []
    talk.answer(b"+unsub", b"+unsub")
    assert talk.settled == [None, None]
    assert talk.open() == []


def test_each_hears_of_its_own_subscription_after_a_reconnect() -> None:
    talk = Talk()
    talk.role.subscribe(A, "one", talk.settled.append)
    talk.role.subscribe(A, "two")
    talk.open()
    talk.answer(b"-command error: not that", b"+sub")
    [refusal] = talk.settled
    assert isinstance(refusal, Malformed)


def test_who_does_not_listen_calls_nobody_silent() -> None:
    """A busy application pauses its link; that used to end it after a minute, and with it went what waited there."""
    talk = Talk()
    talk.open()
    talk.role.listen(False, 0.0)
    talk.role.wake(BEAT, 10 * SILENCE_SECONDS)
    assert talk.link.reason is None
    talk.role.listen(True, 10 * SILENCE_SECONDS)
    talk.role.wake(BEAT, 11 * SILENCE_SECONDS)
    assert talk.link.reason is None
    talk.role.wake(BEAT, 12 * SILENCE_SECONDS)
    assert talk.link.reason is not None
