"""Deltas: saves that hold, of large tables, only the rows that have changed since a base.

The base is a whole checkpoint on storage. A delta holds all rows that were touched since
then, so a restore reads one base and one delta, never a chain. Everything that is no table
is whole in each of them. _basis.py reads them.

Copies of the state are numbered. Of each row, touch() keeps the number of the newest copy
before it. So the rows to save are known for whatever copy is to be written later, and
whichever copy turns out to be the base: with memory=True copies lie in slots, and a newer
one may take the place of one that waits for storage. Rows that were touched after the copy
that is written are among them, with the values that they have in the copy.
"""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Iterable
from typing import Any, Callable

import numpy as np

from . import _manifest, _state
from ._errors import CheckpointError

SAMPLE = 4096  # rows of a table that each delta compares with its base
HELD = 64  # copies whose numbers are known: many more than there are slots
WORTH = 0.5  # of the tables' bytes: above that a save is whole


class Deltas:
    """Which rows of the tables have changed since the base."""

    def __init__(
        self,
        names: Iterable[str],
        full_every: int,
        directory: str,
        has: Callable[[str], bool] = os.path.exists,
        own: frozenset[str] = frozenset(),
    ) -> None:
        """has: whether a manifest lies at a path of the directory. own: places that have files
        of their own."""
        places = [names] if isinstance(names, str) else list(names)
        if not all(isinstance(place, str) and place for place in places):
            raise TypeError(f'deltas={names!r}; it is a list of places in the state, as in deltas=["tables.user"]')
        if full_every < 1:
            raise ValueError(f"full_every={full_every}; 10 makes every tenth save a whole one")
        self.names = frozenset(places)
        self._full_every, self._directory, self._has, self._own = full_every, directory, has, own
        self._tables: dict[str, _Table] = {}  # by place; empty until the first copy
        self._copies = 0  # how many were taken
        self._numbers: dict[str, int] = {}  # of the copies in memory, by cut
        self._lock = threading.Lock()  # of _numbers
        self._pending: _Whole | None = None  # a whole copy that is on its way to storage
        self._base: _Whole | None = None  # None: the next save is whole
        self._saves = 0  # since the base, itself included

    def touch(self, name: str, rows: Any) -> None:
        if name not in self.names:
            known = ", ".join(map(repr, sorted(self.names))) or "nothing"
            raise ValueError(f"touch({name!r}): deltas= names {known}")
        table = self._tables.get(name)
        if table is not None:
            table.touch(name, rows, self._copies)

    # Saves that are written as they are captured.

    def capture(self, step: int, state: Any, pickles: frozenset[str], copy: bool = True) -> _state.Captured:
        """Copies a state: whole, or as a delta. copy=False: the caller copies it, at once, and
        looks for the base before it writes (in a bucket that takes a request). Raises
        TypeError, and CheckpointError if a row has changed that nobody has touched."""
        self._pending = None
        base = self._usable(step, look=copy)
        if base is not None:
            try:
                captured = _state.capture(state, pickles, base.changed(self._tables), copy, self._own)
            except _Grown:
                pass
            except BaseException:
                self._base = None
                raise
            else:
                self._copies += 1
                self._saves += 1
                return captured._replace(base=base.name)
        self._base = None
        captured = _state.capture(state, pickles, dict.fromkeys(self.names, _all), copy, self._own)
        self._pending = _Whole(self.copied(captured), step, captured)
        return captured

    def saved(self, folder: str, cut: str) -> None:
        """What was captured is on storage."""
        if self._pending is not None:
            self._based_on(self._pending, folder, cut)

    def based(self, base: _state.Base | None) -> None:
        """Raises CheckpointError if the base of what was captured is gone. The next save is
        whole then."""
        if base is not None and not self._there(base):
            self._base = None
            raise CheckpointError(
                f"{self._directory}/{base.folder} is gone, and this save holds only what has changed since. The next "
                "save is whole"
            )

    def failed(self) -> None:
        """It is not. Deltas go on from their base; without a base the next save is whole."""
        self._pending = None

    # Saves that are copied into memory, and go to storage from there.

    def flatten(self, state: Any) -> _state.Captured:
        """As _state.flatten. Raises TypeError, also of a table that is not in the state."""
        return _state.capture(state, frozenset(), dict.fromkeys(self.names, _all), copy=False, own=self._own)

    def copied(self, flat: _state.Captured) -> int:
        """The state was copied, all of it. Gives the copy's number."""
        self._copies += 1
        for place, name in flat.tables.items():
            rows = int(flat.arrays[name].shape[0])
            table = self._tables.get(place)
            if table is None or table.rows != rows:
                self._tables[place] = _Table(rows, self._copies)
        return self._copies

    def holds(self, cut: str, number: int) -> None:
        """The copy is the checkpoint of a cut. A step that is saved twice has one: of the two
        copies the older one has more rows to save."""
        with self._lock:
            self._numbers.setdefault(cut, number)
            while len(self._numbers) > HELD:
                del self._numbers[next(iter(self._numbers))]

    def of_copy(self, cut: str, step: int, tree: Any, arrays: dict[str, Any]) -> _state.Captured | None:
        """What to write of a copy in memory as a delta; None: all of it. Arrays that are no tables
        are views of `arrays`. Raises CheckpointError if a row has changed that nobody has touched."""
        with self._lock:
            number = self._numbers.get(cut, 0)
        base = self._usable(step, look=True)
        if base is None or number <= base.number:
            return None
        if any(table.since > base.number for table in self._tables.values()):
            return None  # it had another shape at the base
        try:
            changed = base.changed(self._tables)
            delta = _state.capture(_state.build(tree, arrays), frozenset(), changed, copy=False, own=self._own)
        except _Grown:
            return None
        except CheckpointError:
            self._base = None
            raise
        return delta._replace(base=base.name)

    def stored(self, cut: str, step: int, tree: Any, arrays: dict[str, Any], folder: str, whole: bool) -> None:
        """A copy in memory is on storage. whole: all of it."""
        with self._lock:
            number = self._numbers.get(cut, 0)
            self._numbers = {c: n for c, n in self._numbers.items() if n >= number}
        if not whole:
            self._saves += 1
        elif number:
            self._based_on(_Whole(number, step, self.flatten(_state.build(tree, arrays))), folder, cut)

    # Both.

    def reset(self) -> None:
        """The next save is whole, and the tables may have other shapes."""
        self._tables, self._base, self._pending = {}, None, None
        with self._lock:
            self._numbers.clear()

    def _based_on(self, whole: _Whole, folder: str, cut: str) -> None:
        whole.name = _state.Base(cut, os.path.basename(folder))
        self._base, self._pending, self._saves = whole, None, 1

    def _there(self, base: _state.Base) -> bool:
        return self._has(os.path.join(self._directory, base.folder, _manifest.FILE_NAME))

    def _usable(self, step: int, look: bool) -> _Whole | None:
        """The base, if a delta is worth it. look: and it is there."""
        base = self._base
        if base is None or base.name is None or self._saves >= self._full_every or step <= base.step:
            return None
        if look and not self._there(base.name):
            return None  # somebody has removed it
        touched, of = base.bytes(self._tables)
        return base if touched <= WORTH * of else None


