"""Avro object container files that fastavro wrote with each codec. What a trainer gets is compared
with what fastavro reads."""

from __future__ import annotations

import datetime
import decimal
import os
import random
import signal
from typing import Any

import fastavro
import numpy as np
import pytest

CODECS = ["null", "deflate", "snappy", "zstandard"]

USER = [
    {"name": "age", "type": ["null", "int"]},
    {"name": "raw", "type": {"type": "fixed", "name": "F", "size": 4}},
]
V1 = {
    "type": "record",
    "name": "Click",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "label", "type": "float"},
        {"name": "word", "type": ["null", "string"]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "size", "type": {"type": "map", "values": "double"}},
        {"name": "user", "type": {"type": "record", "name": "User", "fields": USER}},
        {"name": "vector", "type": {"type": "array", "items": "float"}},
        {"name": "color", "type": {"type": "enum", "name": "Color", "symbols": ["RED", "GREEN", "BLUE"]}},
    ],
}
# Another version of the schema: one field less, one new field, and another order.
V2 = {**V1, "fields": [{"name": "new", "type": "int"}, *(f for f in reversed(V1["fields"]) if f["name"] != "label")]}

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


def click(r: random.Random, i: int, v2: bool) -> dict[str, Any]:
    row = {
        "id": i,
        "label": i % 2 / 4,
        "word": None if i % 5 == 0 else r.choice(["", "ä", "word"]) + str(i),
        "price": decimal.Decimal(r.randrange(-(10**6), 10**6)).scaleb(-2),
        "at": EPOCH + datetime.timedelta(milliseconds=r.randrange(10**12)),
        "tags": [f"t{j}" for j in range(r.randrange(5))],
        "size": {k: r.random() for k in r.sample(["w", "h", "d"], r.randrange(4))},
        "user": {"age": None if i % 7 == 0 else r.randrange(100), "raw": i.to_bytes(4, "big")},
        "color": r.choice(["RED", "GREEN", "BLUE"]),
        "vector": [i / 4, -0.5, r.randrange(100) / 8],
    }
    if v2:
        del row["label"]
        row["new"] = -i
    return row


SPEC = """
name: {name}
files: {{root: {root}, paths: ["{name}/*.avro"]}}
decode:
  format: avro
  event_time: at
  columns:
    - {{name: id, path: id, dtype: int64}}
    - {{name: label, path: label, dtype: float32, default: -1}}
    - {{name: word, path: word, dtype: string, default: none}}
    - {{name: hashed, path: word, dtype: int64, hash: {{buckets: 1000, salt: s}}, default: 0}}
    - {{name: price, path: price, dtype: float64}}
    - {{name: at, path: at, dtype: int64}}
    - {{name: tags, path: /tags/*, dtype: string}}
    - {{name: width, path: /size/w, dtype: float64, default: -1}}
    - {{name: age, path: /user/age, dtype: int32, default: -1}}
    - {{name: raw, path: /user/raw, dtype: bytes}}
    - {{name: color, path: color, dtype: string}}
    - {{name: vector, path: /vector/*, dtype: float32, shape: [3]}}
    - {{name: new, path: new, dtype: int64, default: 42}}
lease: {{initial: 300, min: 100, max: 500}}
"""


def expected(r: dict[str, Any]) -> dict[str, Any]:
    import headrace

    return {
        "id": r["id"],
        "label": r.get("label", -1),
        "word": "none" if r["word"] is None else r["word"],
        "hashed": 0 if r["word"] is None else int(headrace.hash64(r["word"], "s", 1000)),
        "price": float(r["price"]),
        "at": (r["at"] - EPOCH) // datetime.timedelta(milliseconds=1),
        "tags": r["tags"],
        "width": r["size"].get("w", -1),
        "age": -1 if r["user"]["age"] is None else r["user"]["age"],
        "raw": r["user"]["raw"],
        "color": r["color"],
        "vector": r["vector"],
        "new": r.get("new", 42),
    }


