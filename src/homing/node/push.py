"""Matchers, dispatchers and connectors on real sockets, from the settings.

Without members every node looks for the others at the default endpoints of this machine. With
members (homing.node.fleet) a matcher dials every dispatcher and every other matcher, and each
connector belongs to one dispatcher, which all work out alike from the ids.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from homing.clock import SystemClock
from homing.config import Config
from homing.endpoint import parse_endpoint
from homing.ids import IdMaker, parse_node_id
from homing.node.checkpoint import start_checkpoints
from homing.node.fleet import Fleet, Roster
from homing.node.host import Host
from homing.node.journals import CHECKPOINT, journal_directory, reopen_journal, start_journal
from homing.node.plans import read_plan, start_plan
from homing.node.plug import Bounds, Plug, StreamPlug
from homing.node.subscribers import SubscriberPlug
from homing.push.connector import Connector
from homing.push.dispatcher import Dispatcher
from homing.push.matcher import Matcher
from homing.push.sessions import Limits
from homing.push.tokens import Keyring
from homing.push.values import Value
from homing.wire.packet import PacketStream

NODE_BOUNDS = Bounds(wait_for_reader=False, backlog=256 << 20, breathe=False, inside=True)
"""Between nodes: both send, so neither waits for the other; a stuck one keeps what an outbox may
hold, several times over."""
SUBSCRIBER_BOUNDS = Bounds(high_water=64 << 10, low_water=16 << 10, backlog=16 << 20)
"""A subscriber's session decides what happens when it is slow, long before the link does."""

ANYWHERE = ("", "0.0.0.0", "::")
"""Hosts to listen on that say nothing about where others find us."""


class NumberedIndex:
    """The index, answering with plain ints: as keys they cost a tenth of numpy's."""

    def __init__(self) -> None:
        from homing.push.index import Index  # brings numba: only a matcher waits for that

        index = Index()
        self.replace = index.replace
        self.remove = index.remove
        self.close = index.close
        self.stats = index.stats
        self._match = index.match

    def match(self, attributes: Mapping[str, Value]) -> list[int]:
        numbers: list[int] = self._match(attributes).tolist()
        return numbers


def start_matcher(
    host: Host, config: Config, node: bytes, fleet: Fleet | None = None
) -> dict[str, str]:
    """Give a host a matcher and open its sockets; the endpoints come back, by plug."""
    fleet = fleet or Fleet(config)
    elsewhere = config.push.matching == "spark"
    dispatchers: Sequence[str] | None = list(fleet.roster.endpoints("dispatcher", "nodes").values())
    dispatchers = dispatchers or [config.push.dispatcher]
    if fleet.dynamic or elsewhere:
        dispatchers = () if elsewhere else None
    recovered = reopen_journal(host, config, "matcher", node)
    _add(host, "publishers", replace(NODE_BOUNDS, wait_for_reader=True, inside=False))
    for plug in ("dispatchers", "status", "ring"):
        _add(host, plug, NODE_BOUNDS)
    host.role = matcher = Matcher(
        host,
        node,
        SystemClock.wall,
        _ids(),
        NumberedIndex,
        dispatchers=dispatchers,
        matchers=list(fleet.roster.endpoints("matcher", "status", but=node).values()),
        address=config.push.status,
        tokens=node_tokens(config),
        publish_tokens=[key.encode() for key in config.security.api_keys],
        recovered=recovered,
        plan=read_plan(config.push.plan),
        elsewhere=elsewhere,
    )
    if not elsewhere:
        fleet.watch(partial(_tell_matcher, host, matcher, node))
    start_plan(host, matcher, config.push.plan)
    start_checkpoints(host, matcher, journal_directory(config, "matcher", node.hex()) / CHECKPOINT)
    publishers = host.listen("publishers", config.push.publishers)
    if config.cluster.advertise or parse_endpoint(publishers).host not in ANYWHERE:
        matcher.neighbours.publishers = fleet.advertised(publishers)
    return {"publishers": publishers, "status": host.listen("status", config.push.status)}


def _tell_matcher(host: Host, matcher: Matcher, node: bytes, roster: Roster) -> None:
    dispatchers = roster.endpoints("dispatcher", "nodes")
    matcher.meet(
        dispatchers, roster.endpoints("matcher", "status", but=node), roster.ids, host.now()
    )


def start_dispatcher(
    host: Host, config: Config, node: bytes, fleet: Fleet | None = None
) -> dict[str, str]:
    """The same for a dispatcher."""
    fleet = fleet or Fleet(config)
    roster = fleet.roster
    connectors: Sequence[str] | None = list(_owned(roster, node).values())
    if not roster.having("connector"):
        connectors = None if fleet.dynamic else [config.push.connector]
    if config.journal.enabled:  # it remembers nothing
        start_journal(host, config, "dispatcher", node.hex(), node)
    for plug in ("nodes", "connectors", "peers"):
        _add(host, plug, NODE_BOUNDS)
    host.role = dispatcher = Dispatcher(
        host,
        node,
        SystemClock.wall,
        connectors=connectors,
        peers=list(roster.endpoints("dispatcher", "nodes", but=node).values()),
        matchers=_matchers(roster),
        tokens=node_tokens(config),
    )
    fleet.watch(partial(_tell_dispatcher, host, dispatcher, node))
    return {"nodes": host.listen("nodes", config.push.dispatcher)}


