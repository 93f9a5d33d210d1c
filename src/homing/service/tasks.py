"""Tasks with a JSON header: their clients and workers, sharing all services with Majordomo."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from homing.errors import RemoteProtocolError
from homing.ports import Link
from homing.service.access import Access
from homing.service.decisions import CLIENT, WORKER, Decision, Unreadable, data_of, decide
from homing.service.pending import Asker, Pending
from homing.service.router import Router, Verdict
from homing.service.worker_pool import Worker
from homing.wire import tasks
from homing.wire.frames import CUT
from homing.wire.mdp_messages import Kind, Options

if TYPE_CHECKING:
    from homing.service.switch import Broker


class TaskClient(Asker):
    """A link on taskfe. A pending's envelope is the ZeroMQ envelope as it came."""

    __slots__ = ("_broker",)

    def __init__(self, broker: Broker, link: Link) -> None:
        super().__init__(link)
        self._broker = broker

    def receive(self, image: bytes, now: float) -> None:
        """One message; a router reads it, unless its body went by."""
        if image[0] == CUT:
            self._too_large(image[1:], now)
        elif self.link is not None and not self._broker.decide(self.link, CLIENT, image, now):
            self._send(tasks.Error("queue-full", "no router"), tasks.envelope_of(image))

    def _too_large(self, image: bytes, now: float) -> None:
        try:
            envelope, message = tasks.read(image)
        except RemoteProtocolError:
            envelope, message = b"", tasks.Disconnect()
        if isinstance(message, tasks.Task):
            self._broker.too_large(
                self, message.service.encode(), envelope, now, message.message_id
            )
        else:
            self._send(tasks.Error("too-large", "no task"), tasks.envelope_of(image))

    def decided(self, image: bytes, decision: Decision, now: float) -> None:
        """TASK/REQUEST, PING, DISCONNECT; anything else is an ERROR."""
        content, envelope = decision.content, image[: decision.header_at]
        if isinstance(content, tasks.Task):
            self._admit(content, envelope, image, decision, now)
        elif isinstance(content, tasks.Ping):
            self._send(tasks.Pong(content.ts), envelope)
        elif isinstance(content, Unreadable):
            self._broker.record.malformed += 1
            refusal = tasks.Error("malformed", content.reason, content.message_id)
            self._send(refusal, tasks.envelope_of(image))
        elif not isinstance(content, tasks.Pong | tasks.Disconnect):
            self._send(tasks.Error("malformed", "clients send TASK/REQUEST and PING"), envelope)

    def undecided(self, image: bytes, reason: bytes, now: float) -> None:
        """No router had a verdict on a task."""
        refused = decide(Router(Access()), CLIENT, "", image)
        self.decided(image, msgspec.structs.replace(refused, refusal=reason.decode()), now)

    def _admit(
        self, task: tasks.Task, envelope: bytes, image: bytes, decision: Decision, now: float
    ) -> None:
        options = Options(priority=task.priority, timeout_ms=task.timeout_ms)
        message_id = task.message_id or self._broker.new_id()
        self._broker.admit(
            self,
            task.service.encode(),
            data_of(decision, image),
            envelope,
            options,
            now,
            message_id,
            Verdict(task.service.encode(), decision.refusal.encode()),
        )

    def report(self, pending: Pending, kind: Kind, data: bytes) -> None:
        service = pending.service.name.decode()
        self._send(tasks.Response(service, pending.message_id, data), pending.envelope)

    def refuse(self, pending: Pending, reason: bytes) -> None:
        code, _, why = reason.decode("utf-8", "replace").partition(" ")
        self._send(tasks.Error(code, why, pending.message_id), pending.envelope)

    def _send(self, message: tasks.Message, envelope: bytes) -> None:
        if self.link is not None:
            self.link.send(tasks.write(message, envelope))

    def closed(self, now: float) -> None:
        """Answers go nowhere from now on."""
        self.link = None


