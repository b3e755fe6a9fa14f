"""Checkpoints that TensorFlow writes under a prefix, each with its manifest.

    model.ckpt-200.index, model.ckpt-200.data-00000-of-00001, model.ckpt-200.meta
    model.ckpt-200.headrace-manifest.json

TensorFlow's own list of checkpoints (the file `checkpoint`) names only those that have
a manifest, so everything that reads it, such as an evaluator, sees no other.
"""

from __future__ import annotations

import contextlib
import glob
import logging
import os

import tensorflow as tf
from headrace import _durable, _manifest, _remove, _restore, _retain
from headrace._errors import CheckpointError, HeadraceError
from headrace._manifest import Manifest
from headrace._trainer import Trainer

log = logging.getLogger("headrace")

NAME = "model.ckpt"
_END = f".{_manifest.FILE_NAME}"


def files_of(prefix: str) -> list[str]:
    """The files that TensorFlow has written under a prefix."""
    ends = (".index", ".meta", ".data-*")
    return sorted(path for end in ends for path in glob.glob(glob.escape(prefix) + end))


def prefix_of(manifest: Manifest) -> str:
    return manifest.path[: -len(_END)]


def bound(trainer: Trainer, folder: str) -> list[Manifest]:
    """The checkpoints of this job in the folder that have a manifest, newest first."""
    return [
        m
        for m in _restore._candidates(trainer, folder)
        if os.path.dirname(m.path) == folder and os.path.basename(m.path).startswith(NAME + "-")
    ]


def tell_tensorflow(trainer: Trainer, folder: str, newest: str | None = None) -> None:
    """Writes the bound checkpoints into TensorFlow's list. newest: the checkpoint that was
    restored, if it is not the newest one; those after it are left out."""
    prefixes = [prefix_of(m) for m in reversed(bound(trainer, folder))]
    if newest is not None and newest in prefixes:
        prefixes = prefixes[: prefixes.index(newest) + 1]
    if prefixes:
        tf.compat.v1.train.update_checkpoint_state(folder, prefixes[-1], prefixes)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, "checkpoint"))


def warn_of_unbound(trainer: Trainer, folder: str) -> None:
    """Warns of checkpoints that have no manifest: they are not loaded."""
    known = {prefix_of(m) for m in bound(trainer, folder)}
    for index in sorted(glob.glob(os.path.join(glob.escape(folder), NAME + "-*.index"))):
        prefix = index[: -len(".index")]
        if prefix not in known:
            log.warning(
                "%s is not loaded: it has no list of its records. Either the process was killed before its save had "
                "ended, or it was saved without Headrace: then give its weights with warm_start_from", prefix
            )  # fmt: skip


def make_room(prefix: str, newest: int) -> None:
    """Removes a manifest that lies under a prefix, before TensorFlow writes there. After a
    restart from an older checkpoint, later ones may still lie there. newest: the step of the
    newest checkpoint's manifest. It is an error to overwrite that one, because a kill
    meanwhile would leave no checkpoint.
    """
    try:
        step = _manifest.load(prefix + _END).step
    except FileNotFoundError:
        return
    except CheckpointError:
        step = -1  # damaged: it does not count
    if step == newest:
        raise ValueError(f"{prefix} is the newest checkpoint: each run of train_op must add 1 to the global step")
    os.unlink(prefix + _END)
    _durable.sync(os.path.dirname(prefix))


def retain(trainer: Trainer, folder: str, keep: int) -> None:
    """Keeps the `keep` newest checkpoints and pinned ones, and removes the others: unbound
    at the master first, then the manifest, then TensorFlow's files. 0 keeps all."""
    unpinned = [m for m in bound(trainer, folder) if not m.pinned]
    for old in unpinned[keep:] if keep else []:
        try:
            _retain.drop(trainer, old, f"keep_checkpoint_max={keep}")
            _remove.manifest_first(old)
            _remove.cancel(old)
            for path in files_of(prefix_of(old)):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
            log.info("removed %s: keep_checkpoint_max=%d", prefix_of(old), keep)
        except (OSError, HeadraceError) as error:
            log.warning("%s: an old checkpoint could not be removed: %s", old.path, error)


def remove_ours(trainer: Trainer, folder: str) -> None:
    """Removes checkpoints that were saved in memory, and written to storage because their process
    had failed, if TensorFlow has written a newer one."""
    newest = next(iter(bound(trainer, folder)), None)
    for old in _retain.own(trainer, folder):
        if newest is None or old.pinned or old.frozen >= newest.frozen:
            continue
        try:
            _retain.drop(trainer, old, "a newer checkpoint is there")
            _remove.remove(old)
        except (OSError, HeadraceError) as error:
            log.warning("%s: an old checkpoint could not be removed: %s", old.path, error)
