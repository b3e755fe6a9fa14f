"""Objects that are not arrays, pickled to files of their own (Checkpointer(pickle=...)).

Unpickling may run any code. So restore() never unpickles: it returns a Pickled in the
object's place, and only Pickled.load() unpickles.
"""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from . import _manifest, _publish, _remove
from ._durable import room
from ._errors import CheckpointError

END = ".pickle"


@dataclass(frozen=True)
class Pickled:
    """An object of a restored state that is not loaded yet.

    path: its file in the checkpoint. It is removed together with the checkpoint.
    """

    place: str  # in the state: "model", or "models.0"
    path: str
    size: int
    crc64nvme: str

    def load(self) -> Any:
        """Unpickles the object. That may run any code, so load only checkpoints that nobody
        else could write to. Raises CheckpointError if the file is not the one that was saved.
        Exceptions of unpickling are passed on."""
        try:
            with open(self.path, "rb") as file:
                data = file.read()
        except OSError as error:
            raise CheckpointError(f"{self.path}: {error.strerror or error}") from error
        if len(data) != self.size or f"{_manifest.crc64(data):016x}" != self.crc64nvme:
            raise CheckpointError(f"{self.path} is not the file that was saved: it has another size or checksum")
        return pickle.loads(data)


def names(given: Iterable[str]) -> frozenset[str]:
    """The places that Checkpointer(pickle=...) names. Raises TypeError."""
    places = [given] if isinstance(given, str) else list(given)
    if not all(isinstance(place, str) and place for place in places):
        raise TypeError(f'pickle={given!r}; it is a list of places in the state, as in pickle=["model"]')
    return frozenset(places)


def dumps(value: Any, place: str) -> bytes:
    """Raises TypeError that names the place."""
    try:
        return pickle.dumps(value, protocol=4)
    except Exception as error:
        raise TypeError(f"state {place!r} is a {type(value).__qualname__}, which cannot be pickled: {error}") from error


def write(pickles: dict[str, bytes], folder: str, stem: str) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Writes one file for each object, durably. Returns the files' entries for the manifest,
    and the file of each place."""
    entries, where = [], {}
    for place, data in pickles.items():
        name = _remove.free_name(folder, f"{stem}-{re.sub(r'[^A-Za-z0-9_-]', '_', place)[:64]}", END)
        path = os.path.join(folder, name)
        with room(path, len(data)), open(path, "xb") as file:
            file.write(data)
        entries.append(_publish.describe(folder, name))
        where[place] = name
    return entries, where


def found(where: Any, folder: str, files: Iterable[dict[str, Any]]) -> dict[str, Pickled]:
    """Returns the pickled objects of a manifest by their place. Raises CheckpointError."""
    by_name = {str(f["path"]): f for f in files}
    all_: dict[str, Pickled] = {}
    for place, name in dict(where or {}).items():
        if name not in by_name:
            raise CheckpointError(f"{folder}: its state names {name!r}, which is not one of its files")
        file = by_name[name]
        all_[place] = Pickled(place, os.path.join(folder, name), int(file["size"]), str(file["crc64nvme"]))
    return all_
