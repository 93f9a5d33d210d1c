"""Subscribe: print the publications that a filter asks for, one JSON object a line.

The token comes from the authority, or is made here from the token key where this machine has
it. Ends after --count publications, or with Ctrl-C. TLS is spoken where --ca is named, or the
settings are those of a connector with a certificate.

Examples:
  homing subscribe 'price in 10..20 and city = "Paris"'
  homing subscribe 'vip = true' --client 0123456789abcdef01234567 --durable
  homing subscribe 'n >= 0' --count 10 --authority http://10.0.0.1:7006
"""

from __future__ import annotations

import asyncio
import secrets
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import Parameter
from cyclopts.validators import Number

from homing.cli.verb import NO_FLAGS, ConfigFlags, verb
from homing.cli.waiting import awaited
from homing.errors import Denied, RequestTimeout, Unavailable

if TYPE_CHECKING:
    from homing.push.subscriber import Subscriber
    from homing.wire.pushed import Wait

app = verb("subscribe", __doc__)


@app.default
async def subscribe(
    filter: Annotated[str, Parameter(help="what to ask for, in the filter language")],
    *,
    client: Annotated[str | None, Parameter(help="24 hex digits; one's own, for ever")] = None,
    durable: Annotated[bool, Parameter(help="keep what is missed between connections")] = False,
    wait: Annotated[
        float | None,
        Parameter(
            help="with --durable: seconds for a connector that is away and may hold something older",
            validator=Number(gte=0, lte=600),
        ),
    ] = None,
    count: Annotated[
        int | None, Parameter(help="end after this many", validator=Number(gte=1))
    ] = None,
    connector: Annotated[tuple[str, ...], Parameter(help="HOST:PORT of a connector")] = (),
    authority: Annotated[str | None, Parameter(help="http://HOST:PORT to ask for a token")] = None,
    api_key: Annotated[str, Parameter(help="for the authority")] = "",
    ca: Annotated[
        Path | None, Parameter(help="TLS: PEM of who signed the connector's name")
    ] = None,
    port_offset: Annotated[int | None, Parameter(help="added to the default port")] = None,
    data: Annotated[str | None, Parameter(help="where the connector keeps token.key")] = None,
    flags: ConfigFlags = NO_FLAGS,
) -> int:
    """Print publications as they come."""
    from homing.ids import ID_BYTES, parse_id
    from homing.push.filters import parse_filter
    from homing.push.subscriber import Subscriber
    from homing.push.tickets import ask_authority

    parse_filter(filter)  # what is wrong with it is told before anybody is asked for anything
    config = flags.load({"node.data": data, "node.port_offset": port_offset})
    identity = parse_id(client).hex() if client else secrets.token_hex(ID_BYTES)
    if authority is not None:
        # The subscriber would go on asking; who types a wrong URL wants to know at once.
        await asyncio.to_thread(ask_authority, authority, identity, api_key)
        given: dict[str, Any] = {"authority": authority, "api_key": api_key}
    else:
        connector = connector or (config.push.subscribers,)
        given = {"credentials": _from_key(config, identity)}
    given["tls"] = _tls(ca, config)
    if wait is not None:
        given |= {"wait": wait, "waiting": _tell_wait}
    async with Subscriber(identity, *connector, durable=durable, **given) as source:
        await _subscribe(source, filter, authority or " or ".join(connector))
        left = count
        async for one in source:
            print(msgspec.json.encode(one).decode(), flush=True)
            left = None if left is None else left - 1
            if left == 0:
                break
    return 0


async def _subscribe(source: Subscriber, filter: str, where: str) -> None:
    """Until it is in force; a person at a terminal is told, as nothing else may come for long."""
    try:
        await awaited(
            source.subscribe(filter), f"waiting for a connector at {where}, and its matchers"
        )
    except RequestTimeout as late:
        raise Unavailable(str(late)) from late
    if sys.stderr.isatty():
        print(f"homing: subscribed as {source.client_id}; Ctrl-C ends it", file=sys.stderr)


def _tell_wait(wait: Wait) -> None:
    away = ", ".join(wait.connectors)
    print(f"homing: waits up to {wait.seconds:g} s for connector {away}", file=sys.stderr)


def _tls(ca: Path | None, config: Any) -> Any:
    """TLS as --ca says; or where our own connector has a certificate: it is that one, by any name."""
    import ssl

    own = config.security.tls_cert
    if ca is None and not own:
        return None
    context = ssl.create_default_context(cafile=ca or own)
    if ca is None:
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.check_hostname = False
    return context


def _from_key(config: Any, identity: str) -> Callable[[], tuple[int, str]]:
    from homing.push.tokens import Keyring

    path = Path(config.node.data) / "token.key"
    key = config.security.token_key or (
        path.read_text(encoding="utf-8").strip() if path.exists() else ""
    )
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
