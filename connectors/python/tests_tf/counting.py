"""A WideDeep model that counts its records id by id, as a program: python counting.py [OPTIONS]

The variable `hist` has one number per record: how often it is in the model. It is saved and
restored like every weight, so the checkpoints of TensorFlow tell which records are in them.
--copies 2 adds `hist_1`, which is the same and lies on the next parameter server.

KILL=PLACE,N: this process ends by SIGKILL at the N-th time that it comes to PLACE: "run"
(after a run, before its step), "step" (after the step), and those of a save: "paused",
"captured" (TensorFlow has written, the cut is not frozen), "frozen", "manifest", "renamed",
"bound".
KILL_AT_HALF=I: it is killed when it has loaded the variables of parameter server I only.
STUCK_SECONDS=N, FINISH_SECONDS=N: what a worker has to end after the job, before it has begun and after.
SILENT_SECONDS=N: if saves go by steps, what was trained is saved when the input has been silent so long.
AGAIN_SECONDS=N: how long a worker that starts after the job's end waits for a chief that begins again.
STAY_SECONDS=N: how long a server stays after the chief's end, if it was started by hand.
HELD=FILE: when this process has trained a batch, it holds until FILE is there, as in a call that does not return.
CHIEF_WAITS=FILE: when the job has ended, the chief's program goes on until FILE is there.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import headrace
import headrace.tensorflow
import tensorflow as tf
from headrace.tensorflow import _estimator, _roles, _silent, _waiting

if os.environ.get("VERBOSITY"):
    logging.basicConfig(level=os.environ["VERBOSITY"])
tf.compat.v1.logging.set_verbosity(os.environ.get("VERBOSITY", "ERROR"))


def model(args: argparse.Namespace) -> Any:
    config = tf.estimator.RunConfig(
        model_dir=args.dir,
        save_checkpoints_steps=None if args.seconds else args.every,
        save_checkpoints_secs=args.seconds,
        keep_checkpoint_max=args.keep,
        save_summary_steps=1 << 30,
        log_step_count_steps=None,
        experimental_max_worker_delay_secs=0,
    )
    dense = tf.feature_column.numeric_column("dense", shape=[3])
    cat = tf.feature_column.categorical_column_with_identity("cat", 1000)
    wide_deep = tf.estimator.DNNLinearCombinedClassifier(
        linear_feature_columns=[cat],
        dnn_feature_columns=[dense, tf.feature_column.embedding_column(cat, 4)],
        dnn_hidden_units=[8],
        config=config,
    )

    def counted(features: Any, labels: Any, mode: Any, config: Any) -> Any:
        spec = wide_deep.model_fn(features=features, labels=labels, mode=mode, config=config)
        made = [
            tf.compat.v1.get_variable(name, [args.records], tf.int32, tf.zeros_initializer(), trainable=False)
            for name in ["hist", *(f"hist_{i}" for i in range(1, args.copies))]
        ]
        if mode != tf.estimator.ModeKeys.TRAIN:
            return spec
        ones = tf.ones_like(features["id"], tf.int32)
        adds = [tf.compat.v1.scatter_add(hist, features["id"], ones, use_locking=True) for hist in made]
        return spec._replace(train_op=tf.group(spec.train_op, *adds))

    return tf.estimator.Estimator(counted, config=config)


def label(b: dict[str, tf.Tensor]) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    return b, tf.cast(b["id"] % 7 < 3, tf.int32)


class Killed:
    """Ends this process at a place."""

    def __init__(self, text: str) -> None:
        place, _, number = text.partition(",")
        self.place, self.left = place, int(number or 0)

    def at(self, place: str) -> None:
        if place == self.place:
            self.left -= 1
            if self.left == 0:
                print("killed", flush=True)
                os.kill(os.getpid(), signal.SIGKILL)


def kill_when_told() -> None:
    killed = Killed(os.environ["KILL"])
    said, reached = headrace.Stream.step, headrace.Checkpointer._reached

    def step(self: Any, *args: Any, **more: Any) -> int:
        killed.at("run")
        number = said(self, *args, **more)
        killed.at("step")
        return number

    def at(self: Any, point: str) -> None:
        reached(self, point)
        killed.at(point)

    headrace.Stream.step = step  # type: ignore[method-assign]
    headrace.Checkpointer._reached = at  # type: ignore[method-assign]


def evaluate(args: argparse.Namespace, trainable: Any, input_fn: Any) -> None:
    """This process's task of a cluster."""

    def rows_to_evaluate() -> tf.data.Dataset:
        b = {"id": tf.constant([1, 2]), "dense": tf.zeros([2, 3]), "cat": tf.zeros([2, 2], tf.int64)}
        return tf.data.Dataset.from_tensors((b, tf.constant([1, 0])))

    train = tf.estimator.TrainSpec(input_fn, hooks=[Begins(trainable), Rest()])
    trainable.train_and_evaluate(train, tf.estimator.EvalSpec(rows_to_evaluate, steps=1, start_delay_secs=0))
    while trainable.is_chief and not os.path.exists(os.environ.get("CHIEF_WAITS", ".")):
        time.sleep(0.05)
    print("ended well", flush=True)


