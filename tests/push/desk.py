"""A connector on a desk: links made by hand, everything it does kept in lists."""

from __future__ import annotations

import itertools

import msgspec

from homing.push.connector import Connector
from homing.push.sessions import Limits
from homing.push.tokens import Keyring
from homing.testing import EPOCH, RecordingLink, RecordingPort
from homing.wire import relay
from homing.wire.assembly import Assembler
from homing.wire.pushed import Auth, Gap, Push, Wait, decode
from homing.wire.session import AnswerStream, Status, command

NODE = b"conn0001"
KEYS = Keyring([b"secret"])


def client_id(number: int) -> bytes:
    return number.to_bytes(12, "big")


def message_id(number: int) -> bytes:
    return b"message:" + number.to_bytes(4, "big")


class Desk:
    """A connector, one dispatcher, and any subscribers."""

    def __init__(self, recovered: list[object] | None = None, limits: Limits | None = None) -> None:
        self.port = RecordingPort()
        self.now = 0.0
        counter = itertools.count(1)
        self.connector = Connector(
            self.port,
            NODE,
            lambda: EPOCH + self.now,
            lambda: b"change::" + next(counter).to_bytes(4, "big"),
            KEYS,
            recovered=recovered or [],
            limits=limits,
        )
        self.dispatcher = RecordingLink("dispatchers")
        self.join(self.dispatcher)

    def join(self, link: RecordingLink, node: bytes = b"disp0001") -> None:
        self.connector.opened(link, self.now)
        self.connector.receive(link, relay.Hello(node, b"dispatcher").encode(), self.now)
        link.take()

    def visit(self) -> RecordingLink:
        link = RecordingLink("subscribers")
        self.connector.opened(link, self.now)
        return link

    def say(self, link: RecordingLink, *parts: bytes) -> list[Status | Push | Gap | Wait]:
        self.connector.receive(link, command(parts), self.now)
        return self.heard(link)

    def heard(self, link: RecordingLink) -> list[Status | Push | Gap | Wait]:
        stream = AnswerStream()
        answers = stream.receive(b"".join(link.take()))
        return [one if isinstance(one, Status) else decode(one) for one in answers]

    def auth(self, number: int, **given: object) -> RecordingLink:
        """A subscriber that has passed auth."""
        link = self.visit()
        [answer] = self.say(link, b"auth", self.credentials(number, **given))
        assert str(answer) == "Status(+authsuccess)", answer
        self.grant()
        return link

    def grant(self) -> None:
        """No other connector has the sessions that are claimed here."""
        for one in self.dispatcher.sent.copy():
            [message] = [relay.decode(whole) for whole in Assembler(1).receive(one, self.now)]
            if isinstance(message, relay.Claim):
                self.dispatcher.sent.remove(one)
                ack = relay.Ack(message.message_id).encode()
                self.connector.receive(self.dispatcher, ack, self.now)

    def credentials(self, number: int, **given: object) -> bytes:
        name, stamp = client_id(number).hex(), int(EPOCH + self.now)
        auth = Auth(name, stamp, KEYS.issue(name, stamp))
        fields = {**msgspec.structs.asdict(auth), **given}
        return msgspec.json.encode({k: v for k, v in fields.items() if v is not None})

    def auth_resumed(self, number: int) -> RecordingLink:
        """A durable client that is back; what it is sent at once stays on the link."""
        link = self.visit()
        words = command([b"auth", self.credentials(number, ack=True, resume=True)])
        self.connector.receive(link, words, self.now)
        assert link.sent.pop(0) == b"+authsuccess\r\n"
        self.grant()
        return link

    def subscribed(self, number: int, **given: object) -> RecordingLink:
        """And has a subscription to every `n`."""
        link = self.auth(number, **given)
        self.connector.receive(link, command([b"sub", b"n", b'{"use":2}']), self.now)
        self.settle()
        assert [str(one) for one in self.heard(link)] == ["Status(+sub)"]
        return link

    def settle(self) -> list[relay.Relayed]:
        """The journal is durable and the matchers confirm; what the dispatcher was sent."""
        self.connector.journaled(len(self.port.events), self.now)
        told = self.sent()
        for one in told:
            if isinstance(one, relay.Subscribe | relay.Unsubscribe):
                ack = relay.Ack(one.message_id).encode()
                self.connector.receive(self.dispatcher, ack, self.now)
        return told

    def sent(self, link: RecordingLink | None = None) -> list[relay.Relayed]:
        runs = b"".join((link or self.dispatcher).take())
        return [relay.decode(one) for one in Assembler(1).receive(runs, self.now)]

    def push(self, number: int, *clients: int, payload: bytes = b"hello") -> None:
        """A publication comes from the dispatcher."""
        listed = b"".join(client_id(client) for client in clients)
        push = relay.Push(message_id(number), payload, listed, b'{"n":%d}' % number)
        self.connector.receive(self.dispatcher, push.encode(), self.now)

    def ids(self, link: RecordingLink) -> list[int]:
        """The numbers of the publications a subscriber got since the last look."""
        got = [one for one in self.heard(link) if isinstance(one, Push)]
        return [int(one.attrs["n"]) for one in got]

    def wake(self, until: float) -> None:
        """Let time pass, with all timers on the way."""
        while due := [at for at in self.port.timers.values() if at <= until]:
            self.now = max(self.now, min(due))
            for key in self.port.due(self.now):
                self.connector.wake(key, self.now)
        self.now = until
