"""The subscribers' socket: commands over TCP and WebSockets of browsers, on one port."""

from __future__ import annotations

import ssl
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from homing.node.link import StreamLink
from homing.node.plug import Bounds, Codec, Plug
from homing.node.volley import ROOM
from homing.wire.websocket import GOODBYE, Frames, SubscriberCodec

if TYPE_CHECKING:
    from homing.node.dial import Dial
    from homing.node.host import Host


# Fewer links than this are written to one by one: a volley has costs of its own.
FEW: Final = 3
_UNKNOWN: Final = -2


class SubscriberLink(StreamLink):
    """A link that may turn out to be a browser's, and that is mostly written to with many others."""

    __slots__ = ("_fd", "_salvo")

    def __init__(self, host: Host, plug: Plug, dial: Dial | None, salvo: Salvo) -> None:
        super().__init__(host, plug, dial)
        self._salvo = salvo
        self._fd = _UNKNOWN  # asked for with the first push: many never get one

    def _decode(self, data: bytes, now: float) -> None:
        """A browser that leaves may have said something before; of those who just close, links hear by themselves."""
        super()._decode(data, now)
        if self._encode is not None and not self.over:
            assert isinstance(self.codec, SubscriberCodec)
            assert self.codec.browser is not None
            if self.codec.browser.gone:
                self._part("the browser closed the WebSocket")

    def send_with_others(self, message: bytes) -> None:
        """Queue one message for the end of this turn, when many links are written to at once."""
        out = self._out
        if not out:
            if self.over or self._joint is not None:
                self.send(message)
                return
            self._salvo.add(self)
        out.append(message)
        self._queued += len(message)

    def direct(self) -> int:
        """The socket that what is queued may be written to past the loop; -1: only the loop may."""
        if self._encode is not None or not self.is_clear():
            return -1
        if self._fd == _UNKNOWN:
            self._fd = self.fileno()
        return self._fd

    def draw(self) -> bytes:
        """What is queued, no longer so; empty where it was written, or the link is over."""
        out = self._out
        image = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        self._queued = 0
        return image

    def dress(self, frames: Frames) -> None:
        """What is sent from now on is for a browser."""
        self._encode = frames.encode

    def close(self, reason: str = "") -> None:
        """Send what is queued and, to a browser, that this is the end; then close."""
        if self._encode is not None:
            self.send(GOODBYE)
        super().close(reason)


class Salvo:
    """Links that were pushed to in this turn: as many as can be are written to with one call."""

    __slots__ = ("_host", "_links")

    def __init__(self, host: Host) -> None:
        self._host = host
        self._links: list[SubscriberLink] = []

    def add(self, link: SubscriberLink) -> None:
        """Write to this one too; a link adds itself when it has something again."""
        if not self._links:
            self._host.turn.add(self)
        self._links.append(link)

    def ripe(self) -> bool:
        """Never put off."""
        return True

    def flush(self) -> None:
        """The turn ends."""
        links, self._links = self._links, []
        if len(links) < FEW:
            for link in links:
                link.flush()
            return
        direct: list[SubscriberLink] = []
        images: list[bytes] = []
        fds = array("i")
        for link in links:
            fd = link.direct()
            image = b"" if fd < 0 else link.draw()
            if not image:
                link.flush()
            elif len(image) > ROOM:
                link.write(image)
            else:
                direct.append(link)
                images.append(image)
                fds.append(fd)
        for which, taken in self._host.volley.send_each(fds, images):
            direct[which].write(images[which][taken:])


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
        self._salvo: Salvo | None = None

    def link(self, host: Host, dial: Dial | None = None) -> StreamLink:
        if self._salvo is None:
            self._salvo = Salvo(host)
        return SubscriberLink(host, self, dial, self._salvo)

    def codec(self) -> Codec:
        return SubscriberCodec(self._max_command, self._origins)

    def admit(self, link: StreamLink) -> None:
        assert isinstance(link, SubscriberLink)
        assert isinstance(link.codec, SubscriberCodec)
        if link.codec.browser is not None:
            link.dress(self._frames)
