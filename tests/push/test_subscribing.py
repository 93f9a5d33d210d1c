"""The subscriber's role alone: when it goes on after being replaced, and when it gives way."""

from __future__ import annotations

from homing.errors import HomingError, Replaced
from homing.push.subscribing import RIVAL_SECONDS, Subscribing
from homing.testing.recording import RecordingLink, RecordingPort
from homing.wire.pushed import Auth


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
