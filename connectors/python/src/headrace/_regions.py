"""Frames in shared memory: the agent fills a region, the trainer has it while any
array refers to the frame in it.

Every array of a frame has the frame's payload as its base. So when the garbage collector
frees the payload, no array refers to the frame any more. It calls a `deque.append` then:
a callback in C, in which no signal's exception is raised and lost.

A forked child has the arrays of its parent, in the same memory, and nobody hears when it
releases them. So regions that were in use at a fork are never filled again.
"""

from __future__ import annotations

import fcntl
import logging
import mmap
import os
import socket
import struct
import sys
import weakref
from array import array
from collections import deque

import numpy as np
from numpy.typing import NDArray

from . import _messages as wire
from ._errors import ProtocolError

#: bytes of ancillary data that one descriptor takes; 0: there is no such thing here
SPACE: int = getattr(socket, "CMSG_SPACE", lambda size: 0)(array("i").itemsize)
_HERE = sys.platform == "linux" and SPACE > 0

_log = logging.getLogger("headrace")

MAX_REGIONS = 4096  # of a connection


def wanted() -> bool:
    """Frames may come in shared memory. HEADRACE_SHARED_FRAMES=0: they may not."""
    return _HERE and os.environ.get("HEADRACE_SHARED_FRAMES", "1") != "0"


_FRAME_AT = struct.Struct("<IIQQ")  # region, use, offset, length
_USE = struct.Struct("<II")
_SIZE = struct.Struct("<Q")
# Linux's, which not every Python has names for.
_GET_SEALS = 1034
_SEAL_SHRINK = 2
_POPULATE = 0x8000


class _Loan(weakref.ref[NDArray[np.uint8]]):
    """A weak reference to a frame's payload. It knows which use of which region the payload is."""

    __slots__ = ("forked", "region", "use")
    region: int
    use: int
    forked: bool  # a child may have it too


class _Region:
    __slots__ = ("loan", "memory")

    def __init__(self, memory: mmap.mmap) -> None:
        self.memory = memory
        self.loan: _Loan | None = None  # the last one


class Regions:
    """The regions of one data connection. Only the thread that iterates uses them."""

    __slots__ = ("__weakref__", "_held", "_known", "_mapped", "_returned", "_useless")

    def __init__(self) -> None:
        self._known: dict[int, _Region] = {}
        self._mapped: list[int] = []  # and not said yet
        self._useless: list[int] = []  # could not be mapped, and not said yet
        self._returned: deque[_Loan] = deque()
        self._held: tuple[int, int, NDArray[np.uint8]] | None = None
        _all[weakref.ref(self, _all.pop)] = None

    def map(self, number: int, message: NDArray[np.uint8], fds: list[int]) -> None:
        """Maps a region that the agent offers. If a call was interrupted, the caller calls
        again. Raises ProtocolError."""
        size = _unpack(_SIZE, wire.REGION, message)[0]
        if number in self._known:
            if number not in self._mapped:  # interrupted before that, or it was said, which twice does no harm
                self._mapped.append(number)
            return
        if not 0 < size <= 2 * wire.MAX_FRAME or len(self._known) >= MAX_REGIONS:
            raise ProtocolError(f"the agent offers region {number} of {size} bytes beside {len(self._known)} others")
        try:
            if not fds:
                raise OSError("its descriptor has not come")
            if os.fstat(fds[0]).st_size < size or not fcntl.fcntl(fds[0], _GET_SEALS) & _SEAL_SHRINK:
                raise ProtocolError(f"region {number} may be or become shorter than its {size} bytes")
            self._known[number] = _Region(mmap.mmap(fds[0], size, flags=mmap.MAP_SHARED | _POPULATE))
        except OSError as error:  # no memory, no descriptors: frames go over the socket
            _log.warning("shared memory for frames: %s", error)
            self._useless.append(number)
        else:
            self._mapped.append(number)

    def forget(self, number: int) -> None:
        """Forgets a region that the agent does not fill any more. Arrays in it stay valid."""
        self._known.pop(number, None)

    def payload(self, message: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Returns the payload of the frame that FRAME_AT names. If a call was interrupted, the
        caller calls again with the same message, until done(). Raises ProtocolError."""
        number, use, offset, length = _unpack(_FRAME_AT, wire.FRAME_AT, message)
        region = self._known.get(number)
        if region is None:
            raise ProtocolError(f"a frame lies in region {number}, which the agent has not told of")
        if self._held is None or self._held[:2] != (number, use):
            before = None if region.loan is None else region.loan()
            if region.loan is not None and before is not None:
                if region.loan.use != use:
                    raise ProtocolError(f"the agent has filled region {number} while its last frame is in use")
                return before
            size = len(region.memory)
            if length > wire.MAX_FRAME or offset > size or length > size - offset or offset % 64:
                raise ProtocolError(f"a frame of {length} bytes at {offset} does not lie in region {number} of {size}")
            # A base that is no array: views of views then have this array as theirs.
            self._held = number, use, np.frombuffer(region.memory, np.uint8, length, offset)
        payload = self._held[2]
        if region.loan is None or region.loan.use != use:
            loan = _Loan(payload, self._returned.append)
            loan.region, loan.use, loan.forked = number, use, False
            region.loan = loan
        return payload

    def done(self) -> None:
        """The message has been handled: from now on the payload lives as long as its arrays."""
        self._held = None

    def news(self, stream: int) -> tuple[bytes, int]:
        """Messages about regions that we do not use any more, and the argument for told() when they are sent."""
        returned = len(self._returned)
        if not returned and not self._mapped and not self._useless:
            return b"", 0
        free = [_USE.pack(number, 0) for number in self._mapped]
        lost = [_USE.pack(number, 0) for number in self._useless]
        for i in range(returned):
            loan = self._returned[i]
            forked = loan.forked  # once: another thread may fork here
            (lost if forked else free).append(_USE.pack(loan.region, loan.use))
            if forked:
                self._known.pop(loan.region, None)
        data = wire.encode_bytes(wire.RELEASE, stream, b"".join(free)) if free else b""
        if lost:
            data += wire.encode_bytes(wire.FORGET, stream, b"".join(lost))
        return data, returned

    def told(self, returned: int) -> None:
        """They were sent. What is sent once more, after an interrupt, does no harm:
        the agent knows which use each is of."""
        self._mapped.clear()
        self._useless.clear()
        for _ in range(returned):
            self._returned.popleft()

    def _forked(self) -> None:
        for region in list(self._known.values()):
            if region.loan is not None:
                region.loan.forked = True


def _unpack(layout: struct.Struct, type_: int, message: NDArray[np.uint8]) -> tuple[int, ...]:
    if message.size != layout.size:
        raise ProtocolError(f"{wire.name(type_)} has {message.size} bytes, and not {layout.size}")
    return layout.unpack(message.data)


# All that there are. What removes one is C, as with loans: a WeakSet's callback is
# not, and the KeyboardInterrupt that is raised in it is lost.
_all: dict[weakref.ref[Regions], None] = {}


def _mark() -> None:
    for ref in list(_all):
        regions = ref()
        if regions is not None:
            regions._forked()


if _HERE:
    # Both: what another thread receives between the first and the fork counts too.
    os.register_at_fork(before=_mark, after_in_parent=_mark)
