"""Reading a data connection so that a signal never loses a byte.

A KeyboardInterrupt may be raised between two bytecodes: after recv_into() has taken bytes
off the socket, and before its count is stored. Then the stream would be torn. So C code
stores the count here: list.extend(map(recv_into, ...)) runs no bytecode between the call
and the append. An interrupted read goes on exactly where it was.
"""

from __future__ import annotations

import os
import select
import socket
from array import array
from ctypes import addressof, c_char
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _messages as wire
from ._regions import SPACE

ALIGN = 64  # bytes; frames and all buffers in them begin at a multiple of it


def aligned(size: int) -> NDArray[np.uint8]:
    """size fresh, writable bytes that begin on a 64-byte boundary."""
    raw: NDArray[np.uint8] = np.empty(size + ALIGN - 1, np.uint8)
    skip = -addressof(c_char.from_buffer(raw.data)) % ALIGN  # raw.ctypes.data, three times as fast
    return raw[skip : skip + size]


class _Part:
    """The part that is being received: a header, or the payload after it."""

    __slots__ = ("buffer", "closed", "counts", "header", "replies", "view")

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
        self.replies: list[Any] = []  # of recvmsg(), for a message with descriptors
        self.closed: list[None] = []  # one for each descriptor

    def descriptors(self) -> list[int]:
        found = array("i")
        for _, ancillary, _, _ in self.replies:
            for level, kind, data in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    found.frombytes(data[: len(data) // found.itemsize * found.itemsize])
        return found.tolist()

    def close(self) -> None:
        """Closes them, each once, however often it is interrupted."""
        rest = self.descriptors()[len(self.closed) :]
        self.closed.extend(map(os.close, rest))


class Receiver:
    """Messages of one data connection, each in a buffer of its own."""

    __slots__ = ("_part", "_poll", "_recv", "_recvmsg")

    def __init__(self, sock: socket.socket) -> None:
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._recv = sock.recv_into
        self._recvmsg = sock.recvmsg
        self._part = _Part()

    def ready(self, seconds: float) -> bool:
        """Something was read by a call that was interrupted, or can be, or the
        connection has ended; waits for it a while."""
        part = self._part
        if part.header is not None or part.counts:
            return True
        return bool(self._poll.poll(seconds * 1000))

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

    def descriptors(self) -> list[int]:
        """That came with the message that peek() gave; take() closes them."""
        return self._part.descriptors()

    def take(self) -> None:
        """The message that peek() gave has been dealt with."""
        self.close()
        self._part = _Part()

    def close(self) -> None:
        """Closes every descriptor that came with a message."""
        if self._part.replies:
            self._part.close()

    def _fill(self, part: _Part) -> None:
        if part.header is not None and part.header.type == wire.REGION:
            self._fill_with_descriptors(part)
            return
        counts, want = part.counts, len(part.view)
        have = sum(counts)
        while have < want:
            rest = part.view[have:] if have else part.view
            counts.extend(map(self._recv, (rest,), (0,), (_WAIT_ALL,)))
            if not counts[-1]:
                raise EOFError("the agent closed the data connection")
            have = sum(counts)

    def _fill_with_descriptors(self, part: _Part) -> None:
        want = len(part.view)
        have = sum(len(reply[0]) for reply in part.replies)
        while have < want:
            part.replies.extend(map(self._recvmsg, (want - have,), (SPACE,), (_WITH_DESCRIPTORS,)))
            if not part.replies[-1][0]:
                raise EOFError("the agent closed the data connection")
            have = sum(len(reply[0]) for reply in part.replies)
        part.view[:] = b"".join(reply[0] for reply in part.replies)


# One system call, and one hand-over of the interpreter lock, for a whole frame.
_WAIT_ALL: Any = socket.MSG_WAITALL
_WITH_DESCRIPTORS: Any = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
