"""Claims: the records of an update, for a server that stores them with the update.

A stepped batch is never given out again. But if a trainer is killed between the update
and step(), its batch comes again, and only the server knows that the update arrived. If
the server stores each update together with its claim, in one write, it can refuse the
second update.

Records come again in other batches: of other sizes, from other leases. So a claim names
ranges of the source, not batches, and a server keeps the set of ranges that are in its
model (`Applied`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import _ranges

if TYPE_CHECKING:
    from ._batch import Batch


class Take(NamedTuple):
    """Records of one segment that follow each other: those that begin in [start, end)."""

    partition: str  # the source's own identity of it: "files:clicks"
    pass_: int
    segment: str  # its name: "day_3.tsv"; its number where the source names none
    start: int
    end: int
    token: tuple[int, int, int]  # the lease that the records came under: epoch, term, sequence

    @property
    def place(self) -> tuple[str, int, str]:
        """What start and end count in."""
        return self.partition, self.pass_, self.segment


class Claim:
    """Some records of a dataset, to be in the model once. False if it holds none."""

    __slots__ = ("_rows", "dataset", "takes")

    def __init__(
        self, dataset: str, takes: Iterable[Take], rows: Iterable[tuple[NDArray[Any], NDArray[Any]]] = ()
    ) -> None:
        self.dataset = dataset
        self.takes = tuple(takes)
        self._rows = tuple(rows)  # of each take: rows of the batch, and where they begin

    def __bool__(self) -> bool:
        return bool(self.takes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Claim) and (self.dataset, self.takes) == (other.dataset, other.takes)

    def __hash__(self) -> int:
        return hash((self.dataset, self.takes))

    def __repr__(self) -> str:
        ranges = ", ".join(f"{t.segment}[{t.start}, {t.end})" for t in self.takes)
        return f"Claim({self.dataset!r}, {ranges or 'nothing'})"

    @property
    def rows(self) -> NDArray[np.int64]:
        """The rows of the batch that it is made of, in order: ``batch["x"][claim.rows]``."""
        if self.takes and not self._rows:
            raise ValueError("a claim from data() knows no rows: ask the one that stream.claim() gave")
        return np.concatenate([rows for rows, _ in self._rows]) if self._rows else np.empty(0, np.int64)

    def part(self, missing: Claim) -> Claim:
        """The part of the claim that is in `missing`, the server's answer. Only the rows of
        that part may be in the next update."""
        takes: list[Take] = []
        rows: list[tuple[NDArray[Any], NDArray[Any]]] = []
        if self.takes and not self._rows:
            raise ValueError("part() is for a claim that stream.claim() gave")
        for take, (numbers, offsets) in zip(self.takes, self._rows):
            for other in missing.takes:
                start, end = max(take.start, other.start), min(take.end, other.end)
                if missing.dataset == self.dataset and other.place == take.place and start < end:
                    a, b = np.searchsorted(offsets, (start, end))
                    takes.append(take._replace(start=start, end=end))
                    rows.append((numbers[a:b], offsets[a:b]))
        return Claim(self.dataset, takes, rows)

    def data(self) -> dict[str, Any]:
        """The claim as values of JSON, to send it to a server."""
        return {"dataset": self.dataset, "takes": [[*take[:5], *take.token] for take in self.takes]}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Claim:
        """The claim that data() described. Raises ValueError."""
        try:
            dataset = _typed(data["dataset"], str)
            takes = [_take(*entry) for entry in data["takes"]]
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"this is no claim: {error}") from None
        return cls(dataset, takes)


def _typed(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise ValueError(f"{value!r} is not {kind.__name__}")
    return value


def _take(partition: Any, pass_: Any, segment: Any, *numbers: Any) -> Take:
    start, end, *token = (_typed(n, int) for n in numbers)
    if start >= end or len(token) != 3:
        raise ValueError(f"[{start}, {end}) with the token {token}")
    return Take(
        _typed(partition, str), _typed(pass_, int), _typed(segment, str), start, end, (token[0], token[1], token[2])
    )


def claim(dataset: str, batch: Batch) -> Claim:
    """Which records the rows of a batch are."""
    frame, first = batch._frame, batch._start
    takes: list[Take] = []
    rows: list[tuple[NDArray[Any], NDArray[Any]]] = []
    for r, token, a, b in _ranges.leased(frame, first, batch._stop):
        takes.append(Take(r.partition, r.pass_, r.name or str(r.segment), r.start, r.end, token))
        rows.append((np.arange(a - first, b - first), frame.offsets[a:b].copy()))
    return Claim(dataset, takes, rows)


class _Set:
    """Disjoint ranges of one place, in order. Neighbours are one."""

    __slots__ = ("ends", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []

    def missing(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        for i in range(bisect_right(self.ends, start), bisect_left(self.starts, end)):
            if start < self.starts[i]:
                yield start, self.starts[i]
            start = self.ends[i]
        if start < end:
            yield start, end

    def add(self, start: int, end: int) -> None:
        i, j = bisect_left(self.ends, start), bisect_right(self.starts, end)
        if i < j:
            start, end = min(start, self.starts[i]), max(end, self.ends[j - 1])
        self.starts[i:j], self.ends[i:j] = [start], [end]


class Applied:
    """The records that are in a model: what its server stores with each update.

        missing = applied.missing(claim)
        if missing == claim:     # all of it is new
            applied.add(claim)
            model.apply(update)
            store(model, applied.data())  # both in one write, or neither
        return missing           # else: the trainer makes the update of this part alone

    Its size grows with the holes and the segments, not with the records, because
    neighbouring ranges are joined. One thread uses it.
    """

    __slots__ = ("_sets",)

    def __init__(self, data: Iterable[Iterable[Any]] = ()) -> None:
        self._sets: dict[tuple[str, str, int, str], _Set] = {}
        for dataset, partition, pass_, segment, ranges in data:
            place = (_typed(dataset, str), _typed(partition, str), _typed(pass_, int), _typed(segment, str))
            kept = self._sets.setdefault(place, _Set())
            for start, end in ranges:
                kept.add(_typed(start, int), _typed(end, int))

    def missing(self, claim: Claim) -> Claim:
        """The part of the claim that is not in the model; equal to the claim if no part is."""
        takes: list[Take] = []
        for take in claim.takes:
            kept = self._sets.get((claim.dataset, *take.place))
            ranges = kept.missing(take.start, take.end) if kept is not None else [(take.start, take.end)]
            takes += [take._replace(start=start, end=end) for start, end in ranges]
        return Claim(claim.dataset, takes)

    def add(self, claim: Claim) -> None:
        """The claim's records are in the model from now on. Raises ValueError, and changes
        nothing, if one of them is already."""
        if self.missing(claim) != claim or _overlaps(claim.takes):
            raise ValueError(f"{claim!r}: some of it is in the model already")
        for take in claim.takes:
            self._sets.setdefault((claim.dataset, *take.place), _Set()).add(take.start, take.end)

    def forget(self, dataset: str) -> None:
        """Forgets all claims of a dataset, so that its records are applied again."""
        for place in [place for place in self._sets if place[0] == dataset]:
            del self._sets[place]

    def data(self) -> list[list[Any]]:
        """Everything as values of JSON: for each segment its dataset, partition, pass and
        name, and the ranges."""
        return [[*place, [list(r) for r in zip(s.starts, s.ends)]] for place, s in sorted(self._sets.items())]

    def __len__(self) -> int:
        """How many ranges it holds."""
        return sum(len(s.starts) for s in self._sets.values())


def _overlaps(takes: tuple[Take, ...]) -> bool:
    ordered = sorted(takes, key=lambda t: (t.place, t.start))
    return any(a.place == b.place and b.start < a.end for a, b in zip(ordered, ordered[1:]))
