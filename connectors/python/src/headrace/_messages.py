"""The trainer socket's messages: a 16-byte header and, mostly, JSON after it."""

from __future__ import annotations

import json
import struct
from typing import Any, NamedTuple

from ._errors import ProtocolError

PROTOCOL = 1
MAX_CONTROL = 1 << 20  # bytes of payload
MAX_CALL = 256 << 20  # of CALL and ANSWER, which carry cuts
MAX_FRAME = 1 << 30

HELLO, WELCOME, ERROR, OPEN, OPENED, ATTACH, CREDIT, FRAME, END, STEP = range(1, 11)
ACKED, FENCED, QUIT, PAUSE, STATS, CLOSE, BYE, PING, PONG, STATE = range(11, 21)
CALL, ANSWER, PAUSE_YIELDS, YIELDS_PAUSED = 21, 22, 23, 24
REGION, FRAME_AT, RELEASE, FORGET = range(25, 29)
READY, ROUND = 29, 30
NAMES = [
    "HELLO",
    "WELCOME",
    "ERROR",
    "OPEN",
    "OPENED",
    "ATTACH",
    "CREDIT",
    "FRAME",
    "END",
    "STEP",
    "ACKED",
    "FENCED",
    "QUIT",
    "PAUSE",
    "STATS",
    "CLOSE",
    "BYE",
    "PING",
    "PONG",
    "STATE",
    "CALL",
    "ANSWER",
    "PAUSE_YIELDS",
    "YIELDS_PAUSED",
    "REGION",
    "FRAME_AT",
    "RELEASE",
    "FORGET",
    "READY",
    "ROUND",
]

_LIMITS = {FRAME: MAX_FRAME, CALL: MAX_CALL, ANSWER: MAX_CALL}

HEADER = struct.Struct("<IHHII")  # length, type, flags, stream, number


class Header(NamedTuple):
    """What precedes every message."""

    length: int
    type: int
    stream: int
    number: int


class Message(NamedTuple):
    """One whole control message."""

    type: int
    stream: int
    payload: dict[str, Any]


def name(type_: int) -> str:
    return NAMES[type_ - 1] if 1 <= type_ <= len(NAMES) else f"type {type_}"


def parse_header(data: bytes | bytearray | memoryview) -> Header:
    """Checks type, flags and length. Raises ProtocolError."""
    length, type_, flags, stream, number = HEADER.unpack_from(data)
    if not 1 <= type_ <= len(NAMES) or flags:
        raise ProtocolError(
            f"the agent sent message {name(type_)} with flags {flags:#x}, which this client does not know: "
            "install the headrace package of the agent's version"
        )
    if length > _LIMITS.get(type_, MAX_CONTROL):
        raise ProtocolError(f"the agent announced a {name(type_)} of {length} bytes, over the limit")
    return Header(length, type_, stream, number)


def encode(type_: int, stream: int = 0, payload: dict[str, Any] | None = None, number: int = 0) -> bytes:
    """One message, ready to send. Raises ProtocolError if it is over the limit."""
    body = b"" if payload is None else json.dumps(payload, separators=(",", ":")).encode()
    limit = _LIMITS.get(type_, MAX_CONTROL)
    if len(body) > limit:
        raise ProtocolError(f"a {name(type_)} of {len(body)} bytes is over the limit of {limit}")
    return HEADER.pack(len(body), type_, 0, stream, number) + body


def encode_bytes(type_: int, stream: int, body: bytes) -> bytes:
    """A message whose payload is not JSON."""
    return HEADER.pack(len(body), type_, 0, stream, 0) + body


def encode_step(stream: int, step: int, batches: int, through: int, more: bool = False, run: int = 1) -> bytes:
    """STEP, the one control message that is sent often. more: batches of other
    streams follow that are in the same step. run: so many steps, up to this one, of
    `batches` each."""
    tail = b',"more":true' if more else b',"run":%d' % run if run > 1 else b""
    body = b'{"step":%d,"batches":%d,"through":%d%s}' % (step, batches, through, tail)
    return HEADER.pack(len(body), STEP, 0, stream, 0) + body


def decode(type_: int, body: bytes | bytearray | memoryview) -> dict[str, Any]:
    """A payload's JSON object. Raises ProtocolError."""
    if not body:
        return {}
    try:
        value = json.loads(bytes(body))
    except ValueError as error:
        raise ProtocolError(f"the payload of {name(type_)} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ProtocolError(f"the payload of {name(type_)} is not a JSON object")
    return value


def field(type_: int, payload: dict[str, Any], key: str, kind: type) -> Any:
    """payload[key], checked. Raises ProtocolError."""
    value = payload.get(key)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ProtocolError(f"{name(type_)} has {key}={value!r}, which is not {kind.__name__}")
    return value
