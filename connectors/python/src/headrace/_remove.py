"""Removing a checkpoint, and leftovers of killed saves."""

from __future__ import annotations

import contextlib
import os

from . import _manifest
from ._durable import NO_ROOM, sync
from ._errors import CheckpointError


def begin(manifest: _manifest.Manifest) -> None:
    """Marks a checkpoint as being removed, durably, before its cut is dropped: from then on
    `headrace ckpt pin` refuses. Raises CheckpointError if it is pinned."""
    if not os.path.lexists(manifest.path):
        return  # another trainer has removed it
    try:
        with open(_mark(manifest), "w", encoding="ascii") as f:
            f.write(manifest.cut_id + "\n")
            f.flush()
            os.fsync(f.fileno())
    except OSError as error:  # a removal makes room; a mark that is empty counts
        if error.errno not in NO_ROOM:
            raise
    sync(manifest.folder)
    if manifest.pinned:
        cancel(manifest)
        raise CheckpointError(f"{manifest.path}: it is pinned")


def cancel(manifest: _manifest.Manifest) -> None:
    """Takes the mark of begin() away: the checkpoint stays."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_mark(manifest))


def _mark(manifest: _manifest.Manifest) -> str:
    return manifest.path + ".removing"


def manifest_first(manifest: _manifest.Manifest) -> None:
    """Removes a manifest, durably, so that its checkpoint does not count any more."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(manifest.path)
        sync(manifest.folder)


def remove(manifest: _manifest.Manifest) -> None:
    """Removes a checkpoint in a folder of its own: the manifest first, durably."""
    manifest_first(manifest)
    remove_folder(manifest.folder)


def free_name(folder: str, stem: str, end: str) -> str:
    """A file's name that is free in a folder, so that no file of a manifest is overwritten."""
    name, n = stem + end, 1
    while os.path.lexists(os.path.join(folder, name)):
        name, n = f"{stem}-{n}{end}", n + 1
    return name


def remove_unlisted(path: str, names: list[str]) -> None:
    """Removes the named files beside a manifest, but none that the manifest lists."""
    try:
        listed = {file["path"] for file in _manifest.load(path).files}
    except (OSError, CheckpointError):
        return  # it is not known which files the manifest lists
    for name in names:
        if name not in listed and not _manifest.is_ours(name):
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(os.path.dirname(path), name))


def remove_folder(folder: str) -> None:
    """Removes a checkpoint's own folder with everything in it. Another trainer may do the
    same at the same time: a missing file is no error."""
    for top, folders, files in os.walk(folder, topdown=False):
        for name in files:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(top, name))
        for name in folders:
            path = os.path.join(top, name)
            with contextlib.suppress(FileNotFoundError):
                (os.unlink if os.path.islink(path) else os.rmdir)(path)
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(folder)
        sync(os.path.dirname(folder))
