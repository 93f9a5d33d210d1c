"""A small Majordomo broker on libzmq, as others write them: 7/MDP (`01`) and 18/MDP (`02`).

It knows nothing of homing's extensions: no envelope, no credit, no refusal. homing's client and
worker must get along with it.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterator

import zmq

READY, REQUEST = b"\x01", b"\x02"


class Majordomo(threading.Thread):
    """One ROUTER for clients and workers, in a thread."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.linger = 0
        port = self._socket.bind_to_random_port("tcp://127.0.0.1")
        self.endpoint = f"tcp://127.0.0.1:{port}"
        self.heartbeats = 0
        self.disconnects = 0
        self._stopping = threading.Event()
        self._idle: dict[bytes, deque[tuple[bytes, bytes]]] = {}
        self._waiting: dict[bytes, deque[tuple[bytes, bytes, list[bytes]]]] = {}
        self._serves: dict[bytes, tuple[bytes, bytes]] = {}
        self._beats = 0

    def run(self) -> None:
        while not self._stopping.is_set():
            if self._socket.poll(20):
                self._take(self._socket.recv_multipart())
            self._beats += 1
            if self._beats % 5 == 0:
                for worker, (_, version) in self._serves.items():
                    self._to_worker(worker, version, [b"\x05" if version == b"02" else b"\x04"])
        self._socket.close()
        self._context.term()

    def stop(self) -> None:
        self._stopping.set()
        self.join()

    def _take(self, frames: list[bytes]) -> None:
        sender, rest = frames[0], frames[1:]
        if rest[0] == b"":
            rest = rest[1:]
        header, version = rest[0][:4], rest[0][4:]
        if header == b"MDPC":
            service, body = (rest[2], rest[3:]) if version == b"02" else (rest[1], rest[2:])
            self._waiting.setdefault(service, deque()).append((sender, version, body))
            self._match(service)
        elif header == b"MDPW":
            self._from_worker(sender, version, rest[1], rest[2:])

    def _from_worker(
        self, worker: bytes, version: bytes, command: bytes, rest: list[bytes]
    ) -> None:
        beat, bye = (b"\x05", b"\x06") if version == b"02" else (b"\x04", b"\x05")
        if command == READY:
            self._serves[worker] = (rest[0], version)
            self._free(worker)
        elif command == beat:
            self.heartbeats += 1
        elif command == bye:
            self.disconnects += 1
            service, _ = self._serves.pop(worker)
            with contextlib.suppress(ValueError):
                self._idle[service].remove((worker, version))
        else:
            self._answer(worker, version, command, rest)

    def _answer(self, worker: bytes, version: bytes, command: bytes, rest: list[bytes]) -> None:
        client, body = rest[0], rest[2:]
        service = self._serves[worker][0]
        final = version == b"01" or command == b"\x04"
        if version == b"02":
            reply = [client, b"MDPC02", b"\x03" if final else b"\x02", service, *body]
        else:
            reply = [client, b"", b"MDPC01", service, *body]
        self._socket.send_multipart(reply)
        if final:
            self._free(worker)

    def _free(self, worker: bytes) -> None:
        service, version = self._serves[worker]
        self._idle.setdefault(service, deque()).append((worker, version))
        self._match(service)

    def _match(self, service: bytes) -> None:
        idle = self._idle.get(service, deque())
        waiting = self._waiting.get(service, deque())
        while idle and waiting:
            worker, version = idle.popleft()
            client, _, body = waiting.popleft()
            self._to_worker(worker, version, [REQUEST, client, b"", *body])

    def _to_worker(self, worker: bytes, version: bytes, frames: list[bytes]) -> None:
        start = [worker] if version == b"02" else [worker, b""]
        self._socket.send_multipart([*start, b"MDPW" + version, *frames])


@contextlib.contextmanager
def majordomo() -> Iterator[Majordomo]:
    """One that runs."""
    running = Majordomo()
    running.start()
    try:
        yield running
    finally:
        running.stop()
