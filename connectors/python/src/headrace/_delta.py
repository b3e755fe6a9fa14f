"""Deltas: saves that hold, of large tables, only the rows that have changed since a base.

The base is a whole checkpoint. A delta holds all rows that were touched since then, so a
restore reads one base and one delta, never a chain. Everything that is no table is whole
in each of them.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable
from typing import Any, Callable

import numpy as np

from . import _manifest, _state
from ._errors import CheckpointError
from ._manifest import Manifest

SAMPLE = 4096  # rows of a table that each delta compares with its base
WORTH = 0.5  # of the tables' bytes: above that a save is whole


class Deltas:
    """Which rows of the tables have changed since the last whole save of this process."""

    def __init__(self, names: Iterable[str], full_every: int, directory: str) -> None:
        places = [names] if isinstance(names, str) else list(names)
        if not all(isinstance(place, str) and place for place in places):
            raise TypeError(f'deltas={names!r}; it is a list of places in the state, as in deltas=["tables.user"]')
        if full_every < 1:
            raise ValueError(f"full_every={full_every}; 10 makes every tenth save a whole one")
        self.names = frozenset(places)
        self._full_every, self._directory = full_every, directory
        self._tables: dict[str, _Table] = {}  # by place; empty: the next save is whole
        self._base: _state.Base | None = None  # None: the save of the base is under way, or there is none
        self._step = 0  # of the base
        self._saves = 0  # since the base, itself included

    def touch(self, name: str, rows: Any) -> None:
        if name not in self.names:
            known = ", ".join(map(repr, sorted(self.names))) or "nothing"
            raise ValueError(f"touch({name!r}): deltas= names {known}")
        if self._tables:
            self._tables[name].touch(name, rows)

    def capture(self, step: int, state: Any, pickles: frozenset[str]) -> _state.Captured:
        """Copies a state: whole, or as a delta. Raises TypeError, and CheckpointError if a row
        has changed that nobody has touched."""
        if self._worth(step):
            assert self._base is not None
            try:
                captured = _state.capture(state, pickles, {n: t.changed for n, t in self._tables.items()})
                self._saves += 1
                return captured._replace(base=self._base)
            except _Grown:
                pass
            except BaseException:
                self.reset()
                raise
        self.reset()
        captured = _state.capture(state, pickles, dict.fromkeys(self.names, _whole))
        self._tables = {place: _Table(name, captured.arrays[name]) for place, name in captured.tables.items()}
        return captured

    def saved(self, captured: _state.Captured, step: int, folder: str, cut: str) -> None:
        """The checkpoint is on storage."""
        if captured.base is None and self._tables:
            self._base, self._step, self._saves = _state.Base(cut, os.path.basename(folder)), step, 1

    def failed(self, captured: _state.Captured) -> None:
        """It is not. Deltas go on from their base; without a base the next save is whole."""
        if captured.base is None:
            self.reset()

    def reset(self) -> None:
        """The next save is whole."""
        self._tables, self._base = {}, None

    def _worth(self, step: int) -> bool:
        if self._base is None or self._saves >= self._full_every or step <= self._step:
            return False
        if not os.path.exists(os.path.join(self._directory, self._base.folder, _manifest.FILE_NAME)):
            return False  # somebody has removed it
        of = sum(t.bytes for t in self._tables.values())
        return sum(t.touched_bytes for t in self._tables.values()) <= WORTH * of


class _Grown(Exception):
    """A table has another shape or type than in the base."""


def _whole(value: Any) -> None:
    return None


class _Table:
    """One table since its base."""

    def __init__(self, name: str, base: Any) -> None:
        self._name, self._shape, self._dtype = name, tuple(base.shape), str(base.dtype)
        self._touched = np.zeros(self._shape[0], np.bool_)
        self.bytes = int(base.nbytes)
        rows = np.random.default_rng().integers(0, max(self._shape[0], 1), min(SAMPLE, self._shape[0]))
        self._sample = np.unique(rows)
        self._before = _bytes(_state.rows_of(base, self._sample))

    @property
    def touched_bytes(self) -> int:
        rows = self._shape[0]
        return self.bytes * int(np.count_nonzero(self._touched)) // rows if rows else 0

    def touch(self, name: str, rows: Any) -> None:
        index = np.asarray(rows.detach().cpu() if _state._is_tensor(rows) else rows)
        if index.size == 0:
            return
        if index.dtype.kind not in "iu":
            raise TypeError(f"touch({name!r}): rows are whole numbers, not {index.dtype}")
        low, high = int(index.min()), int(index.max())
        if low < 0 or high >= self._shape[0]:
            wrong = low if low < 0 else high
            raise IndexError(f"touch({name!r}): no row {wrong}: the table had {self._shape[0]} at the last whole save")
        self._touched[index] = True

    def changed(self, value: Any) -> tuple[str, np.ndarray[Any, Any]]:
        """The table's name in the base, and the rows that a delta holds."""
        if tuple(value.shape) != self._shape or str(value.dtype) != self._dtype:
            raise _Grown
        untouched = ~self._touched[self._sample]
        rows = self._sample[untouched]
        if not rows.size:  # all of the sample was touched
            return self._name, np.flatnonzero(self._touched)
        differs = (_bytes(_state.rows_of(value, rows)) != self._before[untouched]).any(axis=1)
        if differs.any():
            raise CheckpointError(
                f"row {rows[differs.argmax()]} of {self._name!r} has changed since the last whole save, and touch() "
                "was not told: a delta would lack it. Tell touch() every row that a step changes (weight decay and "
                f"momentum change all of them), or leave {self._name!r} out of deltas=. The next save is whole"
            )
        return self._name, np.flatnonzero(self._touched)


