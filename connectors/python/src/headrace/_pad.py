"""tail="pad": short batches are filled up with rows of their own, with weight 0."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._batch import Batch
from ._columns import Bytes, Ragged, Values
from ._rounds import RoundStream
from ._stream import Stream

Index = NDArray[np.int64]


class PaddedBatch(Batch):
    """A batch whose columns have all the rows that the stream was asked for.

    ``len(batch)`` is still the number of its records: those come first.
    """

    __slots__ = ("_masks", "_weight")

    _weight: NDArray[np.float32]
    _masks: dict[str, NDArray[np.bool_]]  # of a slice: those of its rows

    @property
    def weight(self) -> NDArray[np.float32]:
        return self._weight

    def _cut(self, column: Values) -> Values:
        values: Values = padded(super()._cut(column), len(self), len(self._weight))
        return values

    def mask(self, name: str) -> NDArray[np.bool_]:
        try:
            return self._masks[name]
        except AttributeError:  # the whole batch
            values: NDArray[np.bool_] = padded(super().mask(name), len(self), len(self._weight))
            return values
        except KeyError:
            return super().mask(name)  # says what there is

    def slice(self, start: int, stop: int) -> Batch:
        a, b, _ = slice(start, stop).indices(len(self._weight))
        part = self._part(PaddedBatch, a, max(a, b))
        part._weight = self._weight[a : max(a, b)]
        part._masks = {name: self.mask(name)[a : max(a, b)] for name in self._frame.masks}
        return part


class PaddedStream(Stream):
    """A stream with tail="pad"."""

    _batch = PaddedBatch

    def __next__(self) -> Batch:
        return _weighted(super().__next__(), self._rows)


class PaddedRoundStream(RoundStream):
    """A stream with rounds and tail="pad"."""

    _batch = PaddedBatch

    def __next__(self) -> Batch:
        return _weighted(super().__next__(), self._rows)


def _weighted(batch: Batch, rows: int) -> Batch:
    assert isinstance(batch, PaddedBatch)
    batch._weight = weight(len(batch), rows)
    return batch


def padded(column: Any, have: int, rows: int) -> Any:
    """The column with `rows` rows: its own first, then the same ones again. For a batch
    without a row: zeros and empty rows."""
    if have == rows:
        return column
    if have == 0:
        return _empty(column, rows)
    return _take(column, np.arange(rows, dtype=np.int64) % have)


def weight(have: int, rows: int) -> NDArray[np.float32]:
    """float32 (rows,): 1 for a row of the batch, 0 for one that was added."""
    return (np.arange(rows) < have).astype(np.float32)


def _take(column: Any, index: Index) -> Any:
    if isinstance(column, np.ndarray):
        return column[index]
    flat, offsets = _spread(column.offsets, index)
    if isinstance(column, Ragged):
        return Ragged(_take(column.values, flat), offsets)
    return Bytes(column.data[flat], offsets, column.text)


def _spread(offsets: Index, index: Index) -> tuple[Index, Index]:
    """Which elements the rows of index hold, one after the other, and where each row begins."""
    lengths = np.diff(offsets)[index]
    ends = np.cumsum(lengths)
    flat = np.repeat(offsets[:-1][index] - (ends - lengths), lengths) + np.arange(int(ends[-1]))
    return flat.astype(np.int64), np.concatenate([[0], ends]).astype(np.int64)


def _empty(column: Any, rows: int) -> Any:
    if isinstance(column, np.ndarray):
        return np.zeros((rows, *column.shape[1:]), column.dtype)
    offsets = np.zeros(rows + 1, np.int64)
    if isinstance(column, Ragged):
        return Ragged(column.values[:0], offsets)
    return Bytes(column.data[:0], offsets, column.text)
