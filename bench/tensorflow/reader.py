"""One run, in its own process: python -m bench.tensorflow.reader KIND ROWS DATA

A trivial Estimator reads 40 features of each record. KIND: "headrace" (TSV, read by the agent
that HEADRACE_AGENT names) or "tfrecord" (TFRecord files and parse_example, as tf.data's guide
does). Prints a line of JSON: records/s from the first batch on, CPU seconds of this process.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow as tf

FEATURES = 40


def theirs(rows: int, data: str) -> tf.data.Dataset:
    wanted = {f"f{i}": tf.io.FixedLenFeature([], tf.float32) for i in range(FEATURES)}
    files = tf.data.Dataset.list_files(os.path.join(data, "*.tfrecord"), shuffle=False)
    read = files.interleave(tf.data.TFRecordDataset, num_parallel_calls=tf.data.AUTOTUNE).batch(rows)
    return read.map(lambda b: tf.io.parse_example(b, wanted), num_parallel_calls=tf.data.AUTOTUNE).prefetch(2)


def ours(rows: int, data: str) -> tf.data.Dataset:
    import headrace.tensorflow

    return headrace.tensorflow.dataset("bench", rows)


class Clock(tf.compat.v1.train.SessionRunHook):
    """Counts from the first batch on: TensorFlow builds its graph before it."""

    def __init__(self) -> None:
        self.records = 0
        self.began = self.cpu = 0.0

    def before_run(self, run_context: Any) -> Any:
        return tf.compat.v1.train.SessionRunArgs("rows_of_batch:0")

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if not self.began:
            self.began, self.cpu = time.monotonic(), cpu()
        else:
            self.records += int(run_values.results)


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def model(features: Any, labels: Any, mode: str, config: Any) -> Any:
    """Reads each column once."""
    tf.identity(tf.shape(features["f0"])[0], name="rows_of_batch")
    total = tf.add_n([tf.reduce_sum(features[f"f{i}"]) for i in range(FEATURES)])
    weight = tf.compat.v1.get_variable("weight", [], tf.float32, tf.zeros_initializer())
    step = tf.compat.v1.train.get_or_create_global_step()
    with tf.control_dependencies([weight.assign_add(total * 1e-9)]):  # so that no step goes without a batch
        train = tf.group(step.assign_add(1))
    return tf.estimator.EstimatorSpec(mode, loss=total, train_op=train)


def main() -> None:
    kind, rows, data = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        config = tf.estimator.RunConfig(folder, save_summary_steps=1 << 30, log_step_count_steps=None)
        config = config.replace(save_checkpoints_secs=None, save_checkpoints_steps=None)
        estimator: Any = tf.estimator.Estimator(model, config=config)
        read = {"headrace": ours, "tfrecord": theirs}[kind]
        if kind == "headrace":
            import headrace.tensorflow

            estimator = headrace.tensorflow.estimator(estimator)
        estimator.train(lambda: read(rows, data), hooks=[clock])
    seconds = time.monotonic() - clock.began
    print(json.dumps({"records": clock.records, "rate": clock.records / seconds, "cpu": cpu() - clock.cpu}), flush=True)


if __name__ == "__main__":
    main()
