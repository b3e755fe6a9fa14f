"""Parquet files that pyarrow wrote with each codec, encoding and page version. What a trainer gets is
compared with what pyarrow reads."""

from __future__ import annotations

import datetime
import decimal
import os
import signal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROWS = 250


def table(first: int, n: int = ROWS) -> Any:
    at = range(first, first + n)
    when = datetime.datetime(2026, 11, 22, 1, 2, 3, 456789)
    return pa.table(
        {
            "id": pa.array(at, pa.int64()),
            "small": pa.array([None if i % 5 == 0 else i % 100 - 50 for i in at], pa.int8()),
            "big": pa.array([i * 50_000 for i in at], pa.uint32()),
            "x": pa.array([None if i % 3 == 0 else i / 7 for i in at], pa.float64()),
            "y": pa.array([i / 3 for i in at], pa.float32()),
            "half": pa.array([np.float16(i % 2000 / 8) for i in at], pa.float16()),
            "flag": pa.array([None if i % 11 == 0 else i % 3 == 0 for i in at]),
            "word": pa.array([None if i % 13 == 0 else f"word {i % 97}" for i in at]),
            "long": pa.array([f"row {i}, which is unlike all others" for i in at]),
            "fixed": pa.array([b"%08d" % i for i in at], pa.binary(8)),
            "price": pa.array([decimal.Decimal(i * 37 - 5000).scaleb(-2) for i in at], pa.decimal128(12, 2)),
            "wide": pa.array([decimal.Decimal(i * 10**18 + i).scaleb(-5) for i in at], pa.decimal128(38, 5)),
            "when": pa.array([when + datetime.timedelta(seconds=i) for i in at], pa.timestamp("us")),
            "day": pa.array([when.date() + datetime.timedelta(days=i % 999) for i in at]),
            "tags": pa.array([None if i % 7 == 0 else [f"t{j}" for j in range(i % 5)] for i in at]),
            "nums": pa.array([[None if j == 3 else i + j for j in range(i % 6)] for i in at], pa.list_(pa.int32())),
            "deep": pa.array([{"a": {"b": None if i % 4 == 0 else i}} for i in at]),
            "items": pa.array([[{"k": f"k{j}", "v": j / 2} for j in range(i % 3)] for i in at]),
            "map": pa.array([[(f"m{j}", i * j) for j in range(i % 3)] for i in at], pa.map_(pa.string(), pa.int64())),
            "matrix": pa.array([[[i, i + 1]] * (i % 3) for i in at], pa.list_(pa.list_(pa.int64()))),
            "embedding": pa.array([[i / (j + 1) for j in range(6)] for i in at], pa.list_(pa.float32(), 6)),
            "some": pa.array([[i, None if i % 3 == 0 else 2] if i % 5 else None for i in at], pa.list_(pa.int64())),
        }
    )


SPEC = """
name: {name}
files: {{root: {root}, paths: ["{name}/*.parquet"]}}
decode:
  format: parquet
  event_time: when
  columns:
    - {{name: id, path: id, dtype: int64}}
    - {{name: small, path: small, dtype: int32, default: -99}}
    - {{name: big, path: big, dtype: int64}}
    - {{name: x, path: x, dtype: float32, missing: mask}}
    - {{name: pair, paths: [x, y], dtype: float64, default: -1}}
    - {{name: half, path: half, dtype: float32}}
    - {{name: flag, path: flag, dtype: bool, default: "false"}}
    - {{name: word, path: word, dtype: string, default: none}}
    - {{name: hashed, path: word, dtype: int64, hash: {{buckets: 1000, salt: s}}, default: 0}}
    - {{name: hashed_id, path: id, dtype: int64, hash: {{buckets: 0}}}}
    - {{name: long, path: long, dtype: string}}
    - {{name: fixed, path: fixed, dtype: bytes}}
    - {{name: price, path: price, dtype: float64}}
    - {{name: wide, path: wide, dtype: float64}}
    - {{name: when, path: when, dtype: int64}}
    - {{name: day, path: day, dtype: int32}}
    - {{name: tags, path: /tags/*, dtype: string}}
    - {{name: tag_ids, path: /tags/*, dtype: int64, hash: {{buckets: 77}}, max: 2}}
    - {{name: nums, path: /nums/*, dtype: int64, default: -1}}
    - {{name: deep, path: /deep/a/b, dtype: int64, missing: mask}}
    - {{name: keys, path: /items/*/k, dtype: string}}
    - {{name: vs, path: /items/*/v, dtype: float32}}
    - {{name: map_keys, path: /map/*/key, dtype: string}}
    - {{name: map_values, path: /map/*/value, dtype: int64}}
    - {{name: matrix, path: /matrix/*/*, dtype: int64}}
    - {{name: embedding, path: /embedding/*, dtype: float32, shape: [2, 3]}}
    - {{name: some, path: /some/*, dtype: int32, shape: [2], missing: mask}}
    - {{name: absent, path: /not/there, dtype: int64, default: 42}}
lease: {{initial: 300, min: 100, max: 500}}
"""

