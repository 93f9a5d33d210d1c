"""Tickets: what the authority gives a subscriber to connect with, and how it is asked for one (§5.5)."""

from __future__ import annotations

from typing import Final
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import msgspec

from homing.endpoint import why_unreachable
from homing.errors import Denied, Malformed, Unavailable

TIMEOUT: Final = 5.0
"""Seconds for the authority's answer, which takes it a millisecond."""
MAX_TICKET: Final = 64 << 10
"""Bytes read of an answer; a ticket has some two hundred."""


class Ticket(msgspec.Struct, frozen=True):
    """What a subscriber needs to connect; also the JSON that it gets."""

    status: str
    client_id: str
    timestamp: int
    token: str
    connector: str


def ask_authority(url: str, client_id: str, api_key: str = "") -> Ticket:
    """A ticket, over HTTP; blocks. Denied if it says no, Unavailable if it says nothing."""
    if not url.startswith(("http://", "https://")):
        raise Malformed(f"an authority is http://HOST:PORT, not {url!r}")
    body = msgspec.json.encode({"client_id": client_id})
    try:
        request = Request(f"{url.rstrip('/')}/v1/token", body, {"X-Api-Key": api_key})
        with urlopen(request, timeout=TIMEOUT) as answer:
            return msgspec.json.decode(answer.read(MAX_TICKET), type=Ticket)
    except HTTPError as error:
        with error:
            refusal = _reason(error.read(MAX_TICKET))
        if error.code >= 500:
            raise Unavailable(f"the authority at {url} cannot: {refusal}") from None
        raise Denied(f"the authority says no: {refusal}") from None
    except URLError as error:
        why = why_unreachable(error.reason) if isinstance(error.reason, OSError) else error.reason
        raise Unavailable(f"no authority at {url}: {why}") from None
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, OSError):
            raise Unavailable(f"no authority at {url}: {why_unreachable(error)}") from None
        raise Malformed(f"{url} is no authority: {error}") from None


def _reason(body: bytes) -> str:
    """What a refusal says; one that is not the authority's own is shown as it is."""
    try:
        return str(msgspec.json.decode(body)["reason"])
    except (msgspec.DecodeError, UnicodeError, RecursionError, KeyError, TypeError):
        return body.decode("utf-8", "replace").strip()
