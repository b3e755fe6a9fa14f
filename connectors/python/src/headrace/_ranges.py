"""The records of a run of rows: spans of leases, cut at rows."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._frame import Frame

_TIMES = struct.Struct("<qq")

# kafka:c/id/3, rocketmq:c/broker/topic/3, clicks/3; pulsar:t/n/clicks-partition-3@12
_NUMBERED = re.compile(r"/(\d{1,9})$|-partition-(\d{1,9})@\d+$")


class Range(NamedTuple):
    """Records of one segment that follow each other in a batch."""

    partition: str  # its identity, "files:clicks"
    pass_: int
    segment: int
    start: int  # offset where the first record begins
    end: int  # offset after the last record, and after positions without a record that follow it
    rows: int
    name: str  # of the segment, for people: "day_3.tsv"


class _Piece(NamedTuple):
    """Rows [start, stop) of a frame, all of one span."""

    span: Any
    start: int
    stop: int
    whole_start: bool  # begins where the span begins
    whole_stop: bool


def _pieces(spans: NDArray[Any], start: int, stop: int) -> Iterator[_Piece]:
    begin = 0
    for span in spans:
        end = begin + int(span["rows"])
        if begin < stop and end > start:
            a, b = max(begin, start), min(end, stop)
            yield _Piece(span, a, b, a == begin, b == end)
        begin = end


Token = tuple[int, int, int]  # epoch, term, sequence


def leased(frame: Frame, start: int, stop: int) -> Iterator[tuple[Range, Token, int, int]]:
    """The records of rows [start, stop) in the source's own coordinates, each run with the
    token of its lease and the rows [from, to) of the frame that it is."""
    for span, a, b, whole_start, whole_stop in _pieces(frame.spans, start, stop):
        number, segment = int(span["partition"]), int(span["segment"])
        run = Range(
            partition=frame.names.partitions.get(str(number), str(number)),
            pass_=int(span["pass"]),
            segment=segment,
            start=int(span["start"]) if whole_start else int(frame.offsets[a]),
            end=int(span["end"]) if whole_stop else int(frame.offsets[b]),
            rows=b - a,
            name=frame.names.segments.get(f"{number}/{segment}", str(segment)),
        )
        yield run, (int(span["epoch"]), int(span["term"]), int(span["sequence"])), a, b


def ranges(frame: Frame, start: int, stop: int) -> list[Range]:
    """The records of rows [start, stop), in the source's own coordinates."""
    return [run for run, _, _, _ in leased(frame, start, stop)]


class Ledger:
    """Facts about a frame's batches that are needed until they are acked, when the frame
    may be gone: an agent that comes back must hear which pieces of which leases we have."""

    __slots__ = ("_cuts", "_spans", "_times", "batches", "first", "rows", "rows_per_batch")

    def __init__(self, frame: Frame) -> None:
        self.first = frame.first
        self.batches = frame.batches
        self.rows = frame.rows
        self.rows_per_batch = frame.rows_per_batch
        self._spans = frame.spans
        self._times = frame.times
        self._cuts = frame.offsets[frame.rows_per_batch :: frame.rows_per_batch].tolist()

    @property
    def last(self) -> int:
        """Number of its last batch."""
        return self.first + self.batches - 1

    def rows_of(self, number: int) -> int:
        """Rows of a batch, by its number in the stream."""
        start = (number - self.first) * self.rows_per_batch
        return min(self.rows_per_batch, self.rows - start)

    def parts(self) -> tuple[bytes, bytes, bytes]:
        """Its spans, where its batches but the first begin, and its times, as the
        outbox has them."""
        cuts = self._cuts[: self.batches - 1]
        return self._spans.tobytes(), struct.pack(f"<{len(cuts)}q", *cuts), self._times

    def leases_of(self, number: int) -> list[list[int]]:
        """A batch's pieces of leases as `resume` lists them, in order space, with
        their rows and the oldest and newest event time."""
        k = number - self.first
        start = k * self.rows_per_batch
        out: list[list[int]] = []
        before = self._pieces_before(start)
        for span, a, b, whole_start, whole_stop in _pieces(self._spans, start, start + self.rows_of(number)):
            shift = int(span["lease_to"]) - int(span["end"])  # offset in the segment -> order space
            head = ("epoch", "term", "sequence", "dataset", "partition", "pass", "segment")
            out.append(
                [
                    *(int(span[name]) for name in head),
                    int(span["lease_from"]) if whole_start else self._cuts[k - 1] + shift,
                    int(span["lease_to"]) if whole_stop else self._cuts[k] + shift,
                    b - a,
                    *self._times_of(before + len(out)),
                ]
            )
        return out

    def _pieces_before(self, row: int) -> int:
        """How many pieces end at or before a row where a batch begins."""
        n = begin = 0
        for rows in self._spans["rows"].tolist():
            end = min(begin + rows, row)
            if begin < end:
                n += (end - 1) // self.rows_per_batch - begin // self.rows_per_batch + 1
            begin += rows
        return n

    def _times_of(self, piece: int) -> tuple[int, int]:
        if len(self._times) < (piece + 1) * _TIMES.size:
            return 0, 0
        oldest, newest = _TIMES.unpack_from(self._times, piece * _TIMES.size)
        return oldest, newest


def _number(frame: Frame, partition: int, segment: int) -> int:
    """The number that the source itself gives to a partition; 0: it numbers none, as
    files do. `partition` is the master's number of it."""
    identity = frame.names.partitions.get(str(partition))
    if identity is None:  # an agent that does not tell
        return partition
    if "/" not in identity:
        return 0
    # With bit_exact all partitions of the topics are one, and each is a segment of it.
    for text in (identity, frame.names.segments.get(f"{partition}/{segment}", "")):
        if found := _NUMBERED.search(text):
            return int(found.group(1) or found.group(2))
    return 0


POSITION = np.dtype([("partition", "<u4"), ("pass", "<u4"), ("segment", "<i8"), ("offset", "<i8")])


def positions(frame: Frame, start: int, stop: int) -> NDArray[Any]:
    """Where each of rows [start, stop) begins: an array of POSITION."""
    out: NDArray[Any] = np.empty(stop - start, POSITION)
    of = np.repeat(np.arange(len(frame.spans)), frame.spans["rows"].astype(np.int64))[start:stop]
    for name in ("pass", "segment"):
        out[name] = frame.spans[name][of]
    numbers = [_number(frame, int(span["partition"]), int(span["segment"])) for span in frame.spans]
    out["partition"] = np.array(numbers, np.uint32)[of]
    out["offset"] = frame.offsets[start:stop]
    return out
