"""A client's table of requests: whatever a broker sends, each request ends at most once."""

from __future__ import annotations

import asyncio
import contextlib

from homing.errors import RemoteProtocolError, WireError
from homing.service.asking import Asking
from homing.wire import mdp
from homing.wire.frames import frame, pack
from homing.wire.mdp_messages import Dialect, Kind, Nak, Report
from homing.wire.reader import ImageReader

_LOOP = asyncio.new_event_loop()
_ENVELOPE = b"HM\0\4" + (1000).to_bytes(4, "big") + (1).to_bytes(8, "big")
_STREAMED = b"HM\1\4" + (1000).to_bytes(4, "big") + (2).to_bytes(8, "big")
_DATA = frame(b"answer", False)
SEEDS = (
    mdp.write(Report(Dialect.D0X, Kind.FINAL, b"echo", _DATA, _ENVELOPE)),
    mdp.write(Report(Dialect.D0X, Kind.PARTIAL, b"echo", _DATA, _STREAMED)),
    mdp.write(Nak(b"echo", b"queue-full echo", _ENVELOPE)),
    pack([b"", b"MDPC01", b"echo", b"answer"]),
    pack([b"MDPC02", b"\3", b"echo", b"answer"]),
)


def target(data: bytes) -> None:
    asking = Asking(Dialect.D0X, 1024)
    asked = []
    for streamed in (False, True):
        plan = asking.plan("echo", 1.0, 4, streamed)
        asked.append(asking.ask(plan, b"", _DATA, 1.0, _LOOP.create_future(), None))
    reader = ImageReader(max_message=4096, max_frames=64, max_command=64)
    with contextlib.suppress(RemoteProtocolError):
        asking.receive(reader.feed(data), 0.0)
    for each in asked:
        if each.done.done():
            assert not asking.forget(each)
            assert each.done.exception() is not None or each.done.result()
    asking.fail(lambda: WireError("end"))
    assert all(each.done.done() and (each.done.exception() or True) for each in asked)
    _LOOP.run_until_complete(asyncio.sleep(0))  # callbacks of what is done
