"""Writing a checkpoint into a folder: the files, then the manifest."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from . import _cuts, _durable, _files, _manifest, _parts, _pickled, _publish, _remove, _retain, _state
from ._bucket import Bucket
from ._cuts import Cut
from ._errors import CheckpointError, Fenced, HeadraceError
from ._flash import Pinned

if TYPE_CHECKING:
    from ._checkpoint import Checkpointer

log = logging.getLogger("headrace")


def write(ck: Checkpointer, cut: Cut, folder: str, captured: _state.Captured | Pinned, deadline: float) -> bool:
    """False: it was there already, and stays as it was."""
    path = os.path.join(folder, _manifest.FILE_NAME)
    rank = ck._trainer.rank
    # A replicated step that is saved again has the same cut, and so the same folder.
    again = os.path.lexists(path)
    if again and ck._sharded:
        bind_again(ck, cut, path, deadline)
        return False
    name = _remove.free_name(folder, f"state-rank-{rank}" if ck._sharded else "state", ".safetensors")
    try:
        _durable.make_folder(folder)
        files, state = write_state(ck, folder, name, cut.step, captured)
        ck._reached("files")
        if ck._sharded:
            _parts.publish(ck, folder, cut.step, cut, files, state)
            if rank != 0:
                _parts.await_manifest(ck, folder, cut.step, deadline)
                return True
            files, state = _parts.gather(ck, folder, cut, deadline)
        needs = sorted({s["base"]["cut"] for s in state.get("shards", {"": state}).values() if (s or {}).get("base")})
        temp = _publish.prepare(path, cut.id, _publish.manifest_of(cut.body, cut.step, files, state, needs))
        ck._reached("manifest")
        if time.monotonic() > deadline:
            raise CheckpointError(f"the save of step {cut.step} took longer than {ck._timeout:.0f} s")
        ck._trainer.check()
        _publish.publish(temp, path)
    except BaseException as error:
        if again:
            _remove.remove_unlisted(path, os.listdir(folder))
        else:
            give_up(ck, cut, folder, path, error, drop=not isinstance(captured, Pinned))
        raise
    ck._reached("renamed")
    # From here on the checkpoint counts, whatever happens to us.
    if again:
        _remove.remove_unlisted(path, os.listdir(folder))
    _cuts.bind(ck._trainer, cut.id, path, max(deadline, time.monotonic() + _cuts.CALL_SECONDS))
    ck._reached("bound")
    _retain.retain(ck._trainer, ck.dir, ck.keep, path, ck._timeout)
    return True


def bind_again(ck: Checkpointer, cut: Cut, path: str, deadline: float) -> None:
    """Binds a sharded checkpoint that is there already. It is not written again: each rank's
    part is its state at that step."""
    log.info("%s is there already: a step is not saved twice", path)
    if not isinstance(ck._at, Bucket):
        _durable.sync(os.path.dirname(path))
    if ck._trainer.rank == 0:
        _cuts.bind(ck._trainer, cut.id, path, max(deadline, time.monotonic() + _cuts.CALL_SECONDS))


def write_state(
    ck: Checkpointer, folder: str, name: str, step: int, captured: _state.Captured | Pinned
) -> tuple[list[dict[str, Any]], Any]:
    """Writes the arrays; gives the manifest's files and state."""
    if isinstance(captured, Pinned) and not captured.state.get("own"):
        return [captured.write(os.path.join(folder, name))], {**captured.state, "file": name}
    if isinstance(captured, Pinned):
        return _write_arrays(folder, name, step, captured.arrays(), captured.state["own"], dict(captured.state))
    state: dict[str, Any] = {"format": _state.FORMAT, "version": _state.VERSION, "tree": captured.tree}
    files: list[dict[str, Any]] = []
    if captured.pickles:
        files, places = _pickled.write(captured.pickles, folder, os.path.splitext(name)[0])
        state.update(version=_state.PICKLES, pickles=places)
    if captured.base is not None:
        state.update(version=_state.DELTAS, base=captured.base._asdict())
    if captured.own:
        state["version"] = _state.FILES
    written, state = _write_arrays(folder, name, step, captured.arrays, captured.own, state)
    return [*written, *files], state


def _write_arrays(
    folder: str, name: str, step: int, arrays: dict[str, Any], own: Iterable[str], state: dict[str, Any]
) -> tuple[list[dict[str, Any]], Any]:
    """Writes arrays, those of the places in `own` to files of their own. name: of the file of
    the rest. Gives the manifest's files, and the state with their names."""
    stem = os.path.splitext(name)[0]
    names = _files.free(_files.names(own, stem), folder)
    if names:
        state["own"] = names
    files = []
    for place, part in _files.split(arrays, own).items():
        if not part and not place:
            continue
        at = names.get(place, name)
        _state.write(part, os.path.join(folder, at), {"step": str(step)})
        files.append(_publish.describe(folder, at))
        if not place:
            state["file"] = at
    return files, state


def give_up(ck: Checkpointer, cut: Cut, folder: str, path: str, error: BaseException, drop: bool) -> None:
    """Ends a save attempt: no manifest will come. Parts of other ranks may stay. drop: the
    cut is dropped too, because no other checkpoint has it."""
    if os.path.exists(path):
        return  # the rename was done: it counts
    try:
        if not ck._sharded:
            _remove.remove_folder(folder)
    except OSError as more:
        log.warning("%s: what is left of a save that failed: %s", folder, more)
    try:
        mine = drop and (ck._trainer.rank == 0 or not ck._sharded)
        # If the cut is bound, another Checkpointer has saved this step.
        if mine and not isinstance(error, Fenced) and not ck._trainer.to_storage.bound(cut.id):
            _cuts.drop(ck._trainer, cut.id, f"its save failed: {error}")
    except HeadraceError as more:
        log.warning("the cut of a save that failed was not dropped: %s", more)
