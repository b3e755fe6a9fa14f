"""Reading a data connection so that a signal never loses a byte.

A KeyboardInterrupt may be raised between two bytecodes, after recv_into() has
taken bytes off the socket and before its count is stored; the stream would be
torn. Here the count is stored by C code: list.extend(map(recv_into, ...)) runs
no bytecode between the call and the append, so an interrupted read goes on
exactly where it was.
"""

from __future__ import annotations

import socket
from ctypes import addressof, c_char
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _messages as wire

ALIGN = 64  # bytes; frames and all buffers in them begin at a multiple of it


def aligned(size: int) -> NDArray[np.uint8]:
    """size fresh, writable bytes that begin on a 64-byte boundary."""
    raw: NDArray[np.uint8] = np.empty(size + ALIGN - 1, np.uint8)
    skip = -addressof(c_char.from_buffer(raw.data)) % ALIGN  # raw.ctypes.data, three times as fast
    return raw[skip : skip + size]


class _Part:
    """What is being received: a header, or the payload behind one."""

    __slots__ = ("buffer", "counts", "header", "view")

    def __init__(self, header: wire.Header | None = None) -> None:
        self.header = header
        if header is None:
            self.buffer = np.empty(wire.HEADER.size, np.uint8)
        elif header.type == wire.FRAME:
            self.buffer = aligned(header.length)
        else:
            self.buffer = np.empty(header.length, np.uint8)
        self.view = self.buffer.data
        self.counts: list[int] = []


class Receiver:
    """Messages of one data connection, each in a buffer of its own."""

    __slots__ = ("_part", "_recv")

    def __init__(self, sock: socket.socket) -> None:
        self._recv = sock.recv_into
        self._part = _Part()

    def peek(self) -> tuple[wire.Header, NDArray[np.uint8]]:
        """The next message, the same one until take(); blocks.

        EOFError: the connection was closed.
        """
        while True:
            part = self._part
            self._fill(part)
            if part.header is not None:
                return part.header, part.buffer
            self._part = _Part(wire.parse_header(part.view))

    def take(self) -> None:
        """The message that peek() gave has been dealt with."""
        self._part = _Part()

    def _fill(self, part: _Part) -> None:
        counts, want = part.counts, len(part.view)
        have = sum(counts)
        while have < want:
            rest = part.view[have:] if have else part.view
            counts.extend(map(self._recv, (rest,), (0,), (_WAIT_ALL,)))
            if not counts[-1]:
                raise EOFError("the agent closed the data connection")
            have = sum(counts)


# One system call, and one hand-over of the interpreter lock, for a whole frame.
_WAIT_ALL: Any = socket.MSG_WAITALL
