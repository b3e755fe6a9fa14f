"""Writes TFRecord files of tf.Example, and reads them with tf.data. It runs in an environment
with TensorFlow: run.py starts it.

    python examples.py write FOLDER RECORDS
    python examples.py read FOLDER          prints records and CPU seconds of reading
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import numpy as np

import tensorflow as tf

FLOATS, WORDS, BATCH = 13, 26, 1024


def write(folder: Path, records: int) -> None:
    rng = np.random.default_rng(1)
    for n in range(4):
        with tf.io.TFRecordWriter(str(folder / f"part-{n}.tfrecord")) as out:
            for _ in range(records // 4):
                features = {"label": tf.train.Feature(float_list=tf.train.FloatList(value=[float(rng.integers(2))]))}
                for i, v in enumerate(rng.random(FLOATS)):
                    features[f"x{i}"] = tf.train.Feature(float_list=tf.train.FloatList(value=[v]))
                for i, v in enumerate(rng.integers(1 << 32, size=WORDS)):
                    features[f"c{i}"] = tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"%08x" % v]))
                example = tf.train.Example(features=tf.train.Features(feature=features))
                out.write(example.SerializeToString())


def read(folder: Path) -> None:
    wanted = {"label": tf.io.FixedLenFeature([], tf.float32)}
    wanted.update({f"x{i}": tf.io.FixedLenFeature([], tf.float32) for i in range(FLOATS)})
    wanted.update({f"c{i}": tf.io.FixedLenFeature([], tf.string) for i in range(WORDS)})
    files = sorted(map(str, folder.glob("*.tfrecord")))

    def batches(names: list[str]) -> int:
        data = tf.data.TFRecordDataset(names, num_parallel_reads=None).batch(BATCH)
        rows = 0
        for b in data.map(lambda r: tf.io.parse_example(r, wanted)):
            rows += int(b["label"].shape[0])
        return rows

    batches(files[:1])  # TensorFlow is started, the graph is traced
    before = resource.getrusage(resource.RUSAGE_SELF)
    rows = batches(files)
    after = resource.getrusage(resource.RUSAGE_SELF)
    print(rows, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        read(Path(sys.argv[2]))
