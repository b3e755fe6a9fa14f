"""Deltas: saves that hold only the rows of large tables that have changed since a base.

The base is a whole checkpoint on storage. A delta holds all rows that were touched since
then, so a restore reads one base and one delta, never a chain. Everything else in the
state is whole in each delta. _basis.py reads them.

Copies of the state are numbered. For each row, touch() keeps the number of the newest copy
before it. So the rows to save are known for any copy and any base. That is needed with
memory=True: copies lie in slots, and a newer one may take the place of one that waits for
storage. A delta may also have rows that were touched after its copy was made, with the
values of the copy.

A table may grow. A delta holds all rows that its base does not have, touched or not.
"""

from __future__ import annotations

import importlib
import math
import os
import threading
from collections.abc import Callable, Iterable
from typing import Any

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
            sizes: dict[str, int] = {}
            changed = {place: self._checked(place, of, sizes) for place, of in base.changed(self._tables).items()}
            try:
                captured = _state.capture(state, pickles, changed, copy, self._own)
            except _Reshaped:
                pass
            except BaseException:
                self._base = None
                raise
            else:
                if base.is_worth(captured, sizes):
                    self._sized(sizes)
                    self._saves += 1
                    return captured._replace(base=base.name)
        self._base = None
        captured = _state.capture(state, pickles, self._all(), copy, self._own)
        self._pending = _Whole(self.copied(captured), step, captured)
        return captured

    def saved(self, folder: str, cut: str) -> None:
        """Notes that the captured state is on storage now."""
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
        """Notes that the captured state did not get to storage. Deltas go on from their base;
        without a base the next save is whole."""
        self._pending = None

    # Saves that are copied into memory, and go to storage from there.

    def flatten(self, state: Any) -> _state.Captured:
        """Does what _state.flatten does. Raises TypeError, also if a table is not in the state,
        and CheckpointError if a touched row is not in its table."""
        return _state.capture(state, frozenset(), self._all(), copy=False, own=self._own)

    def copied(self, flat: _state.Captured) -> int:
        """Notes that the whole state was copied. Returns the copy's number."""
        return self._sized({place: int(flat.arrays[name].shape[0]) for place, name in flat.tables.items()})

    def _sized(self, sizes: dict[str, int]) -> int:
        """Notes a copy of tables with so many rows. Returns its number."""
        self._copies += 1
        for place, rows in sizes.items():
            table = self._tables.get(place)
            if table is None or rows < table.rows:
                self._tables[place] = _Table(rows, self._copies)
            else:
                table.grow(rows)
        return self._copies

    def _all(self) -> dict[str, _state.Changed]:
        """All of each table."""
        return {place: self._checked(place, lambda value: None, {}) for place in self.names}

    def _checked(self, place: str, changed: _state.Changed, sizes: dict[str, int]) -> _state.Changed:
        """Returns `changed` with a check: it raises CheckpointError if touch() named a row that
        the table does not have. It also notes the number of the table's rows in sizes."""

        def of(value: Any) -> Any:
            rows, table = int(value.shape[0]), self._tables.get(place)
            if table is not None and table.rows <= rows < table.told:
                told, table.told, self._base = table.told, 0, None
                raise CheckpointError(
                    f"touch({place!r}) was called with row {told - 1}, and the table has {rows} rows, counted from 0: "
                    "give it rows of the table. The next save is whole"
                )
            return counted(value)

        counted = _counted(place, changed, sizes)
        return of

    def holds(self, cut: str, number: int) -> None:
        """Notes that the copy is the checkpoint of a cut. If a step is saved twice, both copies
        have the same cut. The number of the older copy stays, because it leads to more saved rows."""
        with self._lock:
            self._numbers.setdefault(cut, number)
            while len(self._numbers) > HELD:
                del self._numbers[next(iter(self._numbers))]

    def of_copy(self, cut: str, step: int, tree: Any, arrays: dict[str, Any]) -> _state.Captured | None:
        """Returns what to write of a copy in memory as a delta. None: write all of it. Arrays that are no tables
        are views of `arrays`. Raises CheckpointError if a row has changed that nobody has touched."""
        with self._lock:
            number = self._numbers.get(cut, 0)
        base = self._usable(step, look=True)
        if base is None or number <= base.number:
            return None
        tables = dict(self._tables)
        if any(table.since > base.number for table in tables.values()):
            return None  # it has had fewer rows since the base
        try:
            sizes: dict[str, int] = {}
            changed = {place: _counted(place, of, sizes) for place, of in base.changed(tables).items()}
            delta = _state.capture(_state.build(tree, arrays), frozenset(), changed, copy=False, own=self._own)
        except _Reshaped:
            return None
        except CheckpointError:
            self._base = None
            raise
        return delta._replace(base=base.name) if base.is_worth(delta, sizes) else None

    def stored(self, cut: str, step: int, tree: Any, arrays: dict[str, Any], folder: str, whole: bool) -> None:
        """A copy in memory is on storage. whole: all of it."""
        with self._lock:
            number = self._numbers.get(cut, 0)
            self._numbers = {c: n for c, n in self._numbers.items() if n >= number}
        if not whole:
            self._saves += 1
        elif number:
            tables: dict[str, _state.Changed] = dict.fromkeys(self.names, lambda value: None)
            flat = _state.capture(_state.build(tree, arrays), frozenset(), tables, copy=False, own=self._own)
            self._based_on(_Whole(number, step, flat), folder, cut)

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


