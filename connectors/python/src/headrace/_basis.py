"""Reading deltas: the base of each, and its arrays. _delta.py writes them."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

from . import _files, _manifest
from ._bucket import Stored
from ._errors import CheckpointError
from ._manifest import Manifest


def state_of(manifest: Manifest, rank: int) -> dict[str, Any]:
    """The manifest's entry for the state; of a sharded checkpoint, for that rank's part."""
    state = manifest.fields.get("state")
    if isinstance(state, dict) and isinstance(state.get("shards"), dict):
        state = state["shards"].get(str(rank))
    return state if isinstance(state, dict) else {}


def base_of(manifest: Manifest, rank: int) -> Manifest | None:
    """The base of a delta, or of a rank's part; None if it is whole. Raises CheckpointError."""
    base = state_of(manifest, rank).get("base")
    if base is None:
        return None
    above = os.path.dirname(manifest.folder)
    try:
        cut, folder = base["cut"], base["folder"]
        if folder == os.path.basename(folder) and cut in manifest.needs:
            path = os.path.join(above, folder, _manifest.FILE_NAME)
            found = manifest.bucket.load(path) if isinstance(manifest, Stored) else _manifest.load(path)
            if found.cut_id == cut and not state_of(found, rank).get("base"):
                return found
    except (KeyError, TypeError, OSError, CheckpointError):
        pass
    name = repr(base.get("folder") if isinstance(base, dict) else base)
    raise CheckpointError(
        f"{manifest.path}: it holds what changed since {name}, and that is no checkpoint in {above}: "
        "a delta is restored from its base, so copy both"
    )


def bases_of(manifest: Manifest) -> list[Manifest]:
    """The bases of all parts. Raises CheckpointError."""
    state = manifest.fields.get("state")
    shards = state.get("shards") if isinstance(state, dict) else None
    ranks = [int(rank) for rank in shards] if isinstance(shards, dict) else [0]
    bases = [base for rank in ranks if (base := base_of(manifest, rank)) is not None]
    return list({base.cut_id: base for base in bases}.values())


def arrays_of(base: Manifest, rank: int) -> Callable[[str, str], Any]:
    """Gives an array of a base by its name, as of "numpy" or "torch"."""
    files = _files.of_state(state_of(base, rank), base.files, base.path)
    folder = base.bucket.fetch(base, rank) if isinstance(base, Stored) else base.folder
    library = importlib.import_module("safetensors")

    def array(key: str, of: str) -> Any:
        place = _files.place_of(key, [p for p in files if p])
        path = os.path.join(folder, files[place])
        with library.safe_open(path, framework="pt" if of == "torch" else "np") as file:
            return file.get_tensor(key[len(place) + 1 :] if place else key)

    return array
