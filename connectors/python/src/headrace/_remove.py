"""Removing a checkpoint, and leftovers of killed saves."""

from __future__ import annotations

import contextlib
import os

from . import _manifest
from ._durable import sync
from ._errors import CheckpointError


def remove(manifest: _manifest.Manifest) -> None:
    """Removes a checkpoint in a folder of its own: the manifest first, durably."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(manifest.path)
        sync(manifest.folder)
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
