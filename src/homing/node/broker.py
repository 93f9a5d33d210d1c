"""A broker on real sockets: its plugs, endpoints, journal and keys, from the settings."""

from __future__ import annotations

import hashlib
import logging
import uuid
from dataclasses import replace
from random import SystemRandom

from homing.config import Config
from homing.config.catalogue import SETTINGS
from homing.endpoint import parse_endpoint
from homing.errors import ConfigError
from homing.node.door import Door
from homing.node.host import Host
from homing.node.journals import start_journal
from homing.node.keys import Keyring
from homing.node.pace import Pace
from homing.node.plug import Bounds
from homing.node.routers import Routers, load_route
from homing.node.zmtp import BOUNDS, ZmtpPlug
from homing.service.policy import BrokerPolicy, ServicePolicy
from homing.service.switch import Broker
from homing.wire.zmtp import Limits

ENVELOPE_ROOM = 65536
"""Bytes of a message beside its data: names, addresses, envelope, frame headers."""
ENVELOPE_FRAMES = 16
"""Frames of a message beside its data, whoever it goes to: what clients and workers may send can be handed on."""
ECHO_FRAMES = 8
"""Of these, what an answer may have more than its request: whatever is taken from a client may be echoed."""
PASSED = 1 << 30
"""Bytes of a message over the limits that may go by so that its sender can be told; one that announces more is taken
for a broken stream, and its connection ends."""
STATE_ROOM = 64 << 20
"""Bytes of a peer's state, however short messages are kept: a hundred thousand services with long names have half of that."""
COMMIT_EVERY = 0.05
"""Seconds: no answer of a broker waits for its journal, and a commit every 2 ms cost it a fifth of
its CPU at 13 000 requests/s."""
LISTENING = ("localfe", "localbe", "cloudfe", "statebe", "taskfe", "taskbe")

_log = logging.getLogger("homing.broker")


def policy_of(config: Config) -> BrokerPolicy:
    """The broker's limits and promises, from the settings."""
    service = config.service
    default = ServicePolicy(
        timeout=service.request_timeout,
        absent_grace=service.absent_grace,
        max_waiting=service.max_waiting,
        max_waiting_bytes=service.max_waiting_bytes,
    )
    once = replace(default, at_most_once=True)
    return BrokerPolicy(
        heartbeat=service.heartbeat,
        liveness=service.liveness,
        idle_beats=service.idle_beats,
        max_body=service.max_message,
        max_services=service.max_services,
        max_credit=service.max_credit,
        max_waiting_bytes=2 * service.max_waiting_bytes,
        drain=config.node.drain_timeout,
        refuse_unjournaled=service.when_disk_full == "refuse",
        default=default,
        services={name.encode(): once for name in service.at_most_once},
    )


def parse_peers(texts: tuple[str, ...]) -> dict[bytes, tuple[str, str]]:
    """`NAME=CLOUDFE,STATEBE` (or `|` between them); without a statebe, the port after cloudfe's."""
    peers: dict[bytes, tuple[str, str]] = {}
    problems: list[str] = []
    for text in texts:
        name, mark, ends = text.partition("=")
        cloudfe, _, statebe = ends.replace("|", ",").partition(",")
        try:
            if not (name and mark and cloudfe):
                raise ConfigError([f"{text!r}: a peer is NAME=CLOUDFE or NAME=CLOUDFE,STATEBE"])
            if name.encode() in peers:
                raise ConfigError([f"{text!r}: there is a peer of that name already"])
            where = parse_endpoint(cloudfe)
            beside = statebe or str(where._replace(port=where.port + 1))
            peers[name.encode()] = (str(where), str(parse_endpoint(beside)))
        except ConfigError as error:
            problems += [f"service.peers: {problem}" for problem in error.problems]
    if problems:
        raise ConfigError(problems)
    return peers


