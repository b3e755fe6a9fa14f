"""From memory to storage: the agent writes or uploads a checkpoint, rank 0 its manifest."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from . import _cuts, _manifest, _parts, _retain, _writing
from ._bucket import Bucket
from ._cuts import Cut
from ._errors import CheckpointError, HeadraceError
from ._flash import Pinned, about_of
from ._staged import Staged
from ._state import Captured

if TYPE_CHECKING:
    from ._checkpoint import Checkpointer

log = logging.getLogger("headrace")


def persist(ck: Checkpointer, pinned: Pinned) -> str:
    """Writes a checkpoint from memory to storage. Gives its folder."""
    deadline = time.monotonic() + ck._timeout
    cut = pinned.cut
    ck._trainer.to_storage.add(cut.id)
    folder = os.path.join(ck.dir, _manifest.folder_name(cut.step, cut.body.get("rank"), cut.id))
    if ck._trainer.model == "replicated" and ck._trainer.rank != 0 and not ck._sharded:
        await_newer(ck, folder, cut, deadline)
        return folder
    if not ck._deltas.names:
        _write(ck, cut, folder, pinned, deadline)
        return folder
    # A step that was saved before has its checkpoint, which others may be based on.
    again = ck._has(os.path.join(folder, _manifest.FILE_NAME))
    arrays = pinned.arrays()
    with _delta_of(ck, pinned, arrays) as delta:
        written = _write(ck, cut, folder, delta or pinned, deadline) and not again
        if written:
            ck._deltas.stored(cut.id, cut.step, pinned.tree, arrays, folder, whole=delta is None)
    return folder


def _write(ck: Checkpointer, cut: Cut, folder: str, source: Pinned, deadline: float) -> bool:
    """Writes what lies in a slot. False: a part of it was there already."""
    path = os.path.join(folder, _manifest.FILE_NAME)
    if isinstance(ck._at, Bucket):
        return upload(ck, cut, path, source.path, deadline)
    if ck._sharded or os.path.lexists(path) or not ck._by_agent(source, deadline):
        return _writing.write(ck, cut, folder, source, deadline)
    ck._reached("renamed")
    _cuts.bind(ck._trainer, cut.id, path, max(deadline, time.monotonic() + _cuts.CALL_SECONDS))
    ck._reached("bound")
    _retain.retain(ck._trainer, ck.dir, ck.keep, path, ck._timeout)
    return True


@contextlib.contextmanager
def _delta_of(ck: Checkpointer, pinned: Pinned, arrays: dict[str, Any]) -> Iterator[Pinned | None]:
    """A slot with what has changed in the arrays since their base. None: all of them are to
    be written."""
    assert ck._flash is not None
    rank, cut = ck._trainer.rank, pinned.cut
    captured = ck._deltas.of_copy(cut.id, cut.step, pinned.tree, arrays)
    if captured is None:
        yield None
        return
    try:
        staged = Staged(ck._flash.folder, ck.dir, rank, captured)
    except CheckpointError as error:
        log.warning("the checkpoint of step %d is written whole: %s", cut.step, error)
        yield None
        return
    del captured
    try:
        about = about_of(ck.dir, rank, cut, cut.step, shard=ck._sharded, base=staged.base, own=ck._own)
        slot = staged.complete(about, cut)
        ck._reached("staged")
        delta = Pinned(slot, cut.id)
        try:
            yield delta
        finally:
            delta.close()
    finally:
        staged.drop()


def upload(ck: Checkpointer, cut: Cut, path: str, slot: str, deadline: float) -> bool:
    """The agent uploads what lies in a slot. False: a sharded one was there already."""
    if ck._sharded and ck._has(path):
        _writing.bind_again(ck, cut, path, deadline)
        return False
    why = _cuts.persist(ck._trainer, cut.id, slot, deadline)
    if why:
        raise CheckpointError(f"{path} was not written: {why}")
    if ck._sharded:
        ck._reached("part")
        if ck._trainer.rank != 0:
            _parts.await_manifest(ck, os.path.dirname(path), cut.step, deadline)
            return True
        gather(ck, cut, path, slot, deadline)
    ck._reached("renamed")
    _cuts.bind(ck._trainer, cut.id, path, max(deadline, time.monotonic() + _cuts.CALL_SECONDS))
    ck._reached("bound")
    _retain.retain(ck._trainer, ck._at, ck.keep, path, ck._timeout)
    return True


def gather(ck: Checkpointer, cut: Cut, path: str, slot: str, deadline: float) -> None:
    """Rank 0's agent writes the manifest in a bucket when all parts are there. Raises
    CheckpointError at the deadline."""
    missing = ""
    for _ in _parts.looks(ck, deadline):
        missing = _cuts.gather(ck._trainer, cut.id, slot, max(deadline, time.monotonic() + _cuts.CALL_SECONDS))
        if not missing:
            return
    raise CheckpointError(
        f"{path}: {missing}, after {ck._timeout:.0f} s: every rank saves each sharded checkpoint, into the same bucket"
    )


def write(ck: Checkpointer, cut: Cut, folder: str, captured: Captured | Staged, deadline: float) -> bool:
    """Writes what was captured. False: it was there already, and stays as it was."""
    if isinstance(captured, Staged):
        return _write_staged(ck, cut, folder, captured, deadline)
    return _writing.write(ck, cut, folder, captured, deadline)


def _write_staged(ck: Checkpointer, cut: Cut, folder: str, staged: Staged, deadline: float) -> bool:
    path = os.path.join(folder, _manifest.FILE_NAME)
    try:
        ck._deltas.based(staged.base)
        again = bool(ck._deltas.names) and ck._has(path)
        rank = ck._trainer.rank
        about = about_of(ck.dir, rank, cut, cut.step, shard=ck._sharded, base=staged.base, own=ck._own)
        slot = staged.complete(about, cut)
        ck._reached("sealed")
        return upload(ck, cut, path, slot, deadline) and not again
    except CheckpointError as error:
        mine = ck._trainer.rank == 0 or not ck._sharded
        if mine and not ck._trainer.to_storage.bound(cut.id):  # else another Checkpointer has saved this step
            with contextlib.suppress(HeadraceError):
                _cuts.drop(ck._trainer, cut.id, f"its save failed: {error}")
        raise
    finally:
        staged.drop()


def await_newer(ck: Checkpointer, folder: str, cut: Cut, deadline: float) -> None:
    """Waits until rank 0 has written this checkpoint, or a newer one, to storage."""
    path = os.path.join(folder, _manifest.FILE_NAME)
    for _ in _parts.looks(ck, deadline):
        if ck._has(path) or _manifest.highest_order(ck._at) >= int(cut.body["order"]):
            return
    raise CheckpointError(f"{path}: rank 0 wrote neither it nor a newer one within {ck._timeout:.0f} s")
