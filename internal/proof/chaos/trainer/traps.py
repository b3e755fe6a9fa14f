"""Traps: one kill, at a named point, of this process, its agent or the master."""

import contextlib
import os
import signal
from pathlib import Path

from .journal import TRAPPED, cfg, write

POINTS = ("yield", "apply", "step", "acked", "captured", "frozen", "files", "part", "manifest", "renamed", "bound",
          "restored", "paused", "copying", "sealed", "persist")  # fmt: skip


def reached(point):
    if point == "apply" and os.path.exists(cfg["lull"]):
        lull_is_over()
    trap = cfg["trap"]
    if trap is None or trap["point"] != point:
        return
    trap["after"] -= 1
    if trap["after"] != 0:
        return
    for victim in trap["victims"]:
        if victim == "self":
            write(TRAPPED, number=POINTS.index(point), aux=0)
            os.kill(os.getpid(), signal.SIGKILL)
        elif kill(victim):
            write(TRAPPED, number=POINTS.index(point), aux=1 if victim == "master" else 2)


def lull_is_over():
    """lull.go wrote down the pid of this process's agent: kill it before this batch is stepped."""
    with contextlib.suppress(OSError, ValueError):
        pid = int(Path(cfg["lull"]).read_text())
        os.unlink(cfg["lull"])
        os.kill(pid, signal.SIGKILL)


def kill(victim):
    """Kills a process of this run by the pid that the harness wrote down."""
    try:
        pid = int((Path(cfg["pids"]) / victim).read_text())
        if cfg["mark"].encode() not in Path(f"/proc/{pid}/environ").read_bytes():
            return False  # the pid belongs to another process now
        os.kill(pid, signal.SIGKILL)
    except (OSError, ValueError):
        return False
    return True
