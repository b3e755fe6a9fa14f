"""A worker waits for the model, which the chief makes on the parameter servers.

TensorFlow's own worker looks for it every 30 s, and for two hours. If the job ends meanwhile, so
do the servers, and TensorFlow waits for them without an end, in a call that nothing interrupts.
So a worker looks more often here, and it ends when the job has ended.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import sys
import threading
import time
from typing import Any

import tensorflow as tf
from headrace import _ended

log = logging.getLogger("headrace")

LOOK_SECONDS = 1.0  # from one look for the model to the next
# After the job's end the main thread has STUCK_SECONDS to end by itself if it has not begun to train,
# and FINISH_SECONDS if it has.
STUCK_SECONDS = 5.0
FINISH_SECONDS = 60.0
# If the folder has a file that says that a run has ended, and it may be an earlier run, a worker waits so
# long for servers or a chief of a new run. They may take long to start, on another machine, and a worker
# that has ended without an error is not started again.
OLD_SECONDS = 1800.0
# A worker that starts after the job's end waits so long for a chief of the same `headrace run` that begins
# again: the chief's program may fail after the end, or train twice.
AGAIN_SECONDS = 60.0
BEFORE = "the job ended before it began to train"


class JobHasEnded(Exception):
    """The job has ended, and this worker has not begun."""

    def __init__(self) -> None:
        super().__init__(f"this worker ends: {BEFORE}")


class JobEnd(tf.compat.v1.train.SessionRunHook):
    """Looks, in a thread and while a worker trains, whether the job has ended.

    The main thread is told so if it waits for the model: train_and_evaluate() returns. It may also be
    in a call that does not return, because the servers are gone or no data comes. Then the thread ends
    this process with status 0. If a chief begins again meanwhile, the job has not ended.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._file = _ended.Watch(folder, old_seconds=OLD_SECONDS)
        self._over = threading.Event()  # the job has ended
        self._begun = False
        self._done = threading.Event()  # nothing is trained here any more

    def __enter__(self) -> JobEnd:
        if self._has_ended_before():
            self._over.set()
        else:
            threading.Thread(target=self._look, name="headrace-job-end", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()

    def after_create_session(self, session: Any, coord: Any) -> None:
        self._begun = True
        self._file.put_off(math.inf)  # the chief has begun, so an old file is of an earlier run

    def end(self, session: Any) -> None:
        self._done.set()  # what other hooks do now may take long

    def check(self) -> None:
        """Raises JobHasEnded if the job has ended."""
        if self._over.is_set():
            raise JobHasEnded

    def rest(self) -> None:
        """Waits until the next look for the model, or until the job has ended."""
        self._over.wait(LOOK_SECONDS)

    def server_answered(self) -> None:
        """While servers answer, an old file is taken for that of an earlier run."""
        self._file.put_off()

    def servers_lost(self) -> None:
        """Ends this process if the servers have ended with the job."""
        if _ended.is_over(self._file, before=self._over.is_set()):
            _exit("the job and its parameter servers have ended")

    def _has_ended_before(self) -> bool:
        """Whether the job had ended before this worker started, and no chief begins again."""
        if not _ended.of_this_run(self._folder):
            return False
        log.warning("the job has ended; this worker waits %g s for a chief that begins again", AGAIN_SECONDS)
        return _ended.stays(self._folder, AGAIN_SECONDS)

    def _look(self) -> None:
        begun = False

        def left() -> float:
            nonlocal begun
            begun = self._begun
            return FINISH_SECONDS if begun else STUCK_SECONDS

        if not _ended.follow(self._file, self._done, self._over, left):
            return
        if begun:
            _exit(f"the job ended {FINISH_SECONDS:g} s ago, and it still trains or waits for data")
        _exit(BEFORE)


def _exit(why: str) -> None:
    """Ends this process with status 0, from any thread."""
    log.warning("this worker ends: %s", why)
    logging.shutdown()
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    os._exit(0)


def for_model(ready: Any, config: Any, end: JobEnd | None) -> None:
    """Waits until the model is whole, so that TensorFlow does not wait for it. ready: the
    Scaffold's ready_for_local_init_op.

    Raises JobHasEnded. If the model does not come, it raises the error that TensorFlow raises then.
    """
    patience = config.session_creation_timeout_secs
    until = time.monotonic() + patience
    log.info("this worker looks for the model on the parameter servers")
    session: Any = None
    told = False
    try:
        while True:
            if end is not None:
                end.check()
            if session is None:
                session = tf.compat.v1.Session(config.master, config=config.session_config)
            try:
                missing = _missing(session, ready)
                if not missing:
                    return
                if end is not None:
                    end.server_answered()
            except (tf.errors.AbortedError, tf.errors.UnavailableError) as error:  # a server has started again
                missing = str(error)
                _close(session)
                session = None
            if not told:
                log.info("this worker waits for the model: %s", missing[:200])
                told = True
            if time.monotonic() > until:
                raise tf.errors.DeadlineExceededError(
                    None, None, f"the model was not ready within {patience} s: {missing[:200]}"
                )
            if end is None:
                time.sleep(LOOK_SECONDS)
            else:
                end.rest()
    finally:
        if session is not None:
            _close(session)


def _missing(session: Any, ready: Any) -> str:
    """Names what the model lacks, by the rules of TensorFlow's SessionManager; empty: nothing."""
    try:
        value = session.run(ready)
    except tf.errors.FailedPreconditionError as error:
        if "uninitialized" not in str(error):
            raise
        return str(error)
    if value is None or value.dtype == "int32" or not value.size:
        return ""
    return b", ".join(value.ravel()).decode()


def _close(session: Any) -> None:
    with contextlib.suppress(tf.errors.OpError):
        session.close()