def kill_when_half_is_loaded(server: str) -> None:
    """Ends this process when it has loaded a checkpoint's variables of one parameter server, and not the others."""

    def load(self: Any, session: Any, prefix: str) -> None:
        graph = session.graph
        restored = graph.get_operation_by_name(self.saver_def.restore_op_name)  # one group for each server
        (half,) = (op for op in restored.control_inputs if f"/task:{server}" in op.control_inputs[0].device)
        session.run(half, {self.saver_def.filename_tensor_name: prefix})
        print("killed", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    _estimator._Saver.load = load  # type: ignore[method-assign]


def fail_in_memory(every: int) -> None:
    """Of every so many saves in memory, the last one fails."""
    from headrace._flash import Flash

    complete, saves = Flash.complete, iter(range(1, 1 << 30))

    def failing(self: Any, *args: Any) -> str:
        if next(saves) % every == 0:
            raise OSError("no room, says the test")
        return complete(self, *args)

    Flash.complete = failing  # type: ignore[method-assign]


class Begins(tf.compat.v1.train.SessionRunHook):
    """Prints after which step a session begins, and where its checkpoint was."""

    def __init__(self, trainable: Any) -> None:
        self.trainable = trainable

    def after_create_session(self, session: Any, coord: Any) -> None:
        print("begins after", self.trainable._run.trainer.last_step, self.trainable.restored_from, flush=True)


class Rest(tf.compat.v1.train.SessionRunHook):
    """Rests after each batch until the file `fast` is there, so that there is time to kill something."""

    def after_run(self, run_context: Any, run_values: Any) -> None:
        hold = os.environ.pop("HELD", "")
        if hold:
            print("held", flush=True)
            while not os.path.exists(hold):
                time.sleep(0.05)
        if not os.path.exists("fast"):
            time.sleep(1)  # the chief alone needs minutes for 300 batches


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", default="model")
    parser.add_argument("--records", type=int, default=2000)
    parser.add_argument("--rows", type=int, default=20)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--seconds", type=float, help="between two checkpoints, in place of steps")
    parser.add_argument("--max-wait", type=float)
    parser.add_argument("--take", type=int, default=-1)
    parser.add_argument("--keep", type=int, default=3)
    parser.add_argument("--copies", type=int, default=1)
    parser.add_argument("--prefetch", type=int, default=0)
    parser.add_argument("--memory-every", type=int, default=0)
    parser.add_argument("--steps", type=int, action="append", help="train() of so many steps, then the next one")
    args = parser.parse_args()
    if os.environ.get("KILL"):
        kill_when_told()
    if os.environ.get("KILL_AT_HALF"):
        kill_when_half_is_loaded(os.environ["KILL_AT_HALF"])
    for name in ("STUCK_SECONDS", "FINISH_SECONDS", "AGAIN_SECONDS", "STAY_SECONDS"):
        if os.environ.get(name):
            setattr(_roles if name == "STAY_SECONDS" else _waiting, name, float(os.environ[name]))
    if os.environ.get("SILENT_SECONDS"):
        _silent.SILENT_SECONDS = float(os.environ["SILENT_SECONDS"])
    if os.environ.get("FAIL_IN_MEMORY"):
        fail_in_memory(int(os.environ["FAIL_IN_MEMORY"]))
    trainable = headrace.tensorflow.estimator(model(args), memory_every=args.memory_every)

    def input_fn() -> tf.data.Dataset:
        made = headrace.tensorflow.dataset("rows", args.rows, max_wait=args.max_wait).map(label)
        made = made.take(args.take) if args.take >= 0 else made
        return made.prefetch(args.prefetch) if args.prefetch else made

    if trainable.task.servers:
        evaluate(args, trainable, input_fn)
        return
    for steps in [*(args.steps or []), None]:
        trainable.train(input_fn, [Begins(trainable)], steps=steps)
    newest = tf.train.latest_checkpoint(args.dir)
    hist = tf.train.load_variable(newest, "hist")
    wrong = {int(i): int(n) for i, n in enumerate(hist) if n != 1}
    print(json.dumps({"newest": newest, "step": int(tf.train.load_variable(newest, "global_step")),
                      "records": int(hist.sum()), "wrong": len(wrong)}), flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
