"""Deltas of sharded models, against the real agent and master, with kills at every point. Each
rank's part has a base of its own."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
from headrace import _manifest as manifest
from in_memory import ROOT, memory, restored
from seen import ids_of

__all__ = ["memory"]  # a fixture

# A rank of a sharded group. Its part counts how often it has seen each id. Both ranks step together:
# each writes a file for each step.
TRAINER = """
import headrace, json, os, signal, sys, time
import numpy as np

cfg = json.loads(os.environ["TRAINER"])
trainer = headrace.init()
rank = trainer.rank

class Checkpointer(headrace.Checkpointer):
    def _reached(self, point):
        if point == cfg["die"] and trainer.last_step >= cfg["die_after"] and rank == cfg["victim"]:
            print(f"\\ndies at {point} {trainer.last_step}\\n", end="", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

seen = np.zeros(cfg["rows"], np.int64)
rows = headrace.dataset("rows")
with rows.batches(50, rounds=False) as stream, Checkpointer(cfg["dir"], stream, sharded=True, **cfg["options"]) as ck:
    restored = ck.restore()
    if restored is not None:
        assert restored.shards == 2 and restored.state["rank"] == rank
        seen[:] = restored.state["seen"]
    step = restored.step if restored is not None else 0
    print("restored", step, int(seen.sum()), restored.source if restored else "-", flush=True)
    del restored
    batches = iter(stream)
    while step < cfg["stop"]:
        b = next(batches)
        np.add.at(seen, b["id"], 1)
        ck.touch("seen", b["id"])
        step = stream.step(step + 1)
        if step % 5 == 0:
            ck.save(step, {"rank": rank, "seen": seen}).wait()
            print("saved", step, flush=True)
        open(f"{cfg['dir']}/{cfg['life']}-{step}-{rank}", "w").close()
        while not os.path.exists(f"{cfg['dir']}/{cfg['life']}-{step}-{1 - rank}"):
            time.sleep(0.002)
print("end", step, flush=True)
"""

OPTIONS: dict[str, Any] = {"deltas": ["seen"], "full_every": 5, "keep": 3}
# The point at which a rank dies, and the rank. Only rank 0 writes the manifest.
STORAGE = [("captured", 1), ("frozen", 0), ("files", 1), ("part", 1), ("part", 0), ("manifest", 0), ("renamed", 0)]
MEMORY = [("copying", 1), ("frozen", 1), ("sealed", 0), ("staged", 1), ("staged", 0), ("part", 1), ("bound", 0)]


def checked(job: Any, rows: int) -> list[manifest.Manifest]:
    """Checks that the parts of each checkpoint together hold exactly the records of its cut."""
    found = manifest.find(str(job.folder / "ckpt"))
    for m in found:
        assert headrace._restore._verified(m) is None
        counts = np.zeros(rows, np.int64)
        np.add.at(counts, ids_of(job, m.cut), 1)
        parts = [headrace._restore._load(m, rank)["seen"] for rank in (0, 1)]
        assert np.array_equal(parts[0] + parts[1], counts), m.path
    return found


def group(job: Any, memory: Path, life: int, stop: int, **more: Any) -> list[Any]:
    cfg = {"dir": str(job.folder / "ckpt"), "life": life, "stop": stop, "die": "", "die_after": 0, "victim": 0, **more}
    env = {"TRAINER": json.dumps(cfg), ROOT: str(memory), "HEADRACE_WORLD_SIZE": "2"}
    return [job.trainer(TRAINER, HEADRACE_RANK=str(rank), **env) for rank in (0, 1)]


@pytest.mark.parametrize("in_memory", [False, True])
def test_a_crash_at_every_point_leaves_parts_that_are_together_their_cut(
    job: Any, memory: Path, in_memory: bool
) -> None:
    n = job.write(30_000)
    job.up("--model", "replicated")
    job.apply()
    (job.folder / "ckpt").mkdir()
    options = {**OPTIONS, "memory": in_memory}
    newest = met = 0
    for life, (point, victim) in enumerate(MEMORY if in_memory else STORAGE):
        dies = newest + 20
        ranks = group(job, memory, life, dies + 50, rows=n, options=options, die=point, die_after=dies, victim=victim)
        out = ranks[victim].ended()
        assert ranks[victim].process.returncode == -signal.SIGKILL, out + job.logs()
        assert f"\ndies at {point} {dies}\n" in out, out
        ranks[1 - victim].process.kill()
        both = [restored(rank.ended()) for rank in ranks]
        assert both[0][1] == both[1][1], both
        assert sum(int(line[2]) for line in both) == 100 * int(both[0][1]), both
        assert both[0][1] == str(newest) or in_memory, both
        found = checked(job, n)
        met += sum(1 for m in found if m.needs)
        newest = found[0].step
        if (point, victim) == ("part", 1):  # rank 0 finds all parts, and may write the manifest before its own kill
            assert newest in (dies - 5, dies), out
        else:
            assert newest == (dies if point in ("renamed", "bound") else dies - 5), (point, out)
    assert met > 7
    ranks = group(job, memory, 100, newest + 12, rows=n, options=options)
    both = [restored(rank.ended()) for rank in ranks]
    assert sum(int(line[2]) for line in both) == 100 * int(both[0][1]), both
    assert checked(job, n)[0].step == newest + 10


def test_a_part_whose_base_is_damaged_does_not_verify(job: Any, memory: Path) -> None:
    n = job.write(20_000)
    job.up("--model", "replicated")
    job.apply()
    (job.folder / "ckpt").mkdir()
    for rank in group(job, memory, 0, 12, rows=n, options=OPTIONS):
        assert "end 12" in rank.ended()
    newest, base = checked(job, n)
    assert newest.needs == [base.cut_id]
    assert job.headrace("ckpt", "verify", str(job.folder / "ckpt")).returncode == 0
    with open(Path(base.folder) / "state-rank-1.safetensors", "r+b") as file:
        file.seek(-1, 2)
        file.write(b"\xff")
    assert "its base does not verify" in str(headrace._restore._verified(newest))
    said = job.headrace("ckpt", "verify", newest.path, check=False)
    assert said.returncode != 0
