"""The authority: tokens that connectors accept, the least loaded connector, HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

import msgspec
import pytest

from homing.errors import Malformed, NoService
from homing.node.authority import Desk
from homing.push.authority import Authority
from homing.push.tokens import Keyring
from homing.testing import EPOCH, RecordingLink, RecordingPort
from homing.wire import relay

KEYS = Keyring([b"secret"])
CLIENT = "0123456789abcdef01234567"
WHERE = {"a:7004": "a:7005", "b:7004": "b:7005"}


def authority(*alive: str) -> tuple[Authority, dict[str, RecordingLink]]:
    role = Authority(RecordingPort(), b"auth0001", lambda: EPOCH, KEYS, WHERE)
    links = {}
    for endpoint in alive:
        link = links[endpoint] = RecordingLink(f"connectors/{endpoint}")
        role.opened(link, 0.0)
        role.receive(link, relay.Hello(endpoint.encode()[:1] * 8, b"connector").encode(), 0.0)
    return role, links


def beat(role: Authority, link: RecordingLink, load: int) -> None:
    role.receive(link, relay.Heartbeat(1, load).encode(), 0.0)


def test_a_ticket_is_what_a_connector_accepts() -> None:
    role, _ = authority("a:7004")
    ticket = role.issue(CLIENT)
    assert (ticket.status, ticket.client_id, ticket.connector) == ("ok", CLIENT, "a:7005")
    KEYS.check(CLIENT, ticket.timestamp, ticket.token, EPOCH)


def test_the_least_loaded_connector_is_named_and_bursts_spread() -> None:
    role, links = authority("a:7004", "b:7004")
    beat(role, links["a:7004"], 100)
    beat(role, links["b:7004"], 90)
    named = [role.issue(CLIENT).connector for _ in range(30)]
    assert named[:10] == ["b:7005"] * 10
    assert (named.count("a:7005"), named.count("b:7005")) == (10, 20)


def test_of_equally_loaded_connectors_a_client_is_always_sent_to_the_same() -> None:
    def named(client: str, *alive: str) -> str:
        return authority(*alive)[0].issue(client).connector

    clients = [f"{number:024x}" for number in range(200)]
    both = {client: named(client, "a:7004", "b:7004") for client in clients}
    assert both == {client: named(client, "b:7004", "a:7004") for client in clients}
    assert 60 < list(both.values()).count("a:7005") < 140
    alone = {named(client, "b:7004") for client in clients}
    assert alone == {"b:7005"}


def test_only_connectors_that_answer_are_named() -> None:
    role, links = authority("a:7004", "b:7004")
    beat(role, links["b:7004"], 5000)
    role.closed(links["a:7004"], 0.0)
    assert role.issue(CLIENT).connector == "b:7005"
    role.closed(links["b:7004"], 0.0)
    with pytest.raises(NoService):
        role.issue(CLIENT)


def test_a_connector_that_is_gone_before_it_said_hello_is_not_asked_for() -> None:
    role, _ = authority("a:7004")
    stillborn = RecordingLink("connectors/b:7004")
    role.opened(stillborn, 0.0)
    role.closed(stillborn, 0.0)
    assert role.issue(CLIENT).connector == "a:7005"
    refused = RecordingLink("connectors/b:7004")
    role.opened(refused, 0.0)
    role.tokens = (b"another fabric's",)
    role.receive(refused, relay.Hello(b"b" * 8, b"connector").encode(), 0.0)
    assert refused.reason == "wrong token"
    assert role.issue(CLIENT).connector == "a:7005"


def test_a_client_id_is_24_hex_digits() -> None:
    role, _ = authority("a:7004")
    for wrong in ("", "01", "x" * 24, CLIENT + "00"):
        with pytest.raises(Malformed):
            role.issue(wrong)


def ask(
    desk: Desk, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
) -> tuple[int, Any]:
    """One request to the ASGI application, without a socket."""
    target, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": target,
        "raw_path": target.encode(),
        "query_string": query.encode(),
        "headers": [(k.lower().encode(), v.encode()) for k, v in (headers or {}).items()],
        "http_version": "1.1",
        "scheme": "http",
        "server": ("t", 80),
        "client": ("t", 1),
    }
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    asyncio.run(desk.app(scope, receive, send))
    answer = b"".join(m.get("body", b"") for m in sent)
    return sent[0]["status"], msgspec.json.decode(answer) if answer.startswith(b"{") else answer


def test_connectors_come_and_go() -> None:
    role, links = authority("a:7004", "b:7004")
    role.meet({"b:7004": "b:7005", "c:7004": "c:7005"}, 1.0)
    assert links["a:7004"].reason == "no longer a member"
    assert links["b:7004"].reason is None
    assert role.issue(CLIENT).connector == "b:7005"
    fresh = RecordingLink("connectors/c:7004")
    role.opened(fresh, 1.0)
    role.receive(fresh, relay.Hello(b"c" * 8, b"connector").encode(), 1.0)
    assert {role.issue(CLIENT).connector for _ in range(4)} == {"b:7005", "c:7005"}
    role.meet({}, 2.0)
    with pytest.raises(NoService):
        role.issue(CLIENT)


def test_both_ways_of_asking_give_the_same_answer() -> None:
    desk = Desk(authority("a:7004")[0], [])
    posted = ask(desk, "POST", "/v1/token", b'{"client_id":"%s"}' % CLIENT.encode())
    older = ask(desk, "GET", f"/sdk/sub/preauth?client_id={CLIENT}")
    assert posted == older
    status, ticket = posted
    assert status == 200
    assert ticket == {
        "status": "ok",
        "client_id": CLIENT,
        "timestamp": int(EPOCH),
        "token": KEYS.issue(CLIENT, int(EPOCH)),
        "connector": "a:7005",
    }


@pytest.mark.parametrize(
    "headers", [{"X-Api-Key": "two"}, {"Authorization": "Bearer one"}], ids=["header", "bearer"]
)
def test_with_api_keys_one_of_them_is_needed(headers: dict[str, str]) -> None:
    desk = Desk(authority("a:7004")[0], ["one", "two"])
    path = f"/sdk/sub/preauth?client_id={CLIENT}"
    assert ask(desk, "GET", path)[0] == 401
    assert ask(desk, "GET", path, headers={"X-Api-Key": "three"})[0] == 401
    assert ask(desk, "GET", path, headers=headers)[0] == 200


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "malformed"),
        (b"{}", 400, "malformed"),
        (b'{"client_id":"\xff"}', 400, "malformed"),
        (b"[" * 4000, 400, "malformed"),
        (b"x" * 5000, 400, "malformed"),
    ],
)
def test_what_makes_no_sense_is_refused(body: bytes, status: int, code: str) -> None:
    desk = Desk(authority("a:7004")[0], [])
    got, told = ask(desk, "POST", "/v1/token", body)
    assert (got, told["status"], told["code"]) == (status, "error", code)


def test_without_connectors_the_answer_is_503() -> None:
    desk = Desk(authority()[0], [])
    status, told = ask(desk, "GET", f"/sdk/sub/preauth?client_id={CLIENT}")
    assert (status, told["code"]) == (503, "no-service")
