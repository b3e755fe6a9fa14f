"""TFRecord files that TensorFlow wrote: what a trainer gets is compared, bit by bit, with what
tf.io.parse_example and tf.io.parse_single_sequence_example make of them."""

from __future__ import annotations

import random
import time
from typing import Any

import headrace
import numpy as np
import pytest
import tensorflow as tf

ROWS = 3000


def ints(*values: int) -> tf.train.Feature:
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def floats(*values: float) -> tf.train.Feature:
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))


def texts(*values: bytes) -> tf.train.Feature:
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))


def example(rng: random.Random, i: int) -> bytes:
    features = {
        "id": ints(i),
        "label": floats(rng.random()),
        "odd": floats(rng.choice([0.0, -0.0, float("inf"), 1e-45, 3.4e38])),
        "big": ints(rng.choice([-(2**63), 2**63 - 1, 0, -1, 127, 128, 300])),
        "word": texts(b"word %d" % rng.randrange(97)),
        "raw": texts(rng.randbytes(rng.randrange(200))),
        "emb": floats(*(rng.gauss(0, 1) for _ in range(8))),
        "matrix": ints(*(rng.randrange(-(2**40), 2**40) for _ in range(6))),
        "ids": ints(*(rng.randrange(10**9) for _ in range(rng.randrange(5)))),
        "weights": floats(*(rng.random() for _ in range(rng.randrange(4)))),
        "tags": texts(*(b"t%d" % rng.randrange(9) for _ in range(rng.randrange(4)))),
        "unwanted": texts(b"x" * rng.randrange(50)),
    }
    if rng.randrange(3) == 0:
        features["maybe"] = ints(rng.randrange(100))
    if rng.randrange(4) == 0:
        del features["odd"]
    if rng.randrange(5) == 0:  # a feature without a list
        features["maybe"] = tf.train.Feature()
    names = list(features)
    rng.shuffle(names)
    return bytes(
        tf.train.Example(features=tf.train.Features(feature={n: features[n] for n in names})).SerializeToString(
            deterministic=rng.randrange(2) == 0
        )
    )


SPEC = """
name: examples
files: {{root: {root}, paths: ["part*"]{more}}}
decode:
  format: tfrecord
  columns:
    - {{name: id, path: id, dtype: int64}}
    - {{name: label, path: label, dtype: float32}}
    - {{name: odd, path: odd, dtype: float32, default: -7}}
    - {{name: big, path: big, dtype: int64}}
    - {{name: word, path: word, dtype: string}}
    - {{name: raw, path: raw, dtype: bytes}}
    - {{name: emb, path: emb, dtype: float32, shape: [8]}}
    - {{name: matrix, path: matrix, dtype: int64, shape: [2, 3]}}
    - {{name: ids, path: "/ids/*", dtype: int64}}
    - {{name: weights, path: "/weights/*", dtype: float32}}
    - {{name: tags, path: "/tags/*", dtype: bytes}}
    - {{name: maybe, path: maybe, dtype: int64, default: -1}}
    - {{name: hashed, path: word, dtype: int64, hash: {{buckets: 1000}}}}
"""

PARSED = {
    "id": tf.io.FixedLenFeature([], tf.int64),
    "label": tf.io.FixedLenFeature([], tf.float32),
    "odd": tf.io.FixedLenFeature([], tf.float32, -7.0),
    "big": tf.io.FixedLenFeature([], tf.int64),
    "word": tf.io.FixedLenFeature([], tf.string),
    "raw": tf.io.FixedLenFeature([], tf.string),
    "emb": tf.io.FixedLenFeature([8], tf.float32),
    "matrix": tf.io.FixedLenFeature([2, 3], tf.int64),
    "ids": tf.io.RaggedFeature(tf.int64),
    "weights": tf.io.RaggedFeature(tf.float32),
    "tags": tf.io.RaggedFeature(tf.string),
    "maybe": tf.io.FixedLenFeature([], tf.int64, -1),
}


def rows_of(job: Any, spec: str, column: str) -> dict[Any, dict[str, Any]]:
    """The rows of a dataset, by the value of one column."""
    path = job.folder / "examples.yaml"
    path.write_text(spec)
    job.headrace("dataset", "apply", "-f", str(path))
    rows: dict[Any, dict[str, Any]] = {}
    with headrace.dataset("examples").batches(64) as stream:
        for b in stream:
            for r in range(len(b[column])):
                row = {name: b[name][r] for name in b}
                assert row[column] not in rows
                rows[int(row[column])] = row
            stream.step()
    return rows


