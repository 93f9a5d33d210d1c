"""Majordomo clients and workers on libzmq, written as the public guide's are: nothing of homing.

Run as a program it is a worker that answers every request with its body, reversed.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import zmq

HEARTBEAT = 0.2
LIVENESS = 5
READY, REQUEST = b"\x01", b"\x02"


class Worker:
    """A DEALER that registers, beats, and registers anew when told to or left alone."""

    def __init__(self, context: zmq.Context[Any], endpoint: str, service: bytes, dialect: str):
        self.context = context
        self.endpoint = endpoint
        self.service = service
        self.old = dialect == "01"
        self.header = [b"", b"MDPW01"] if self.old else [b"MDPW02"]
        self.final = b"\x03" if self.old else b"\x04"
        self.beat = b"\x04" if self.old else b"\x05"
        self.bye = b"\x05" if self.old else b"\x06"
        self.socket: zmq.Socket[Any] | None = None
        self.heard = self.beat_at = 0.0
        self.connect()

    def connect(self) -> None:
        if self.socket is not None:
            self.socket.close(linger=0)
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.connect(self.endpoint)
        self.send(READY, self.service)
        self.heard = time.monotonic()

    def send(self, *frames: bytes) -> None:
        assert self.socket is not None
        self.socket.send_multipart([*self.header, *frames])

    def receive(self, seconds: float) -> list[bytes] | None:
        """[client, b"", body…] of the next request, or None when none came in time."""
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            if now >= self.beat_at:
                self.send(self.beat)
                self.beat_at = now + HEARTBEAT
            if now - self.heard > HEARTBEAT * LIVENESS:
                self.connect()
            assert self.socket is not None
            if self.socket.poll(int(HEARTBEAT * 500)):
                self.heard = time.monotonic()
                command, *rest = self.socket.recv_multipart()[len(self.header) :]
                if command == REQUEST:
                    return rest
                if command == self.bye:
                    self.connect()
        return None

    def reply(self, request: list[bytes], *body: bytes) -> None:
        self.send(self.final, request[0], b"", *body)

    def partial(self, request: list[bytes], *body: bytes) -> None:
        assert not self.old
        self.send(b"\x03", request[0], b"", *body)


class Client:
    """Lazy pirate: one request at a time, a fresh socket for every retry."""

    def __init__(self, context: zmq.Context[Any], endpoint: str, dialect: str = "01"):
        self.context = context
        self.endpoint = endpoint
        self.old = dialect == "01"
        self.socket = self._fresh()

    def _fresh(self) -> zmq.Socket[Any]:
        socket: zmq.Socket[Any] = self.context.socket(zmq.REQ if self.old else zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(self.endpoint)
        return socket

    def request(self, service: bytes, body: bytes, seconds: float = 5.0, tries: int = 1) -> bytes:
        head = [b"MDPC01"] if self.old else [b"MDPC02", b"\x01"]
        for _ in range(tries):
            self.socket.send_multipart([*head, service, body])
            if self.socket.poll(int(seconds * 1000)):
                reply = self.socket.recv_multipart()
                expected = [b"MDPC01", service] if self.old else [b"MDPC02", b"\x03", service]
                assert reply[: len(expected)] == expected, reply
                return reply[-1]
            self.socket.close(linger=0)
            self.socket = self._fresh()
        raise TimeoutError(f"{service!r}: no reply in {tries} tries")


def main() -> None:
    endpoint, service, dialect = sys.argv[1:]
    with zmq.Context() as context:
        worker = Worker(context, endpoint, service.encode(), dialect)
        print("ready", flush=True)
        while True:
            request = worker.receive(3600.0)
            if request is not None:
                worker.reply(request, request[-1][::-1])


if __name__ == "__main__":
    main()