def rows_of(b: Any) -> list[dict[str, Any]]:
    columns: dict[str, list[Any]] = {}
    for name in (
        "id",
        "label",
        "word",
        "hashed",
        "price",
        "at",
        "tags",
        "width",
        "age",
        "raw",
        "color",
        "vector",
        "new",
    ):
        v = b[name]
        if isinstance(v, np.ndarray):
            columns[name] = v.tolist()
        else:
            columns[name] = [list(v[i]) if name == "tags" else v[i] for i in range(len(b))]
    return [{name: column[i] for name, column in columns.items()} for i in range(len(b))]


def test_every_codec_gives_what_fastavro_reads(job: Any) -> None:
    import headrace

    job.up()
    seed = random.randrange(2**32)
    print("seed", seed)
    r = random.Random(seed)
    for codec in CODECS:
        name = f"of-{codec}"  # a codec is called null, which alone means no value in YAML
        folder = job.data / name
        folder.mkdir()
        for k, schema in enumerate((V1, V2)):
            rows = [click(r, 1000 * k + i, k == 1) for i in range(1000)]
            with open(folder / f"{k}.avro", "wb") as f:
                fastavro.writer(f, fastavro.parse_schema(schema), rows, codec=codec, sync_interval=r.randrange(1, 9000))
        want = []
        for k in range(2):
            with open(folder / f"{k}.avro", "rb") as f:
                want += [expected(row) for row in fastavro.reader(f)]
        spec = job.folder / f"{name}.yaml"
        spec.write_text(SPEC.format(name=name, root=job.data))
        job.headrace("dataset", "apply", "-f", str(spec))
        got = []
        with headrace.dataset(name).batches(60) as stream:
            for b in stream:
                got += rows_of(b)
                stream.step()
        got.sort(key=lambda row: row["id"])
        assert len(got) == len(want), codec
        for g, w in zip(got, want):
            assert g == w, f"{codec}, row {w['id']}"


ONE = """
name: rows
files: {{root: {root}}}
decode:
  format: avro
  columns: [{column}]
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

IDS = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}


def test_a_checkpoint_of_avro_files_is_resumed_in_the_middle_of_a_block(job: Any) -> None:
    with open(job.data / "0.avro", "wb") as f:
        fastavro.writer(f, IDS, ({"id": i} for i in range(60_000)), codec="deflate", sync_interval=50_000)
    up = job.up("--model", "private")
    spec = job.folder / "rows.yaml"
    spec.write_text(ONE.format(root=job.data, column="{name: id, path: id, dtype: int64}"))
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
    out = job.headrace("audit", place, "--contains", "0.avro/59999").stdout
    assert "yes" in out, out


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("bzip2", "bzip2"),
        ("cut", "it was cut short"),
        ("text", "it is no Avro file"),
        ("dtype", "id"),
        ("field", "/idd"),
        ("registry", "each Avro file has the schema of its records"),
    ],
)
def test_what_cannot_be_read_is_named(job: Any, change: str, says: str) -> None:
    file = job.data / "a.avro"
    with open(file, "wb") as f:
        fastavro.writer(f, IDS, ({"id": i} for i in range(1000)), codec="bzip2" if change == "bzip2" else "null")
    if change == "cut":
        file.write_bytes(file.read_bytes()[:-9])
    if change == "text":
        file.write_text("id\n1\n")
    column = {"dtype": "{name: id, path: id, dtype: bool}", "field": "{name: id, path: idd, dtype: int64}"}
    spec = job.folder / "s.yaml"
    text = ONE.format(root=job.data, column=column.get(change, "{name: id, path: id, dtype: int64}"))
    if change == "registry":
        text = text.replace("format: avro", 'format: avro\n  registry: {url: "http://127.0.0.1:1"}')
    spec.write_text(text)
    out = job.headrace("check", "-f", str(spec), check=False)
    said = out.stdout + out.stderr
    assert says in said
    assert "a.avro" in said or change == "registry"
