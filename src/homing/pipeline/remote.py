"""Journals that another machine serves (`homing journal serve`), as the source reads them.

Positions are those of a local journal, under `endpoint journal` instead of `journal`: a
checkpoint stays valid for as long as the endpoint is called the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import msgspec

from homing.errors import CorruptSegment, PipelineError
from homing.journal.body import decode
from homing.journal.events import Event, Unknown
from homing.journal.positions import Offset, Range
from homing.journal.reader import OnDamage
from homing.journal.segment import BLOCKS_AT, Damage, Header, read_header, scan

# For the server to look through a week of a node's segments.
TIMEOUT = 60.0
GONE = 404

Block = tuple[int, int, Sequence[Event | Unknown]]  # first number, skew, events


@dataclass(frozen=True)
class Remote:
    """Journal servers, and the token they ask for."""

    endpoints: tuple[str, ...]
    token: str = ""

    def advance(
        self,
        offset: Offset,
        most: int | None,
        on_damage: OnDamage,
        until: Offset | None = None,
    ) -> Offset:
        """As homing.journal.positions.advance, over all servers, about `most` at each."""
        reached = dict(offset)
        for endpoint in self.endpoints:
            asked = {
                "offset": _of(offset, endpoint),
                "most": most,
                "until": None if until is None else _of(until, endpoint),
            }
            found = msgspec.json.decode(self._post(endpoint, "advance", asked), type=Offset)
            reached |= {_key(endpoint, name): position for name, position in found.items()}
        return reached

    def between(self, start: Offset, end: Offset, on_damage: OnDamage) -> list[Range]:
        """As homing.journal.positions.between."""
        found: list[Range] = []
        for endpoint in self.endpoints:
            asked = {"start": _of(start, endpoint), "end": _of(end, endpoint)}
            ranges = msgspec.json.decode(self._post(endpoint, "between", asked), type=list[Range])
            found += [each._replace(journal=_key(endpoint, each.journal)) for each in ranges]
        return found

    def blocks(self, piece: Range, on_damage: OnDamage) -> Iterator[tuple[Header, Block]]:
        """The blocks of a range, each with the header of its segment."""
        endpoint, _, journal = piece.journal.partition(" ")
        segment = int(piece.path.rpartition("/")[2].partition(".")[0])
        asked = {"journal": journal, "segment": segment, "start": piece.start, "end": piece.end}
        try:
            data = self._ask(Request(f"{endpoint}/v1/blocks?{urlencode(asked)}"))
            header = read_header(data[:BLOCKS_AT])
        except (FileNotFoundError, ValueError) as error:
            on_damage(CorruptSegment(piece.path, piece.start, str(error)))
            return
        for found in scan(data[BLOCKS_AT:], header.salt, 0):
            if isinstance(found, Damage):
                on_damage(CorruptSegment(piece.path, piece.start + found.start, found.reason))
            elif found.first <= piece.last:
                try:
                    yield header, (found.first, found.skew, decode(found.body))
                except ValueError as error:
                    on_damage(CorruptSegment(piece.path, piece.start + found.start, str(error)))

    def _post(self, endpoint: str, page: str, asked: object) -> bytes:
        return self._ask(Request(f"{endpoint}/v1/{page}", data=msgspec.json.encode(asked)))

    def _ask(self, request: Request) -> bytes:
        if self.token:
            request.add_header("Authorization", f"Bearer {self.token}")
        try:
            with urlopen(request, timeout=TIMEOUT) as answer:
                return bytes(answer.read())
        except HTTPError as error:
            told = error.read(1000).decode("utf-8", "replace").strip()
            if error.code == GONE:
                raise FileNotFoundError(told) from error
            raise PipelineError(f"{request.full_url}: {told}") from error
        except (URLError, HTTPException, OSError) as error:
            raise PipelineError(f"no journal server answers at {request.host}: {error}") from error


def parse_remote(endpoints: str, token: str) -> Remote:
    """Servers as an option names them: host:port or URLs, comma-separated."""
    given = [each.strip().rstrip("/") for each in endpoints.split(",")]
    if not all(given):
        raise PipelineError("endpoints are host:port, comma-separated")
    return Remote(tuple(each if "://" in each else f"http://{each}" for each in given), token)


def _key(endpoint: str, journal: str) -> str:
    return f"{endpoint} {journal}"


def _of(offset: Offset, endpoint: str) -> Offset:
    """One server's part of an offset, as it knows it."""
    start = f"{endpoint} "
    return {key[len(start) :]: at for key, at in offset.items() if key.startswith(start)}
