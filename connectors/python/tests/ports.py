"""Ports for servers that listen later, or again."""

from __future__ import annotations

import contextlib
import random
import socket


def free_port() -> int:
    """A free port, below those of test brokers (20000) and those that the system gives to connections (32768)."""
    while True:
        port = random.randrange(12_000, 20_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
