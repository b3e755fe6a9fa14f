"""Frames: numpy views of one buffer, or a ProtocolError; never anything else."""

from __future__ import annotations

import base64
import json
import math
import random
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
from frames import aligned, frame, span
from headrace import _columns, _frame, _ranges
from headrace._batch import Batch

VECTORS = Path(__file__).parents[3] / "api" / "vectors" / "frames"
DTYPES = {"bool": np.bool_, "int32": np.int32, "int64": np.int64, "float32": np.float32, "float64": np.float64}


def vector_names() -> list[str]:
    return sorted(path.stem for path in VECTORS.glob("*.json"))


def test_there_are_vectors() -> None:
    assert len(vector_names()) >= 4


def plain(value: Any, dtype: str) -> Any:
    """A value as the vectors write it."""
    if isinstance(value, list):
        return [plain(v, dtype) for v in value]
    if dtype == "bytes":
        return base64.b64encode(value).decode()
    if dtype in ("float32", "float64") and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value


def same(got: Any, want: Any, dtype: str) -> bool:
    if isinstance(want, list):
        return len(got) == len(want) and all(same(g, w, dtype) for g, w in zip(got, want))
    if dtype == "float32" and not isinstance(want, str):
        return bool(np.float32(got) == np.float32(want))
    return bool(got == want)


@pytest.mark.parametrize("name", vector_names())
def test_vector(name: str) -> None:
    v = json.loads((VECTORS / f"{name}.json").read_text())
    payload = aligned(base64.b64decode(v["payload_base64"]))
    columns = _columns.parse_schema(v["schema"])
    f = _frame.parse(payload, columns, _frame.Names())
    head = v["head"]
    assert (f.rows, f.batches, f.rows_per_batch) == (head["rows"], head["batches"], head["rows_per_batch"])
    assert (f.first, f.last) == (head["first_batch"], head["last"])
    assert f.offsets.tolist() == v["offsets"]
    assert len(f.spans) == len(v["spans"])
    for got, want in zip(f.spans, v["spans"]):
        assert {key: int(got[key]) for key in want} == want
    assert f.names.partitions == (v["names"] or {}).get("partitions", {})
    assert f.names.segments == (v["names"] or {}).get("segments", {})
    for c in columns:
        column = f.columns[c.name]
        if not c.ragged and not c.binary:
            assert column.dtype == DTYPES[c.dtype]
            assert column.shape == (f.rows, *c.shape)
            if len(c.shape) > 1:  # rows are written flat
                column = column.reshape(f.rows, -1)
        assert same(plain(column.tolist(), c.dtype), v["columns"][c.name], c.dtype), c.name
        if c.mask:
            assert f.masks[c.name].astype(int).ravel().tolist() == [int(m) for m in v["masks"][c.name]]


SCHEMA = {
    "columns": [
        {"name": "x", "dtype": "float32", "shape": [2, 3], "layout": "fixed", "mask": True},
        {"name": "flag", "dtype": "bool", "shape": [], "layout": "fixed", "mask": False},
        {"name": "r", "dtype": "int64", "shape": [], "layout": "ragged", "mask": True},
        {"name": "s", "dtype": "string", "shape": [], "layout": "fixed", "mask": False},
        {"name": "rs", "dtype": "bytes", "shape": [], "layout": "ragged", "mask": False},
    ]
}


def random_frame(rng: random.Random) -> tuple[bytes, dict[str, Any]]:
    rows, per = rng.randrange(1, 60), rng.randrange(1, 20)
    words = [rng.randbytes(rng.randrange(6)).hex() for _ in range(rows)]
    ragged = [[rng.getrandbits(62) for _ in range(rng.randrange(4))] for _ in range(rows)]
    nested = [[rng.randbytes(rng.randrange(5)) for _ in range(rng.randrange(3))] for _ in range(rows)]
    elements = [e for row in nested for e in row]

    def offsets(sizes: list[int]) -> np.ndarray:
        return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

    x = np.array([rng.random() for _ in range(6 * rows)], np.float32).reshape(rows, 2, 3)
    flag = np.array([rng.random() < 0.5 for _ in range(rows)])
    mask = np.array([rng.randrange(2) for _ in range(rows)], np.uint8)
    at = np.cumsum([rng.randrange(1, 9) for _ in range(rows + 1)]).astype(np.int64)
    payload = frame(
        [
            at[:-1], x, (x > 0.5).astype(np.uint8), flag.astype(np.uint8),
            offsets([len(r) for r in ragged]), np.array([v for r in ragged for v in r], np.int64), mask,
            offsets([len(w) for w in words]), "".join(words).encode(),
            offsets([len(r) for r in nested]), offsets([len(e) for e in elements]), b"".join(elements),
        ],
        [span(rows, int(at[0]), int(at[-1]))],
        rows=rows, per_batch=per, first=rng.randrange(1, 100),
    )  # fmt: skip
    return payload, {
        "x": x.tolist(),
        "flag": flag.tolist(),
        "r": ragged,
        "s": words,
        "rs": nested,
        "per": per,
        "at": at,
    }


