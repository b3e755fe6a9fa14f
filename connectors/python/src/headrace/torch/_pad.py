"""Short batches at their full size: rows again, with weight 0."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from headrace._columns import Bytes, Ragged
from numpy.typing import NDArray

Index = NDArray[np.int64]


def padded(columns: Mapping[str, Any], have: int, rows: int) -> dict[str, Any]:
    """The columns with `rows` rows: theirs first, then the same ones again. A batch
    without a row is padded with zeros and empty rows."""
    if have == rows:
        return dict(columns)
    if have == 0:
        return {name: _empty(column, rows) for name, column in columns.items()}
    index = np.arange(rows, dtype=np.int64) % have
    return {name: _take(column, index) for name, column in columns.items()}


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
