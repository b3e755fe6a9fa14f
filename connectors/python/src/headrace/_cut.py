"""The one reader of a cut: which records are in a model (docs/CUTS.md).

The Go package shardsvc/cut has the same rules. Both pass the vectors in
api/vectors/manifest. wrong_head is cheap and runs whenever a manifest is read.
wrong_inside reads every range and runs when a checkpoint is verified.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

MODELS = ("replicated", "private", "shared")
KINDS = ("acked", "excluded", "dropped")

_HEX = re.compile(r"[0-9a-f]{16}\Z")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_LINE = 1 << 60  # of offsets, lengths and counts
_UNITS = ((1 << 63) - 1) // 4
_TEXT = 1 << 20
_Piece = tuple[int, int, int]  # [start, end) of a segment


class _Wrong(Exception):
    """A field and what is wrong with it."""


def whole(value: Any, least: int, most: int = (1 << 63) - 1) -> bool:
    """value is a whole number, and no bool."""
    return type(value) is int and least <= value <= most


def is_id(value: Any) -> bool:
    """value names a cut: 16 hex digits, and not 0."""
    return isinstance(value, str) and bool(_HEX.match(value)) and value != "0" * 16


def wrong_head(cut: dict[str, Any]) -> str | None:
    """What is wrong beside the datasets, "field: reason"; None: nothing."""
    for name, ok, reason in (
        ("id", is_id(cut.get("id")), "16 hex digits, and not 0"),
        ("job", _is_text(cut.get("job"), 1, 256), "a name"),
        ("model", cut.get("model") in MODELS, f"one of {', '.join(MODELS)}"),
        ("epoch", whole(cut.get("epoch"), 0, (1 << 32) - 1), "a whole number from 0"),
        ("order", whole(cut.get("order", 0), 0, (1 << 62) - 1), "a whole number from 0 and below 2^62"),
        ("world_size", whole(cut.get("world_size"), 1, (1 << 32) - 1), "a whole number from 1"),
        ("step", whole(cut.get("step"), 0), "a whole number from 0"),
        ("rank", _has_rank(cut), "there for model private, and for no other"),
        (
            "exact",
            cut.get("model") == "shared" or cut.get("exact") is True,
            "true: only a shared model's may be inexact",
        ),
    ):
        if not ok:
            return f"{name}: must be {reason}"
    return None


def wrong_inside(cut: dict[str, Any]) -> str | None:
    """What is wrong in the datasets, "field: reason"; None: nothing."""
    try:
        names: set[str] = set()
        for i, dataset in enumerate(_list(cut, "datasets", "datasets")):
            where = f"datasets[{i}]"
            name = _text(dataset, "name", where, 1, 256)
            _ok(name not in names, f"{where}.name", f"{name!r} is there twice")
            names.add(name)
            _dataset(dataset, where)
            for j, partition in enumerate(dataset.get("partitions") or ()):
                _ok(
                    cut.get("model") == "replicated" or not partition.get("dropped"),
                    f"{where}.partitions[{j}].dropped",
                    "only a replicated model's cut has it",
                )
    except _Wrong as wrong:
        return str(wrong)
    return None


def _has_rank(cut: dict[str, Any]) -> bool:
    rank = cut.get("rank")
    return whole(rank, 0, (1 << 32) - 1) if cut.get("model") == "private" else rank is None


def _dataset(dataset: dict[str, Any], where: str) -> None:
    _ok(dataset.get("unit") in ("bytes", "records", "entries"), f"{where}.unit", "must be bytes, records or entries")
    shuffle = dataset.get("shuffle")
    if shuffle is not None:
        at = f"{where}.shuffle"
        _ok(isinstance(shuffle, dict), at, "must be an object")
        _number(shuffle, "seed", at, 0, (1 << 64) - 1)
        _number(shuffle, "block", at, 1, 1 << 40)
        ranks = _number(shuffle, "virtual_ranks", at, 0, 1024)
        _ok(not shuffle.get("in_order") or ranks > 0, f"{at}.in_order", "true, but there are no virtual ranks")
    identities: set[str] = set()
    for i, partition in enumerate(_list(dataset, "partitions", f"{where}.partitions")):
        at = f"{where}.partitions[{i}]"
        identity = _text(partition, "identity", at, 1, 4096)
        _text(partition, "name", at, 0, 4096)
        _ok(identity not in identities, f"{at}.identity", f"{identity!r} is there twice")
        identities.add(identity)
        _partition(partition, _Room(partition, shuffle, at), at)


class _Room:
    """Where a partition's positions may lie."""

    def __init__(self, partition: dict[str, Any], shuffle: dict[str, Any] | None, where: str) -> None:
        self.shuffled, self.end = shuffle is not None, 0
        self.segments: dict[int, tuple[int, int]] = {}
        last, total, blocks = -1, 0, 0
        segments = _list(partition, "segments", f"{where}.segments")
        for i, segment in enumerate(segments):
            at = f"{where}.segments[{i}]"
            number = _number(segment, "id", at, last + 1)
            start, end = _number(segment, "start", at, -_LINE, _LINE), _number(segment, "end", at, -_LINE, _LINE)
            _ok(start <= end, at, f"[{start}, {end}) is no range of offsets")
            sealed = bool(segment.get("sealed"))
            _ok(sealed or i == len(segments) - 1, f"{at}.sealed", "false, but only the last segment may grow")
            _ok(len(str(segment.get("name") or "").encode()) <= _TEXT, at, "its name is longer than 2^20 bytes")
            total += end - start
            _ok(total <= _LINE, at, "the segments up to it have more than 2^60 units")
            if shuffle is not None:
                blocks += -(-(end - start) // shuffle["block"])
            self.segments[number] = (start, end if sealed else _LINE)
            last = number
        rank, ranks = 0, (shuffle or {}).get("virtual_ranks") or 0
        if ranks:
            match = re.fullmatch(rf"(?s)(.+)#(0|[1-9][0-9]*)/{ranks}", partition["identity"])
            _ok(
                match is not None and int(match[2]) < ranks,
                f"{where}.identity",
                f"is of none of the {ranks} virtual ranks",
            )
            rank = int(match[2]) if match else 0
        if shuffle is not None:
            _ok(blocks <= _LINE // shuffle["block"], f"{where}.segments", "more than 2^60 units in blocks")
            self.end = shuffle["block"] * ((blocks - rank + ranks - 1) // ranks if ranks else blocks)

    def holds(self, segment: int, start: int, end: int) -> bool:
        if self.shuffled:
            return segment == 0 and 0 <= start <= end <= self.end
        if not self.segments:
            return segment == start == end == 0
        low, high = self.segments.get(segment, (1, 0))
        return low <= start <= end <= high


def _partition(partition: dict[str, Any], room: _Room, where: str) -> None:
    complete = bool(partition.get("complete"))
    done = _number(partition, "done", where, 0, (1 << 32) - 1)
    _ok(done == 0 or complete, f"{where}.done", f"{done} passes, but the listing is not complete")
    passes = _list(partition, "passes", f"{where}.passes")
    _ok(
        not room.shuffled or complete or not passes,
        f"{where}.passes",
        "a shuffled pass begins when the listing is complete",
    )
    _counts(partition, "done_units", "done_records", where)
    for i, one in enumerate(passes):
        at = f"{where}.passes[{i}]"
        done = _number(one, "pass", at, done, (1 << 32) - 2) + 1
        low = _numbers(one.get("low"), 2, f"{at}.low")
        _ok(room.holds(low[0], low[1], low[1]), f"{at}.low", f"{list(low)} lies in no segment")
        _counts(one, "units", "records", at)
        _ranges(one.get("ranges") or {}, (low[0], low[1]), room, f"{at}.ranges")
    before: tuple[int, int, int] | None = None
    for i, one in enumerate(_list(partition, "excluded", f"{where}.excluded")):
        at = f"{where}.excluded[{i}]"
        number = _number(one, "pass", at, 0, (1 << 32) - 1)
        segment, start, end = _numbers(one.get("range"), 3, f"{at}.range")
        _ok(start < end and room.holds(segment, start, end), f"{at}.range", "is empty or lies in no segment")
        _number(one, "units", at, 0)
        _ok(before is None or before <= (number, segment, start), at, "does not come after the one before it")
        before = (number, segment, end)
    _dropped(partition, room, where)


def _dropped(partition: dict[str, Any], room: _Room, where: str) -> None:
    """What no full round has. It is settled, and in no model."""
    before: tuple[int, int, int] | None = None
    for i, one in enumerate(_list(partition, "dropped", f"{where}.dropped")):
        at = f"{where}.dropped[{i}]"
        number = _number(one, "pass", at, 0, (1 << 32) - 1)
        segment, start, end = _numbers(one.get("range"), 3, f"{at}.range")
        _ok(start < end and room.holds(segment, start, end), f"{at}.range", "is empty or lies in no segment")
        _number(one, "units", at, 1, end - start)
        _number(one, "step", at, 0)
        _ok(before is None or before <= (number, segment, start), at, "does not come after the one before it")
        _ok(_settles(partition, number, (segment, start, end)), f"{at}.range", f"[{start}, {end}) is not settled")
        before = (number, segment, end)


def _settles(partition: dict[str, Any], number: int, piece: _Piece) -> bool:
    """All of a piece of a pass is settled. The passes were checked before."""
    segment, at, end = piece
    if number < partition.get("done", 0):
        return True
    for one in partition.get("passes") or ():
        if one["pass"] != number:
            continue
        low = tuple(one["low"])
        if (segment, end) <= low:
            return True
        if (segment, at) < low:
            at = low[1]
        ranges = one.get("ranges") or {}
        for (other, start, stop), _ in _merged([_pieces(ranges.get(kind), kind) for kind in KINDS], ""):
            if other == segment and start <= at < stop:
                at = stop
        return at >= end
    return False


def _ranges(ranges: Any, low: tuple[int, int], room: _Room, where: str) -> None:
    _ok(isinstance(ranges, dict), where, "must be an object")
    lists = [_pieces(ranges.get(kind), f"{where}.{kind}") for kind in KINDS]
    at = low
    for piece, field in _merged(lists, where):
        segment, start, end = piece
        _ok(start < end, field, f"{list(piece)} is empty")
        _ok(room.holds(segment, start, end), field, f"{list(piece)} lies in no segment")
        _ok(at <= (segment, start), field, f"{list(piece)} does not come after {list(at)}")
        at = (segment, end)


def _merged(lists: list[list[_Piece]], where: str) -> Iterator[tuple[_Piece, str]]:
    """By where pieces begin. A list that is out of order stays so."""
    at = [0] * len(lists)
    while left := [k for k in range(len(lists)) if at[k] < len(lists[k])]:
        kind = min(left, key=lambda k: lists[k][at[k]][:2])
        yield lists[kind][at[kind]], f"{where}.{KINDS[kind]}[{at[kind]}]"
        at[kind] += 1


def _pieces(values: Any, where: str) -> list[_Piece]:
    _ok(values is None or isinstance(values, list), where, "must be a list of [segment, start, end]")
    return [_numbers(value, 3, f"{where}[{i}]") for i, value in enumerate(values or ())]  # type: ignore[misc]


def _counts(of: dict[str, Any], units: str, records: str, where: str) -> None:
    """Units by kind, and the records in the acked ones if they were counted."""
    counted, at = of.get(units) or {}, f"{where}.{units}"
    _ok(isinstance(counted, dict), at, "must be an object")
    for kind in KINDS:
        _ok(whole(counted.get(kind, 0), 0, _UNITS), at, f"{kind}: must be 0 to 2^61")
    tally, at = of.get(records), f"{where}.{records}"
    if tally is None:
        return
    _ok(isinstance(tally, dict), at, "must be an object")
    rows = _number(tally, "rows", at, 0, _LINE)
    _number(tally, "untold", at, 0, counted.get("acked", 0))
    oldest, newest = _number(tally, "oldest", at, -(1 << 63)), _number(tally, "newest", at, -(1 << 63))
    _ok(
        oldest <= newest and (oldest == 0) == (newest == 0),
        f"{at}.oldest",
        f"{oldest}, and newest {newest}: no span of times",
    )
    _ok(rows > 0 or newest == 0, f"{at}.newest", "there are event times, but no rows")


def _list(of: dict[str, Any], name: str, where: str) -> list[Any]:
    values = of.get(name)
    values = [] if values is None else values
    _ok(isinstance(values, list) and all(isinstance(v, dict) for v in values), where, "must be a list of objects")
    return list(values)


def _numbers(value: Any, n: int, where: str) -> tuple[int, ...]:
    ok = isinstance(value, list) and len(value) == n and all(whole(v, -(1 << 63)) for v in value)
    _ok(ok, where, f"must be {n} integers")
    return tuple(value)


def _number(of: dict[str, Any], name: str, where: str, least: int, most: int = (1 << 63) - 1) -> int:
    value = of.get(name, 0)
    _ok(whole(value, least, most), f"{where}.{name}", f"{value!r}: must be {least} to {most}")
    return int(value)


def _text(of: dict[str, Any], name: str, where: str, least: int, most: int) -> str:
    value = of.get(name, "")
    _ok(
        _is_text(value, least, most),
        f"{where}.{name}",
        f"must be a text of {least} to {most} bytes, without control characters",
    )
    return str(value)


def _is_text(value: Any, least: int, most: int) -> bool:
    if not isinstance(value, str) or _CONTROL.search(value):
        return False
    return least <= len(value.encode(errors="surrogatepass")) <= most


def _ok(ok: bool, field: str, reason: str) -> None:
    if not ok:
        raise _Wrong(f"{field}: {reason}")
