"""The authority over HTTP: `POST /v1/token`, and the older `GET /sdk/sub/preauth` (§5.5)."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Sequence
from functools import partial

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from homing.clock import SystemClock
from homing.config import Config
from homing.errors import Denied, HomingError, Malformed, NoService
from homing.node.fleet import Fleet, Roster
from homing.node.host import Host
from homing.node.plug import StreamPlug
from homing.node.push import NODE_BOUNDS, node_tokens, token_keys
from homing.node.web import WebServer
from homing.push.authority import Authority
from homing.push.tokens import Keyring
from homing.wire.packet import PacketStream

MAX_REQUEST = 4096
"""Bytes of a request's body: one client id."""
MAX_CONNECTIONS = 1024
"""HTTP connections at once: each is served in a millisecond and closed or reused."""

_CODES: dict[type[HomingError], int] = {Malformed: 400, Denied: 401, NoService: 503}


class _Ask(msgspec.Struct):
    client_id: str


class Desk:
    """The HTTP side: who asks, for whom, and the answer."""

    def __init__(self, authority: Authority, api_keys: Sequence[str]) -> None:
        self._authority = authority
        self._api_keys = [key.encode() for key in api_keys]
        self.app = Starlette(
            routes=[
                Route("/v1/token", self._token, methods=["POST"]),
                Route("/sdk/sub/preauth", self._preauth, methods=["GET"]),
            ]
        )

    async def _token(self, request: Request) -> Response:
        try:
            self._check(request)
            body = await _body(request)
            return self._answer(_asked(body).client_id)
        except HomingError as error:
            return _refusal(error)

    async def _preauth(self, request: Request) -> Response:
        try:
            self._check(request)
            return self._answer(request.query_params.get("client_id", ""))
        except HomingError as error:
            return _refusal(error)

    def _check(self, request: Request) -> None:
        """One of the API keys, as `Authorization: Bearer` or `X-Api-Key`; none set: anyone."""
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        given = (request.headers.get("x-api-key") or bearer).encode()
        known = [hmac.compare_digest(given, key) for key in self._api_keys]
        if known and not any(known):
            raise Denied("no API key that is known here")

    def _answer(self, client_id: str) -> Response:
        ticket = self._authority.issue(client_id)
        return Response(msgspec.json.encode(ticket), media_type="application/json")


async def _body(request: Request) -> bytes:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_REQUEST:
            raise Malformed(f"a request has at most {MAX_REQUEST} bytes")
    return body


def _asked(body: bytes) -> _Ask:
    try:
        return msgspec.json.decode(body, type=_Ask)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(f'expected {{"client_id": 24 hex digits}}: {error}') from error


def _refusal(error: HomingError) -> Response:
    told = {"status": "error", "code": error.code, "reason": str(error)}
    status = next((code for kind, code in _CODES.items() if isinstance(error, kind)), 500)
    return Response(msgspec.json.encode(told), status, media_type="application/json")


def start_authority(
    host: Host, config: Config, node: bytes, fleet: Fleet | None = None
) -> dict[str, str]:
    """Give a host an authority and open its HTTP port; the endpoint comes back."""
    fleet = fleet or Fleet(config)
    connectors = _connectors(fleet.roster)
    if not connectors and not fleet.dynamic:
        connectors = {config.push.connector: config.push.subscribers}
    _add_plugs(host, connectors)
    keys = Keyring(token_keys(config), config.push.token_ttl)
    host.role = authority = Authority(
        host, node, SystemClock.wall, keys, connectors, tokens=node_tokens(config)
    )
    fleet.watch(partial(_tell_authority, host, authority))
    desk = Desk(authority, config.security.api_keys)
    where = WebServer(desk.app, MAX_CONNECTIONS).start(config.push.authority)
    return {"http": where.replace("tcp://", "http://")}


def _connectors(roster: Roster) -> dict[str, str]:
    """Where connectors listen for nodes, and where for subscribers."""
    subscribers = roster.endpoints("connector", "subscribers")
    nodes = roster.endpoints("connector", "dispatchers")
    return {nodes[one]: end for one, end in subscribers.items() if one in nodes}


def _tell_authority(host: Host, authority: Authority, roster: Roster) -> None:
    connectors = _connectors(roster)
    _add_plugs(host, connectors)
    authority.meet(connectors, host.now())


def _add_plugs(host: Host, endpoints: Iterable[str]) -> None:
    """One for each connector: an authority tells them apart by it."""
    for name in [f"connectors/{endpoint}" for endpoint in endpoints]:
        if name not in host.plugs:
            host.add(StreamPlug(name, PacketStream, bounds=NODE_BOUNDS))
