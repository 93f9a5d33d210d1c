"""A broker on a recording port, and shorthand for the peers that talk to it."""

from __future__ import annotations

from typing import Any

from homing.service.policy import BrokerPolicy
from homing.service.switch import Broker
from homing.testing import RecordingLink, RecordingPort
from homing.wire import mdp
from homing.wire.frames import pack
from homing.wire.mdp_messages import (
    Answer,
    Dialect,
    Kind,
    Message,
    Options,
    Ready,
    Request,
    Work,
)

D0X, D01, D02 = Dialect.D0X, Dialect.D01, Dialect.D02


class Stage:
    """Everything happens at `now`, which the test moves."""

    def __init__(self, policy: BrokerPolicy | None = None, **options: Any) -> None:
        self.port = RecordingPort()
        self.now = 0.0
        self.broker = Broker(b"here", self.port, policy=policy or BrokerPolicy(), **options)
        self.serial = 0

    def link(self, plug: str, peer: bytes = b"", user: str = "") -> RecordingLink:
        self.serial += 1
        link = RecordingLink(plug, peer or b"\x00%04d" % self.serial, user)
        self.broker.opened(link, self.now)
        return link

    def send(self, link: RecordingLink, *frames: bytes) -> None:
        self.broker.receive(link, pack(frames), self.now)

    def say(self, link: RecordingLink, message: Message) -> None:
        self.broker.receive(link, mdp.write(message), self.now)

    def worker(
        self,
        service: bytes,
        dialect: Dialect = D0X,
        credit: int = 1,
        user: str = "",
        slowest: int = 0,
    ) -> RecordingLink:
        link = self.link("localbe", user=user)
        self.say(link, Ready(dialect, service, credit, slowest))
        return link

    def client(self, peer: bytes = b"", user: str = "") -> RecordingLink:
        return self.link("localfe", peer, user)

    def ask(
        self,
        link: RecordingLink,
        service: bytes = b"echo",
        body: bytes = b"hello",
        dialect: Dialect = D0X,
        options: Options | None = None,
    ) -> None:
        envelope = mdp.write_options(options) if options is not None else b""
        self.say(link, Request(dialect, service, pack([body]), envelope))

    def answer(
        self, link: RecordingLink, body: bytes, dialect: Dialect = D0X, kind: Kind = Kind.FINAL
    ) -> None:
        """Answer the oldest REQUEST that the worker's link has been sent."""
        for at, image in enumerate(link.sent):
            work = mdp.read_to_worker(image)
            if isinstance(work, Work):
                if kind == Kind.FINAL:
                    del link.sent[at]
                data = body if kind == Kind.FAILED else pack([body])
                answer = Answer(dialect, kind, work.address, work.service, data, work.origin)
                self.say(link, answer)
                return
        raise AssertionError("no request to answer")

    def pass_time(self, seconds: float, step: float = 0.1) -> None:
        """Let timers fire on the way to a later moment."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(self.now + step, end)
            for key in self.port.due(self.now):
                self.broker.wake(key, self.now)