def _bytes(rows: Any) -> np.ndarray[Any, Any]:
    """Rows as bytes: NaNs compare too."""
    if not len(rows) or not np.prod(rows.shape[1:]):
        return np.zeros((len(rows), 0), np.uint8)
    if _state._is_tensor(rows):
        rows = rows.contiguous().view(importlib.import_module("torch").uint8).numpy()
    return np.ascontiguousarray(rows).reshape(len(rows), -1).view(np.uint8)


# Reading.


def base_of(manifest: Manifest) -> Manifest | None:
    """The base of a delta, None of a whole checkpoint. Raises CheckpointError."""
    state = manifest.fields.get("state")
    base = state.get("base") if isinstance(state, dict) else None
    if base is None:
        return None
    above = os.path.dirname(manifest.folder)
    try:
        cut, folder = base["cut"], base["folder"]
        if folder == os.path.basename(folder) and cut in manifest.needs:
            found = _manifest.load(os.path.join(above, folder, _manifest.FILE_NAME))
            if found.cut_id == cut and base_of_none(found):
                return found
    except (KeyError, TypeError, OSError):
        pass
    raise CheckpointError(
        f"{manifest.path}: it holds what changed since {_text(base, 'folder')}, and that is no checkpoint in {above}: "
        "a delta is restored from its base, so copy both"
    )


def base_of_none(manifest: Manifest) -> bool:
    """It is whole."""
    return not (manifest.fields.get("state") or {}).get("base")


def _text(base: Any, key: str) -> str:
    return repr(base.get(key)) if isinstance(base, dict) else repr(base)


def arrays_of(base: Manifest) -> Callable[[str, str], Any]:
    """Gives an array of a base by its name, as of "numpy" or "torch"."""
    state = base.fields.get("state") or {}
    name = str(state.get("file"))
    if name not in {f["path"] for f in base.files}:
        raise CheckpointError(f"{base.path}: its state names {name!r}, which is none of its files")
    path = os.path.join(base.folder, name)
    library = importlib.import_module("safetensors")

    def array(key: str, of: str) -> Any:
        with library.safe_open(path, framework="pt" if of == "torch" else "np") as file:
            return file.get_tensor(key)

    return array
