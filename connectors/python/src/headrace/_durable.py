"""Files and folders that must be on the disk before a checkpoint counts (docs/CHECKPOINTS.md, Writing one)."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator

from ._errors import CheckpointError

# Of a folder that is not ours to open, or of a kind that cannot be synced.
_NOT_OURS = (errno.EACCES, errno.EPERM, errno.EINVAL, errno.ENOTSUP, errno.EROFS)

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def room(path: str, need: int) -> Iterator[None]:
    """Raises CheckpointError if there is no room for `need` bytes at path."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise CheckpointError(no_room(path, need, error.strerror or str(error))) from error


def no_room(path: str, need: int, why: str) -> str:
    try:
        space = os.statvfs(os.path.dirname(path))
        free = f"{space.f_bavail * space.f_frsize} are free there"
    except OSError as error:
        free = f"the free space there cannot be read: {error.strerror}"
    return f"{path} could not be written ({need} bytes; {free}): {why}"


def sync(path: str) -> None:
    """fsync of a file or a folder."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError as error:
        error.filename = path
        raise
    finally:
        os.close(fd)


def make_folder(folder: str) -> None:
    """Makes a folder and the missing folders above it, durably."""
    made, above = 0, folder
    while not os.path.isdir(above) and above != os.path.dirname(above):
        made, above = made + 1, os.path.dirname(above)
    os.makedirs(folder, exist_ok=True)
    sync_above(folder, max(made, 1))


def sync_above(path: str, must: int = 1) -> None:
    """Makes the folders above a file or folder durable, up to the root. Existing ones are
    synced too: another rank may have made them, or a process that was killed before it had
    synced them. The nearest `must` folders have to be synced. Folders above these may be
    left out, if we have no right to open them or they cannot be synced."""
    path = os.path.realpath(path)
    while (above := os.path.dirname(path)) != path:
        try:
            sync(above)
        except OSError as error:
            if must > 0 or error.errno not in _NOT_OURS:
                raise
        path, must = above, must - 1
