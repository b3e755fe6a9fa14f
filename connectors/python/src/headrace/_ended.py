"""The file by which a TensorFlow chief tells the other tasks that the job has ended.

It goes by no wall clock: clocks of machines differ, and somebody may set one.
"""

from __future__ import annotations

import json
import os
import time
from typing import Callable

from . import _durable

#: The chief leaves it in model_dir when the job has ended, and removes it when it begins.
ENDED = "headrace-ended.json"
LOOK_SECONDS = 0.5
OLD_SECONDS = 120.0  # for a chief to begin and remove what the last run has left


def say(folder: str) -> None:
    path = os.path.join(folder, ENDED)
    with open(path + ".tmp", "w") as file:
        json.dump({"ended": time.time()}, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".tmp", path)
    _durable.sync(folder)


def remove(folder: str) -> None:
    path = os.path.join(folder, ENDED)
    if os.path.exists(path):
        os.unlink(path)


def wait(folder: str, meanwhile: Callable[[], None]) -> None:
    """Returns when the chief has ended.

    A file that is there at the beginning may be of an earlier run. It counts only if no chief
    has removed it within OLD_SECONDS. A file that comes later counts at once.
    """
    old, began = _seen(folder), time.monotonic()
    while True:
        now = _seen(folder)
        if now is not None and (now != old or time.monotonic() > began + OLD_SECONDS):
            return
        if now is None:
            old = None  # the chief has removed it; the next one is new
        meanwhile()
        time.sleep(LOOK_SECONDS)


def _seen(folder: str) -> tuple[int, int] | None:
    """Which file is there. A chief that says it again makes another one."""
    try:
        about = os.stat(os.path.join(folder, ENDED))
    except FileNotFoundError:
        return None
    return about.st_ino, about.st_mtime_ns
