"""Writing a manifest: the entries of its files, and the rename that makes a checkpoint.

docs/CHECKPOINTS.md has the order of the calls. In this order, power may fail between any two.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

from . import _manifest
from ._durable import room, sync, sync_above
from ._errors import CheckpointError
from ._version import __version__


def describe(folder: str, path: str) -> dict[str, Any]:
    """Syncs a file and returns its entry for the manifest; path is relative."""
    full = os.path.join(folder, path)
    with open(full, "rb", buffering=0) as file:
        crc, size = _manifest._sum(file)
        with room(full, size):  # some file systems find out late
            os.fsync(file.fileno())
    return {"path": path, "size": size, "crc64nvme": f"{crc:016x}"}


def describe_all(where: str) -> tuple[str, list[dict[str, Any]]]:
    """The place of the manifest of a framework's file or folder, and its files, all of them
    durable. Raises OSError, and CheckpointError for a file that no reader would accept."""
    if not os.path.isdir(where):
        folder, name = os.path.split(where)
        _bindable(where, name)
        sync_above(folder, 0)
        return f"{where}.{_manifest.FILE_NAME}", [describe(folder, name)]
    files: list[dict[str, Any]] = []
    for top, folders, names in os.walk(where):
        folders.sort()
        for name in folders:
            _bindable(os.path.join(top, name), name)
        for name in sorted(names):
            path = os.path.relpath(os.path.join(top, name), where)
            if not _manifest.is_ours(path) or _manifest._PART.match(name):
                _bindable(os.path.join(top, name), name)
                files.append(describe(where, path.replace(os.sep, "/")))
        if top != where:
            sync(top)
    sync_above(where)
    return os.path.join(where, _manifest.FILE_NAME), files


def place_of(where: str) -> str:
    """Where the manifest of a framework's file, folder or prefix belongs."""
    return os.path.join(where, _manifest.FILE_NAME) if os.path.isdir(where) else f"{where}.{_manifest.FILE_NAME}"


def describe_files(where: str, paths: list[str]) -> tuple[str, list[dict[str, Any]]]:
    """The place of the manifest of files with the prefix `where`, and the files, all of them
    durable. Raises OSError, and CheckpointError for a file that no reader would accept."""
    folder, name = os.path.split(where)
    if not paths:
        raise CheckpointError(f"{where}: files= names no file: a checkpoint has at least one")
    _bindable(where, name)
    files = []
    for path in sorted(paths):
        if os.path.dirname(path) != folder:
            raise CheckpointError(f"{path} does not lie in {folder}, its manifest's folder: bind files of one folder")
        _bindable(path, os.path.basename(path))
        files.append(describe(folder, os.path.basename(path)))
    sync_above(folder, 0)
    return f"{where}.{_manifest.FILE_NAME}", files


def _bindable(path: str, name: str) -> None:
    """Raises CheckpointError for a file or folder whose checkpoint would never verify."""
    if os.path.islink(path):
        raise CheckpointError(
            f"{path} is a link, to {os.path.realpath(path)}: a checkpoint's files lie in its folder, so that they stay "
            "as they are. Bind what it leads to, or put a copy there"
        )
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise CheckpointError(f"{path} is no file: a checkpoint holds files and folders")
    if not _manifest._within(name):
        raise CheckpointError(f"{path!r}: the names of a checkpoint's files are printable, without a backslash")
    if _manifest.is_ours(name):
        raise CheckpointError(f"{path}: the name is one of Headrace's own; call it otherwise")


def manifest_of(
    cut: dict[str, Any], step: int, files: list[dict[str, Any]], state: Any = None, needs: list[str] | None = None
) -> dict[str, Any]:
    """A manifest's fields, without its checksum. needs: cuts of the checkpoints without
    which this one cannot be loaded."""
    fields: dict[str, Any] = {
        "format": _manifest.FORMAT,
        "version": _manifest.VERSION,
        "job": cut["job"],
        "model": cut["model"],
        "step": step,
        "world_size": cut["world_size"],
        "created": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "writer": f"headrace-python {__version__}",
        "files": files,
        "cut": cut,
    }
    if cut["model"] == "private":
        fields["rank"] = cut["rank"]
    if state is not None:
        fields["state"] = state
    if needs:
        fields["needs"] = needs
    return fields


def seal(fields: dict[str, Any]) -> bytes:
    """Returns the bytes of a manifest or a part: JSON that ends in its own checksum."""
    body = json.dumps(fields, separators=(",", ":"), allow_nan=False).encode()[:-1]
    sealed = body + b',"crc64nvme":"%016x"}\n' % _manifest.crc64(body)
    if len(sealed) > _manifest.MAX_BYTES:
        most = _manifest.MAX_BYTES
        raise CheckpointError(f"a manifest of {len(sealed)} bytes, at most {most}: save large values as arrays")
    return sealed


def prepare(path: str, cut: str, fields: dict[str, Any]) -> str:
    """Writes a manifest or a part beside its place, durably, and returns the path. First it
    makes the names of the other files in the folder durable."""
    folder, base = os.path.split(path)
    temp = os.path.join(folder, f".{base}.{cut}.tmp")
    sealed = seal(fields)
    with room(path, len(sealed)), _or_gone(temp):
        sync(folder)
        with open(temp, "wb") as file:
            file.write(sealed)
            file.flush()
            os.fsync(file.fileno())
    return temp


def publish(temp: str, path: str) -> None:
    """Renames the manifest to its place, which makes the checkpoint count, and makes the
    rename durable. Raises CheckpointError if the folder cannot be synced. Then the checkpoint
    counts for everybody who finds it, but a power failure may remove it, so it must not be
    bound."""
    with room(path, os.path.getsize(temp)), _or_gone(temp):
        os.rename(temp, path)
    folder = os.path.dirname(path)
    try:
        sync(folder)
    except OSError as error:
        raise CheckpointError(
            f"{path} is there, but {folder} could not be synced: {error.strerror or error}. A power failure may take "
            "it away, so it is not bound: save, or bind, again"
        ) from error


@contextlib.contextmanager
def _or_gone(temp: str) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temp)
        raise
