"""The server of a shared model, and its client in a trainer."""

import os
import signal
import socket
import struct
import threading
import time

import numpy as np

from .journal import APPLIED, cfg, entry
from .sums import Model, from_bytes, to_bytes


class Server:
    """The client of the server."""

    def __init__(self, port):
        self.peer = reach(port)
        self.lock = threading.Lock()

    def push(self, stream, number, keys, checks):
        name = cfg["journal"].encode()
        head = struct.pack("<cHHqI", b"p", len(name), stream, number, 16 * len(keys))
        self._ask(head + name + keys.tobytes() + checks.astype(np.int64).tobytes())

    def state(self):
        return from_bytes(self._ask(struct.pack("<cHHqI", b"g", 0, 0, 0, 0)))[0]

    def load(self, state):
        data = to_bytes(state)
        self._ask(struct.pack("<cHHqI", b"l", 0, 0, 0, len(data)) + data)

    def empty(self):
        """Whether the server lost its model and was not given one since."""
        return self._ask(struct.pack("<cHHqI", b"e", 0, 0, 0, 0)) == b"y"

    def _ask(self, question):
        with self.lock:
            self.peer.sendall(question)
            (n,) = struct.unpack("<I", take(self.peer, 4))
            return take(self.peer, n)


def serve():
    """Adds up the batches that trainers send, and writes APPLIED into the journal of the sender."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    life = Life()
    with socket.create_server(("127.0.0.1", cfg["server"])) as listener:
        while True:
            threading.Thread(target=life.serve, args=(listener.accept()[0],), daemon=True).start()


class Life:
    def __init__(self):
        self.model, self.lock = Model(), threading.Lock()
        self.loaded = cfg["server_life"] == 1

    def serve(self, peer):
        while True:
            try:
                what, name, stream, number, n = struct.unpack("<cHHqI", take(peer, 17))
                path, body = take(peer, name).decode(), take(peer, n)
                with self.lock:
                    answer = self.answer(what, path, stream, number, body)
                peer.sendall(struct.pack("<I", len(answer)) + answer)
            except (EOFError, ConnectionError):
                return

    def answer(self, what, path, stream, number, body):
        if what == b"p":
            keys, checks = np.frombuffer(body, np.int64).reshape(2, -1)
            self.model.add(keys, checks)
            with open(path, "ab", buffering=0) as f:
                f.write(entry(APPLIED, stream, number, cfg["server_life"]))
        elif what == b"l":
            self.model.load(from_bytes(body)[0])
            self.loaded = True
        elif what == b"g":
            return to_bytes(self.model.state())
        elif what == b"e":
            return b"n" if self.loaded else b"y"
        return b""


def take(peer, n):
    data = bytearray()
    while len(data) < n:
        part = peer.recv(n - len(data))
        if not part:
            raise EOFError("the other side has ended")
        data += part
    return bytes(data)


def reach(port):
    deadline = time.monotonic() + 60
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