def _tell_dispatcher(host: Host, dispatcher: Dispatcher, node: bytes, roster: Roster) -> None:
    peers = roster.endpoints("dispatcher", "nodes", but=node)
    dispatcher.meet(_owned(roster, node), peers, _matchers(roster), host.now())


def _matchers(roster: Roster) -> list[bytes]:
    return [member.id for member in roster.having("matcher")]


def _owned(roster: Roster, node: bytes) -> dict[bytes, str]:
    """Where the connectors listen that belong to a dispatcher."""
    dispatchers = {node, *[member.id for member in roster.having("dispatcher")]}
    ends = roster.endpoints("connector", "dispatchers")
    return {one: end for one, end in ends.items() if owner(one, sorted(dispatchers)) == node}


def start_connector(host: Host, config: Config, node: bytes) -> dict[str, str]:
    """The same for a connector."""
    recovered = reopen_journal(host, config, "connector", node)
    _add(host, "dispatchers", NODE_BOUNDS)
    bounds = replace(
        SUBSCRIBER_BOUNDS,
        connections=config.node.max_connections,
        handshake=config.push.auth_timeout,
    )
    plug = SubscriberPlug(
        "subscribers",
        bounds=bounds,
        tls=_tls(config),
        max_command=config.push.max_command,
        origins=config.push.origins,
    )
    if plug.tls is not None:
        host.rereads["security.tls_cert"] = partial(_renew, plug, config)
    host.add(plug)
    host.role = connector = Connector(
        host,
        node,
        SystemClock.wall,
        _ids(),
        Keyring(token_keys(config), config.push.token_ttl),
        tokens=node_tokens(config),
        recovered=recovered,
        limits=_limits(config),
        together=host.together,
    )
    start_checkpoints(
        host, connector, journal_directory(config, "connector", node.hex()) / CHECKPOINT
    )
    return {
        "dispatchers": host.listen("dispatchers", config.push.connector),
        "subscribers": host.listen(
            "subscribers", config.push.subscribers, backlog=config.node.listen_backlog
        ),
    }


def owner(connector: bytes, dispatchers: Sequence[bytes]) -> bytes:
    """The dispatcher a connector belongs to: when one leaves only its connectors move."""
    return max(dispatchers, key=lambda one: hashlib.sha1(one + connector).digest())


def node_identity(config: Config, role: str, given: str | None) -> bytes:
    """A node's id: given, or made at the first start and kept beside its data."""
    if given:
        return parse_node_id(given)
    text = _kept(Path(config.node.data) / f"{role}.id", secrets.token_hex(8))
    return parse_node_id(text)


def token_keys(config: Config) -> list[bytes]:
    """What signs subscribers' tokens, newest first; made at the first start if none is set."""
    security = config.security
    newest = security.token_key or _kept(
        Path(config.node.data) / "token.key", secrets.token_hex(32)
    )
    return [newest.encode(), *[key.encode() for key in security.previous_token_keys]]


def node_tokens(config: Config) -> list[bytes]:
    """What the nodes of one fabric know each other by: derived from the keys they share.

    Where no key is set each machine makes its own, and nodes trust the network they are on.
    """
    if not config.security.token_key:
        return []
    return [hmac.new(key, b"homing nodes", "sha256").digest() for key in token_keys(config)]


def _kept(path: Path, fresh: str) -> str:
    """The text of a small private file, made if it is not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_text(encoding="ascii").strip()
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(fresh + "\n")
    return fresh


def _ids() -> IdMaker:
    return IdMaker(SystemClock.wall, os.urandom(8))


def _add(host: Host, plug: str, bounds: Bounds) -> None:
    host.add(StreamPlug(plug, PacketStream, bounds=bounds))


def _limits(config: Config) -> Limits:
    push = config.push
    return Limits(
        auth_timeout=push.auth_timeout,
        keepalive=push.keepalive,
        away=push.spill_age,
        wait=push.wait,
        slow=push.slow,
        buffer=push.client_buffer,
        owed_count=push.spill_count,
        owed_bytes=push.spill_bytes,
        kept_bytes=push.spill_total,
    )


def _tls(config: Config) -> ssl.SSLContext | None:
    security = config.security
    if not security.tls_cert:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(security.tls_cert, security.tls_key or None)
    return context


def _renew(plug: Plug, config: Config) -> None:
    """Certificates are renewed; links that are open stay. A new context: one whose files do not fit serves nobody."""
    plug.tls = _tls(config)
