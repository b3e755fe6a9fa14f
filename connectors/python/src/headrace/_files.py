"""Parts of a state in files of their own (Checkpointer(files=[...])), and which file an array
lies in. In the tree and in memory an array has the name of its place in the state,
``model.0.weight``; in the file of ``model`` it is ``0.weight``, as the model itself calls it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any

from . import _remove
from ._errors import CheckpointError

END = ".safetensors"


def places(given: Iterable[str]) -> frozenset[str]:
    """The places that Checkpointer(files=...) names. Raises TypeError."""
    all_ = [given] if isinstance(given, str) else list(given)
    if not all(isinstance(place, str) and place for place in all_):
        raise TypeError(f'files={given!r}; it is a list of places in the state, as in files=["model", "optimizer"]')
    return frozenset(all_)


def place_of(name: str, own: Iterable[str]) -> str:
    """The place in whose file an array lies; "": in that of the rest."""
    return max((p for p in own if name.startswith(f"{p}.")), key=len, default="")


def split(arrays: dict[str, Any], own: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The arrays of each file, by its place, as they are called there."""
    files: dict[str, dict[str, Any]] = {place: {} for place in sorted(own)}
    for name, array in arrays.items():
        place = place_of(name, own)
        files.setdefault(place, {})[name[len(place) + 1 :] if place else name] = array
    return files


def names(own: Iterable[str], stem: str) -> dict[str, str]:
    """Returns the names of the files, by place. stem: of the file of the rest."""
    taken = {stem}
    given = {}
    for place in sorted(own):
        plain = re.sub(r"[^A-Za-z0-9_-]", "_", place)[:64]
        name, n = stem.replace("state", plain, 1), 1
        while name in taken:
            name, n = stem.replace("state", f"{plain}-{n}", 1), n + 1
        taken.add(name)
        given[place] = name + END
    return given


def free(given: dict[str, str], folder: str) -> dict[str, str]:
    """Returns `given` with names that no file of the folder has yet."""
    return {place: _remove.free_name(folder, name[: -len(END)], END) for place, name in given.items()}


def of_state(state: dict[str, Any], listed: Iterable[dict[str, Any]], where: str) -> dict[str, str]:
    """The file of each place, by the manifest; the file of "" has the rest. Raises
    CheckpointError if the manifest does not list a file."""
    files = dict(state.get("own") or {})
    if state.get("file") is not None:
        files[""] = state["file"]
    known = {f["path"] for f in listed}
    for name in files.values():
        if name not in known:
            raise CheckpointError(f"{where}: its state names {name!r}, which is not one of its files")
    return files


def wanted(files: dict[str, str], only: Iterable[str] | None, where: str) -> dict[str, str]:
    """The files of the places in `only`, of the places around them, and of the rest. None: all.
    Raises CheckpointError for a place that has no file of its own."""
    if only is None:
        return files
    asked = [only] if isinstance(only, str) else list(only)
    for place in asked:
        if place not in files or not place:
            own = ", ".join(repr(p) for p in sorted(files) if p) or "nothing"
            raise CheckpointError(f"{where}: only={asked!r}: {place!r} has no file of its own; {own} has")
    return {p: name for p, name in files.items() if not p or any(a == p or a.startswith(f"{p}.") for a in asked)}


def beside(node: Any, gone: frozenset[str], at: str = "") -> Any:
    """The tree of a state without the places in `gone`; in a list or tuple None is there."""
    if not isinstance(node, dict):
        return node
    if "dict" in node:
        kept = []
        for key, value in node["dict"]:
            place = join(at, key if isinstance(key, str) else key["int"])
            if place not in gone:
                kept.append([key, beside(value, gone, place)])
        return {"dict": kept}
    for kind in ("list", "tuple"):
        if kind in node:
            below = [(join(at, i), value) for i, value in enumerate(node[kind])]
            return {kind: [{"value": None} if p in gone else beside(value, gone, p) for p, value in below]}
    return node


def join(at: str, key: Any) -> str:
    return f"{at}.{key}" if at else str(key)


def paths(folder: str, files: dict[str, str]) -> list[tuple[str, str]]:
    """Where each file lies, and the prefix that the names of its arrays lack."""
    return [(os.path.join(folder, name), f"{place}." if place else "") for place, name in files.items()]
