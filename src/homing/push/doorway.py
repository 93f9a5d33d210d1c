"""The subscribers' side of a connector: who may come in, and what they ask for (§5.2).

Answers leave in the order of the commands, though a subscription is answered only when the
matchers have it (or after CONFIRM_SECONDS without them: it is recorded and will be told).
A durable session's is never answered with a yes before it is on disk. A heartbeat is answered
at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from homing.errors import DiskFull, HomingError, Malformed, RemoteProtocolError
from homing.ids import parse_id
from homing.ports import Link
from homing.push.sessions import DEFAULT, Session
from homing.push.subscription import (
    Fields,
    check_fields,
    check_name,
    parse_field,
    parse_fields,
)
from homing.push.tokens import Keyring
from homing.wire import pushed
from homing.wire.session import HEARTBEAT, HEARTBEAT_ANSWER, elements, status

if TYPE_CHECKING:
    from homing.push.connector import Connector

CONFIRM_SECONDS: Final = 2.0
"""Longer than a matcher takes to restart, shorter than a person waits."""
STORE_SECONDS: Final = 10.0
"""How long a change may wait for the disk before its client is told so: longer than a busy disk takes."""
MAX_SUBSCRIPTIONS: Final = 1000
"""Per client: each costs the index some 300 bytes on every matcher."""
MAX_CONFIRMING: Final = 65_536
"""Changes waiting for matchers: more than any burst of new clients; then they wait no more."""
MAX_ANSWERS: Final = 1024
"""Unanswered commands of one client: nobody types that fast."""
MAX_SESSIONS: Final = 200_000
"""Clients known, here or away; at some KB each this is what one process should hold."""
DOOR: Final = "door"


class Visitor:
    """One subscriber connection; `session` once it passed auth."""

    __slots__ = ("answers", "heard", "link", "session", "since")

    def __init__(self, link: Link, now: float) -> None:
        self.link = link
        self.session: Session | None = None
        self.since = now
        self.heard = now
        self.answers = _NONE_DUE

    def answer(self, line: bytes) -> None:
        """Send now, or after the answers that are still due."""
        if self.answers:
            self.owe(line, True)
        else:
            self.link.send(line)

    def owe(self, line: bytes, ready: bool) -> Answer:
        """An answer that leaves when its turn has come and it is ready."""
        answer = Answer(self, line, ready)
        if not self.answers:
            self.answers = []
        self.answers.append(answer)
        return answer

    def flush(self) -> None:
        """Send the answers whose turn it is."""
        while self.answers and self.answers[0].ready:
            self.link.send(self.answers.pop(0).line)
        self.answers = self.answers or _NONE_DUE


class Answer:
    """A status line whose time may not have come."""

    __slots__ = ("late", "line", "ready", "visitor")

    def __init__(self, visitor: Visitor, line: bytes, ready: bool) -> None:
        self.visitor = visitor
        self.line = line
        self.ready = ready
        self.late = False  # it waits for the disk longer than matchers are waited for


_UNSAFE: Final = status(
    False,
    f"command error: queue-full not on disk after {STORE_SECONDS:g} s, holds once it is: ask again",
)

_USAGE: Final = {
    b"subn": "subn takes a subscription's name, then names and fields",
    b"unsub": "unsub takes one subscription's name, or none",
}

# The answers due to nearly everybody, shared: an empty list of one's own takes 56 bytes.
_NONE_DUE: Final[list[Answer]] = []


class Doorway:
    """Visitors by link; answers that wait for a confirmation by its message id."""

    def __init__(self, connector: Connector, keys: Keyring) -> None:
        self.keys = keys
        self._connector = connector
        self._limits = connector.store.limits
        self._visitors: dict[Link, Visitor] = {}
        self._strangers: dict[Link, Visitor] = {}  # not authenticated, oldest first
        self._confirming: dict[bytes, Answer] = {}

    def __len__(self) -> int:
        return len(self._visitors)

    # Coming and going

    def opened(self, link: Link, now: float) -> None:
        link.state = visitor = Visitor(link, now)
        self._visitors[link] = visitor
        if not self._strangers:
            self._connector.port.later(now + self._limits.auth_timeout, DOOR)
        self._strangers[link] = visitor

    def closed(self, link: Link, now: float, reason: str = "closed") -> None:
        visitor = self._visitors.pop(link, None)
        self._strangers.pop(link, None)
        link.state = None
        if visitor is not None and visitor.session is not None:
            self._connector.part(visitor.session, reason, now)

    def dismiss(self, link: Link, reason: str, now: float) -> None:
        """Tell a client why, and close."""
        link.send(status(False, reason))
        link.close(reason)
        self.closed(link, now, reason)

    def wake(self, key: str, now: float) -> None:
        """Close on those who did not authenticate in time."""
        if key != DOOR:
            return
        for link, visitor in list(self._strangers.items()):
            due = visitor.since + self._limits.auth_timeout
            if due > now:
                self._connector.port.later(due, DOOR)
                return
            self.dismiss(link, f"auth error none within {self._limits.auth_timeout:g} s", now)

    def look_around(self, now: float) -> None:
        """Close on those who have been silent for too long."""
        quiet = [v for v in self._visitors.values() if now - v.heard > self._limits.keepalive]
        for visitor in quiet:
            self.dismiss(visitor.link, "keepalive", now)

    # Commands

    def receive(self, link: Link, frame: bytes, now: float) -> None:
        visitor: Visitor | None = link.state
        if visitor is None:
            return
        visitor.heard = now
        if frame == HEARTBEAT:
            link.send(HEARTBEAT_ANSWER)
            return
        try:
            parts = elements(frame)
        except RemoteProtocolError as error:
            visitor.answer(status(False, f"command error: {error}"))
            return
        if parts[0] == b"auth" and visitor.session is None:
            self._auth(visitor, parts, now)
            return
        try:
            self._command(visitor, parts, now)
        except DiskFull as error:
            visitor.answer(status(False, f"command error: queue-full {error}"))
        except (HomingError, UnicodeDecodeError) as error:
            visitor.answer(status(False, f"command error: {error}"))

    def _command(self, visitor: Visitor, parts: list[bytes], now: float) -> None:
        verb, session = parts[0], visitor.session
        if verb == b"hb":
            visitor.link.send(HEARTBEAT_ANSWER)
        elif session is None:
            raise Malformed("auth first")
        elif verb == b"auth":
            raise Malformed("authenticated already: another client needs another connection")
        elif verb == b"ack":
            if len(parts) != 2:
                raise Malformed("ack takes one message id")
            self._connector.acknowledge(session, parse_id(parts[1].decode()), now)
        elif len(visitor.answers) >= MAX_ANSWERS:
            raise Malformed(f"{MAX_ANSWERS} commands wait for their answers")
        elif verb == b"sub":
            known = parse_fields(session.subscriptions.get(DEFAULT[0], b"{}"))
            self._subscribe(visitor, session, DEFAULT[0], {**known, **_fields(parts[1:])}, now)
        elif verb == b"subn" and len(parts) > 1:
            name = check_name(parts[1].decode())
            self._subscribe(visitor, session, name, _fields(parts[2:]), now)
        elif verb == b"unsub" and len(parts) <= 2:
            name = check_name(parts[1].decode()) if len(parts) == 2 else DEFAULT[0]
            self._unsubscribe(visitor, session, name, now)
        else:
            usage = _USAGE.get(verb)
            raise Malformed(usage or f"unknown {verb[:40].decode('utf-8', 'replace')}")

    def _subscribe(
        self, visitor: Visitor, session: Session, name: str, fields: Fields, now: float
    ) -> None:
        check_fields(fields)
        if name not in session.subscriptions and len(session.subscriptions) >= MAX_SUBSCRIPTIONS:
            raise Malformed(f"{MAX_SUBSCRIPTIONS} subscriptions at most")
        message_id = self._connector.subscribe(session, name, fields, now)
        self._confirm(visitor, message_id, b"+sub\r\n", now)

    def _unsubscribe(self, visitor: Visitor, session: Session, name: str, now: float) -> None:
        if name not in session.subscriptions and not self._connector.is_changing(session):
            visitor.answer(b"+unsub\r\n")  # as asked: it is not there
            return
        message_id = self._connector.unsubscribe(session, name, now)
        self._confirm(visitor, message_id, b"+unsub\r\n", now)

    def _confirm(self, visitor: Visitor, message_id: bytes, line: bytes, now: float) -> None:
        if len(self._confirming) >= MAX_CONFIRMING and self._connector.is_safe(message_id):
            visitor.answer(line)
            return
        answer = visitor.owe(line, False)
        self._confirming[message_id] = answer
        self._connector.port.later(now + CONFIRM_SECONDS, message_id)

    def overdue(self, message_id: bytes, now: float) -> None:
        """The matchers have had their time; the disk gets some more, and then its client is told.

        Such a change is not undone: the journal still has it in hand, and it holds once that is written.
        """
        answer = self._confirming.get(message_id)
        if answer is not None and not self._connector.is_safe(message_id):
            if not answer.late:
                answer.late = True
                self._connector.port.later(now + STORE_SECONDS - CONFIRM_SECONDS, message_id)
                return
            answer.line = _UNSAFE
        self.confirmed(message_id)

    def stored(self, message_id: bytes, now: float) -> None:
        """A change is on disk: if that took long the matchers get their time from now on."""
        answer = self._confirming.get(message_id)
        if answer is not None and len(self._confirming) > MAX_CONFIRMING:
            self.confirmed(message_id)
        elif answer is not None and answer.late:
            self._connector.port.later(now + CONFIRM_SECONDS, message_id)

    def confirmed(self, message_id: bytes) -> None:
        """The matchers have a change, or have had their time."""
        answer = self._confirming.pop(message_id, None)
        if answer is not None:
            self._connector.port.cancel(message_id)
            answer.ready = True
            answer.visitor.flush()

    # Auth

    def _auth(self, visitor: Visitor, parts: list[bytes], now: float) -> None:
        try:
            if len(parts) != 2:
                raise Malformed("auth takes one object")
            auth = pushed.decode_auth(parts[1])
            client = parse_id(auth.client_id)
            wall = self._connector.wall()
            self.keys.check(auth.client_id, auth.timestamp, auth.token, wall)
            session, resumed = self._session(client, auth, now)
        except HomingError as error:
            self.dismiss(visitor.link, f"auth error {error}", now)
            return
        del self._strangers[visitor.link]
        visitor.session = session
        self._connector.admit(visitor, session, resumed, now)
        visitor.answer(b"+authsuccess\r\n")
        self._connector.delivery.pump(session, now)

    def _session(self, client: bytes, auth: pushed.Auth, now: float) -> tuple[Session, bool]:
        """The session that goes on, or a new one; a client's newest connection wins."""
        sessions = self._connector.sessions
        policy = auth.slow or ("spill" if auth.ack else self._limits.slow)
        if policy == "spill" and not auth.ack:
            raise Malformed("only a durable session (ack) can spill")
        known = sessions.get(client)
        if known is None and len(sessions) >= MAX_SESSIONS:
            raise Malformed(f"this connector holds {MAX_SESSIONS} sessions: try another")
        if known is not None and known.link is not None:
            self.dismiss(known.link, "replaced", now)
            known = sessions.get(client)
        if known is not None and auth.ack and auth.resume:
            known.policy, known.wait = policy, auth.wait
            return known, True
        if known is not None:
            self._connector.end(known, "not-resumed", now)
        if auth.ack and not auth.resume:
            self._connector.store.anew.add(client)
        session = Session(client, auth.ack, policy, self._connector.store)
        session.wait = auth.wait
        return session, False


def _fields(pairs: list[bytes]) -> Fields:
    """name, field JSON, name, field JSON…"""
    if not pairs or len(pairs) % 2:
        raise Malformed("names and fields come in pairs")
    return {
        check_name(pairs[at].decode()): parse_field(pairs[at + 1]) for at in range(0, len(pairs), 2)
    }
