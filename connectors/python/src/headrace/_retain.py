"""Which checkpoints are removed when a new one is complete."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from . import _cuts, _manifest, _remove
from ._bucket import Bucket, Stored
from ._errors import CheckpointError, Fenced, HeadraceError
from ._manifest import Manifest

if TYPE_CHECKING:
    from ._trainer import Trainer

log = logging.getLogger("headrace")

_CLOCK = time.time() - time.monotonic()  # what the wall clock is ahead by


def retain(trainer: Trainer, directory: str | Bucket, keep: int, newest: str, patience: float) -> None:
    """Keeps the `keep` newest checkpoints of this rank and removes older ones: first the
    master drops the cut, then the manifest goes, then the data. Errors are only logged,
    because the checkpoint at `newest` is good whatever happens here."""
    try:
        unread: list[Exception] = []
        found = own(trainer, directory, unread)
        for old in removable(found, keep, newest, needed(unread)):
            with trainer.removing:
                drop(trainer, old, f"retention keeps {keep}", shared=_shared(trainer, old, directory))
                directory.remove(old) if isinstance(directory, Bucket) else _remove.remove(old)
            log.info("removed %s: retention keeps %d", old.folder, keep)
        if isinstance(directory, Bucket):
            directory.sweep(newest, 2 * patience)
        else:
            _remove_half(trainer, directory, newest, patience)
    except (OSError, HeadraceError) as error:
        log.warning("%s: an old checkpoint could not be removed: %s", directory, error)


def _shared(trainer: Trainer, old: Manifest, directory: str | Bucket) -> bool:
    """Whether another Checkpointer of this process has a checkpoint with the same cut: in a replicated
    model a step has one cut, whoever saves it."""
    if trainer.model != "replicated":
        return False
    name, own_ = os.path.basename(old.folder), os.fspath(directory)
    others = [(other, has) for other, has in trainer.folders.items() if other != own_]
    return any(has(os.path.join(other, name, _manifest.FILE_NAME)) for other, has in others)


def drop(trainer: Trainer, old: Manifest, reason: str, shared: bool = False) -> None:
    """Makes the master drop the cut of a checkpoint that is removed next; shared: another
    checkpoint needs the cut, so the master keeps it. Raises CheckpointError if somebody has
    pinned the checkpoint since it was found. While the master's answer is unknown, nobody can
    pin it."""
    on = old.bucket if isinstance(old, Stored) else _remove
    on.begin(old)
    if shared:
        return
    try:
        _cuts.drop(trainer, old.cut_id, reason)
    except (_cuts.Refused, Fenced):
        on.cancel(old)
        raise


def needed(unread: list[Exception]) -> list[str]:
    """Returns the cuts that checkpoints need which cannot be read (_manifest.find). Raises
    CheckpointError if it cannot be said what one of them needs: it may be good, and it may
    need any other one."""
    cuts: list[str] = []
    for error in unread:
        needs = error.needs if isinstance(error, _manifest.Newer) else None
        if needs is None:
            raise CheckpointError(f"it may be needed by a checkpoint that cannot be read now: {error}") from error
        cuts += needs
    return cuts


def removable(found: list[Manifest], keep: int, newest: str, others: Iterable[str] = ()) -> list[Manifest]:
    """Returns those of one rank's checkpoints that may be removed. These stay: the `keep`
    newest, the one that was just written, pinned ones, and those that one of these needs.
    others: cuts that other checkpoints need.

    Only checkpoints of the present run count for `keep`. Example: steps 100, 200 and 300 are
    saved, the job goes back to step 100 and saves step 200 again. The earlier 200 and the 300
    were voided then. They are found by their order: another one with the same or a lower
    step was frozen later. In a shared model steps say nothing of this, because each process
    of a rank counts its own.
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
        wanted = {*others, *(cut for m in stay for cut in m.needs)}
        found_more = [m for m in go if m.cut_id in wanted]
        stay += found_more
        go = [m for m in go if m.cut_id not in wanted]
        more = bool(found_more)
    return go


def own(trainer: Trainer, directory: str | Bucket, unread: list[Exception] | None = None) -> list[Manifest]:
    """Returns the checkpoints there that a Checkpointer of this rank has written. unread: as in
    _manifest.find."""
    rank = trainer.rank if trainer.model == "private" else None
    return [
        m
        for m in _manifest.find(directory, unread=unread)
        if m.fields["job"] == trainer.job
        and m.fields["model"] == trainer.model
        and m.rank == rank
        and m.path == os.path.join(directory, _manifest.folder_name(m.step, rank, m.cut_id), _manifest.FILE_NAME)
    ]


def _remove_half(trainer: Trainer, directory: str, newest: str, patience: float) -> None:
    """Removes leftovers of killed saves: folders without a manifest in which nothing has
    changed for longer than a save may take.

    The age must be right whatever the clocks show. So "now" is the earliest of three times:
    the wall clock, the wall clock of the start plus the time passed since, and the time that
    the file system gave to `newest` a moment ago."""
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