class TaskNewcomer:
    """A link on taskbe before it may work: CONNECT, CONFIG, PING, PONG."""

    __slots__ = ("_broker", "_connect", "_link")

    def __init__(self, broker: Broker, link: Link) -> None:
        self._broker = broker
        self._link = link
        self._connect: tasks.Connect | None = None

    def receive(self, image: bytes, now: float) -> None:
        """One message; a router reads it, unless its body went by: what is left is no message."""
        if image[0] == CUT:
            refusal = tasks.Error("too-large", "no worker yet")
            self._link.send(tasks.write(refusal, tasks.envelope_of(image[1:])))
        elif not self._broker.decide(self._link, WORKER, image, now):
            self._link.send(tasks.write(tasks.Disconnect()))

    def decided(self, image: bytes, decision: Decision, now: float) -> None:
        """The two steps, in order; the worker is registered with the PONG."""
        content, envelope = decision.content, image[: decision.header_at]
        if isinstance(content, tasks.Connect):
            if self._broker.access.may_serve(self._link.user, content.service.encode()):
                self._connect = content
                self._link.send(tasks.write(self._config(), envelope))
            else:  # it would be sent away with the PONG, and not know why
                self._connect = None
                self._broker.denials.worker(b"denied", self._link.user, content.service.encode())
                denied = tasks.Error("denied", "this user may not serve it")
                self._link.send(tasks.write(denied, envelope))
        elif isinstance(content, tasks.Ping) and self._connect is not None:
            self._link.send(tasks.write(tasks.Pong(content.ts), envelope))
            worker = TaskWorker(self._broker, self._link, envelope, self._connect.credit, now)
            self._link.state = worker
            self._broker.register(worker, self._connect.service.encode(), now)
        elif isinstance(content, Unreadable):
            self._broker.record.malformed += 1
            refusal = tasks.Error("malformed", content.reason)
            self._link.send(tasks.write(refusal, tasks.envelope_of(image)))
        elif not isinstance(content, tasks.Disconnect):
            # From before a restart, or out of order: it shall start over.
            self._link.send(tasks.write(tasks.Disconnect(), envelope))

    def _config(self) -> tasks.Config:
        broker, policy = self._broker, self._broker.policy
        name = broker.name.decode("utf-8", "replace")
        heartbeat = int(policy.heartbeat * 1000)
        return tasks.Config(name, list(broker.group), heartbeat, policy.liveness, policy.max_body)

    def closed(self, now: float) -> None:
        """Nothing was promised to it."""


class TaskWorker(Worker):
    """A registered task worker."""

    __slots__ = ("_broker", "_envelope")

    def __init__(
        self, broker: Broker, link: Link, envelope: bytes, credit: int, now: float
    ) -> None:
        super().__init__(link, credit, now)
        self._broker = broker
        self._envelope = envelope

    def hand(self, pending: Pending) -> None:
        """The address is the message id: the client's own, or ours where there is none."""
        identity = pending.message_id or self._broker.new_id()
        while identity.encode() in self.held:
            identity = self._broker.new_id()
        self.held[identity.encode()] = pending
        service = pending.service.name.decode()
        self._send(tasks.Task(service, identity, pending.data))

    def receive(self, image: bytes, now: float) -> None:
        """Anything is a sign of life; a router reads it, unless its body went by."""
        self.seen = now
        if image[0] == CUT:
            self._too_large(image[1:], now)
        elif self.link is not None and not self._broker.decide(self.link, WORKER, image, now):
            self._broker.dismiss(self, b"no router", now)

    def _too_large(self, image: bytes, now: float) -> None:
        try:
            _, message = tasks.read(image)
        except RemoteProtocolError:
            message = tasks.Disconnect()
        if isinstance(message, tasks.Response):
            reason = self._broker.too_large_answer
            address, service = message.message_id.encode(), message.service.encode()
            self._broker.core.answer(self, address, service, Kind.FAILED, reason, now)
        else:
            self._broker.dismiss(self, b"too-large", now)

    def decided(self, image: bytes, decision: Decision, now: float) -> None:
        """RESPONSE, PING, PONG, ERROR, DISCONNECT; anything else ends the conversation."""
        core, content = self._broker.core, decision.content
        if isinstance(content, tasks.Response):
            address, service = content.message_id.encode(), content.service.encode()
            core.answer(self, address, service, Kind.FINAL, data_of(decision, image), now)
        elif isinstance(content, tasks.Ping):
            self._send(tasks.Pong(content.ts))
        elif isinstance(content, tasks.Error):
            reason = f"{content.code or 'failed'} {content.reason}".strip().encode()
            core.answer(self, content.message_id.encode(), b"", Kind.FAILED, reason, now)
        elif isinstance(content, tasks.Disconnect):
            self._broker.worker_gone(self, b"disconnect", now)
        elif not isinstance(content, tasks.Pong):
            if isinstance(content, Unreadable):
                self._broker.record.malformed += 1
            self._broker.dismiss(self, b"unexpected", now)

    def beat(self) -> None:
        """With a stamp, as every PING has one: when we last heard of it."""
        self._send(tasks.Ping(self.seen))

    def dismiss(self) -> None:
        self._send(tasks.Disconnect())

    def successor(self) -> object:
        return TaskNewcomer(self._broker, self.link) if self.link is not None else None

    def _send(self, message: tasks.Message) -> None:
        if self.link is not None:
            self.link.send(tasks.write(message, self._envelope))

    def closed(self, now: float) -> None:
        self._broker.worker_gone(self, b"closed", now)
