"""Which checkpoints go when a new one is there."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import time
from typing import TYPE_CHECKING

from . import _cuts, _manifest, _remove
from ._bucket import Bucket
from ._errors import HeadraceError
from ._manifest import Manifest

if TYPE_CHECKING:
    from ._trainer import Trainer

log = logging.getLogger("headrace")

_CLOCK = time.time() - time.monotonic()  # what the wall clock is ahead by


def retain(trainer: Trainer, directory: str | Bucket, keep: int, newest: str, patience: float) -> None:
    """Keeps the `keep` newest checkpoints that this rank saves, and removes older
    ones: unbound at the master first, then the manifest, then the data. What went
    wrong is logged: the checkpoint at `newest` is as good as ever."""
    try:
        for old in removable(own(trainer, directory), keep, newest):
            _cuts.drop(trainer, old.cut_id, f"retention keeps {keep}")
            directory.remove(old) if isinstance(directory, Bucket) else _remove.remove(old)
            log.info("removed %s: retention keeps %d", old.folder, keep)
        if isinstance(directory, Bucket):
            directory.sweep(newest, 2 * patience)
        else:
            _remove_half(trainer, directory, newest, patience)
    except (OSError, HeadraceError) as error:
        log.warning("%s: an old checkpoint could not be removed: %s", directory, error)


def removable(found: list[Manifest], keep: int, newest: str) -> list[Manifest]:
    """What may go of one rank's checkpoints. The one that was just written stays,
    pinned ones stay, and what any that stays needs.

    One that was frozen before another with the same or a lower step is of a past
    that the job went back behind: its cut was voided then, so it counts for nothing.
    In a shared model it is no such thing: each process of a rank counts its own steps.
    """
    found = sorted(found, key=lambda m: m.frozen, reverse=True)
    stay: list[Manifest] = []
    go: list[Manifest] = []
    kept, floor = 0, 1 << 63
    for m in found:
        alive = m.step < floor or m.fields["model"] == "shared"
        floor = min(floor, m.step)
        kept += alive
        if m.path == newest or m.pinned or (alive and kept <= keep):
            stay.append(m)
        else:
            go.append(m)
    more = True
    while more:
        needed = {cut for m in stay for cut in m.needs}
        found_more = [m for m in go if m.cut_id in needed]
        stay += found_more
        go = [m for m in go if m.cut_id not in needed]
        more = bool(found_more)
    return go


def own(trainer: Trainer, directory: str | Bucket) -> list[Manifest]:
    """Those that a Checkpointer of this rank has written there."""
    rank = trainer.rank if trainer.model == "private" else None
    return [
        m
        for m in _manifest.find(directory)
        if m.fields["job"] == trainer.job
        and m.fields["model"] == trainer.model
        and m.rank == rank
        and m.path == os.path.join(directory, _manifest.folder_name(m.step, rank, m.cut_id), _manifest.FILE_NAME)
    ]


def _remove_half(trainer: Trainer, directory: str, newest: str, patience: float) -> None:
    """Removes what saves have left that were killed: folders without a manifest in
    which nothing has changed for longer than a save may take. A clock that was set
    meanwhile makes nothing old, nor one that is ahead of the file system's: that
    showed the time of `newest` a moment ago."""
    now = min(time.time(), time.monotonic() + _CLOCK, os.stat(newest).st_mtime)
    of_rank = f"-rank-{trainer.rank}-" if trainer.model == "private" else "-"
    for name in os.listdir(directory):
        folder = os.path.join(directory, name)
        if not _manifest.own_folder(folder) or of_rank not in name or folder == os.path.dirname(newest):
            continue
        if trainer.model != "private" and re.search("-rank-", name):
            continue
        with contextlib.suppress(FileNotFoundError, PermissionError):
            names = os.listdir(folder)
            changed = max(os.stat(os.path.join(folder, n)).st_mtime for n in [".", *names])
            if _manifest.FILE_NAME not in names and changed < now - 2 * patience:
                _remove.remove_folder(folder)
                log.info("removed %s: its save did not end", folder)
