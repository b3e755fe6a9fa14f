"""Imports torch once, and what its arguments name, and forks a program for each line of JSON that it reads.

{"start": PROGRAM, "args": [...], "env": {...}, "folder": DIR, "log": FILE} is answered with a process id,
{"wait": [PID, ...], "within": SECONDS} with the exit codes; null: it has not ended.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import runpy
import sys
import time
import traceback
from typing import Any

import torch._dynamo  # optimizers would import it in each rank
import torch.distributed
import torch.nn.parallel  # noqa: F401


def become(rank: dict[str, Any]) -> None:
    """Runs the program in this process, which was forked, and ends it."""
    code = 1
    try:
        log = os.open(rank["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.clear()
        os.environ.update(rank["env"])
        os.chdir(rank["folder"])
        sys.argv = [rank["start"], *rank["args"]]
        sys.path.insert(0, os.path.dirname(rank["start"]))
        runpy.run_path(rank["start"], run_name="__main__")
        code = 0
    except BaseException:
        traceback.print_exc()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def wait(pids: list[int], within: float) -> list[int | None]:
    codes: dict[int, int | None] = dict.fromkeys(pids)
    end = time.monotonic() + within
    while None in codes.values() and time.monotonic() < end:
        for pid in [p for p, code in codes.items() if code is None]:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                codes[pid] = os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    return list(codes.values())


for module in sys.argv[1:]:
    importlib.import_module(module)
for line in sys.stdin:
    asked = json.loads(line)
    if "start" in asked:
        pid = os.fork()
        if pid == 0:
            become(asked)
        print(pid, flush=True)
    else:
        print(json.dumps(wait(asked["wait"], asked["within"])), flush=True)
