"""What each task of a TensorFlow cluster does: train, serve the model, evaluate."""

from __future__ import annotations

import json
import logging
import os
import time
from typing import Any

import tensorflow as tf
from headrace import _durable

from ._cluster import CHIEFS

log = logging.getLogger("headrace")

#: The chief leaves it in model_dir when the job has ended, and removes it when it begins.
ENDED = "headrace-ended.json"
LOOK_SECONDS = 0.5
STAY_SECONDS = 10.0  # of a server after the chief's end: workers may still close their sessions
OLD_SECONDS = 120.0  # for a chief to begin and remove what the last run has left


def run(trainable: Any, train_spec: Any, eval_spec: Any) -> None:
    """See Trainable.train_and_evaluate()."""
    task = trainable.task
    if task.type == "ps":
        _serve(trainable)
    elif task.type == "evaluator":
        _evaluate(trainable, eval_spec)
    elif task.servers:
        _train(trainable, train_spec)
    else:
        listener = _AfterCheckpoint(trainable, eval_spec)
        trainable.train(train_spec.input_fn, train_spec.hooks, None, train_spec.max_steps, [listener])
        listener.evaluate()


def _server(trainable: Any) -> Any:
    config = trainable.inner.config
    where = {"job_name": config.task_type, "task_index": config.task_id}
    return tf.distribute.Server(config.cluster_spec, config=config.session_config, start=True, **where)


def _train(trainable: Any, spec: Any) -> None:
    chief = trainable.task.type in CHIEFS
    if chief:
        os.makedirs(trainable.model_dir, exist_ok=True)
        _remove_ended(trainable.model_dir)
    _server(trainable)
    trainable.train(spec.input_fn, spec.hooks, None, spec.max_steps, spec.saving_listeners if chief else None)
    if chief:
        _say_ended(trainable.model_dir)


def _serve(trainable: Any) -> None:
    """Serves until the chief has ended."""
    _server(trainable)
    _wait_for_end(trainable.model_dir, lambda: None)
    time.sleep(STAY_SECONDS)


def _evaluate(trainable: Any, spec: Any) -> None:
    """Evaluates each new checkpoint that is bound, until the chief has ended."""
    seen = ""

    def look() -> None:
        nonlocal seen
        newest = tf.train.latest_checkpoint(trainable.model_dir) or ""
        if newest and newest != seen and _evaluate_one(trainable, spec, newest):
            seen = newest

    _wait_for_end(trainable.model_dir, look)
    look()


def _evaluate_one(trainable: Any, spec: Any, checkpoint: str) -> bool:
    """False: it was removed meanwhile, as keep_checkpoint_max says."""
    try:
        result = trainable.inner.evaluate(
            spec.input_fn, steps=spec.steps, hooks=spec.hooks, checkpoint_path=checkpoint, name=spec.name
        )
    except (tf.errors.NotFoundError, ValueError):
        if os.path.exists(checkpoint + ".index"):
            raise
        return False
    log.info("evaluated %s: %s", checkpoint, result)
    for exporter in spec.exporters:
        where = os.path.join(trainable.model_dir, "export", exporter.name)
        exporter.export(trainable.inner, where, checkpoint, result, is_the_final_export=False)
    return True


class _AfterCheckpoint(tf.compat.v1.train.CheckpointSaverListener):
    """Evaluates in the training process, after a checkpoint."""

    def __init__(self, trainable: Any, spec: Any) -> None:
        self._trainable, self._spec = trainable, spec
        self._next = 0.0
        self._seen = ""

    def after_save(self, session: Any, global_step: int) -> None:
        if time.monotonic() >= self._next:
            self.evaluate()
            self._next = time.monotonic() + self._spec.throttle_secs

    def evaluate(self) -> None:
        newest = tf.train.latest_checkpoint(self._trainable.model_dir) or ""
        if newest and newest != self._seen:
            _evaluate_one(self._trainable, self._spec, newest)
            self._seen = newest


# The end of a job.


def _say_ended(folder: str) -> None:
    path = os.path.join(folder, ENDED)
    with open(path + ".tmp", "w") as file:
        json.dump({"ended": time.time()}, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".tmp", path)
    _durable.sync(folder)


def _remove_ended(folder: str) -> None:
    path = os.path.join(folder, ENDED)
    if os.path.exists(path):
        os.unlink(path)


def _wait_for_end(folder: str, meanwhile: Any) -> None:
    """Until the chief has ended. What an earlier run has left counts only when no chief
    has removed it for a while."""
    path, began = os.path.join(folder, ENDED), time.time()
    while True:
        try:
            ended = os.stat(path).st_mtime
        except FileNotFoundError:
            ended = None
        if ended is not None and (ended >= began or time.time() > began + OLD_SECONDS):
            return
        meanwhile()
        time.sleep(LOOK_SECONDS)
