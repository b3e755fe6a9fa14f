"""Groups whose ranks go back together, to the newest checkpoint that all of them have in memory."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from headrace import _slots
from in_memory import ROOT, memory, restored, slots_of
from seen import settings

__all__ = ["memory"]  # a fixture

# A rank of a replicated group, on a node of its own. All ranks step together: each writes a file
# for each step. Rank 1 is killed at step 21 of its first life, before its copy is whole.
ON_TWO_NODES = """
import headrace, json, os, signal, sys, time
import numpy as np

cfg = json.loads(os.environ["TRAINER"])
trainer = headrace.init()

class Checkpointer(headrace.Checkpointer):
    def _reached(self, point):
        if point == "frozen" and trainer.last_step == cfg["stop"] and trainer.rank == cfg["dies"]:
            os.kill(os.getpid(), signal.SIGKILL)

with headrace.dataset("rows").batches(50, rounds=False) as stream, Checkpointer(cfg["dir"], stream, memory=True) as ck:
    restored = ck.restore()
    step = restored.step if restored is not None else 0
    total = int(restored.state["total"]) if restored is not None else 0
    where = (restored.source, restored.why) if restored else ("-", "")
    if restored is not None:
        assert (restored.state["w"] == step).all()
    print("restored", step, total, *where, flush=True)
    del restored
    def both(step):
        open(f"{cfg['dir']}/{cfg['life']}-{step}-{trainer.rank}", "w").close()
        while not os.path.exists(f"{cfg['dir']}/{cfg['life']}-{step}-{1 - trainer.rank}"):
            time.sleep(0.002)
    batches = iter(stream)
    while step < 30:
        total += len(next(batches))
        step = stream.step(step + 1)
        w = np.full(5000, step)
        saved = ck.save(step, {"total": total, "w": w}, storage=False)
        w[:] = -1
        saved.wait_memory()
        both(step)
    print("end", step, flush=True)
"""


def test_a_group_on_two_nodes_goes_back_to_the_newest_that_both_hold(job: Any, memory: Path) -> None:
    job.write(20000)
    job.up("--model", "replicated")
    job.apply()
    for node in (0, 1):
        (memory / f"node-{node}").mkdir(mode=0o700)
    (job.folder / "ckpt").mkdir()

    def group(life: int, stop: int, dies: int) -> list[str]:
        ranks = [
            job.trainer(
                ON_TWO_NODES,
                **settings(job, 0, life=life, stop=stop, dies=dies),
                **{ROOT: str(memory / f"node-{rank}")},
                HEADRACE_RANK=str(rank),
                HEADRACE_WORLD_SIZE="2",
            )
            for rank in (0, 1)
        ]
        if stop:
            ranks[dies].process.wait(300)
            ranks[1 - dies].process.kill()
        return [r.ended() for r in ranks]

    group(0, stop=21, dies=1)
    out = group(1, stop=25, dies=0)
    assert [restored(o)[1:4] for o in out] == [["20", str(t), "memory"] for t in (1000, 1000)], out
    # Rank 0's node is lost, so no rank can go back to a checkpoint in memory.
    shutil.rmtree(memory / "node-0")
    (memory / "node-0").mkdir(mode=0o700)
    out = group(2, stop=0, dies=0)
    assert [restored(o)[1:4] for o in out] == [["0", "0", "-"], ["0", "0", "-"]], out


def test_a_changed_bit_of_one_rank_takes_the_checkpoint_from_the_whole_group(job: Any, memory: Path) -> None:
    """The other ranks must not choose a checkpoint that this rank cannot read."""
    job.write(20000)
    job.up("--model", "replicated")
    job.apply()
    (job.folder / "ckpt").mkdir()
    env = {ROOT: str(memory), "HEADRACE_WORLD_SIZE": "2"}

    def group(life: int, stop: int) -> list[Any]:
        how = settings(job, 0, life=life, stop=stop, dies=1)
        return [job.trainer(ON_TWO_NODES, **how, **env, HEADRACE_RANK=str(rank)) for rank in (0, 1)]

    ranks = group(0, 21)
    ranks[1].process.wait(300)
    ranks[0].process.kill()
    ranks[0].process.wait()
    steps = {int(a["manifest"]["step"]): p for p in slots_of(job, 1) if (a := _slots.peek(p)) is not None}
    with open(steps[20], "r+b") as slot:
        slot.seek(4096 + 4096 + 100)
        slot.write(b"\xff")
    for rank in group(1, 0):
        out = rank.ended()
        assert restored(out)[1] == "0", out + job.logs()
