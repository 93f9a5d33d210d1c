"""Tickets: what the authority gives a subscriber to connect with, and how it is asked for one (§5.5)."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse, InvalidURL
from typing import Any, Final, Self
from urllib.error import HTTPError, URLError
from urllib.request import HTTPHandler, HTTPSHandler, Request, build_opener

import msgspec

from homing.endpoint import why_unreachable
from homing.errors import Denied, HomingError, Malformed, Unavailable

TIMEOUT: Final = 5.0
"""Seconds for the authority's whole answer, which takes it a millisecond."""
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
    with _Brief() as brief:
        try:
            with build_opener(brief).open(request, timeout=TIMEOUT) as answer:
                return answer.status, answer.read(MAX_TICKET)
        except HTTPError as error:
            with error:
                return error.code, error.read(MAX_TICKET)


class _Brief(HTTPHandler, HTTPSHandler):
    """Shuts the connection when the time is over: a socket's own timeout is for each piece that it reads."""

    def __enter__(self) -> Self:
        self._over = False
        self._socket: socket.socket | None = None
        self._timer = threading.Timer(TIMEOUT, self._end)
        self._timer.daemon = True
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        if self._over:  # whatever was made of what had come
            raise TimeoutError

    def do_open(self, http_class: Callable[..., Any], req: Request, **how: Any) -> HTTPResponse:
        def connection(*to: Any, **how: Any) -> Any:
            made = http_class(*to, **how)
            made.response_class = self._respond
            return made

        return super().do_open(connection, req, **how)

    def _respond(self, link: socket.socket, *how: Any, **named: Any) -> HTTPResponse:
        self._socket = link
        if self._over:
            self._end()
        return HTTPResponse(link, *how, **named)

    def _end(self) -> None:
        self._over = True
        if self._socket is not None:
            with suppress(OSError):  # it was closed meanwhile
                self._socket.shutdown(socket.SHUT_RDWR)


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
