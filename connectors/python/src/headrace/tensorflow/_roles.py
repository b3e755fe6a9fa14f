"""What each task of a TensorFlow cluster does: train, serve the model, evaluate."""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import Any

import tensorflow as tf
from headrace import _ended

from . import _waiting
from ._cluster import CHIEFS

log = logging.getLogger("headrace")

STAY_SECONDS = 10.0  # of a server after the chief's end: workers may still close their sessions


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
    if trainable.task.type not in CHIEFS:
        _work(trainable, spec)
        return
    os.makedirs(trainable.model_dir, exist_ok=True)
    _ended.remove(trainable.model_dir)
    _server(trainable)
    trainable.train(spec.input_fn, spec.hooks, None, spec.max_steps, spec.saving_listeners)
    _ended.say(trainable.model_dir)


def _work(trainable: Any, spec: Any) -> None:
    """Trains, unless the job ends before this worker has the model."""
    with _waiting.JobEnd(trainable.model_dir) as end:
        trainable._end = end
        try:
            end.check()
            _server(trainable)
            trainable.train(spec.input_fn, [end, *(spec.hooks or ())], None, spec.max_steps)
        except _waiting.JobHasEnded as ended:
            log.warning("%s", ended)
        finally:
            trainable._end = None  # a later train() is no part of this job


def _serve(trainable: Any) -> None:
    """Serves until the chief has ended, or until `headrace run` ends this process."""
    _server(trainable)
    if os.environ.get("HEADRACE_ENDS_SERVERS"):
        # If it ended by itself while the chief's program goes on, run would take the model for lost.
        threading.Event().wait()
    _ended.wait(trainable.model_dir, lambda: None)
    time.sleep(STAY_SECONDS)


def _evaluate(trainable: Any, spec: Any) -> None:
    """Evaluates each new checkpoint that is bound, until the chief has ended."""
    seen = ""

    def look() -> None:
        nonlocal seen
        newest = tf.train.latest_checkpoint(trainable.model_dir) or ""
        if newest and newest != seen and _evaluate_one(trainable, spec, newest):
            seen = newest

    _ended.wait(trainable.model_dir, look)
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
