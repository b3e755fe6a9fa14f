"""Writes frames as docs/PROTOCOL.md describes them, independently of the package."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np

SPAN = struct.Struct("<IIIIqqqqqIIQq16x")


def span(
    rows: int,
    start: int,
    end: int,
    *,
    partition: int = 7,
    pass_: int = 1,
    dataset: int = 3,
    segment: int = 5,
    lease_from: int | None = None,
    lease_to: int | None = None,
    epoch: int = 1,
    term: int = 2,
    sequence: int = 40,
    event_time: int = 0,
) -> bytes:
    assert SPAN.size == 96
    low = start if lease_from is None else lease_from
    high = end if lease_to is None else lease_to
    return SPAN.pack(rows, partition, pass_, dataset, segment, start, end, low, high, epoch, term, sequence, event_time)


def frame(
    buffers: list[np.ndarray | bytes],
    spans: list[bytes],
    *,
    rows: int,
    per_batch: int,
    first: int = 1,
    last: bool = False,
    names: dict[str, Any] | None = None,
    times: list[tuple[int, int]] | None = None,
) -> bytes:
    """buffers[0] is $offset; each buffer begins at a multiple of 64 bytes."""
    table_at = 64 + len(b"".join(spans))
    at = -(-(table_at + 16 * len(buffers)) // 64) * 64
    table, body = b"", b""
    base = at
    for buffer in buffers:
        data = buffer if isinstance(buffer, bytes) else np.ascontiguousarray(buffer).tobytes()
        table += struct.pack("<QQ", at, len(data))
        body += data + bytes(-len(data) % 64)
        at = base + len(body)
    text = json.dumps(names).encode() if names else b""
    gap = bytes(-len(text) % 64)
    tail = b"".join(struct.pack("<qq", *t) for t in times or [])
    head = struct.pack(
        "<4sHHIIIIIIQQQQ",
        b"HRF1",
        1,
        int(last),
        rows,
        -(-rows // per_batch),
        per_batch,
        len(spans),
        len(buffers),
        first,
        at + len(text + gap) + len(tail),
        at if text else 0,
        len(text),
        at + len(text + gap) if tail else 0,
    )
    front = head + b"".join(spans) + table
    return front + bytes(base - len(front)) + body + text + gap + tail


def aligned(payload: bytes) -> np.ndarray:
    raw = np.empty(len(payload) + 63, np.uint8)
    skip = -raw.ctypes.data % 64
    out = raw[skip : skip + len(payload)]
    out[:] = np.frombuffer(payload, np.uint8)
    return out