def test_random_frames_read_as_they_were_written(rng: random.Random) -> None:
    columns = _columns.parse_schema(SCHEMA)
    for _ in range(60):
        payload, want = random_frame(rng)
        buffer = aligned(payload)
        f = _frame.parse(buffer, columns, _frame.Names())
        whole = Batch(f, 0, f.rows, None, 1)
        for name in whole:
            assert whole[name].tolist() == want[name]
        x = whole["x"]
        assert np.shares_memory(x, buffer)
        assert x.ctypes.data % 64 == 0
        assert x.flags.writeable
        # Batches and slices of them see the same rows.
        for k in range(f.batches):
            a, b = k * want["per"], min((k + 1) * want["per"], f.rows)
            batch = Batch(f, a, b, None, 1)
            assert [list(d.values()) for d in batch.to_dicts()] == [[want[n][i] for n in batch] for i in range(a, b)]
            part = batch.slice(1, 3)
            assert {n: part[n].tolist() for n in part} == {n: want[n][a:b][1:3] for n in part}
            assert part.mask("x").tolist() == batch.mask("x")[1:3].tolist()
            assert batch.positions()["offset"].tolist() == want["at"][a:b].tolist()


def test_damaged_frames_raise_protocol_error_and_nothing_else(rng: random.Random) -> None:
    columns = _columns.parse_schema(SCHEMA)
    for _ in range(40):
        payload, _ = random_frame(rng)
        for _ in range(40):
            bad = bytearray(payload)
            for _ in range(rng.randrange(1, 4)):
                bad[rng.randrange(min(len(bad), 700))] = rng.choice((0, 1, 255, rng.randrange(256)))
            if rng.random() < 0.2:
                del bad[rng.randrange(len(bad)) :]
            try:
                f = _frame.parse(aligned(bytes(bad)), columns, _frame.Names())
                Batch(f, 0, f.rows, None, 1).to_dicts()
            except headrace.ProtocolError:
                pass


def test_spans_cut_at_batches_give_ranges_and_leases() -> None:
    """Two spans: rows 0..4 of one lease (order space shifted by 1000), rows 5..9 of another."""
    at = np.array([0, 10, 20, 30, 40, 500, 510, 520, 530, 540], np.int64)
    spans = [
        span(5, 0, 55, lease_from=998, lease_to=1055, sequence=8),
        span(5, 500, 550, lease_from=500, lease_to=600 - 50, sequence=9, segment=6),
    ]
    payload = frame(
        [at],
        spans,
        rows=10,
        per_batch=4,
        first=3,
        names={"partitions": {"7": "files:d"}, "segments": {"7/5": "a.tsv"}},
        times=[(1, 4), (5, 5), (0, 0), (-9, -6)],
    )
    f = _frame.parse(aligned(payload), (), _frame.Names())
    ledger = _ranges.Ledger(f)
    assert [ledger.rows_of(n) for n in (3, 4, 5)] == [4, 4, 2]
    token8, token9 = [1, 2, 8, 3, 7, 1, 5], [1, 2, 9, 3, 7, 1, 6]
    assert ledger.leases_of(3) == [[*token8, 998, 1040, 4, 1, 4]]
    assert ledger.leases_of(4) == [[*token8, 1040, 1055, 1, 5, 5], [*token9, 500, 530, 3, 0, 0]]
    assert ledger.leases_of(5) == [[*token9, 530, 550, 2, -9, -6]]
    middle = Batch(f, 4, 8, None, 4)
    assert middle.ranges == [
        headrace.Range("files:d", 1, 5, 40, 55, 1, "a.tsv"),
        headrace.Range("files:d", 1, 6, 500, 530, 3, "6"),
    ]
    assert middle.positions().tolist() == [(0, 1, 5, 40), (0, 1, 6, 500), (0, 1, 6, 510), (0, 1, 6, 520)]


