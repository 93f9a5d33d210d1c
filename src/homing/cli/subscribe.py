"""Subscribe: print the publications that a filter asks for, one JSON object a line.

The token comes from the authority, or is made here from the token key where this machine has
it. Ends after --count publications, or with Ctrl-C.

Examples:
  homing subscribe 'price in 10..20 and city = "Paris"'
  homing subscribe 'vip = true' --client 0123456789abcdef01234567 --durable
  homing subscribe 'n >= 0' --count 10 --authority http://10.0.0.1:7006
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from homing.cli.verb import NO_FLAGS, ConfigFlags, verb
from homing.endpoint import why_unreachable
from homing.errors import Denied, Unavailable

app = verb("subscribe", __doc__)


@app.default
async def subscribe(
    filter: str,
    *,
    client: Annotated[str | None, Parameter(help="24 hex digits; one's own, for ever")] = None,
    durable: Annotated[bool, Parameter(help="keep what is missed between connections")] = False,
    count: Annotated[int | None, Parameter(help="end after this many")] = None,
    connector: Annotated[tuple[str, ...], Parameter(help="HOST:PORT of a connector")] = (),
    authority: Annotated[str | None, Parameter(help="http://HOST:PORT to ask for a token")] = None,
    api_key: Annotated[str, Parameter(help="for the authority")] = "",
    port_offset: Annotated[int | None, Parameter(help="added to the default port")] = None,
    data: Annotated[str | None, Parameter(help="where the connector keeps token.key")] = None,
    flags: ConfigFlags = NO_FLAGS,
) -> int:
    """Print publications as they come."""
    from homing.push.filters import parse_filter
    from homing.push.subscriber import Subscriber

    parse_filter(filter)  # what is wrong with it is told before anybody is asked for anything
    config = flags.load({"node.data": data, "node.port_offset": port_offset})
    identity = client or secrets.token_hex(12)
    where = connector or (config.push.subscribers,)
    if authority is not None:
        ticket = _ask(authority, identity, api_key)
        where = connector or (ticket["connector"],)
        credentials = _from_authority(authority, identity, api_key)
    else:
        credentials = _from_key(config, identity)
    async with Subscriber(identity, *where, credentials=credentials, durable=durable) as source:
        await source.subscribe(filter)
        left = count
        async for one in source:
            print(msgspec.json.encode(one).decode(), flush=True)
            left = None if left is None else left - 1
            if left == 0:
                break
    return 0


def _from_key(config: Any, identity: str) -> Callable[[], tuple[int, str]]:
    from homing.push.tokens import Keyring

    path = Path(config.node.data) / "token.key"
    key = config.security.token_key or (path.read_text().strip() if path.exists() else "")
    if not key:
        raise Denied(
            f"no token key in {path.parent}",
            hint="name the --data of a connector on this machine, or ask an authority: "
            "--authority http://127.0.0.1:7006",
        )
    keys = Keyring([key.encode()])

    def credentials() -> tuple[int, str]:
        stamp = int(time.time())
        return stamp, keys.issue(identity, stamp)

    return credentials


def _from_authority(url: str, identity: str, api_key: str) -> Callable[[], tuple[int, str]]:
    def credentials() -> tuple[int, str]:
        ticket = _ask(url, identity, api_key)
        return int(ticket["timestamp"]), str(ticket["token"])

    return credentials


def _ask(url: str, identity: str, api_key: str) -> dict[str, Any]:
    """A ticket from the authority; blocks for a moment, before there is anything to do."""
    from urllib.error import HTTPError, URLError
    from urllib.request import Request, urlopen

    body = msgspec.json.encode({"client_id": identity})
    request = Request(f"{url.rstrip('/')}/v1/token", body, {"X-Api-Key": api_key})
    try:
        with urlopen(request, timeout=5.0) as answer:
            ticket: dict[str, Any] = msgspec.json.decode(answer.read(65536))
            return ticket
    except HTTPError as error:
        raise Denied(f"the authority says no: {_reason(error.read(2000))}") from None
    except URLError as error:
        why = why_unreachable(error.reason) if isinstance(error.reason, OSError) else error.reason
        raise Unavailable(f"no authority at {url}: {why}") from None


def _reason(body: bytes) -> str:
    """What a refusal says; one that is not the authority's own is shown as it is."""
    try:
        return str(msgspec.json.decode(body)["reason"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return body.decode("utf-8", "replace").strip()
