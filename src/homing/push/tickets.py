"""Tickets: what the authority gives a subscriber to connect with, and how it is asked for one (§5.5)."""

from __future__ import annotations

from http import HTTPStatus
from http.client import HTTPException, InvalidURL
from typing import Final
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import msgspec

from homing.endpoint import why_unreachable
from homing.errors import Denied, HomingError, Malformed, Unavailable

TIMEOUT: Final = 5.0
"""Seconds for the authority's answer, which takes it a millisecond."""
MAX_TICKET: Final = 64 << 10
"""Bytes read of an answer; a ticket has some two hundred."""
MAX_REASON: Final = 200
"""Characters of a page that is shown instead of a reason."""

_NOT_SERVED: Final = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)
# Said by what may stand before it: that our key is wrong is not meant.
_LATER: Final = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)


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
        code, answer = _fetch(request)
        if code < HTTPStatus.MULTIPLE_CHOICES:
            return msgspec.json.decode(answer, type=Ticket)
    except InvalidURL as error:
        raise Malformed(f"{url!r} is no authority: {error}") from None
    except HTTPException as error:
        what = f"what answers there speaks no HTTP ({type(error).__name__})"
        raise Unavailable(f"no authority at {url}: {what}") from None
    except URLError as error:
        why = why_unreachable(error.reason) if isinstance(error.reason, OSError) else error.reason
        raise Unavailable(f"no authority at {url}: {why}") from None
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, OSError):
            raise Unavailable(f"no authority at {url}: {why_unreachable(error)}") from None
        raise Malformed(f"{url} is no authority: {error}") from None
    raise _refusal(url, code, answer)


def _fetch(request: Request) -> tuple[int, bytes]:
    """The status and the body of whatever is answered."""
    try:
        with urlopen(request, timeout=TIMEOUT) as answer:
            return answer.status, answer.read(MAX_TICKET)
    except HTTPError as error:
        with error:
            return error.code, error.read(MAX_TICKET)


def _refusal(url: str, code: int, body: bytes) -> HomingError:
    reason = _reason(body) or f"HTTP {code}"
    if code < HTTPStatus.BAD_REQUEST or code in _NOT_SERVED:
        return Malformed(f"{url} is no authority: HTTP {code}")
    if code >= HTTPStatus.INTERNAL_SERVER_ERROR or code in _LATER:
        return Unavailable(f"the authority at {url} cannot: {reason}")
    return Denied(f"the authority says no: {reason}")


def _reason(body: bytes) -> str:
    """What a refusal says; one that is not the authority's own is shown as it is, as far as a person reads."""
    try:
        return str(msgspec.json.decode(body)["reason"])
    except (msgspec.DecodeError, UnicodeError, RecursionError, KeyError, TypeError):
        return " ".join(body.decode("utf-8", "replace").split())[:MAX_REASON]
