"""A model that counts the records that it has seen, and checks of its checkpoints and their cuts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import headrace
import numpy as np
from headrace import _manifest as manifest

# A model that counts how often it has seen each id.
TRAINER = """
import headrace, json, os, signal, sys, time
import numpy as np

cfg = json.loads(os.environ["TRAINER"])

class Checkpointer(headrace.Checkpointer):
    def _reached(self, point):
        if cfg.get("die") == point and cfg.get("die_after", 0) <= self._last_step():
            print("dies at", point, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

    def _last_step(self):
        return self._trainer.last_step

seen = np.zeros(cfg["rows"], np.int64)
trainer = headrace.init()
stream = headrace.dataset("rows").batches(50, rounds=False)
with stream, Checkpointer(cfg["dir"], stream, **cfg.get("options", {})) as ck:
    restored = ck.restore()
    if restored is not None:
        seen = restored.state["seen"]
    step = restored.step if restored is not None else 0
    print("restored", step, int(seen.sum()), flush=True)
    for b in stream:
        np.add.at(seen, b["id"], 1)
        for table in cfg.get("options", {}).get("deltas", ()):
            ck.touch(table, b["id"])
        step = stream.step(step + 1)
        if step % cfg["every"] == 0:
            saved = ck.save(step, {"seen": seen, "step": step})
            if cfg.get("wait", True):
                saved.wait()
            print("saved", step, flush=True)
        time.sleep(cfg.get("pause", 0))
        if step == cfg.get("stop"):
            os.kill(os.getpid(), signal.SIGKILL)
        while step == cfg.get("waits") and not os.path.exists(cfg["dir"] + "/go"):
            time.sleep(0.01)
    ck.save(step, {"seen": seen, "step": step}).wait() if step != 0 else None
print("end", step, *seen.tolist(), flush=True)
"""


def settings(job: Any, rows: int, **more: Any) -> dict[str, str]:
    return {"TRAINER": json.dumps({"rows": rows, "dir": str(job.folder / "ckpt"), "every": 5, **more})}


def of_end(out: str) -> np.ndarray:
    (line,) = [line for line in out.splitlines() if line.startswith("end ")]
    return np.array([int(w) for w in line.split()[2:]])


def ids_of(job: Any, cut: dict[str, Any]) -> np.ndarray:
    """The ids in a cut, computed from the files and the manifest alone."""
    inside: list[int] = []
    (dataset,) = cut["datasets"]
    for partition in dataset["partitions"]:
        segments = {s["id"]: s for s in partition["segments"]}
        if partition["done"]:
            return np.arange(sum(path.read_bytes().count(b"\n") for path in job.data.glob("*.tsv")))
        for pass_ in partition["passes"] or ():
            low = pass_["low"]
            ranges = [tuple(r) for r in (pass_.get("ranges") or {}).get("acked") or ()]
            ranges += [(i, s["start"], s["end"]) for i, s in segments.items() if i < low[0]]
            ranges += [(low[0], segments[low[0]]["start"], low[1])] if low[0] in segments else []
            for segment, start, end in ranges:
                at = 0
                for line in (job.data / Path(segments[segment]["name"]).name).read_bytes().splitlines(keepends=True):
                    if start <= at < end and line.strip():  # a blank line is no record
                        inside.append(int(line.split(b"\t")[0]))
                    at += len(line)
    return np.array(sorted(inside), np.int64)


def checked(job: Any, rows: int) -> int:
    """Checks that every checkpoint holds exactly the records of its cut. Returns the number of checkpoints."""
    found = manifest.find(str(job.folder / "ckpt"))
    for m in found:
        assert manifest.verify(m) is None
        state = headrace._restore._load(m, m.rank or 0)
        counts = np.zeros(rows, np.int64)
        np.add.at(counts, ids_of(job, m.cut), 1)
        assert np.array_equal(state["seen"], counts), m.path
    return len(found)


# The points of a save at which a trainer is killed.
POINTS = ["captured", "frozen", "files", "manifest", "renamed", "bound"]
