"""What a broker takes from chunks as it stands there is what it would have been given one by one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from homing.node.zmtp import ZmtpLink
from homing.testing import RecordingLink
from homing.wire import mdp, mdp_peers
from homing.wire.frames import command, pack
from homing.wire.mdp_messages import (
    Answer,
    Dialect,
    Kind,
    Options,
    PeerAnswer,
    PeerNak,
    Ready,
    Repost,
    Request,
    State,
    Work,
)
from homing.wire.zmtp import Limits
from tests.service.stage import Stage
from tests.service.wired import Wire, WiredStage

PING = command(b"PING", b"\x00\x00there")
BODIES = st.sampled_from(([b"x"], [b""], [b"y" * 255], [b"z" * 256], [b"a", b"b"], [b"c"] * 9))
CUTS = st.lists(st.integers(1, 3000), max_size=6)
PEERS: Any = {b"n": ("tcp://n:1", "tcp://n:2")}


class Both:
    """The same peer at two brokers: one is given messages, the other bytes."""

    def __init__(self, one: Stage, other: WiredStage, plug: str, peer: bytes) -> None:
        self.stage = one
        self.link = one.link(plug, peer)
        self.wire = other.wire(plug, peer)

    def say(self, images: list[bytes], cuts: list[int]) -> None:
        for image in images:
            if not image[0] & 4 and self.link.reason is None:
                self.stage.broker.receive(self.link, image, self.stage.now)
        self.wire.say(b"".join(images), cuts)

    def hears(self) -> list[bytes]:
        """What it was sent, by both the same."""
        sent = self.link.take()
        assert self.wire.take() == sent
        return sent


def stages(**options: Any) -> tuple[Stage, WiredStage]:
    return Stage(**options), WiredStage(**options)


def same(one: Stage, other: Stage) -> None:
    """Whether two brokers have come to the same."""
    assert one.port.events == other.port.events
    assert one.broker.core.live == other.broker.core.live
    assert one.broker.record.malformed == other.broker.record.malformed
    assert one.broker.record.orphans == other.broker.record.orphans


envelopes = st.one_of(
    st.just(b""),
    st.binary(min_size=1, max_size=20),
    st.builds(
        lambda priority, key: mdp.write_options(Options(False, priority, 5000, key)),
        st.sampled_from((0, 4)),
        st.binary(max_size=9),
    ),
)
asked = st.tuples(st.sampled_from((b"echo", b"echo2")), envelopes, BODIES, st.booleans())
dialects = st.sampled_from((Dialect.D0X, Dialect.D01, Dialect.D02))


@given(dialects, st.lists(asked, min_size=1, max_size=10), CUTS, CUTS, st.integers(0, 9))
@example(Dialect.D0X, [(b"echo", b"12345678", [b"x" * 64], False)] * 5, [], [], 9)
@example(Dialect.D01, [(b"echo", b"", [b"x" * 64], False)] * 5, [7, 90], [8, 90], 9)
def test_requests_and_answers(
    dialect: Dialect,
    asks: list[tuple[bytes, bytes, list[bytes], bool]],
    cuts: list[int],
    back: list[int],
    odd: int,
) -> None:
    pair = stages()
    client = Both(*pair, "localfe", b"alice")
    credit = 20 if dialect == Dialect.D0X else 1
    workers = [Both(*pair, "localbe", name) for name in (b"w1", b"w2")]
    for worker, name in zip(workers, (b"echo", b"echo2"), strict=True):
        worker.say([mdp.write(Ready(dialect, name, credit))], [])
    images: list[bytes] = []
    for service, envelope, body, ping in asks:
        before = b"" if dialect == Dialect.D02 else envelope
        images += [PING] * ping
        images.append(mdp.write(Request(dialect, service, pack(body), before)))
    client.say(images, cuts)
    for _ in asks:
        client.hears()
        for worker in workers:
            said = [answer for image in worker.hears() for answer in answers(image)]
            said.insert(odd % (len(said) + 1), mdp.HEARTBEATS[dialect])
            if odd < 3:  # an answer to nobody
                said.insert(odd, mdp.write(Answer(dialect, Kind.FINAL, b"eve", b"echo", b"\0\0")))
            worker.say(said, back)
    client.hears()
    same(*pair)


def answers(image: bytes) -> list[bytes]:
    work = mdp.read_to_worker(image)
    if not isinstance(work, Work):
        return []
    found = Answer(work.dialect, Kind.FINAL, work.address, work.service, work.data, work.origin)
    return [mdp.write(found)]


reposts = st.lists(
    st.tuples(
        st.sampled_from((b"echo", b"echo2")),
        st.sampled_from((b"n", b"n", b"n", b"m")),
        st.sampled_from((b"alice", b"bob12345678", b"c" * 300)),
        BODIES,
    ),
    min_size=1,
    max_size=8,
)


@given(reposts, CUTS, CUTS)
def test_reposts_and_their_answers(
    asks: list[tuple[bytes, bytes, bytes, list[bytes]]], cuts: list[int], back: list[int]
) -> None:
    pair = stages()
    origin, worker = Both(*pair, "cloudfe", b"n"), Both(*pair, "localbe", b"w1")
    worker.say([mdp.write(Ready(Dialect.D0X, b"echo", 9))], [])
    origin.say([mdp_peers.write(Repost(s, o, a, pack(body))) for s, o, a, body in asks], cuts)
    origin.hears()
    worker.say([answer for image in worker.hears() for answer in answers(image)], back)
    origin.hears()
    same(*pair)


@given(st.lists(st.tuples(BODIES, st.sampled_from("yyyn")), min_size=1, max_size=8), CUTS)
def test_answers_of_a_peer(asks: list[tuple[list[bytes], str]], cuts: list[int]) -> None:
    pair = stages(peers=PEERS)
    cloud, feed = Both(*pair, "cloudbe/n", b"n"), Both(*pair, "statefe/n", b"")
    client = Both(*pair, "localfe", b"alice")
    cloud.hears()
    feed.wire.out.clear()
    feed.say([mdp_peers.write(State(b"n", 9, {"echo": 9}))], [])
    for place, (body, _) in enumerate(asks):
        client.say([mdp.write(Request(Dialect.D0X, b"echo", pack(body), b"%08d" % place))], [])
    said: list[bytes] = []
    for image, (_, how) in zip(cloud.hears(), asks, strict=True):
        one = mdp_peers.read_at_cloudfe(image)
        said.append(
            mdp_peers.write(PeerAnswer(Kind.FINAL, one.address, one.service, one.data))
            if how == "y"
            else mdp_peers.write(PeerNak(one.address, one.service, b"failed"))
        )
    cloud.say(said, cuts)
    client.hears()
    same(*pair)


@pytest.mark.parametrize("limits", [Limits(message=100), Limits(frames=5)])
def test_no_limit_is_passed_by(limits: Limits) -> None:
    """A message over a limit ends its link, whoever would have known it."""
    stage = WiredStage(limits=limits)
    client, worker = stage.wire("localfe", b"alice"), stage.wire("localbe", b"w1")
    worker.say(mdp.write(Ready(Dialect.D0X, b"echo", 9)), [])
    small = mdp.write(Request(Dialect.D0X, b"echo", pack([b"x"])))
    client.say(small, [])
    assert len(worker.take()) == 1
    broken = [b"x" * 90] if limits.message == 100 else [b"x", b"y", b"z"]
    client.say(mdp.write(Request(Dialect.D0X, b"echo", pack(broken))), [])
    assert client.link.over
    assert worker.take() == []


def test_where_an_error_is_in_the_stream_counts_what_was_skimmed() -> None:
    stage = WiredStage()
    client = stage.wire("localfe", b"alice")
    request = mdp.write(Request(Dialect.D0X, b"echo", pack([b"x"])))
    client.say(request, [])
    before = _offset(client)
    client.say(request * 3, [])
    assert _offset(client) == before + 3 * len(request)


def _offset(wire: Wire) -> int:
    assert isinstance(wire.link, ZmtpLink)
    return wire.link.connection.reader.offset


def test_a_link_that_is_no_worker_s_any_more_is_not_skimmed() -> None:
    stage = WiredStage()
    worker = stage.wire("localbe", b"w1")
    worker.say(mdp.write(Ready(Dialect.D0X, b"echo", 9)), [])
    skimmed = [callable(worker.link.skim)]
    worker.say(pack([b"", b"MDPW0X", b"\x63"]), [])
    assert [*skimmed, callable(worker.link.skim)] == [True, False]
    recorded = RecordingLink("localfe", b"bob")
    stage.broker.opened(recorded, 0.0)
    assert recorded.skim is None
