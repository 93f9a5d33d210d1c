"""A Majordomo broker (7/MDP v0.1) on pyzmq, the way a tutorial would write it.

    python majordomo.py PORT

One ROUTER, recv_multipart, a dict of services, heartbeats. The peer that most Python users of
ZeroMQ run today.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from dataclasses import dataclass, field

import zmq

CLIENT, WORKER = b"MDPC01", b"MDPW01"
READY, REQUEST, REPLY, HEARTBEAT, DISCONNECT = b"\x01", b"\x02", b"\x03", b"\x04", b"\x05"
INTERVAL = 2.5
LIVENESS = 3


@dataclass
class Service:
    """Who waits for work, and what work waits."""

    name: bytes
    idle: deque[bytes] = field(default_factory=deque)
    requests: deque[tuple[bytes, list[bytes]]] = field(default_factory=deque)


@dataclass
class Worker:
    """What a worker serves and until when it is believed alive."""

    service: Service
    expiry: float


class Broker:
    """Clients and workers on one socket."""

    def __init__(self, port: int) -> None:
        self.socket = zmq.Context().socket(zmq.ROUTER)
        self.socket.bind(f"tcp://127.0.0.1:{port}")
        self.services: dict[bytes, Service] = {}
        self.workers: dict[bytes, Worker] = {}
        self.next_beat = time.monotonic() + INTERVAL

    def serve(self) -> None:
        """For ever: poll, take one message, look after the workers."""
        poller = zmq.Poller()
        poller.register(self.socket, zmq.POLLIN)
        while True:
            if poller.poll(int(INTERVAL * 1000)):
                sender, _, header, *rest = self.socket.recv_multipart()
                if header == CLIENT:
                    self.from_client(sender, rest)
                elif header == WORKER:
                    self.from_worker(sender, rest)
            if time.monotonic() >= self.next_beat:
                self.beat()

    def from_client(self, client: bytes, frames: list[bytes]) -> None:
        """[service] [data…]"""
        service = self.service(frames[0])
        service.requests.append((client, frames[1:]))
        self.dispatch(service)

    def from_worker(self, identity: bytes, frames: list[bytes]) -> None:
        """[command] …"""
        command, *rest = frames
        worker = self.workers.get(identity)
        if command == READY and worker is None:
            service = self.service(rest[0])
            self.workers[identity] = Worker(service, time.monotonic() + INTERVAL * LIVENESS)
            service.idle.append(identity)
            self.dispatch(service)
        elif worker is None:
            self.socket.send_multipart([identity, b"", WORKER, DISCONNECT])
        elif command == REPLY:
            client, _, *data = rest
            self.socket.send_multipart([client, b"", CLIENT, worker.service.name, *data])
            worker.expiry = time.monotonic() + INTERVAL * LIVENESS
            worker.service.idle.append(identity)
            self.dispatch(worker.service)
        elif command == HEARTBEAT:
            worker.expiry = time.monotonic() + INTERVAL * LIVENESS
        else:
            self.forget(identity)

    def service(self, name: bytes) -> Service:
        """The service of that name, known or new."""
        return self.services.setdefault(name, Service(name))

    def dispatch(self, service: Service) -> None:
        """Give waiting requests to waiting workers."""
        while service.idle and service.requests:
            client, data = service.requests.popleft()
            worker = service.idle.popleft()
            self.socket.send_multipart([worker, b"", WORKER, REQUEST, client, b"", *data])

    def forget(self, identity: bytes) -> None:
        """A worker left or fell silent."""
        worker = self.workers.pop(identity)
        if identity in worker.service.idle:
            worker.service.idle.remove(identity)

    def beat(self) -> None:
        """Heartbeats out, silent workers dropped."""
        now = time.monotonic()
        for identity, worker in list(self.workers.items()):
            if worker.expiry < now:
                self.forget(identity)
            else:
                self.socket.send_multipart([identity, b"", WORKER, HEARTBEAT])
        self.next_beat = now + INTERVAL


if __name__ == "__main__":
    Broker(int(sys.argv[1])).serve()