def same(got: Any, want: Any) -> bool:
    if isinstance(want, (bytes, str)):
        return (got.encode() if isinstance(got, str) else got) == want
    want = np.asarray(want)
    if want.dtype == object:
        return [g.encode() if isinstance(g, str) else g for g in got] == list(want)
    got = np.asarray(got, want.dtype)
    return got.shape == want.shape and got.tobytes() == want.tobytes()


@pytest.mark.parametrize("packed", ["", "GZIP"])
def test_rows_are_what_parse_example_makes(job: Any, packed: str) -> None:
    seed = time.time_ns()
    print("seed", seed)
    rng = random.Random(seed)
    records = [example(rng, i) for i in range(ROWS)]
    for n in range(3):
        suffix = ".gz" if packed and n == 0 else ""
        with tf.io.TFRecordWriter(str(job.data / f"part-{n}-of-3{suffix}"), packed) as w:
            for r in records[n::3]:
                w.write(r)
    job.up()
    rows = rows_of(job, SPEC.format(root=job.data, more=", compression: gzip" if packed else ""), "id")
    assert sorted(rows) == list(range(ROWS))
    parsed = tf.io.parse_example(records, PARSED)
    for i in range(ROWS):
        for name in PARSED:
            want = parsed[name][i].numpy()
            assert same(rows[i][name], want), (i, name, rows[i][name], want)


def test_rows_are_what_parse_sequence_example_makes(job: Any) -> None:
    seed = time.time_ns()
    print("seed", seed)
    rng = random.Random(seed)
    records = []
    for i in range(500):
        steps = rng.randrange(5)
        lists = {
            "clicks": tf.train.FeatureList(feature=[ints(rng.randrange(1000)) for _ in range(steps)]),
            "states": tf.train.FeatureList(
                feature=[floats(*(rng.random() for _ in range(rng.randrange(3)))) for _ in range(steps)]
            ),
        }
        if rng.randrange(4) == 0:
            del lists["states"]
        records.append(
            tf.train.SequenceExample(
                context=tf.train.Features(feature={"id": ints(i), "name": texts(b"n%d" % i)}),
                feature_lists=tf.train.FeatureLists(feature_list=lists),
            ).SerializeToString()
        )
    with tf.io.TFRecordWriter(str(job.data / "part-0")) as w:
        for r in records:
            w.write(r)
    job.up()
    rows = rows_of(
        job,
        f"""
name: examples
files: {{root: {job.data}, paths: ["part*"]}}
decode:
  format: tfrecord
  columns:
    - {{name: id, path: id, dtype: int64}}
    - {{name: name, path: name, dtype: string}}
    - {{name: clicks, path: "/clicks/*/*", dtype: int64}}
    - {{name: states, path: "/states/*/*", dtype: float32}}
""",
        "id",
    )
    for i, r in enumerate(records):
        context, lists, _ = tf.io.parse_sequence_example(
            [r],
            {"id": tf.io.FixedLenFeature([], tf.int64), "name": tf.io.FixedLenFeature([], tf.string)},
            {"clicks": tf.io.RaggedFeature(tf.int64), "states": tf.io.RaggedFeature(tf.float32)},
        )
        assert same(rows[i]["name"], context["name"][0].numpy())
        assert same(rows[i]["clicks"], lists["clicks"][0].flat_values.numpy())
        assert same(rows[i]["states"], lists["states"][0].flat_values.numpy())


def test_init_and_check_know_the_format(job: Any) -> None:
    rng = random.Random(1)
    for n in range(2):
        with tf.io.TFRecordWriter(str(job.data / f"train-{n:05}-of-00002")) as w:
            for i in range(200):
                w.write(example(rng, 200 * n + i))
    job.headrace("init", str(job.data), "--name", "seen", "--out", str(job.folder))
    spec = job.folder / "seen.yaml"
    text = spec.read_text()
    assert "format: tfrecord" in text
    assert "path: /emb/*, dtype: float32" in text
    assert "path: label, dtype: float32" in text
    assert "400 records, 0 bad" in job.headrace("check", "-f", str(spec)).stdout
    job.up()
    job.headrace("dataset", "apply", "-f", str(spec))
    assert "emb" in job.headrace("peek", "seen", "-n", "2").stdout


def test_a_damaged_record_is_told_with_file_and_offset(job: Any) -> None:
    rng = random.Random(1)
    path = job.data / "part-0"
    with tf.io.TFRecordWriter(str(path)) as w:
        for i in range(100):
            w.write(example(rng, i))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    spec = job.folder / "examples.yaml"
    spec.write_text(SPEC.format(root=job.data, more=""))
    out = job.headrace("check", "-f", str(spec), "--output", "json", check=False)
    assert out.returncode == 1
    assert "part-0 at offset" in out.stdout
    assert "the CRC of the record's data is" in out.stdout