class _Grown(Exception):
    """A table has another shape or type than in the base."""


def _all(value: Any) -> None:
    return None


class _Table:
    """When each row of a table was touched."""

    def __init__(self, rows: int, since: int) -> None:
        """since: the number of the first copy with so many rows."""
        self.rows, self.since = rows, since
        self._last = np.zeros(rows, np.uint32)  # the number of the newest copy before; 0: never

    def touch(self, name: str, rows: Any, copy: int) -> None:
        index = np.asarray(rows.detach().cpu() if _state._is_tensor(rows) else rows)
        if index.size == 0:
            return
        if index.dtype.kind not in "iu":
            raise TypeError(f"touch({name!r}): rows are whole numbers, not {index.dtype}")
        low, high = int(index.min()), int(index.max())
        if low < 0 or high >= self.rows:
            wrong = low if low < 0 else high
            raise IndexError(f"touch({name!r}): no row {wrong}: the table had {self.rows} at the last whole save")
        self._last[index] = copy

    def touched(self, copy: int) -> np.ndarray[Any, Any]:
        """Of each row whether it was touched after that copy."""
        touched: np.ndarray[Any, Any] = self._last >= copy
        return touched


class _Whole:
    """A whole copy of the state that deltas may be based on."""

    def __init__(self, number: int, step: int, captured: _state.Captured) -> None:
        self.number, self.step = number, step
        self.name: _state.Base | None = None  # once it is on storage
        self._samples = {place: _Sample(name, captured.arrays[name]) for place, name in captured.tables.items()}

    def changed(self, tables: dict[str, _Table]) -> dict[str, _state.Changed]:
        """What a delta holds of each table, by place."""

        def of(table: _Table, sample: _Sample) -> _state.Changed:
            return lambda value: sample.changed(value, table.touched(self.number))

        return {place: of(tables[place], sample) for place, sample in self._samples.items() if place in tables}

    def bytes(self, tables: dict[str, _Table]) -> tuple[float, int]:
        """How many bytes of the tables were touched, and how many there are."""
        touched = 0.0
        for place, sample in self._samples.items():
            table = tables.get(place)
            if table is not None and table.rows:
                touched += sample.bytes * int(np.count_nonzero(table.touched(self.number))) / table.rows
        return touched, sum(sample.bytes for sample in self._samples.values())


class _Sample:
    """Some rows of a table as they are in the base."""

    def __init__(self, name: str, base: Any) -> None:
        self._name, self._shape, self._dtype = name, tuple(base.shape), _state.dtype_name(base.dtype)
        self.bytes = int(base.nbytes)
        rows = np.random.default_rng().integers(0, max(self._shape[0], 1), min(SAMPLE, self._shape[0]))
        self._rows = np.unique(rows)
        self._before = _bytes(_state.rows_of(base, self._rows))

    def changed(self, value: Any, touched: np.ndarray[Any, Any]) -> tuple[str, np.ndarray[Any, Any]]:
        """The table's name in the base, and the rows that a delta holds. Raises CheckpointError."""
        if tuple(value.shape) != self._shape or _state.dtype_name(value.dtype) != self._dtype:
            raise _Grown
        untouched = ~touched[self._rows]
        rows = self._rows[untouched]
        if not rows.size:  # all of the sample was touched
            return self._name, np.flatnonzero(touched)
        differs = (_bytes(_state.rows_of(value, rows)) != self._before[untouched]).any(axis=1)
        if differs.any():
            raise CheckpointError(
                f"row {rows[differs.argmax()]} of {self._name!r} has changed since the last whole save, and touch() "
                "was not told: a delta would lack it. Tell touch() every row that a step changes (weight decay and "
                f"momentum change all of them), or leave {self._name!r} out of deltas=. The next save is whole"
            )
        return self._name, np.flatnonzero(touched)


def _bytes(rows: Any) -> np.ndarray[Any, Any]:
    """Rows as bytes: NaNs compare too."""
    if not len(rows) or not np.prod(rows.shape[1:]):
        return np.zeros((len(rows), 0), np.uint8)
    if _state._is_tensor(rows):
        rows = rows.contiguous().view(importlib.import_module("torch").uint8).numpy()
    return np.ascontiguousarray(rows).reshape(len(rows), -1).view(np.uint8)
