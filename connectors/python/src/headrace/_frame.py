"""A frame's payload as columns: views of the one buffer that it lies in."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _messages as wire
from ._columns import DTYPES, Bytes, Column, Ragged, Values
from ._errors import ProtocolError
from ._receive import ALIGN

_HEAD = struct.Struct("<4sHHIIIIIIQQQQ")
_ROWS = struct.Struct("<I")  # of a span, its first field
_LAST = 1  # flag: the last batch of the frame is the last known one
_MAX_SPANS = 1 << 20

SPAN = np.dtype(
    [
        ("rows", "<u4"),
        ("partition", "<u4"),
        ("pass", "<u4"),
        ("dataset", "<u4"),
        ("segment", "<i8"),
        ("start", "<i8"),
        ("end", "<i8"),
        ("lease_from", "<i8"),
        ("lease_to", "<i8"),
        ("epoch", "<u4"),
        ("term", "<u4"),
        ("sequence", "<u8"),
        ("event_time", "<i8"),
        ("spare", "V16"),
    ]
)


class Names:
    """The names of partitions and segments that came over a data connection, since the agent told all
    names anew. The agent knows which names are here. A frame keeps the names that it came with."""

    __slots__ = ("partitions", "segments")

    def __init__(self) -> None:
        self.partitions: dict[str, str] = {}
        self.segments: dict[str, str] = {}

    def learn(self, told: dict[str, Any]) -> Names:
        """Returns the names that the frame needs which told these: ours, or new ones."""
        names = Names() if told.get("anew") is True else self
        for known, key in ((names.partitions, "partitions"), (names.segments, "segments")):
            new = told.get(key) or {}
            if not isinstance(new, dict):
                raise ProtocolError(f"the names of {key} in a frame are not an object")
            known.update((str(k), str(v)) for k, v in new.items())
        return names


class Frame:
    """Whole batches of one stream: batch k is rows [k * rows_per_batch, ...)."""

    __slots__ = (
        "batches",
        "before",
        "columns",
        "first",
        "last",
        "masks",
        "names",
        "offsets",
        "rows",
        "rows_per_batch",
        "size",
        "spans",
        "times",
    )

    rows: int
    batches: int
    rows_per_batch: int
    first: int  # number of the first batch in the stream
    before: int  # rows that the stream yields before this frame, as it counts them; it sets them
    last: bool  # the last batch is the last known one
    size: int  # bytes
    spans: NDArray[Any]
    times: bytes  # event times of each piece (the rows of one span in one batch); empty: there are none
    offsets: NDArray[np.int64]  # where each record begins in its segment
    columns: dict[str, Values]
    masks: Mapping[str, NDArray[np.bool_]]
    names: Names

    @classmethod
    def empty(cls) -> Frame:
        """Stands before the first frame of a stream."""
        frame = cls()
        frame.first, frame.rows_per_batch = 1, 1
        frame.rows = frame.batches = frame.before = 0
        return frame

    @property
    def end(self) -> int:
        """Number of its last batch: what is yielded when it is used up."""
        return self.first + self.batches - 1


_INT64 = np.dtype("<i8")
_NO_MASKS: Mapping[str, NDArray[np.bool_]] = {}


def parse(payload: NDArray[np.uint8], columns: tuple[Column, ...], names: Names) -> Frame:
    """Checks the payload and lays views over it. Raises ProtocolError."""
    try:
        return _parse(payload, columns, names)
    except (struct.error, TypeError, ValueError, IndexError, OverflowError) as error:
        raise ProtocolError(f"a frame of {payload.size} bytes does not hold together: {error}") from None


def _parse(payload: NDArray[np.uint8], columns: tuple[Column, ...], names: Names) -> Frame:
    # Each line here costs time for each frame, and the caches are cold after the wait for it.
    view = payload.data
    magic, version, flags, rows, batches, per_batch, spans, buffers, first, size, names_at, names_size, times_at = (
        _HEAD.unpack_from(view)
    )
    if magic != b"HRF1" or version != 1:
        raise ProtocolError(f"a frame begins with {magic!r} version {version}; this client reads HRF1 version 1")
    expected = columns[-1].first + columns[-1].buffers if columns else 1
    if size != payload.size or buffers != expected or spans > _MAX_SPANS:
        raise ValueError(f"it says {size} bytes, {buffers} buffers (not {expected}), {spans} spans")
    if not per_batch or batches != max(1, -(-rows // per_batch)):  # without rows: one empty batch of a round
        raise ValueError(f"{rows} rows in {batches} batches of {per_batch}")

    frame = Frame()
    frame.rows, frame.batches, frame.rows_per_batch = rows, batches, per_batch
    frame.first, frame.last, frame.size, frame.names = first, bool(flags & _LAST), size, names
    # Copied: a ledger keeps the spans until they are acked, not the whole buffer.
    table_at = _HEAD.size + SPAN.itemsize * spans
    frame.spans = np.frombuffer(bytes(view[_HEAD.size : table_at]), SPAN)
    total = _ROWS.unpack_from(view, _HEAD.size)[0] if spans == 1 else int(frame.spans["rows"].sum(dtype=np.int64))
    if total != rows:
        raise ValueError(f"its spans do not add up to {rows} rows")
    frame.times = bytes(view[times_at : times_at + 16 * (batches + spans)]) if times_at else b""
    table = struct.unpack_from(f"<{2 * buffers}Q", view, table_at)
    if names_size:
        frame.names = names.learn(wire.decode(wire.FRAME, payload[names_at : names_at + names_size].tobytes()))

    lay = _Layer(payload, table)
    frame.offsets = lay.fixed(0, _INT64, (rows,))
    frame.columns = lay.columns(columns, rows)
    masks = {c.name: lay.mask(c, rows) for c in columns if c.mask}
    frame.masks = masks or _NO_MASKS
    return frame


class _Layer:
    """Takes buffers out of a payload; numpy refuses a view beyond its end."""

    __slots__ = ("_payload", "_table")

    def __init__(self, payload: NDArray[np.uint8], table: tuple[int, ...]) -> None:
        self._payload = payload
        self._table = table

    def columns(self, columns: tuple[Column, ...], rows: int) -> dict[str, Values]:
        laid: dict[str, Values] = {}
        payload, table = self._payload, self._table
        for c in columns:
            plain = c.plain
            if plain is not None:  # most columns are, and this takes half the time of column()
                name, number, width, dtype, shape = plain
                at = table[2 * number]
                if table[2 * number + 1] == rows * width and not at % ALIGN:
                    laid[name] = np.ndarray((rows, *shape) if shape else (rows,), dtype, payload, at)
                    continue
            laid[c.name] = self.column(c, rows)
        return laid

    def column(self, c: Column, rows: int) -> Values:
        dtype = DTYPES[c.dtype]
        if not c.ragged and not c.binary:
            return self._values(c.first, dtype, (rows, *c.shape))
        offsets = self._growing(c.first, rows)
        if not c.binary:
            return Ragged(self._values(c.first + 1, dtype, (int(offsets[-1]),)), offsets)
        if not c.ragged:
            return Bytes(self.fixed(c.first + 1, dtype, (int(offsets[-1]),)), offsets, c.dtype == "string")
        elements = self._growing(c.first + 1, int(offsets[-1]))
        data = self.fixed(c.first + 2, dtype, (int(elements[-1]),))
        return Ragged(Bytes(data, elements, c.dtype == "string"), offsets)

    def mask(self, c: Column, rows: int) -> NDArray[np.bool_]:
        values: NDArray[np.bool_] = self._values(c.first + c.buffers - 1, DTYPES["bool"], (rows, *c.shape))
        return values

    def fixed(self, number: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        at, size = self._table[2 * number], self._table[2 * number + 1]
        if at % ALIGN:
            raise ValueError(f"buffer {number} begins at {at}, not at a multiple of {ALIGN}")
        view: NDArray[Any] = np.ndarray(shape, dtype, self._payload, at)
        if view.nbytes != size:
            raise ValueError(f"buffer {number} has {size} bytes where {view.nbytes} belong")
        return view

    def _values(self, number: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        view = self.fixed(number, dtype, shape)
        if dtype.kind == "b" and view.size and view.view(np.uint8).max() > 1:
            raise ValueError(f"buffer {number} holds bytes that are neither 0 nor 1")
        return view

    def _growing(self, number: int, count: int) -> NDArray[np.int64]:
        offsets = self.fixed(number, _INT64, (count + 1,))
        if offsets[0] != 0 or offsets[-1] > wire.MAX_FRAME or (offsets[1:] < offsets[:-1]).any():
            raise ValueError(f"the offsets in buffer {number} do not grow from 0")
        return offsets
