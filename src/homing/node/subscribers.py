"""The subscribers' socket: commands over TCP and WebSockets of browsers, on one port."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import TYPE_CHECKING

from homing.node.link import StreamLink
from homing.node.plug import Bounds, Codec, Plug
from homing.wire.websocket import GOODBYE, Frames, SubscriberCodec

if TYPE_CHECKING:
    from homing.node.dial import Dial
    from homing.node.host import Host


class SubscriberLink(StreamLink):
    """A link that may turn out to be a browser's."""

    __slots__ = ()

    def dress(self, frames: Frames) -> None:
        """What is sent from now on is for a browser."""
        self._encode = frames.encode

    def close(self, reason: str = "") -> None:
        """Send what is queued and, to a browser, that this is the end; then close."""
        if self._encode is not None:
            self.send(GOODBYE)
        super().close(reason)


class SubscriberPlug(Plug):
    """A plug whose peers speak either wire; the first byte tells."""

    def __init__(
        self,
        name: str,
        *,
        bounds: Bounds,
        tls: ssl.SSLContext | None = None,
        max_command: int,
        origins: Sequence[str] = (),
    ) -> None:
        super().__init__(name, bounds=bounds, tls=tls)
        self._max_command = max_command
        self._origins = origins
        self._frames = Frames()

    def link(self, host: Host, dial: Dial | None = None) -> StreamLink:
        return SubscriberLink(host, self, dial)

    def codec(self) -> Codec:
        return SubscriberCodec(self._max_command, self._origins)

    def admit(self, link: StreamLink) -> None:
        assert isinstance(link, SubscriberLink)
        assert isinstance(link.codec, SubscriberCodec)
        if link.codec.browser is not None:
            link.dress(self._frames)