def parse_group(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Every task worker is told these, and one that is none would end it when it falls back on them."""
    problems: list[str] = []
    for text in texts:
        try:
            parse_endpoint(text)
        except ConfigError as error:
            problems += [f"service.group: {problem}" for problem in error.problems]
    if problems:
        raise ConfigError(problems)
    return texts


def start_broker(host: Host, config: Config) -> dict[str, str]:
    """Give a host its broker and open its sockets; the endpoints come back, by plug."""
    service = config.service
    name = service.name.encode()
    keyring = Keyring.load(config.security)
    peers, group = parse_peers(service.peers), parse_group(service.group)
    if config.security.users_file and not keyring.listed:
        _log.warning("security.mechanism is null: security.users_file keeps nobody out")
    if name in peers:
        raise ConfigError([f"{service.name!r}: a broker is no peer of its own"])
    limits = Limits(message=service.max_message + ENVELOPE_ROOM)
    _add_plugs(host, config, keyring, peers, limits)
    routers = Routers(host, config, limits, keyring.access) if service.routers else None
    if config.journal.enabled:
        node = hashlib.sha256(b"broker " + name).digest()[:8]
        start_journal(host, config, "broker", service.name, node, at_least=COMMIT_EVERY)
    host.role = broker = Broker(
        name,
        host,
        policy=policy_of(config),
        peers=peers,
        access=keyring.access,
        route=load_route(service.route),
        routers=routers is not None,
        new_id=lambda: str(uuid.uuid4()),
        seed=SystemRandom().getrandbits(32),
        journal=config.journal.enabled,
        state_every=service.state_interval,
    )
    pace = Pace(broker.core, host.turn)
    host.look_out(service.look_out, pace.is_quick)
    host.turn.alone = pace.is_alone
    if config.security.users_file:
        door = Door(host, config, broker, keyring, routers, LISTENING)
        host.rereads["security.users_file"] = door.read_again
    if routers is not None and broker.pool is not None:
        broker.pool.hung = routers.kill
        routers.start(host)
    ends = {
        plug: tuple(
            host.listen(plug, where)
            for where in SETTINGS[f"service.{plug}"].endpoints(getattr(service, plug))
        )
        for plug in LISTENING
    }
    broker.group = (*ends["taskbe"], *group)
    return {plug: ",".join(where) for plug, where in ends.items()}


def _add_plugs(
    host: Host,
    config: Config,
    keyring: Keyring,
    peers: dict[bytes, tuple[str, str]],
    limits: Limits,
) -> None:
    """Peers have plugs of their own to connect with: each has a key of its own."""
    own = config.service.name
    bounds = BOUNDS.with_settings(config.node)
    between = replace(bounds, wait_for_reader=False, inside=True)
    server = keyring.server()
    passed = max(PASSED, 2 * limits.message)
    told = Limits(message=limits.message, passed=passed)
    frames = limits.frames - ENVELOPE_FRAMES
    fewer = Limits(message=limits.message, frames=frames, passed=passed)
    echoed = Limits(message=limits.message, frames=frames + ECHO_FRAMES, passed=passed)
    for title in ("localfe", "localbe", "taskfe", "taskbe"):
        bound = echoed if title == "localbe" else fewer  # a task's answer has no more than the task
        host.add(ZmtpPlug(title, "ROUTER", mechanism=server, limits=bound, bounds=bounds))
    host.add(
        ZmtpPlug(
            "cloudfe",
            "ROUTER",
            identity=own.encode(),
            mechanism=server,
            handover=True,
            limits=told,
            bounds=between,
        )
    )
    host.add(ZmtpPlug("statebe", "PUB", mechanism=server, limits=limits, bounds=between))
    for peer in peers:
        _add_peer_plugs(host, peer.decode(), own, keyring, told, between)


def _add_peer_plugs(
    host: Host, peer: str, own: str, keyring: Keyring, limits: Limits, bounds: Bounds
) -> None:
    mechanism = keyring.client(peer, own)
    host.add(
        ZmtpPlug(
            f"cloudbe/{peer}",
            "ROUTER",
            identity=own.encode(),
            mechanism=mechanism,
            limits=limits,
            bounds=bounds,
        )
    )
    host.add(
        ZmtpPlug(
            f"statefe/{peer}",
            "SUB",
            mechanism=mechanism,
            topics=(b"",),
            limits=Limits(message=max(limits.message, STATE_ROOM)),
            bounds=bounds,
        )
    )
