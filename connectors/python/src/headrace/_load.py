"""Reading a checkpoint's state without training: to serve a model, or to look at it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from . import _basis, _files, _manifest, _restore
from ._errors import CheckpointError
from ._manifest import Manifest


def load(path: str | os.PathLike[str], *, only: Iterable[str] | None = None, rank: int = 0) -> Any:
    """The state in a checkpoint, for a program that does not train: to serve or to look at a
    model. It needs no agent, and changes nothing at the job.

    path: a checkpoint's folder. only: of the places that files= had named, read only these.
    Parts of the state without a file of their own are always read. The files of the others
    need not be there. rank: of a sharded checkpoint, the part of this rank. Size and checksum
    of each file that is read are compared.

    Raises CheckpointError. Its pickled objects are not loaded.
    """
    where = os.fspath(path)
    if "://" in where:
        raise CheckpointError(f"{where}: load() reads folders: copy the checkpoint from its bucket first")
    manifest = _manifest.load(os.path.join(os.path.abspath(where), _manifest.FILE_NAME))
    state = _basis.state_of(manifest, rank)
    if not state:
        raise CheckpointError(
            f"{manifest.path}: it holds no state of rank {rank}: a framework wrote it, or fewer ranks"
        )
    files = _files.of_state(state, manifest.files, manifest.path)
    left_out = set(files) - set(_files.wanted(files, only, manifest.path))
    base = _basis.base_of(manifest, rank)
    fault = _fault(manifest, rank, left_out)
    if fault is None and base is not None:
        fault = _fault(base, rank, left_out)
    if fault is not None:
        raise CheckpointError(fault)
    return _restore._load(manifest, rank, only)


def _fault(manifest: Manifest, rank: int, left_out: set[str]) -> str | None:
    """None: the files of this rank are as they were written. left_out: places whose files are not read."""
    state = _basis.state_of(manifest, rank)
    files = _files.of_state(state, manifest.files, manifest.path)
    names = {name for place, name in files.items() if place not in left_out}
    names |= set((state.get("pickles") or {}).values())
    read = [f for f in manifest.files if f["path"] in names]
    return _manifest.verify(Manifest(manifest.path, {**manifest.fields, "files": read}))