def test_names_that_are_told_anew_replace_the_older_ones_and_each_frame_keeps_its_own() -> None:
    names = _frame.Names()

    def told(segment: int, block: dict[str, Any] | None) -> Batch:
        nonlocal names
        payload = frame([np.array([40, 41], np.int64)], [span(2, 40, 42, segment=segment)], rows=2, per_batch=2,
                        names=block)  # fmt: skip
        f = _frame.parse(aligned(payload), (), names)
        names = f.names
        return Batch(f, 0, 2, None, 1)

    first = told(5, {"partitions": {"7": "files:d"}, "segments": {"7/5": "a.tsv"}})
    second = told(6, {"segments": {"7/6": "b.tsv"}})
    again = told(5, None)
    third = told(6, {"anew": True, "partitions": {"7": "files:d"}, "segments": {"7/6": "b.tsv"}})
    assert names.segments == {"7/6": "b.tsv"}
    assert [b.ranges[0].name for b in (first, second, again, third)] == ["a.tsv", "b.tsv", "a.tsv", "b.tsv"]
    assert {b.ranges[0].partition for b in (first, second, again, third)} == {"files:d"}


@pytest.mark.parametrize(
    ("identity", "segment", "number"),
    [
        ("kafka:xyz/AbC0/12", "clicks/12", 12),
        ("kafka:xyz/AbC0+DeF1", "views/4", 4),  # bit_exact: the topics are one sequence
        ("pulsar:public/default/clicks-partition-3@99", "ledger 5", 3),
        ("pulsar:public/default/clicks@99", "ledger 5", 0),
        ("rocketmq:c/broker-a/clicks/2", "clicks", 2),
        ("files:d", "day/7", 0),
        ("", "", 7),  # an older agent does not name the partition
    ],
)
def test_a_position_has_the_partitions_own_number(identity: str, segment: str, number: int) -> None:
    """It once had the master's number of the partition, which no tool of the source knows."""
    names = {"partitions": {"7": identity}, "segments": {"7/5": segment}} if identity else None
    payload = frame([np.array([40, 41], np.int64)], [span(2, 40, 42)], rows=2, per_batch=2, names=names)
    batch = Batch(_frame.parse(aligned(payload), (), _frame.Names()), 0, 2, None, 1)
    assert batch.positions().tolist() == [(number, 1, 5, 40), (number, 1, 5, 41)]


def test_batch_is_a_mapping_of_columns() -> None:
    columns = _columns.parse_schema(SCHEMA)
    payload, want = random_frame(random.Random(1))
    f = _frame.parse(aligned(payload), columns, _frame.Names())
    b = Batch(f, 0, f.rows, None, 1)
    assert list(b) == list(b.keys()) == ["x", "flag", "r", "s", "rs"]
    assert len(b.keys()) == len(b.items()) == len(b.values()) == 5
    assert dict(b)["flag"] is b["flag"]
    assert "x" in b
    assert "y" not in b
    with pytest.raises(KeyError, match="the batch has the columns x, flag"):
        b["y"]
    with pytest.raises(KeyError, match="missing: mask"):
        b.mask("flag")
    with pytest.raises(KeyError, match="the batch has the columns"):
        b.mask("y")
    assert "5 rows" in repr(b) or "rows" in repr(b)
    assert len(b["r"].lengths) == f.rows
    assert b["s"].to_numpy().tolist() == want["s"]
    assert b["s"][-1] == want["s"][-1]
    assert b["r"][0].tolist() == want["r"][0]


def test_strings_that_are_not_utf8_keep_their_bytes() -> None:
    column = headrace.Bytes(np.frombuffer(b"\xff\x00ok", np.uint8), np.array([0, 2, 4]), True)
    assert [v.encode("utf-8", "surrogateescape") for v in column] == [b"\xff\x00", b"ok"]
    assert headrace.hash64(column).tolist() == [headrace.hash64(b"\xff\x00"), headrace.hash64("ok")]


def test_a_column_of_an_unknown_kind_is_refused() -> None:
    for change in ({"dtype": "decimal"}, {"layout": "sparse"}, {"shape": [0]}, {"dtype": "string", "shape": [2]}):
        told = {"name": "x", "dtype": "int32", "shape": [], "layout": "fixed", "mask": False, **change}
        with pytest.raises(headrace.ProtocolError, match="x"):
            _columns.parse_schema({"columns": [told]})