def _counted(place: str, changed: _state.Changed, sizes: dict[str, int]) -> _state.Changed:
    """Returns `changed`. When it is called, it also notes the number of the table's rows in
    sizes."""

    def of(value: Any) -> _state.Rows | None:
        sizes[place] = int(value.shape[0])
        return changed(value)

    return of


class _Reshaped(Exception):
    """A table has fewer rows than in the base, or rows of another shape or type."""


class _Table:
    """When each row of a table was touched."""

    def __init__(self, rows: int, since: int) -> None:
        """rows: as of the newest copy. since: the number of the first copy that has had no
        more rows than any later one."""
        self.rows, self.since = rows, since
        self.told = 0  # rows that it must have by the next copy
        self._last = np.zeros(rows, np.uint32)  # the number of the newest copy before; 0: never

    def touch(self, name: str, rows: Any, copy: int) -> None:
        index = np.asarray(rows.detach().cpu() if _state._is_tensor(rows) else rows)
        if index.size == 0:
            return
        if index.dtype.kind not in "iu":
            raise TypeError(f"touch({name!r}): rows are whole numbers, not {index.dtype}")
        low, high = int(index.min()), int(index.max())
        if low < 0:
            raise IndexError(f"touch({name!r}): no row {low}: they are counted from 0")
        if high >= self.rows:  # it has grown: a delta has all rows that no copy had yet
            self.told = max(self.told, high + 1)
            index = index[index < self.rows]
        self._last[index] = copy

    def grow(self, rows: int) -> None:
        """Notes that a copy was taken, with so many rows."""
        if rows > self.rows:
            self._last = np.concatenate([self._last, np.zeros(rows - self.rows, np.uint32)])
        self.rows, self.told = rows, 0

    def touched(self, copy: int, rows: int) -> np.ndarray[Any, Any]:
        """Returns for each of the first `rows` whether it was touched after that copy."""
        touched: np.ndarray[Any, Any] = self._last[:rows] >= copy
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
            return lambda value: sample.changed(value, table.touched(self.number, sample.rows))

        return {place: of(tables[place], sample) for place, sample in self._samples.items() if place in tables}

    def is_worth(self, delta: _state.Captured, sizes: dict[str, int]) -> bool:
        """Whether it is small enough beside the whole tables. sizes: how many rows they have now."""
        holds = sum(int(delta.arrays[name].nbytes) for name in delta.tables.values())
        return bool(holds <= WORTH * sum(self._samples[place].of_row * rows for place, rows in sizes.items()))

    def bytes(self, tables: dict[str, _Table]) -> tuple[int, int]:
        """How many bytes of the tables were touched, and how many there are."""
        touched = total = 0
        for place, sample in self._samples.items():
            table = tables.get(place)
            grown = 0
            if table is not None:
                grown = max(table.rows, table.told, sample.rows) - sample.rows
                touched += sample.of_row * (grown + int(np.count_nonzero(table.touched(self.number, sample.rows))))
            total += sample.of_row * (grown + sample.rows)
        return touched, total


class _Sample:
    """Some rows of a table as they are in the base."""

    def __init__(self, name: str, base: Any) -> None:
        self._name, self._shape, self._dtype = name, tuple(base.shape), _state.dtype_name(base.dtype)
        self.rows = self._shape[0]
        size = base.element_size() if _state._is_tensor(base) else base.dtype.itemsize
        self.of_row = int(size) * math.prod(self._shape[1:])  # bytes
        rows = np.random.default_rng().integers(0, max(self._shape[0], 1), min(SAMPLE, self._shape[0]))
        self._rows = np.unique(rows)
        self._before = _bytes(_state.rows_of(base, self._rows))

    def changed(self, value: Any, touched: np.ndarray[Any, Any]) -> _state.Rows:
        """What a delta holds. touched: of the base's rows. Raises CheckpointError."""
        now, shape = tuple(value.shape), self._shape
        if now[1:] != shape[1:] or now[0] < shape[0] or _state.dtype_name(value.dtype) != self._dtype:
            raise _Reshaped
        untouched = ~touched[self._rows]
        rows = self._rows[untouched]
        if rows.size:
            differs = (_bytes(_state.rows_of(value, rows)) != self._before[untouched]).any(axis=1)
            if differs.any():
                raise CheckpointError(
                    f"row {rows[differs.argmax()]} of {self._name!r} has changed since the last whole save, and "
                    "touch() was not called with it: a delta would lack it. Give touch() every row that a step "
                    f"changes (weight decay and momentum change all of them), or leave {self._name!r} out of deltas=. "
                    "The next save is whole"
                )
        new = np.arange(shape[0], now[0])
        return _state.Rows(self._name, np.concatenate([np.flatnonzero(touched), new]), now[0] if new.size else None)


def _bytes(rows: Any) -> np.ndarray[Any, Any]:
    """Rows as bytes: NaNs compare too."""
    if not len(rows) or not np.prod(rows.shape[1:]):
        return np.zeros((len(rows), 0), np.uint8)
    if _state._is_tensor(rows):
        rows = rows.contiguous().view(importlib.import_module("torch").uint8).numpy()
    return np.ascontiguousarray(rows).reshape(len(rows), -1).view(np.uint8)
