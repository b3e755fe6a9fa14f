"""A checkpoint that several ranks write, or wait for: each publishes its part, rank 0
gathers them into the manifest."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from . import _manifest, _publish, _restore, _state
from ._bucket import Bucket
from ._cuts import Cut
from ._errors import CheckpointError

if TYPE_CHECKING:
    from ._checkpoint import Checkpointer

_LOOK = 0.02  # seconds between two looks for what other ranks write, growing
_LOOK_MOST = 0.5
_LOOK_BUCKET = 2.0  # of a bucket, where each look is a request


def publish(ck: Checkpointer, folder: str, step: int, cut: Cut, files: list[dict[str, Any]], state: Any) -> None:
    rank = ck._trainer.rank
    path = os.path.join(folder, _manifest.part_name(rank))
    fields = {
        "format": _manifest.PART_FORMAT,
        "version": _manifest.VERSION,
        "cut": cut.id,
        "step": step,
        "rank": rank,
        "world_size": cut.body["world_size"],
        "files": files,
        "state": state,
    }
    _publish.publish(_publish.prepare(path, cut.id, fields), path)
    ck._reached("part")


def gather(ck: Checkpointer, folder: str, cut: Cut, deadline: float) -> tuple[list[dict[str, Any]], Any]:
    """All ranks' files and states. Raises CheckpointError at the deadline."""
    world = int(cut.body["world_size"])
    missing = list(range(world))
    parts: dict[int, dict[str, Any]] = {}
    for _ in looks(ck, deadline):
        for rank in list(missing):
            try:
                part = _manifest.load_part(os.path.join(folder, _manifest.part_name(rank)))
            except FileNotFoundError:
                continue
            if part["cut"] == cut.id and part["rank"] == rank and part["world_size"] == world:
                parts[rank] = part
                missing.remove(rank)
        if not missing:
            files = [dict(f, rank=rank) for rank in range(world) for f in parts[rank]["files"] or ()]
            shards = {str(rank): parts[rank].get("state") for rank in range(world)}
            version = max([int((s or {}).get("version", 0)) for s in shards.values()] + [_state.VERSION])
            return files, {"format": _state.FORMAT, "version": version, "shards": shards}
    raise CheckpointError(
        f"{folder}: no part of rank{'s' * (len(missing) > 1)} {', '.join(map(str, missing))} came within "
        f"{ck._timeout:.0f} s: every rank saves each sharded checkpoint, and sees the same folder"
    )


def await_manifest(ck: Checkpointer, folder: str, step: int, deadline: float) -> None:
    path = os.path.join(folder, _manifest.FILE_NAME)
    for _ in looks(ck, deadline):
        if ck._has(path):
            _restore.load(ck._at, path)
            return
    raise CheckpointError(
        f"{path}: rank 0 did not write it within {ck._timeout:.0f} s: its save of step {step} failed, or this "
        "rank does not see its folder"
    )


def looks(ck: Checkpointer, deadline: float) -> Iterator[None]:
    """Yields now and then until the deadline. Raises what ends this process's part."""
    pause = _LOOK
    while True:
        ck._trainer.check()
        yield
        if time.monotonic() > deadline:
            return
        time.sleep(min(pause, max(0.0, deadline - time.monotonic())))
        pause = min(2 * pause, _LOOK_BUCKET if isinstance(ck._at, Bucket) else _LOOK_MOST)
