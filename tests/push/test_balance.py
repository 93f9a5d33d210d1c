"""Publishers are sent where there is less to do: who goes, who stays, and when nobody may."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from homing.push.balance import BUSY, MARGIN, QUIET, choose
from homing.push.intake import ACKS, HAND_ON_SECONDS
from homing.push.links import BEAT, HEARTBEAT
from homing.push.ring import vnode_hashes
from homing.testing import RecordingLink
from homing.wire import publish, relay, status
from homing.wire.assembly import Assembler
from tests.push.test_matcher import C1, Desk

RATES = st.lists(st.floats(0, 1000), max_size=30).map(lambda rates: dict(enumerate(rates)))


@given(RATES, st.floats(0, 5000), st.integers(2, 8))
def test_whoever_goes_leaves_the_busier_of_both_less_busy(
    rates: dict[int, float], theirs: float, matchers: int
) -> None:
    load = sum(rates.values())
    gone = choose(load, rates, theirs, matchers)
    moved = sum(rates[who] for who in gone)
    assert len(set(gone)) == len(gone)
    assert all(rates[who] >= QUIET for who in gone)
    if gone:
        assert load >= BUSY
        assert max(load - moved, theirs + moved) < load


@given(st.lists(st.integers(0, 60), min_size=2, max_size=6), st.integers(10, 100))
def test_matchers_come_to_rest_and_are_alike_then(counts: list[int], rate: int) -> None:
    """Publishers alike, every matcher deciding at once from what all told before."""
    for _ in range(60):
        told = [count * rate for count in counts]
        least = min(range(len(counts)), key=told.__getitem__)
        after = counts.copy()
        for at, count in enumerate(counts):
            if at != least:
                one = {who: float(rate) for who in range(count)}
                gone = len(choose(told[at], one, told[least], len(counts)))
                after[at] -= gone
                after[least] += gone
        if after == counts:
            break
        counts = after
    else:
        raise AssertionError(f"publishers still wander: {counts}")
    most, least = max(counts) * rate, min(counts) * rate
    assert most < BUSY or least + rate > MARGIN * most


def test_the_only_publisher_of_a_matcher_stays_where_it_is() -> None:
    assert choose(5000.0, {"busy": 5000.0, "idle": 0.0}, 0.0, 2) == []


class Pair(Desk):
    """A matcher with a publisher, and another matcher beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.subscribe(1)
        self.other = RecordingLink("status", b"match002")
        self.matcher.opened(self.other, 0.0)
        self.matcher.receive(self.other, relay.Hello(b"match002", b"matcher").encode(), 0.0)
        self.say(0)
        self.beat(0.0)

    def say(self, load: int, where: bytes = b"there:7001") -> None:
        """The other matcher tells of itself."""
        name = b"match002".hex().encode()
        held = {share.name: sorted(share.held) for share in self.matcher.table.shares}
        vnodes = vnode_hashes(name)
        told = status.Status(name, b"", where, vnodes=vnodes, holdings=held, load=load)
        self.matcher.receive(self.other, told.encode(), 0.0)

    def beat(self, now: float) -> None:
        self.matcher.wake(BEAT, now)

    def publish(self, link: RecordingLink, numbers: range) -> None:
        self.publisher = link
        for number in numbers:
            self.send(number)

    def newcomer(self, peer: bytes) -> RecordingLink:
        link = RecordingLink("publishers", peer)
        self.matcher.opened(link, 0.0)
        return link


def heard(link: RecordingLink) -> list[publish.FromMatcher]:
    runs = b"".join(link.take())
    return [publish.from_matcher(one) for one in Assembler(publish.MESSAGE_ID).receive(runs, 0.0)]


def busy_pair() -> tuple[Pair, list[RecordingLink]]:
    """Two publishers with a hundred publications a second each; the other matcher has nothing."""
    desk = Pair()
    links = [desk.publisher, desk.newcomer(b"p2")]
    for at, link in enumerate(links):
        desk.publish(link, range(at * 500, at * 500 + 500))
    return desk, links


def elsewhere(link: RecordingLink) -> list[str]:
    return [one.elsewhere for one in heard(link) if isinstance(one, publish.Hello)]


def test_one_of_two_is_sent_to_the_matcher_that_has_nothing_to_do() -> None:
    desk, links = busy_pair()
    desk.beat(HEARTBEAT)
    assert [one for link in links for one in elsewhere(link)] == ["there:7001"]
    assert desk.matcher.intake.balance.sent_on == 1
    desk.say(100)
    desk.beat(2 * HEARTBEAT)
    assert [one for link in links for one in elsewhere(link)] == []


def test_others_are_told_what_is_taken_here_and_where() -> None:
    desk, _ = busy_pair()
    desk.matcher.neighbours.publishers = "here:7001"
    desk.say(200)
    desk.other.take()
    desk.beat(HEARTBEAT)
    messages = Assembler(relay.MESSAGE_ID).receive(b"".join(desk.other.take()), 0.0)
    [told] = [status.decode(one) for one in messages if one.command == 8]
    assert (told.load, told.rpc_address) == (200, b"here:7001")


def test_a_newcomer_hears_at_once_that_there_is_less_to_do_elsewhere() -> None:
    desk, _ = busy_pair()
    desk.say(200)
    desk.beat(HEARTBEAT)
    late, later = desk.newcomer(b"p3"), desk.newcomer(b"p4")
    desk.say(100)
    for link in (late, later):
        desk.matcher.receive(link, publish.Hello().encode(), HEARTBEAT)
    assert elsewhere(late) == ["there:7001"]
    assert elsewhere(later) == [""]  # the first is counted there already


def test_nobody_is_sent_where_nothing_is_held_or_no_address_is_known() -> None:
    desk, links = busy_pair()
    desk.say(0, b"")
    desk.beat(HEARTBEAT)
    assert [one for link in links for one in elsewhere(link)] == []


def test_nobody_goes_while_a_connector_is_late_and_who_was_sent_is_called_back() -> None:
    desk, links = busy_pair()
    desk.sync_journal()
    desk.beat(0.5)
    [gone] = [link for link in links if elsewhere(link) == ["there:7001"]]
    desk.matcher.wake(ACKS, HAND_ON_SECONDS + 0.1)
    answers = heard(gone)
    assert answers[0] == publish.Hello()  # before any acknowledgement: it has not left yet
    assert all(isinstance(one, publish.Accepted) for one in answers[1:])
    assert len(answers) == 501
    desk.say(0)
    desk.beat(2 * HEARTBEAT)
    assert [one for link in links for one in elsewhere(link)] == []
    for push in desk.relayed():
        if isinstance(push, relay.Push):
            desk.take_over(push)
    desk.publish(links[0], range(2000, 3000))
    desk.publish(links[1], range(3000, 4000))
    desk.beat(3 * HEARTBEAT)
    assert [one for link in links for one in elsewhere(link)] == ["there:7001"]
    assert C1 not in desk.matcher.owed.late
