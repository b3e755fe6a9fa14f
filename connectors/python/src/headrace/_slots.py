"""Checkpoints in memory: files that outlive the process that wrote them.

Each rank has two slots (or three), each one file in a tmpfs (docs/FLASH.md). A slot
holds one checkpoint: a safetensors image of the state, and the fields of a manifest with
its cut.

    0      the control page, see _CONTROL
    4096   the image: 8 bytes of length, the header (padded with spaces so that the
           data begins at a multiple of 4096), the data
    then   at a multiple of 4096: JSON about the checkpoint

A writer first notes in the control page that it begins, then writes the rest, and at last
notes that it has ended, with checksums. So if a writer was killed, its slot shows that it
is not complete. While it writes, the writer holds flock(LOCK_EX) of the slot. A reader
holds LOCK_SH, which also pins the slot.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import mmap
import os
import secrets
import shutil
import stat
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from . import _checksum
from ._errors import CheckpointError
from ._manifest import crc64

PAGE = 4096
MAGIC = b"HRSLOT01"
ID_FILE = ".headrace-memory"
ABOUT_FILE = "about.json"
DEFAULT_ROOT = "/dev/shm"
ROOT_VARIABLE = "HEADRACE_MEMORY_DIR"

# magic, begin, end, image bytes, image checksum, about bytes, about checksum; then the
# checksum of all that. begin == end, and not 0: the slot is complete.
_CONTROL = struct.Struct("<8sQQQQQQ")
_SUM = struct.Struct("<Q")
_BEGIN_AT = 8
_END_AT = 16
_CHUNK = 4 << 20
_STEP = 1 << 20  # of memory that is mapped at a time
_STALE_SECONDS = 24 * 3600.0
_SYSTEM = "/"  # tests replace it
# The files of a memory cgroup, by its version: the limit, what is used, and what memory.stat calls files
# that were read.
_GROUP_FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")),
    2: ("memory.max", "memory.current", ("inactive_file", "active_file")),
}
_POPULATE_WRITE = 23  # madvise(2)
_madvise = ctypes.CDLL(None).madvise
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


@dataclass(frozen=True)
class Control:
    """What the control page of a complete slot says."""

    number: int  # grows with each write of a rank
    image: int  # bytes
    image_crc: int
    about: int  # bytes
    about_crc: int

    @property
    def about_at(self) -> int:
        return PAGE + pages(self.image)


def pages(size: int) -> int:
    """size, rounded up to whole pages."""
    return -(-size // PAGE) * PAGE


def root() -> str:
    """The tmpfs that slots lie in."""
    return os.environ.get(ROOT_VARIABLE) or DEFAULT_ROOT


class Folder:
    """The slots of one checkpoint folder and job on this node."""

    def __init__(self, directory: str, job: str, id: str | None = None) -> None:
        """id: of a folder in a bucket, which the agent has asked for."""
        self.directory = directory
        self.id = id or _folder_id(directory)
        base = os.path.join(root(), f"headrace-{os.getuid()}")
        _own_folder(base)
        self.path = os.path.join(base, f"{self.id}-{crc64(job.encode()):016x}")
        _own_folder(self.path)
        about = os.path.join(self.path, ABOUT_FILE)
        if not os.path.exists(about):
            _replace(about, json.dumps({"dir": directory, "id": self.id, "job": job}).encode())
        _sweep(base, directory, self.id)

    def slot(self, rank: int, number: int) -> str:
        return os.path.join(self.path, f"rank-{rank}-slot-{number}")

    def of(self, rank: int) -> list[str]:
        """The slots of a rank that are there."""
        start = f"rank-{rank}-slot-"
        names = [n for n in os.listdir(self.path) if n.startswith(start) and n[len(start) :].isdigit()]
        return [os.path.join(self.path, n) for n in sorted(names)]


class Slot:
    """A slot as its rank writes it. One thread at a time uses it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.memory: mmap.mmap | None = None
        self.header = b""  # of the image that was written last
        self._fd = _open(path, os.O_RDWR | os.O_CREAT)
        self.made = os.fstat(self._fd).st_ino
        self._map(os.fstat(self._fd).st_size)
        about = peek(path)
        self.cut: str | None = about["manifest"]["cut"]["id"] if about is not None else None  # of what it holds

    @property
    def capacity(self) -> int:
        return len(self.memory) if self.memory is not None else 0

    def _map(self, size: int) -> None:
        if size:
            self.memory = mmap.mmap(self._fd, size, flags=mmap.MAP_SHARED)

    def control(self) -> Control | None:
        """None: it is not complete."""
        return _control(self.memory[:PAGE]) if self.capacity >= PAGE and self.memory is not None else None

    def number(self) -> int:
        """The highest number that was written here, complete or not."""
        if self.memory is None or self.capacity < PAGE or self.memory[:8] != MAGIC:
            return 0
        return int(_SUM.unpack_from(self.memory, _BEGIN_AT)[0])

    def lock(self) -> bool:
        """Takes it for writing. False: somebody reads it, or writes it."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    def grow(self, size: int) -> None:
        """Makes room for size bytes. Raises OSError (ENOSPC): there is none."""
        if size <= self.capacity:
            return
        size = pages(size)
        take_room(self._fd, self.path, self.capacity, size)
        old, self.memory = self.memory, None
        self._map(size)
        if old is not None:
            with contextlib.suppress(BufferError):  # somebody's view of it: it goes with the view
                old.close()

    def touch(self, at: int) -> int:
        """Maps some pages from `at` on, so that the first copy is as fast as any other.
        Gives where to go on, and 0 at the end."""
        memory = self.memory
        if memory is None or at >= len(memory):
            return 0
        begin = ctypes.c_char.from_buffer(memory, at)
        # mmap.madvise() would keep all other threads from running meanwhile.
        failed = _madvise(ctypes.byref(begin), min(_STEP, len(memory) - at), _POPULATE_WRITE)
        return at + _STEP if failed == 0 else 0  # it fails before Linux 5.14

    def begin(self, number: int, header: bytes) -> None:
        """From now on it is not complete. header: of the image."""
        memory = self.memory
        assert memory is not None
        _SUM.pack_into(memory, _BEGIN_AT, number)
        _SUM.pack_into(memory, _END_AT, 0)
        memory[:8] = MAGIC
        if header != self.header or memory[PAGE : PAGE + len(header)] != header:
            memory[PAGE : PAGE + len(header)] = header
            self.header = header

    def end(self, number: int, image: int, image_crc: int, about: bytes) -> None:
        """Writes what is said of the image, and then that the slot is complete."""
        at = PAGE + pages(image)
        self.grow(at + len(about))
        memory = self.memory
        assert memory is not None
        memory[at : at + len(about)] = about
        page = _CONTROL.pack(MAGIC, number, number, image, image_crc, len(about), crc64(about))
        memory[_CONTROL.size : _CONTROL.size + _SUM.size] = _SUM.pack(crc64(page))
        memory[_END_AT + 8 : _CONTROL.size] = page[_END_AT + 8 :]
        memory[_END_AT : _END_AT + 8] = page[_END_AT : _END_AT + 8]  # the end mark

    def void(self) -> None:
        """It is not complete any more."""
        if self.capacity >= PAGE and self.memory is not None:
            _SUM.pack_into(self.memory, _END_AT, 0)

    def close(self) -> None:
        memory, self.memory = self.memory, None
        if memory is not None:
            with contextlib.suppress(BufferError):
                memory.close()
        os.close(self._fd)


class Reading:
    """A complete slot, pinned while this lives: nobody writes it.

    Its memory is mapped private: what is written to it stays in this process.
    """

    def __init__(self, path: str) -> None:
        """Raises OSError, and CheckpointError if it is not complete, or is being written."""
        self.path = path
        self._fd = _open(path, os.O_RDWR)
        try:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                raise CheckpointError(f"{path} is being written") from None
            status = os.fstat(self._fd)
            self.made, size = status.st_ino, status.st_size
            if size < PAGE:
                raise CheckpointError(f"{path} is empty")
            self.memory = mmap.mmap(self._fd, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
            control = _control(self.memory[:PAGE])
            if control is None or control.about_at + control.about > size:
                raise CheckpointError(f"{path} is not complete: its writer was killed, or still writes")
            self.control = control
            text = self.memory[control.about_at : control.about_at + control.about]
            if crc64(text) != control.about_crc:
                raise CheckpointError(f"{path}: its description is damaged: the checksum differs")
            self.about: dict[str, Any] = json.loads(text)
        except BaseException:
            os.close(self._fd)
            raise

    def fault(self, threads: int = 1, stop: Callable[[], bool] = lambda: False) -> str | None:
        """None: the image is what was written. Raises Stopped."""
        crc = image_crc(self.memory, self.control.image, threads, stop)
        if crc == self.control.image_crc:
            return None
        control = self.control
        return f"{self.path}: its {control.image} bytes have the checksum {crc:016x}, and not {control.image_crc:016x}"

    def release(self) -> int:
        """Gives the pin away: the caller closes the descriptor once nothing uses the memory."""
        fd, self._fd = self._fd, -1
        return fd

    def close(self) -> None:
        """Ends the pin, even if something still refers to this: the map has a descriptor of its own."""
        if self._fd >= 0:
            fcntl.flock(self._fd, fcntl.LOCK_UN)
            os.close(self._fd)
            self._fd = -1


def peek(path: str) -> dict[str, Any] | None:
    """What a complete slot says of its checkpoint. None: it is not complete."""
    try:
        slot = Reading(path)
    except (OSError, CheckpointError, ValueError):
        return None
    try:
        return slot.about
    finally:
        slot.close()


def image_crc(memory: mmap.mmap, image: int, threads: int = 1, stop: Callable[[], bool] = lambda: False) -> int:
    return _checksum.of(memory, PAGE, PAGE + image, threads, stop)


def chunks(memory: mmap.mmap, image: int) -> Iterator[memoryview]:
    """The image, a part at a time."""
    with memoryview(memory) as view:
        for at in range(PAGE, PAGE + image, _CHUNK):
            with view[at : min(at + _CHUNK, PAGE + image)] as part:
                yield part


def _control(page: bytes) -> Control | None:
    magic, begin, end, image, crc, about, about_crc = _CONTROL.unpack_from(page)
    (total,) = _SUM.unpack_from(page, _CONTROL.size)
    if magic != MAGIC or begin != end or end == 0 or total != crc64(page[: _CONTROL.size]):
        return None
    return Control(int(end), int(image), int(crc), int(about), int(about_crc))


def _open(path: str, flags: int) -> int:
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid():
        os.close(fd)
        raise PermissionError(errno.EPERM, "it is no file of this user", path)
    return fd


def _own_folder(path: str) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(errno.EPERM, "it is no folder that only this user can use", path)


def _folder_id(directory: str) -> str:
    """Names a checkpoint folder. A folder that was removed and made again has another name,
    so slots of the first one are not found any more."""
    path = os.path.join(directory, ID_FILE)
    for _ in range(2):
        with contextlib.suppress(FileNotFoundError), open(path) as file:
            text = file.read().strip()
            if len(text) == 16 and not set(text) - set("0123456789abcdef"):
                return text
            raise CheckpointError(f"{path} should be 16 hex digits, and is {text[:40]!r}: remove it")
        os.makedirs(directory, exist_ok=True)
        temp = f"{path}.{secrets.token_hex(8)}.tmp"
        with open(temp, "x") as file:
            file.write(secrets.token_hex(8) + "\n")
            file.flush()
            os.fsync(file.fileno())  # else a power failure may leave it empty under its name
        try:
            with contextlib.suppress(FileExistsError):
                os.link(temp, path)  # the first rank's is everybody's
        except OSError:  # no links there
            os.rename(temp, path)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temp)
    raise CheckpointError(f"{path} cannot be read after it was written")


def _replace(path: str, data: bytes) -> None:
    temp = f"{path}.{secrets.token_hex(8)}.tmp"
    with open(os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
    os.rename(temp, path)


def take_room(fd: int, path: str, has: int, size: int) -> None:
    """Makes a file of `has` bytes one of `size`. Raises OSError (ENOSPC): there is no room."""
    _affordable(path, size - has)
    os.posix_fallocate(fd, 0, size)  # a lack of memory is an error here, and a SIGBUS later


def _affordable(path: str, more: int) -> None:
    """Raises ENOSPC if the machine lacks memory for `more` bytes. A tmpfs may promise more
    than the machine has, and the kernel would then kill a process."""
    free = []
    with contextlib.suppress(OSError, ValueError, StopIteration), open("/proc/meminfo") as file:
        free.append(next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable:")))
    for version, group in _groups():
        with contextlib.suppress(OSError, ValueError, KeyError):
            free.append(_free_of(version, group))
    if free and more > min(free):
        raise OSError(errno.ENOSPC, f"only {min(free)} bytes of memory are free", path)


def _groups() -> Iterator[tuple[int, str]]:
    """The cgroups that may limit our memory: our own, and those above it. In a container its own may be
    the topmost one that it sees."""
    try:
        with open(os.path.join(_SYSTEM, "proc/self/cgroup")) as file:
            lines = file.read().splitlines()
    except OSError:
        return
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            version, top = 1, "sys/fs/cgroup/memory"
        elif number == "0":
            version, top = 2, "sys/fs/cgroup"
        else:
            continue
        parts = [part for part in path.split("/") if part]
        for n in range(len(parts) + 1):
            if ".." not in parts[:n]:  # else we were moved out of what we see
                yield version, os.path.join(_SYSTEM, top, *parts[:n])


def _free_of(version: int, group: str) -> int:
    """How many bytes the processes of a cgroup may still take. Files that were read count as used, and
    their memory is given back when it is needed."""
    names = _GROUP_FILES[version]
    numbers = []
    for name in names[:2]:
        with open(os.path.join(group, name)) as file:
            numbers.append(int(file.read()))  # "max", without a limit, is a ValueError
    with open(os.path.join(group, "memory.stat")) as file:
        stat_ = dict(line.split() for line in file)
    return numbers[0] - numbers[1] + sum(int(stat_[name]) for name in names[2])


def _sweep(base: str, directory: str, id: str) -> None:
    """Removes the slots of checkpoint folders that do not exist any more. For folders in
    buckets: only slots of earlier folders at `directory`."""
    for name in os.listdir(base):
        folder = os.path.join(base, name)
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            with open(os.path.join(folder, ABOUT_FILE)) as file:
                about = json.load(file)
            if "://" in about["dir"]:
                if about["dir"] == directory and about["id"] != id:
                    _remove(folder)
                continue
            try:
                with open(os.path.join(about["dir"], ID_FILE)) as file:
                    if file.read().strip() == about["id"]:
                        continue
            except (FileNotFoundError, NotADirectoryError):
                if time.time() - os.stat(folder).st_mtime < _STALE_SECONDS:
                    continue  # it may be a mount that is away for now, or lie in one
            _remove(folder)


def _remove(folder: str) -> None:
    shutil.rmtree(folder)
