"""Click-through rate with WideDeep, a canned Estimator: every record in the model once.

    headrace run --model replicated --max-restarts 20 -f clicks.yaml -- python train.py

or with a parameter server, a chief, two workers and an evaluator:

    headrace run job.yaml

Kill any process at any time: headrace run starts it again. Training goes on from the newest
checkpoint that has a list of its records, or with the model on the parameter server. With kafka.yaml
in place of clicks.yaml the same program learns from a topic without an end.

Beside its weights the model has `hist`: for each id, how often its record is in the model. The last
line counts the ids that are in the model once, never and more often.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import headrace.tensorflow
import tensorflow as tf

BUCKETS = 4096  # as in the spec

Features = dict[str, Any]


def wide_deep(config: Any) -> Any:
    """The model, as you would write it without Headrace."""
    column = tf.feature_column
    user = column.categorical_column_with_identity("user", BUCKETS)
    ad = column.categorical_column_with_identity("ad", BUCKETS)
    seen = column.categorical_column_with_identity("seen", BUCKETS)
    deep = [column.embedding_column(c, 8, combiner="sum") for c in (user, ad, seen)]
    return tf.estimator.DNNLinearCombinedClassifier(
        linear_feature_columns=[user, ad],
        dnn_feature_columns=[column.numeric_column("dense", shape=[3]), *deep],
        dnn_hidden_units=[32, 16],
        config=config,
    )


def counted(model: Any, records: int) -> Any:
    """The same model with `hist`, which only the proof needs."""

    def model_fn(features: Features, labels: Any, mode: str, config: Any) -> Any:
        spec = model.model_fn(features=features, labels=labels, mode=mode, config=config)
        hist = tf.compat.v1.get_variable("hist", [records], tf.int32, tf.zeros_initializer(), trainable=False)
        if mode != tf.estimator.ModeKeys.TRAIN:
            return spec
        ones = tf.ones_like(features["id"], tf.int32)
        add = tf.compat.v1.scatter_add(hist, features["id"], ones, use_locking=True)
        return spec._replace(train_op=tf.group(spec.train_op, add))

    return tf.estimator.Estimator(model_fn, config=model.config)


def features_and_label(b: Features) -> tuple[Features, Any]:
    features = {name: value for name, value in b.items() if name != "label"}
    features["seen"] = b["seen"].to_sparse()
    return features, tf.cast(b["label"], tf.int32)


def evaluation() -> tf.data.Dataset:
    """Some other rows, read without Headrace."""
    rows = 256
    user, ad = tf.range(rows, dtype=tf.int64), tf.range(rows, dtype=tf.int64) * 7 % BUCKETS
    features = {"id": tf.zeros([rows], tf.int64), "dense": tf.zeros([rows, 3]), "user": user, "ad": ad}
    features["seen"] = tf.sparse.from_dense(tf.ones([rows, 1], tf.int64))
    return tf.data.Dataset.from_tensors((features, tf.cast(user % 10 < 3, tf.int32)))


class Rest(tf.compat.v1.train.SessionRunHook):
    """Sleeps after each batch, so that there is time to kill a process."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def after_run(self, run_context: Any, run_values: Any) -> None:
        time.sleep(self.seconds)


def train(args: argparse.Namespace) -> None:
    when = {"save_checkpoints_secs": args.seconds} if args.seconds else {"save_checkpoints_steps": args.every}
    config = tf.estimator.RunConfig(
        model_dir=args.dir,
        **when,
        keep_checkpoint_max=args.keep,
        experimental_max_worker_delay_secs=0,
    )
    model = counted(wide_deep(config), args.records)

    def clicks() -> tf.data.Dataset:
        return headrace.tensorflow.dataset("clicks", args.rows, max_wait=args.max_wait).map(features_and_label)

    trainable = headrace.tensorflow.estimator(model)
    spec = tf.estimator.EvalSpec(evaluation, steps=1, start_delay_secs=0, throttle_secs=30)
    hooks = [Rest(args.rest)] if args.rest else []
    trainable.train_and_evaluate(tf.estimator.TrainSpec(clicks, hooks=hooks), spec)
    if not trainable.is_chief:
        return
    newest = tf.train.latest_checkpoint(args.dir)
    hist = tf.train.load_variable(newest, "hist")
    counts = [int((hist == 1).sum()), int((hist == 0).sum()), int((hist > 1).sum())]
    print(f"{newest}: in the model once {counts[0]}, never {counts[1]}, more often {counts[2]}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", default="model", help="folder of the model and its checkpoints")
    parser.add_argument("--records", type=int, default=200_000, help="number of different ids")
    parser.add_argument("--rows", type=int, default=256, help="rows of a batch")
    parser.add_argument("--max-wait", type=float, help="seconds until a batch comes short, for input without an end")
    parser.add_argument("--every", type=int, default=200, help="steps between two checkpoints")
    parser.add_argument("--seconds", type=int, default=0, help="seconds between two checkpoints, instead of --every")
    parser.add_argument("--rest", type=float, default=0, help="seconds to rest after each batch")
    parser.add_argument("--keep", type=int, default=3, help="checkpoints to keep")
    train(parser.parse_args())
