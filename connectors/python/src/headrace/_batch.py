"""Batch: the rows that a trainer gets at a time."""

from __future__ import annotations

import contextlib
from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from . import _ranges
from ._columns import Bytes, Ragged, Values
from ._frame import Frame
from ._ranges import Range

if TYPE_CHECKING:
    from ._stream import Stream


B = TypeVar("B", bound="Batch")


def _other(name: str, value: Values, wanted: str) -> NoReturn:
    raise TypeError(f"column {name!r} is not {wanted}: batch[{name!r}] gives the {type(value).__name__} that it is")


class Batch(Mapping[str, Values]):
    """Rows of a dataset as columns: name -> array, `Ragged` or `Bytes`.

    Arrays are writable, 64-byte aligned at the start of their frame, and yours:
    their memory is never used again while one of them lives. ``len(batch)`` is
    its rows, ``len(batch.keys())`` its columns.

    After ``os.fork()`` (a `multiprocessing` or PyTorch worker that is forked) parent
    and child may have the same memory, because on Linux large frames come in memory
    that is shared with the agent. If one of the two writes into an array, the other
    one sees it. Write into a copy there, or set HEADRACE_SHARED_FRAMES=0.
    """

    __slots__ = ("_cache", "_ends", "_frame", "_global_rows", "_start", "_stop", "_stream", "number")

    _ends: bool  # of a round: it is the last one
    _global_rows: int  # of a round; -1: the agent did not say

    def __init__(self, frame: Frame, start: int, stop: int, stream: Stream | None, number: int) -> None:
        self._frame = frame
        self._start = start
        self._stop = stop
        self._stream = stream
        self._cache: dict[str, Any] | None = None
        #: Number of the batch in its stream, from 1.
        self.number = number

    def __getitem__(self, name: str) -> Values:
        """A column: an array, `Ragged`, or `Bytes` of strings. Raises KeyError.

        For a type checker, array(), ragged() and text() each give one of the three.
        """
        cache = self._cache
        if cache is None:
            cache = self._cache = {}
        elif name in cache:
            kept: Values = cache[name]
            return kept
        try:
            column = self._frame.columns[name]
        except KeyError:
            raise KeyError(f"{name!r}; the batch has the columns {', '.join(self._frame.columns)}") from None
        value: Values = self._cut(column)
        cache[name] = value
        return value

    def array(self, name: str) -> NDArray[Any]:
        """A column of numbers: (rows,), or (rows, n) of a packed one. Raises KeyError, TypeError."""
        value = self[name]
        return value if isinstance(value, np.ndarray) else _other(name, value, "an array")

    def ragged(self, name: str) -> Ragged:
        """A column with any number of values a row. Raises KeyError, TypeError."""
        value = self[name]
        return value if isinstance(value, Ragged) else _other(name, value, "ragged")

    def text(self, name: str) -> Bytes:
        """A column of strings or bytes. Raises KeyError, TypeError."""
        value = self[name]
        return value if isinstance(value, Bytes) else _other(name, value, "text")

    def _cut(self, column: Values) -> Values:
        if self._stop - self._start == self._frame.rows:
            return column
        return column[self._start : self._stop]

    def __iter__(self) -> Iterator[str]:
        return iter(self._frame.columns)

    def __len__(self) -> int:
        return self._stop - self._start

    # Mapping's own views would take len(self), which counts rows, for theirs.
    def keys(self) -> KeysView[str]:
        return self._frame.columns.keys()

    def items(self) -> ItemsView[str, Any]:
        return {name: self[name] for name in self}.items()

    def values(self) -> ValuesView[Any]:
        return {name: self[name] for name in self}.values()

    def __bool__(self) -> bool:
        return True

    def __contains__(self, name: object) -> bool:
        return name in self._frame.columns

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    @property
    def last(self) -> bool:
        """True if no batch after this one is known: the end of the input is near.

        With rounds it is exact, and the same on every rank. Without rounds it is a hint:
        rows of a worker that dies may still come.
        """
        try:
            return self._ends
        except AttributeError:  # it is of no round
            return self._frame.last and self._stop == self._frame.rows

    @property
    def global_rows(self) -> int:
        """Rows of this round on all ranks together. Divide a loss that is a sum by it.

        It is known when the batch is yielded; no collective is needed. A slice has the
        number of its batch. With one rank, and no rounds, it is ``len(batch)``. Raises
        ValueError with several ranks and no rounds: they do not take batches together.
        """
        try:
            rows = self._global_rows
        except AttributeError:
            stream = self._stream
            if stream is not None and stream._trainer.world_size == 1:
                return len(self)
            raise ValueError(
                "global_rows is of a round, and this batch is of a stream without rounds: a replicated model of "
                "several ranks has them, unless the program says rounds=False"
            ) from None
        if rows < 0:
            raise ValueError("this batch's global_rows is not known: the agent or the master is older than this client")
        return rows

    @property
    def weight(self) -> NDArray[np.float32]:
        """float32, for each row of the columns: 1 for a record, 0 for a row that tail="pad" added."""
        return np.ones(len(self), np.float32)

    @property
    def virtual_rank(self) -> int | None:
        """The virtual rank that the batch belongs to, in a dataset with ``bit_exact``; else None."""
        return None if self._stream is None else self._stream.virtual_rank

    @property
    def ranges(self) -> list[Range]:
        """The records of the batch, as runs of rows, each of one segment, in order."""
        return _ranges.ranges(self._frame, self._start, self._stop)

    @property
    def offsets(self) -> NDArray[np.int64]:
        """int64 (rows,): where each record begins in its segment, in the source's unit."""
        # A copy: the frame's own are what acks and ranges are computed from.
        own: NDArray[np.int64] = self._frame.offsets[self._start : self._stop].copy()
        return own

    def positions(self) -> NDArray[Any]:
        """Where each record begins: (rows,) with the fields partition (the
        source's own number: 3 of clicks/3; 0 of files), pass, segment and offset."""
        return _ranges.positions(self._frame, self._start, self._stop)

    def mask(self, name: str) -> NDArray[np.bool_]:
        """True where a value of column name was present; the column has ``missing: mask``."""
        try:
            mask = self._frame.masks[name]
        except KeyError:
            if name not in self._frame.columns:
                self[name]  # raises with the names there are
            raise KeyError(f"column {name!r} has no mask: set `missing: mask` in the dataset") from None
        return mask[self._start : self._stop]

    def to_dicts(self) -> list[dict[str, Any]]:
        """One dict per row, of Python values. For looking at data, not for training."""
        lists = {name: self[name][: len(self)].tolist() for name in self}
        return [dict(zip(lists, row)) for row in zip(*lists.values())] if lists else [{} for _ in range(len(self))]

    def torch(self, device: Any = None) -> dict[str, Any]:
        """The columns as tensors: name -> tensor, `headrace.torch.Jagged` of a ragged
        column, or `Bytes` of strings.

        On the CPU they are views of the batch's memory. device: as torch names it; to a
        CUDA device all columns go in one copy, which the current stream waits for.
        """
        from .torch import tensors

        return tensors(self, device)

    def slice(self, start: int, stop: int) -> Batch:
        """Rows [start, stop) as a batch that shares memory with this one.

        For micro-batches; only the whole batch can be stepped.
        """
        a, b, _ = slice(start, stop).indices(len(self))
        return self._part(Batch, a, max(a, b))

    def _part(self, cls: type[B], a: int, b: int) -> B:
        have = len(self)
        part = cls(self._frame, self._start + min(a, have), self._start + min(b, have), None, self.number)
        # Through our own columns, so that what was changed in them shows.
        part._cache = {name: self[name][a:b] for name in self}
        with contextlib.suppress(AttributeError):
            part._ends = self._ends and part._stop == self._stop
        with contextlib.suppress(ValueError):
            part._global_rows = self.global_rows
        return part

    def done(self, step: int | None = None) -> int:
        """This batch is in the model as of step: ``stream.step(step, batches=1)``.

        Batches are done in the order they were yielded; another order raises
        ValueError.
        """
        if self._stream is None:
            raise ValueError("a slice cannot be done, only the batch it was taken from")
        return self._stream._done(self.number, step)

    def __repr__(self) -> str:
        def shape(column: Values) -> str:
            if isinstance(column, np.ndarray):
                return f"{column.dtype}{list(column.shape[1:]) or ''}"
            return "string" if isinstance(column, Bytes) and column.text else type(column).__name__.lower()

        columns = ", ".join(f"{name}: {shape(column)}" for name, column in self._frame.columns.items())
        return f"Batch({self.number}, {len(self)} rows, {columns})"


__all__ = ["Batch", "Bytes", "Ragged", "Range"]