PLAIN = {"use_dictionary": False}
INDEXED = {"write_page_index": True, "data_page_size": 1000, "write_batch_size": 20}
WAYS: dict[str, dict[str, Any]] = {
    "default": {},
    "v2": {"data_page_version": "2.0", "data_page_size": 3000},
    "plain": {**PLAIN, "compression": "none", "data_page_size": 2000},
    "plain-v2": {**PLAIN, "compression": "zstd", "data_page_version": "2.0"},
    "indexed": {**INDEXED},
    "indexed-v2": {**PLAIN, **INDEXED, "data_page_version": "2.0"},
    "gzip": {"compression": "gzip", "row_group_size": 33},
    "brotli": {"compression": "brotli", "data_page_size": 1000},
    "brotli-v2": {"compression": "brotli", "data_page_version": "2.0", "row_group_size": 40},
    "lz4": {"compression": "lz4", "data_page_size": 1000},
    "crc": {"compression": "zstd", "write_page_checksum": True},
    "fallback": {"dictionary_pagesize_limit": 500, "data_page_size": 400},  # later pages have no dictionary
    "old-times": {"use_deprecated_int96_timestamps": True, "store_schema": False},
    "old-lists": {"use_compliant_nested_type": False, "version": "1.0"},
    "deltas": {
        **PLAIN,
        "data_page_version": "2.0",
        "data_page_size": 5000,
        "column_encoding": {
            "id": "DELTA_BINARY_PACKED",
            "small": "DELTA_BINARY_PACKED",
            "when": "DELTA_BINARY_PACKED",
            "long": "DELTA_BYTE_ARRAY",
            "word": "DELTA_LENGTH_BYTE_ARRAY",
            "fixed": "DELTA_BYTE_ARRAY",
            "x": "BYTE_STREAM_SPLIT",
            "y": "BYTE_STREAM_SPLIT",
            "flag": "RLE",
        },
    },
}


def hash64(text: str, buckets: int, salt: str = "") -> int:
    import headrace

    return int(headrace.hash64(text, salt, buckets))


def expected(t: Any) -> list[dict[str, Any]]:
    epoch = datetime.datetime(1970, 1, 1)
    rows = []
    for r in t.to_pylist():
        i = r["id"]
        rows.append(
            {
                "id": i,
                "small": -99 if r["small"] is None else r["small"],
                "big": r["big"],
                "x": None if r["x"] is None else np.float32(r["x"]),
                "pair": [-1 if r["x"] is None else r["x"], r["y"]],
                "half": float(r["half"]),
                "flag": bool(r["flag"]),
                "word": "none" if r["word"] is None else r["word"],
                "hashed": 0 if r["word"] is None else hash64(r["word"], 1000, "s"),
                "hashed_id": hash64(str(i), 0),
                "long": r["long"],
                "fixed": r["fixed"],
                "price": float(r["price"]),
                "wide": float(r["wide"]),
                "when": (r["when"] - epoch) // datetime.timedelta(microseconds=1),
                "day": (r["day"] - epoch.date()).days,
                "tags": r["tags"] or [],
                "tag_ids": [hash64(v, 77) for v in (r["tags"] or [])[:2]],
                "nums": [-1 if v is None else v for v in r["nums"]] or [-1],
                "deep": r["deep"]["a"]["b"],
                "keys": [v["k"] for v in r["items"]],
                "vs": [v["v"] for v in r["items"]],
                "map_keys": [k for k, _ in r["map"]],
                "map_values": [v for _, v in r["map"]],
                "matrix": [v for inner in r["matrix"] for v in inner],
                "embedding": np.array(r["embedding"], np.float32).reshape(2, 3).tolist(),
                "some": r["some"] or [None, None],
                "absent": 42,
            }
        )
    return rows


def rows_of(b: Any) -> list[dict[str, Any]]:
    n = len(b["id"])
    columns: dict[str, list[Any]] = {}
    for name in expected(table(0, 1))[0]:
        v = b[name]
        if hasattr(v, "offsets") and name in RAGGED:
            columns[name] = [list(v[i]) for i in range(n)]
        elif isinstance(v, np.ndarray):
            columns[name] = v.tolist()
        else:
            columns[name] = [v[i] for i in range(n)]
    for name in ("x", "deep"):
        there = b.mask(name).tolist()
        columns[name] = [v if ok else None for v, ok in zip(columns[name], there)]
    there = b.mask("some").tolist()
    columns["some"] = [[v if ok else None for v, ok in zip(*row)] for row in zip(columns["some"], there)]
    return [{name: column[i] for name, column in columns.items()} for i in range(n)]


