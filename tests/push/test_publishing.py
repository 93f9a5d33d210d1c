"""A publisher on its way to a less busy matcher: nothing lost, nothing twice, in order."""

from __future__ import annotations

from homing.errors import HomingError
from homing.push.calling import PATIENCE
from homing.push.links import SILENCE
from homing.push.publishing import REST, STAY, Publishing
from homing.testing import RecordingLink, RecordingPort
from homing.wire import publish
from homing.wire.assembly import Assembler

HERE, THERE = ("matcher", "here:7001"), ("matcher", "there:7001")


class Desk:
    """A publisher that is connected to the first of its matchers."""

    def __init__(self, *matchers: str) -> None:
        self.port = RecordingPort()
        self.results: list[tuple[bytes, int | HomingError]] = []
        ids = iter([b"publication%d" % number for number in range(10)])
        self.role = Publishing(
            self.port, lambda: next(ids), matchers or ("here:7001",), self._ended
        )
        self.here = RecordingLink("matcher")
        self.there = RecordingLink("matcher")
        self.role.opened(self.here, 0.0)

    def _ended(self, identity: bytes, result: int | HomingError) -> None:
        self.results.append((identity, result))

    def tell(self, elsewhere: str, now: float = 1.0) -> None:
        self.role.receive(self.here, publish.Hello(elsewhere=elsewhere).encode(), now)

    def ack(self, link: RecordingLink, number: int, now: float = 1.0) -> None:
        accepted = publish.Accepted(b"publication%d" % number, number)
        self.role.receive(link, accepted.encode(), now)

    def publish(self, count: int) -> None:
        for _ in range(count):
            self.role.publish(b"{}", b"")


def on_its_way() -> Desk:
    """One publication is under way; the matcher that has less to do is there."""
    desk = Desk()
    desk.publish(1)
    desk.tell("there:7001")
    desk.role.opened(desk.there, 1.0)
    return desk


def sent(link: RecordingLink) -> list[int]:
    """The numbers of what was published over a link."""
    messages = Assembler(publish.MESSAGE_ID).receive(b"".join(link.take()), 0.0)
    typed = [publish.from_publisher(one) for one in messages]
    return [int(one.message_id[-1:]) for one in typed if isinstance(one, publish.Publish)]


def test_new_ones_wait_until_the_old_matcher_has_acknowledged_the_others() -> None:
    desk = Desk()
    desk.publish(2)
    desk.tell("there:7001")
    assert desk.port.connected == [HERE, THERE]
    desk.publish(1)  # nobody is there yet: no reason to wait
    assert sent(desk.here) == [0, 1, 2]
    desk.role.opened(desk.there, 1.1)
    desk.publish(2)
    for number in (0, 1, 2):
        assert sent(desk.here) == []
        assert sent(desk.there) == []
        desk.ack(desk.here, number)
    assert desk.port.connected == [THERE]
    assert sent(desk.there) == [3, 4]
    desk.ack(desk.here, 3)  # of a link that is no longer ours
    desk.ack(desk.there, 3)
    desk.ack(desk.there, 4)
    assert [result for _, result in desk.results] == [0, 1, 2, 3, 4]
    assert STAY not in desk.port.timers


def test_with_nothing_under_way_it_goes_at_once_and_rests_there() -> None:
    desk = Desk()
    desk.tell("tcp://there:7001")
    desk.role.opened(desk.there, 1.0)
    desk.publish(1)
    assert sent(desk.there) == [0]
    for now, connected in ((1.0 + REST - 1, 1), (1.0 + REST, 2)):
        hello = publish.Hello(elsewhere="here:7001").encode()
        desk.role.receive(desk.there, hello, now)
        assert len(desk.port.connected) == connected


def test_a_matcher_that_does_not_answer_changes_nothing() -> None:
    desk = Desk()
    desk.tell("there:7001")
    desk.publish(1)
    desk.role.wake(STAY, 1.0 + PATIENCE)
    desk.publish(1)
    assert desk.port.connected == [HERE]
    assert sent(desk.here) == [0, 1]


def test_acknowledgements_that_do_not_come_in_time_end_it_too() -> None:
    desk = on_its_way()
    desk.publish(2)
    assert desk.port.timers[STAY] == 1.0 + PATIENCE
    desk.role.wake(STAY, 1.0 + PATIENCE)
    desk.publish(1)
    assert sent(desk.here) == [0, 1, 2, 3]
    assert desk.port.connected == [HERE]


def test_who_is_called_back_stays() -> None:
    desk = on_its_way()
    desk.publish(1)
    desk.tell("")
    desk.ack(desk.here, 0)
    assert sent(desk.here) == [0, 1]
    assert desk.port.connected == [HERE]


def test_the_other_hangs_up() -> None:
    desk = on_its_way()
    desk.publish(1)
    desk.role.closed(desk.there, 1.1)
    assert sent(desk.here) == [0, 1]
    assert desk.port.connected == [HERE]


def test_a_matcher_lost_on_the_way_is_left_and_all_that_is_open_goes_again() -> None:
    for opened in (False, True):
        desk = Desk()
        desk.publish(2)
        desk.tell("there:7001")
        if opened:
            desk.role.opened(desk.there, 1.0)
        desk.publish(1)
        desk.role.closed(desk.here, 1.1)
        assert desk.port.connected == [THERE]
        if not opened:
            desk.role.opened(desk.there, 1.2)
        assert sent(desk.there) == [0, 1, 2]


def test_one_that_is_silent_is_lost() -> None:
    desk = on_its_way()
    desk.role.wake("beat", 2.0 + SILENCE)
    assert desk.here.reason is not None
    assert sent(desk.there) == [0]


def test_from_a_matcher_that_was_not_in_the_list_it_goes_back_to_the_list() -> None:
    desk = Desk("here:7001", "third:7001")
    desk.tell("there:7001")
    desk.role.opened(desk.there, 1.0)
    desk.role.closed(desk.there, 50.0)
    desk.role.wake("next", 50.0 + PATIENCE)
    assert desk.port.connected == [HERE]


def test_one_of_the_list_is_known_however_it_is_written() -> None:
    desk = Desk("here:7001", "there:7001")
    desk.tell("tcp://there:7001")
    assert desk.port.connected == [HERE, THERE]


def test_nonsense_and_the_matcher_itself_are_no_reason_to_move() -> None:
    desk = Desk()
    for elsewhere in ("nowhere", "http://there:1", "tcp://here:7001", "there:99999", "\0"):
        desk.tell(elsewhere)
        assert desk.port.connected == [HERE]
