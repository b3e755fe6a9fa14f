"""The file by which a TensorFlow chief tells the other tasks that the job has ended.

It goes by no wall clock: clocks of machines differ, and somebody may set one.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable

from . import _durable

#: The chief leaves it in model_dir when the job has ended, and removes it when it begins.
ENDED = "headrace-ended.json"
#: The variable in which `headrace run` names itself.
RUN = "HEADRACE_RUN"
LOOK_SECONDS = 0.5
OLD_SECONDS = 120.0  # for a chief to begin and remove what the last run has left


def say(folder: str) -> None:
    path = os.path.join(folder, ENDED)
    with open(path + ".tmp", "w") as file:
        json.dump({"ended": time.time(), "run": os.environ.get(RUN, "")}, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".tmp", path)
    _durable.sync(folder)


def remove(folder: str) -> None:
    path = os.path.join(folder, ENDED)
    if os.path.exists(path):
        os.unlink(path)


class Watch:
    """Looks whether the chief has ended.

    A file that is there at the beginning may be of an earlier run. It counts only if no chief
    has removed it within old_seconds. A file that comes later counts at once.
    """

    def __init__(self, folder: str, *, old_seconds: float = OLD_SECONDS) -> None:
        self._folder = folder
        self._old_seconds = old_seconds
        self._old = _seen(folder)
        self._since = time.monotonic()

    def put_off(self, seconds: float = 0.0) -> None:
        """A file of the beginning counts old_seconds after this time from now, at the earliest."""
        self._since = time.monotonic() + seconds

    def over(self) -> bool:
        now = _seen(self._folder)
        if now is None:
            self._old = None  # the chief has removed it; the next one is new
            return False
        return now != self._old or time.monotonic() > self._since + self._old_seconds


def wait(folder: str, meanwhile: Callable[[], None]) -> None:
    """Returns when the chief has ended, as a Watch sees it."""
    watch = Watch(folder)
    while not watch.over():
        meanwhile()
        time.sleep(LOOK_SECONDS)


def of_this_run(folder: str) -> bool:
    """Whether a chief of the `headrace run` of this process has said the end. It may begin again."""
    run = os.environ.get(RUN, "")
    return run != "" and _run_of(folder) == run


def stays(folder: str, seconds: float) -> bool:
    """Waits for these seconds: True. False: a chief has begun again and removed the file."""
    until = time.monotonic() + seconds
    while _is_there(folder):
        if time.monotonic() >= until:
            return True
        time.sleep(LOOK_SECONDS)
    return False


def follow(watch: Watch, done: threading.Event, over: threading.Event, seconds: Callable[[], float]) -> bool:
    """Sets `over` when the chief has ended, and clears it if a chief begins again.

    True: the chief has ended, and seconds() later it had not begun again. False: done.
    """
    while True:
        while not is_over(watch, before=False):
            if done.wait(LOOK_SECONDS):
                return False
        until = time.monotonic() + seconds()
        over.set()
        while is_over(watch, before=True):
            left = until - time.monotonic()
            if left <= 0:
                return True
            if done.wait(min(left, LOOK_SECONDS)):
                return False
        over.clear()


def is_over(watch: Watch, *, before: bool) -> bool:
    """What the Watch sees. If the folder cannot be read, as a shared one that is away for a while: before."""
    try:
        return watch.over()
    except OSError:
        return before


def _seen(folder: str) -> tuple[int, int] | None:
    """Which file is there. A chief that says it again makes another one."""
    try:
        about = os.stat(os.path.join(folder, ENDED))
    except FileNotFoundError:
        return None
    return about.st_ino, about.st_mtime_ns


def _is_there(folder: str) -> bool:
    try:
        return _seen(folder) is not None
    except OSError:  # a shared folder may be away for a while
        return True


def _run_of(folder: str) -> str:
    """The `headrace run` of the chief that has ended; "": there is none, or an older version wrote the file."""
    try:
        with open(os.path.join(folder, ENDED)) as file:
            told = json.load(file)
    except (OSError, ValueError):
        return ""
    return str(told.get("run", "")) if isinstance(told, dict) else ""
