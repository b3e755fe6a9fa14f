"""The first and the last messages of a control connection: HELLO, WELCOME, BYE."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from . import _messages as wire
from ._errors import ProtocolError, from_wire
from ._messages import Message
from ._wire import Bell, ControlConnection

SEEK = 0.05  # seconds between two looks at a connection that does not answer
BYE_SECONDS = 1.0  # for the agent to close the connection after BYE


def await_welcome(
    connection: ControlConnection, bell: Bell, deadline: float, given_up: Callable[[float], bool]
) -> tuple[dict[str, Any], list[Message]]:
    """Waits for the answer to HELLO. Returns WELCOME, and the messages that came with it."""
    while (now := time.monotonic()) < deadline and not given_up(now):
        with contextlib.suppress(OSError):  # receive() says why it was closed
            connection.flush()
        messages = connection.receive()
        for i, message in enumerate(messages):
            if message.type == wire.WELCOME:
                return message.payload, messages[i + 1 :]
            if message.type == wire.ERROR:
                raise from_wire(message.payload)
            if message.type != wire.PING:
                raise ProtocolError(f"the agent answered HELLO with {wire.name(message.type)}")
        bell.wait(connection.sock, connection.pending, min(deadline - now, SEEK))
    raise TimeoutError("the agent did not answer HELLO in time")


def ttl_of(welcome: dict[str, Any]) -> float:
    """The session's TTL in seconds. Raises ProtocolError if we cannot talk to this agent."""
    protocol = wire.field(wire.WELCOME, welcome, "protocol", int)
    if protocol != wire.PROTOCOL:
        raise ProtocolError(
            f"the agent speaks protocol {protocol}, this client {wire.PROTOCOL}: "
            f"install the headrace package of version {welcome.get('version', '?')}"
        )
    ttl: float = wire.field(wire.WELCOME, welcome, "ttl_ms", int) / 1e3
    if ttl <= 0:
        raise ProtocolError(f"the agent's TTL is {ttl} s")
    return ttl


def goodbye(connection: ControlConnection) -> None:
    """Says BYE and waits for the agent to close the connection."""
    with contextlib.suppress(OSError, EOFError, ProtocolError):
        connection.send(wire.encode(wire.BYE, 0, {}))
        connection.finish(BYE_SECONDS)
