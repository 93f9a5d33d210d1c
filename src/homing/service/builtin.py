"""`mmi.*`: what the broker answers itself (8/MMI, and homing's own in JSON)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from homing.errors import RemoteProtocolError
from homing.service.dispatch import DispatchCore
from homing.service.names import ANY
from homing.wire.frames import frame, head


def answer(core: DispatchCore, name: bytes, data: bytes) -> bytes:
    """The answer's data; `501` for a name that is not known here."""
    serve = _BUILTIN.get(name)
    if serve is None:
        return frame(b"501", False)
    try:
        body = head(data, 1)[0][0]
    except RemoteProtocolError:
        body = b""
    return frame(serve(core, body), False)


def _service(core: DispatchCore, body: bytes) -> bytes:
    """`200` where somebody serves it, here or at a peer; else `404`."""
    service = core.services.get(body)
    here = core.generalists or (service is not None and service.workers)
    return b"200" if here or core.federation.knows(body) or body in _BUILTIN else b"404"


def _services(core: DispatchCore, body: bytes) -> bytes:
    """Every service: its workers, what they could take, what waits, which peers have it; `*` for workers of any."""
    names = {*core.services, ANY} if core.generalists else set(core.services)
    for peer in core.federation.peers.values():
        names.update(peer.capacity)
    return _json({_text(name): _one_service(core, name) for name in sorted(names)})


def _one_service(core: DispatchCore, name: bytes) -> dict[str, Any]:
    service = core.services.get(name)
    peers = [_text(p.name) for p in core.federation.peers.values() if name in p.capacity]
    if service is None:  # a peer's alone, or that of workers for any
        workers = core.generalists if name == ANY else 0
        free = sum(worker.room for worker in core.anyone) if workers else 0
        return {"workers": workers, "free": free, "waiting": 0, "live": 0, "peers": peers}
    return {
        "workers": service.workers,
        "free": service.free,
        "waiting": service.waiting,
        "live": service.live,
        "peers": peers,
    }


def _workers(core: DispatchCore, body: bytes) -> bytes:
    """Every worker, or those of the service named in the body."""
    return _json(
        [
            {
                "worker": worker.name.hex(),
                "service": _text(worker.service.name) if worker.service is not None else "*",
                "credit": worker.credit,
                "holds": len(worker.held),
                "idle_heartbeat": worker.interval,
            }
            for worker in core.roster
            if not body or (worker.service is not None and worker.service.name == body)
        ]
    )


def _peers(core: DispatchCore, body: bytes) -> bytes:
    """Every peer: reachable or not, what it published (`mistaken`: who did in its place), what it holds of ours."""
    return _json(
        {
            _text(peer.name): {
                "reachable": peer.link is not None,
                "idle": peer.idle,
                "mistaken": _text(peer.mistaken),
                "services": {_text(name): free for name, free in peer.capacity.items()},
                "holds": len(peer.held),
            }
            for peer in core.federation.peers.values()
        }
    )


def _queue(core: DispatchCore, body: bytes) -> bytes:
    """What waits, by service; with a body, only of that service."""
    return _json(
        {
            _text(service.name): {"waiting": service.waiting, "bytes": service.waiting_bytes}
            for service in core.services.values()
            if not body or service.name == body
        }
    )


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value)


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")


_BUILTIN: dict[bytes, Callable[[DispatchCore, bytes], bytes]] = {
    b"mmi.service": _service,
    b"mmi.services": _services,
    b"mmi.workers": _workers,
    b"mmi.peers": _peers,
    b"mmi.queue": _queue,
}
