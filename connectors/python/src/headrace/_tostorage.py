"""From memory to storage: what the agent writes or uploads, and what rank 0 does."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from . import _cuts, _manifest, _parts, _retain, _writing
from ._bucket import Bucket, Staged
from ._cuts import Cut
from ._errors import CheckpointError, HeadraceError
from ._flash import Pinned, about_of

if TYPE_CHECKING:
    from ._checkpoint import Checkpointer


def persist(ck: Checkpointer, pinned: Pinned) -> str:
    """Writes a checkpoint from memory to storage. Gives its folder."""
    deadline = time.monotonic() + ck._timeout
    cut = pinned.cut
    folder = os.path.join(ck.dir, _manifest.folder_name(cut.step, cut.body.get("rank"), cut.id))
    if ck._sharded:
        _writing.write(ck, cut, folder, pinned, deadline)
        return folder
    if ck._trainer.model == "replicated" and ck._trainer.rank != 0:
        await_newer(ck, folder, cut, deadline)
        return folder
    path = os.path.join(folder, _manifest.FILE_NAME)
    if isinstance(ck._at, Bucket):
        upload(ck, cut, path, pinned.path, deadline)
        return folder
    if os.path.lexists(path) or not ck._by_agent(pinned, deadline):
        _writing.write(ck, cut, folder, pinned, deadline)
        return folder
    ck._reached("renamed")
    _cuts.bind(ck._trainer, cut.id, path, max(deadline, time.monotonic() + _cuts.CALL_SECONDS))
    ck._reached("bound")
    _retain.retain(ck._trainer, ck.dir, ck.keep, path, ck._timeout)
    return folder


def upload(ck: Checkpointer, cut: Cut, path: str, slot: str, deadline: float) -> None:
    """The agent uploads what lies in a slot."""
    why = _cuts.persist(ck._trainer, cut.id, slot, deadline)
    if why:
        raise CheckpointError(f"{path} was not written: {why}")
    ck._reached("renamed")
    _cuts.bind(ck._trainer, cut.id, path, max(deadline, time.monotonic() + _cuts.CALL_SECONDS))
    ck._reached("bound")
    _retain.retain(ck._trainer, ck._at, ck.keep, path, ck._timeout)


def write_staged(ck: Checkpointer, cut: Cut, folder: str, staged: Staged, deadline: float) -> None:
    path = os.path.join(folder, _manifest.FILE_NAME)
    try:
        slot = staged.complete(about_of(ck.dir, ck._trainer.rank, cut, cut.step), cut)
        ck._reached("sealed")
        upload(ck, cut, path, slot, deadline)
    except CheckpointError as error:
        with contextlib.suppress(HeadraceError):
            _cuts.drop(ck._trainer, cut.id, f"its save failed: {error}")
        raise
    finally:
        staged.drop()


def await_newer(ck: Checkpointer, folder: str, cut: Cut, deadline: float) -> None:
    """Until rank 0 has written this checkpoint to storage, or a newer one."""
    path = os.path.join(folder, _manifest.FILE_NAME)
    for _ in _parts.looks(ck, deadline):
        if ck._has(path) or _manifest.highest_order(ck._at) >= int(cut.body["order"]):
            return
    raise CheckpointError(f"{path}: rank 0 wrote neither it nor a newer one within {ck._timeout:.0f} s")
