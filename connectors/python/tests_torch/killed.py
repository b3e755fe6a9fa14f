"""Runs a training program whose rank kills itself: python killed.py PROGRAM ARGUMENTS...

KILL=RANK,STEP: in the first attempt that rank ends by SIGKILL when it calls step(STEP), as soon
as a checkpoint is there: a path that matches SAVED. KILLED=before: the step is not passed on to
Headrace; behind: it is, and then the rank ends.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import time
from pathlib import Path
from typing import Any

import headrace

attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT") or os.environ.get("HEADRACE_ATTEMPT") or 0)
victim, at = map(int, os.environ["KILL"].split(","))
saved = os.environ.get("SAVED", "checkpoints/step-*/headrace-manifest.json")
said = headrace.Stream.step


def step(self: headrace.Stream, step: int | None = None, **more: Any) -> int:
    if step != at:
        return said(self, step, **more)
    if os.environ["KILLED"] == "behind":
        said(self, step, **more)
    deadline = time.monotonic() + 900
    while not list(Path().glob(saved)):
        assert time.monotonic() < deadline, f"no checkpoint came: {saved}"
        time.sleep(0.01)
    print(f"rank {victim} is killed", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


if attempt == 0 and int(os.environ["RANK"]) == victim:
    headrace.Stream.step = step  # type: ignore[method-assign]
sys.argv = sys.argv[1:]
sys.path.insert(0, str(Path(sys.argv[0]).parent))
runpy.run_path(sys.argv[0], run_name="__main__")
