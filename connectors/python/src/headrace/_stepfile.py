"""The step file of one stream of a `shared` model: its steps, for the agent that reads them
after this process.

A step may be lost with the only processes that know it: this one, and its agent. So each
step is also written into a file in shared memory, which outlives them. The agent of the
node reads it when this process has ended, and tells the master. A step costs no system
call: the file is mapped, and nothing is synced, because the file has to survive processes,
not a power failure.

Little-endian; agent/stepfile reads it, and api/vectors/stepfiles holds examples:

    0     head: magic "HRSTEP01", u32 version 1, u32 bytes of JSON, u64 bytes of the file,
          u32 CRC-32 of these 24 bytes and the JSON
    64    two marks of what was stepped: u64 number, u64 through which batch, i64 step, u64
          the number again
    128   two marks of what is durable: u64 number, u64 through which batch, i64 where the
          oldest frame lies (0: there is none), u64 the number again
    256   JSON: the process and its stream
    then  frames, each where there was room: what their batches are made of

The marks of a pair are written in turn, each from its first byte to its last; the whole
one with the higher number counts. A frame is "FRM1", u32 bytes of all of it, u32 first
batch, u32 batches, u32 rows, u32 rows of a batch, u32 spans, u32 bytes of times, u32
CRC-32 (of all of it, with 0 here and in the next two), u32 0, u64 where the next frame
lies (0: there is none); then the spans as in a FRAME, i64 for each batch but the first:
where its first record begins, and the times. Its head is written last. After that, its
place is written into the frame before it, or into a mark if there is none.

The process holds a POSIX lock of the file for as long as it lives.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import mmap
import os
import stat
import struct
from typing import Any
from zlib import crc32

from ._ranges import Ledger

log = logging.getLogger("headrace")

MAGIC = b"HRSTEP01"
VERSION = 1
STEPPED_AT, DURABLE_AT, ABOUT_AT = 64, 128, 256
ROOM = 128 << 10  # bytes of memory, at first
MOST = 64 << 20  # bytes of the file: of memory only as much is taken as is used

_HEAD = struct.Struct("<8sIIQ")
_SUM = struct.Struct("<I")
_MARK = struct.Struct("<QQqQ")
_FRAME = struct.Struct("<4sIIIIIIIIIQ")
_NEXT = struct.Struct("<Q")
_NEXT_AT = _FRAME.size - _NEXT.size
_SPAN = 96

_pack_mark = _MARK.pack_into


def encode(ledger: Ledger) -> bytes:
    """A frame as it lies in the file."""
    spans, cuts, times = ledger.parts()
    body = spans + cuts + times
    fields = (ledger.first, ledger.batches, ledger.rows, ledger.rows_per_batch, len(spans) // _SPAN, len(times))
    size = _FRAME.size + len(body)
    crc = crc32(body, crc32(_FRAME.pack(b"FRM1", size, *fields, 0, 0, 0)))
    return _FRAME.pack(b"FRM1", size, *fields, crc, 0, 0) + body


class StepFile:
    """One file. stepped() is called under the control's lock, frame() and durable() under
    the channel's. An interrupted call is made again."""

    __slots__ = ("_durable", "_fd", "_frames", "_full", "_marks", "_memory", "_number", "_path", "_room", "_start")

    def __init__(self, path: str, about: dict[str, Any]) -> None:
        text = json.dumps(about, separators=(",", ":")).encode()
        self._path = path
        self._start = -(-(ABOUT_AT + len(text)) // 64) * 64
        self._room = self._start + ROOM
        self._number = self._marks = self._durable = 0
        self._frames: list[tuple[int, int, int]] = []  # that are not durable: last batch, place, bytes
        self._full = False
        temp = f"{path}.new"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temp)
        self._fd = fd = os.open(temp, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            owner = os.stat(os.path.dirname(temp)).st_uid
            if owner != os.getuid():  # we are root, and the agent is not
                os.fchown(fd, owner, -1)
            os.ftruncate(fd, MOST)
            os.posix_fallocate(fd, 0, self._room)  # a lack of memory is an error here, and a SIGBUS later
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._memory = memory = mmap.mmap(fd, MOST)
            head = _HEAD.pack(MAGIC, VERSION, len(text), MOST)
            memory[ABOUT_AT : ABOUT_AT + len(text)] = text
            memory[: len(head) + 4] = head + _SUM.pack(crc32(text, crc32(head)))
            self.stepped(0, 0)
            self._mark_durable(0)
            os.rename(temp, path)
        except BaseException:
            os.close(fd)
            os.unlink(temp)
            raise

    def stepped(self, through: int, step: int) -> None:
        """Batches up to `through` are in the model as of step."""
        number = self._number + 1
        _pack_mark(self._memory, STEPPED_AT + 32 * (number & 1), number, through, step, number)
        self._number = number

    def durable(self, through: int) -> None:
        """The steps of all batches up to `through` are durable at the master."""
        frames, n = self._frames, 0
        while n < len(frames) and frames[n][0] <= through:
            n += 1
        del frames[:n]
        self._durable = through
        self._mark_durable(frames[0][1] if frames else 0)

    def _mark_durable(self, oldest: int) -> None:
        self._marks = number = self._marks + 1
        _pack_mark(self._memory, DURABLE_AT + 32 * (number & 1), number, self._durable, oldest, number)

    def frame(self, ledger: Ledger) -> None:
        """A frame has come. It is written down before a batch of it is yielded."""
        frames = self._frames
        if self._full or (frames and frames[-1][0] >= ledger.last):
            return
        entry = encode(ledger)
        size, memory = len(entry), self._memory
        at = self._place(size)
        if not at:
            self._full = True
            log.warning("%s is full: steps of this stream are not written to it from now on", self._path)
            return
        memory[at + _FRAME.size : at + size] = entry[_FRAME.size :]
        memory[at : at + _FRAME.size] = entry[: _FRAME.size]
        if frames:
            _NEXT.pack_into(memory, frames[-1][1] + _NEXT_AT, at)
        else:
            self._mark_durable(at)
        frames.append((ledger.last, at, size))

    def _place(self, size: int) -> int:
        """Where a frame can lie; 0: nowhere."""
        frames = self._frames
        after = -(-(frames[-1][1] + frames[-1][2]) // 8) * 8 if frames else self._start
        for at in (after, self._start):
            if at + size <= self._room and not any(o < at + size and at < o + n for _, o, n in frames):
                return at
        at, room = -(-self._room // 8) * 8, self._room
        while room < at + size:
            room *= 2
        if room > MOST:
            return 0
        try:
            os.posix_fallocate(self._fd, self._room, room - self._room)
        except OSError:
            return 0
        self._room = room
        return at

    def close(self, remove: bool) -> None:
        """remove: all steps in it are durable at the master, so nobody needs the file."""
        with contextlib.suppress(OSError):
            if remove:
                os.unlink(self._path)
        self._memory.close()
        os.close(self._fd)


def open_(folder: str, about: dict[str, Any]) -> StepFile | None:
    """The step file of a stream; None if there can be none. Without one, a step that the
    master has not heard of is lost with this process and its agent."""
    try:
        _check(folder)
        return StepFile(os.path.join(folder, f"{about['incarnation']}-{about['stream']}"), about)
    except (OSError, ValueError) as error:
        log.warning(
            "steps are not written to a step file (%s): if this process is killed together with its agent, batches "
            "that it had stepped may come again",
            error,
        )
        return None


def _check(folder: str) -> None:
    """Nobody but us, root, and the agent's user may put a file there."""
    st = os.lstat(folder)
    if not stat.S_ISDIR(st.st_mode) or st.st_mode & 0o077:
        raise ValueError(f"{folder} is not a folder for its owner alone (mode {stat.S_IMODE(st.st_mode):04o})")
    if st.st_uid != os.getuid() and os.getuid() != 0:
        raise ValueError(f"{folder} belongs to uid {st.st_uid}")
