"""Runs examples/estimator_clicks/train.py as it is, reports to a test, and kills processes where
the test orders it: python told.py TRAIN.PY [OPTIONS]

In the folder $TOLD it writes
    TASK.steps   this process's pid, and how many batches it has stepped
    PID.hand     int64: how many records it has pulled and not stepped, and their ids
and reads
    TASK.order   "PLACE N PID...": kill these processes the N-th time that this one comes to PLACE
    fast         if it is there, this process does not rest after each batch

Places: "begin" (of a session, before the model is there), "pulled" (a batch, not trained), "run"
(trained, not stepped), "step" (stepped), and those of a save: "paused", "captured" (TensorFlow
has written, the cut is not frozen), "frozen", "manifest", "renamed", "bound".
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

import headrace
import headrace.tensorflow
import numpy as np
from headrace.tensorflow import _cluster, _estimator

REST = 0.3  # seconds after each batch: time for others to start


class Told:
    """What this process reports, and what it is ordered to do."""

    def __init__(self, folder: Path) -> None:
        mine = _cluster.task()
        name = f"{mine.type} {mine.index}" if mine.type in ("ps", "worker") else mine.type
        self.folder, self.order = folder, folder / f"{name}.order"
        self.steps, self.in_hand = 0, deque[Any]()
        self.steps_file = os.open(folder / f"{name}.steps", os.O_WRONLY | os.O_CREAT)
        self.hand_file = os.open(folder / f"{os.getpid()}.hand", os.O_WRONLY | os.O_CREAT)
        self.tell()

    def tell(self) -> None:
        """Writes both files. Each is one write, so a kill leaves the old content or the new one."""
        held = np.concatenate([np.empty(0, np.int64), *self.in_hand])
        os.pwrite(self.hand_file, np.concatenate([[len(held)], held]).astype(np.int64).tobytes(), 0)
        os.pwrite(self.steps_file, f"{os.getpid():12} {self.steps:12}".encode(), 0)

    def at(self, place: str) -> None:
        """Kills the processes of the order if this is its place, and the N-th time."""
        try:
            wanted, left, *pids = self.order.read_text().split()
        except FileNotFoundError:
            return
        if place != wanted:
            return
        if int(left) > 1:
            self.write(f"{wanted} {int(left) - 1} {' '.join(pids)}")
            return
        self.order.unlink()
        for pid in pids:
            os.kill(int(pid) or os.getpid(), signal.SIGKILL)

    def write(self, order: str) -> None:
        new = self.order.with_suffix(".new")
        new.write_text(order)
        new.rename(self.order)

    def rest(self) -> None:
        if not (self.folder / "fast").exists():
            time.sleep(REST)


def tell(told: Told) -> None:
    """Puts the places into Headrace's client."""
    pull, said, gave_back = headrace.Stream.__next__, headrace.Stream.step, headrace.Stream.give_back
    reached, begin = headrace.Checkpointer._reached, _estimator._Run.begin

    def pulled(self: Any) -> Any:
        batch = pull(self)
        told.in_hand.append(np.array(batch["id"]))
        told.tell()
        told.at("pulled")
        return batch

    def step(self: Any, *args: Any, **more: Any) -> int:
        told.at("run")
        number = said(self, *args, **more)
        told.in_hand.popleft()
        told.steps += 1
        told.tell()
        told.at("step")
        told.rest()
        return number

    def give_back(self: Any) -> int:
        rows = gave_back(self)
        told.in_hand.clear()
        told.tell()
        return rows

    def at(self: Any, point: str) -> None:
        reached(self, point)
        told.at(point)

    def begins(self: Any, session: Any) -> None:
        told.at("begin")
        begin(self, session)

    headrace.Stream.__next__ = pulled  # type: ignore[method-assign]
    headrace.Stream.step = step  # type: ignore[method-assign]
    headrace.Stream.give_back = give_back  # type: ignore[method-assign]
    headrace.Checkpointer._reached = at  # type: ignore[method-assign]
    _estimator._Run.begin = begins  # type: ignore[method-assign]


if __name__ == "__main__":
    tell(Told(Path(os.environ["TOLD"])))
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
