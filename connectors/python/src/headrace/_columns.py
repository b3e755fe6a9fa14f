"""Columns: how OPENED describes them, and the types of columns that are no plain arrays."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from ._errors import ProtocolError

# Values that are not valid UTF-8 keep their bytes: encode them back the same way.
_TEXT_ERRORS = "surrogateescape"

DTYPES: dict[str, np.dtype[Any]] = {
    "bool": np.dtype(np.bool_),
    "int32": np.dtype("<i4"),
    "int64": np.dtype("<i8"),
    "float32": np.dtype("<f4"),
    "float64": np.dtype("<f8"),
    "string": np.dtype(np.uint8),
    "bytes": np.dtype(np.uint8),
}


@dataclass(frozen=True)
class Column:
    """One column of a stream and where its buffers lie in a frame."""

    name: str
    dtype: str
    shape: tuple[int, ...]  # per row
    ragged: bool
    mask: bool
    first: int  # number of its first buffer; 0 is $offset

    @property
    def binary(self) -> bool:
        """String or bytes."""
        return self.dtype in ("string", "bytes")

    @property
    def elements(self) -> int:
        """Values per row of a fixed column."""
        return math.prod(self.shape)

    @cached_property
    def plain(self) -> tuple[str, int, int, np.dtype[Any], tuple[int, ...]] | None:
        """A column of numbers with the same number of values in each row: its name, its first buffer,
        the bytes of a row, and an array's dtype and shape. None: any other column, or bools."""
        if self.ragged or self.binary or self.dtype == "bool":
            return None
        dtype = DTYPES[self.dtype]
        return self.name, self.first, dtype.itemsize * self.elements, dtype, self.shape

    @property
    def buffers(self) -> int:
        """How many buffers it has, its mask included."""
        return 1 + self.ragged + self.binary + self.mask


def parse_schema(schema: Any) -> tuple[Column, ...]:
    """The columns that OPENED tells. Raises ProtocolError."""
    columns: list[Column] = []
    at = 1
    try:
        for told in schema["columns"]:
            column = Column(
                name=str(told["name"]),
                dtype=str(told["dtype"]),
                shape=tuple(int(n) for n in told.get("shape") or ()),
                ragged=told["layout"] == "ragged",
                mask=bool(told.get("mask", False)),
                first=at,
            )
            known = told["layout"] in ("fixed", "ragged") and column.dtype in DTYPES
            if not known or min(column.shape, default=1) < 1 or (column.shape and (column.ragged or column.binary)):
                raise ProtocolError(f"column {column.name!r} has a layout that this client does not know: {told}")
            columns.append(column)
            at += column.buffers
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"the schema of the stream cannot be read: {error!r}") from None
    return tuple(columns)


class Bytes:
    """A column of strings or bytes: data and where each value begins.

    ``column[i]`` gives ``str`` or ``bytes``; ``data`` (uint8) and ``offsets``
    (int64, one more than values) are views of the frame. Bytes of a string that
    are not UTF-8 survive as surrogates.
    """

    __slots__ = ("data", "offsets", "text")

    def __init__(self, data: NDArray[np.uint8], offsets: NDArray[np.int64], text: bool) -> None:
        self.data = data
        self.offsets = offsets
        self.text = text

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> str | bytes: ...
    @overload
    def __getitem__(self, index: slice) -> Bytes: ...
    def __getitem__(self, index: int | slice) -> str | bytes | Bytes:
        if isinstance(index, slice):
            start, stop = _bounds(index, len(self))
            return Bytes(*_cut(self.data, self.offsets, start, stop), self.text)
        at = range(len(self))[index]
        value = self.data[self.offsets[at] : self.offsets[at + 1]].tobytes()
        return value.decode("utf-8", _TEXT_ERRORS) if self.text else value

    def __iter__(self) -> Iterator[str | bytes]:
        return iter(self.tolist())

    def tolist(self) -> list[Any]:
        """All values as a list of ``str`` or ``bytes``."""
        data, at = self.data.tobytes(), self.offsets.tolist()
        values = [data[a:b] for a, b in zip(at, at[1:])]
        return [v.decode("utf-8", _TEXT_ERRORS) for v in values] if self.text else values

    def to_numpy(self) -> NDArray[Any]:
        """All values as an object array."""
        out = np.empty(len(self), dtype=object)
        out[:] = self.tolist()
        return out

    def __repr__(self) -> str:
        return f"Bytes({len(self)} {'strings' if self.text else 'values'}, {len(self.data)} bytes)"


class Ragged:
    """A column with any number of values a row.

    Row i holds ``values[offsets[i]:offsets[i+1]]``; ``offsets`` is int64 and one
    longer than the rows. ``values`` is an array, or `Bytes` for strings.
    """

    __slots__ = ("offsets", "values")

    def __init__(self, values: NDArray[Any] | Bytes, offsets: NDArray[np.int64]) -> None:
        self.values = values
        self.offsets = offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> NDArray[Any] | Bytes: ...
    @overload
    def __getitem__(self, index: slice) -> Ragged: ...
    def __getitem__(self, index: int | slice) -> NDArray[Any] | Bytes | Ragged:
        if isinstance(index, slice):
            start, stop = _bounds(index, len(self))
            return Ragged(*_cut(self.values, self.offsets, start, stop))
        at = range(len(self))[index]
        return self.values[int(self.offsets[at]) : int(self.offsets[at + 1])]

    def __iter__(self) -> Iterator[NDArray[Any] | Bytes]:
        return (self[i] for i in range(len(self)))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Values of each row."""
        return np.diff(self.offsets)

    def tolist(self) -> list[list[Any]]:
        """All rows as lists."""
        values, at = self.values.tolist(), self.offsets.tolist()
        return [values[a:b] for a, b in zip(at, at[1:])]

    def __repr__(self) -> str:
        return f"Ragged({len(self)} rows, {len(self.values)} values)"


Values = NDArray[Any] | Ragged | Bytes


def rows(column: Values, start: int, stop: int) -> Values:
    """Rows [start, stop), sharing values and with offsets of their own."""
    return column[start:stop]


def _bounds(index: slice, size: int) -> tuple[int, int]:
    start, stop, stride = index.indices(size)
    if stride != 1:
        raise ValueError("a ragged column can be sliced only with step 1")
    return start, max(start, stop)


def _cut(values: Any, offsets: NDArray[np.int64], start: int, stop: int) -> tuple[Any, NDArray[np.int64]]:
    # The offsets are copied: two neighbours would else share the one between
    # them, and a change of one batch would show in the next.
    own = offsets[start : stop + 1] - offsets[start]
    return values[int(offsets[start]) : int(offsets[stop])], own
