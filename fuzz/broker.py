"""The whole broker under any sequence of messages, opens, closes and ticks: it never raises, never
sends what cannot be read, and its counts stay true.

Each step is a byte that says who does what, then (for a message) a byte of length and the bytes; half of
the messages get a head that is otherwise hard to guess.
"""

from __future__ import annotations

from homing.errors import RemoteProtocolError
from homing.ports import Link
from homing.service.pending import DONE
from homing.service.policy import BrokerPolicy, ServicePolicy
from homing.service.switch import Broker
from homing.wire.frames import unpack

_READY = b"\x21\x06\x00\x04echo"
_ASK = b"\x10\x09\x01\x04echo\x00\x01x"
_ANSWER = b"\x31\x09\x01\x04echo\x00\x01y"
_REPOST = b"\x52\x03\x00\x01x"
SEEDS = (
    _READY + _ASK + _ANSWER + _ASK + b"\xe1" + _READY + b"\xf0" * 6,
    _ASK + _ASK + _READY + _REPOST + _ANSWER + _ANSWER + _ANSWER,
    b"\x67\x02\x00\x00\x77\x02\x00\x00" + _ASK + b"\xe0\xf0",
)
PLUGS = (
    "localfe",
    "localbe",
    "cloudfe",
    "cloudbe/peer",
    "statefe/peer",
    "statebe",
    "taskfe",
    "taskbe",
)
HEADS = (
    b"",
    b"\x01\x00\x01\x06MDPC0X",
    b"\x01\x00\x01\x06MDPW0X\x01\x01\x01",
    b"\x01\x00\x01\x06MDPW0X\x01\x01\x07\x01\x04\x00pe\x00\x01\x00",
    b"\x01\x06MDPW02\x01\x01\x03",
    b"\x01\x06MDPC0X\x01\x01\x04\x01\x04echo\x01\x04peer\x01\x01c\x01\x00",
    b'\x01\x26{"request":"CONNECT","service":"echo"}',
    b'\x01\x12{"request":"PING"}',
)


class _Link(Link):
    __slots__ = ()

    def send(self, message: bytes) -> None:
        unpack(message)

    def close(self, reason: str = "") -> None:
        self.state = None

    @property
    def backlog(self) -> int:
        return 0


class _Port:
    def connect(self, plug: str, endpoint: str) -> None: ...

    def disconnect(self, plug: str, endpoint: str) -> None: ...

    def later(self, deadline: float, key: object) -> None: ...

    def cancel(self, key: object) -> None: ...

    def journal(self, event: object) -> int:
        return 1


def target(data: bytes) -> None:
    """Play the steps."""
    policy = BrokerPolicy(heartbeat=1.0, max_services=5, default=ServicePolicy(timeout=3.0))
    peers = {b"peer": ("tcp://peer:1", "tcp://peer:2")}
    broker = Broker(b"here", _Port(), policy=policy, peers=peers)
    links: dict[int, _Link] = {}
    now, at = 0.0, 0
    while at < len(data):
        who, what = data[at] & 15, data[at] >> 4
        at += 1
        if who not in links:
            plug = PLUGS[who % len(PLUGS)]
            links[who] = _Link(plug, b"peer" if "cloud" in plug else b"\x00pe" + bytes((who,)))
            broker.opened(links[who], now)
        if what == 15:
            now += 0.7
            broker.wake("tick", now)
            broker.wake("state", now)
        elif what == 14:
            broker.closed(links.pop(who), now)
        elif at < len(data):
            size = data[at] & 63
            message = HEADS[what % len(HEADS)] + data[at + 1 : at + 1 + size]
            at += 1 + size
            if whole(message):
                broker.receive(links[who], message, now)
    check(broker)


def whole(message: bytes) -> bool:
    """Whether ZMTP would hand this on: it delivers whole frames only."""
    try:
        unpack(message)
    except RemoteProtocolError:
        return False
    return True


def check(broker: Broker) -> None:
    """The counts agree with what there is."""
    core = broker.core
    waiting = sum(service.waiting for service in core.services.values())
    holders = (*core.roster, *core.federation.peers.values())
    held = sum(one.state != DONE for holder in holders for one in holder.held.values())
    assert core.live == waiting + held
    assert all(0 <= worker.room <= worker.credit for worker in core.roster)
    assert all(worker.room == worker.credit - len(worker.held) for worker in core.roster)
    broker.stop(1e9)
    assert core.live == 0
    assert core.waiting_bytes == 0