RAGGED = {"tags", "tag_ids", "nums", "keys", "vs", "map_keys", "map_values", "matrix"}


def read(name: str) -> list[dict[str, Any]]:
    import headrace

    rows = []
    with headrace.dataset(name).batches(60) as stream:
        for b in stream:
            rows += rows_of(b)
            stream.step()
    return sorted(rows, key=lambda r: r["id"])


def apply(job: Any, name: str) -> None:
    spec = job.folder / f"{name}.yaml"
    spec.write_text(SPEC.format(name=name, root=job.data))
    job.headrace("dataset", "apply", "-f", str(spec))


def test_every_codec_encoding_and_page_version_gives_what_pyarrow_reads(job: Any) -> None:
    job.up()
    files = [table(0), table(ROWS)]
    common = expected(pa.concat_tables(files))
    for name, how in WAYS.items():
        folder = job.data / name
        folder.mkdir()
        for k, t in enumerate(files):
            pq.write_table(t, folder / f"{k}.parquet", **{"row_group_size": 130, **how})
        ticks = 1000 if name == "old-times" else 1  # nanoseconds, else microseconds
        want = [{**r, "when": r["when"] * ticks} for r in common]
        apply(job, name)
        got = read(name)
        assert len(got) == len(want), name
        for g, w in zip(got, want):
            assert g == w, f"{name}, row {w['id']}"


ONE = """
name: {name}
files: {{root: {root}}}
decode:
  format: parquet
  columns:
    - {column}
lease: {{initial: 5000, min: 1000, max: 9000}}
"""

TRAIN = """
import headrace, numpy as np, sys

with headrace.dataset("rows").batches(500) as stream, headrace.Checkpointer(sys.argv[1], stream) as ck:
    restored = ck.restore()
    seen = restored.state["seen"].tolist() if restored is not None else []
    step = restored.step if restored is not None else 0
    for b in stream:
        seen += b["id"].tolist()
        step = stream.step(step + 1)
        if step % 10 == 0:
            ck.save(step, {"seen": np.array(seen)})
            print("step", step, flush=True)
    ck.save(step, {"seen": np.array(seen)})
print(*seen, file=open(sys.argv[2], "w"))
"""


def test_a_checkpoint_of_parquet_is_resumed_in_the_middle_of_a_row_group(job: Any) -> None:
    (job.data / "rows").mkdir()
    pq.write_table(pa.table({"id": range(60_000)}), job.data / "rows" / "0.parquet", row_group_size=50_000)
    up = job.up("--model", "private")
    spec = job.folder / "rows.yaml"
    spec.write_text(ONE.format(name="rows", root=job.data, column="{name: id, path: id, dtype: int64}"))
    job.headrace("dataset", "apply", "-f", str(spec))
    place, ids = str(job.folder / "checkpoints"), job.folder / "ids"
    first = job.helper(TRAIN, place, str(ids))
    first.printed(4)
    first.process.kill()
    first.process.wait()
    os.kill(up.pid, signal.SIGKILL)
    up.wait()
    os.unlink(job.socket)
    job.up("--model", "private")
    said = job.helper(TRAIN, place, str(ids)).ended()
    assert ids.exists(), said
    assert sorted(int(i) for i in ids.read_text().split()) == list(range(60_000))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("cut", "does not end with PAR1"),
        ("dtype", "/id has int64 in the file, which do not become string"),
        ("list", "is a list; write /tags/*"),
        ("field", "the file has no field /idd"),
    ],
)
def test_what_cannot_be_read_is_named(job: Any, change: str, says: str) -> None:
    file = job.data / "a.parquet"
    pq.write_table(table(0, 100), file, compression="snappy")
    column = {"dtype": "{name: id, path: id, dtype: string}", "list": "{name: t, path: tags, dtype: string}"}
    column["field"] = "{name: id, path: idd, dtype: int64}"
    if change == "cut":
        file.write_bytes(file.read_bytes()[:-100])
    spec = job.folder / "s.yaml"
    chosen = column.get(change, "{name: id, path: id, dtype: int64}")
    spec.write_text(ONE.format(name="s", root=job.data, column=chosen))
    out = job.headrace("check", "-f", str(spec), check=False)
    said = out.stdout + out.stderr
    assert says in said
    assert "a.parquet" in said
