"""Sharded checkpoints in memory: each rank has a part of its own."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from in_memory import ROOT, memory, restored, slots_of, told
from seen import settings

__all__ = ["memory"]  # a fixture

# A rank of a sharded group, with a part of its own. All ranks step together: each writes a file for each step.
SHARDED = """
import headrace, json, os, signal, time
import numpy as np

cfg = json.loads(os.environ["TRAINER"])
trainer = headrace.init()
rows = headrace.dataset("rows")

class Checkpointer(headrace.Checkpointer):
    def _reached(self, point):
        if point == cfg.get("dies") and trainer.last_step == cfg["stop"] and trainer.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)

with rows.batches(50, rounds=False) as stream, Checkpointer(cfg["dir"], stream, memory=True, sharded=True) as ck:
    restored = ck.restore()
    step = restored.step if restored is not None else 0
    where = "-"
    if restored is not None:
        where = restored.source
        assert restored.state["rank"] == trainer.rank, restored.state
        assert (restored.state["w"] == 100 * step + trainer.rank).all(), restored.state
        assert restored.shards == 2 and restored.shard(trainer.rank)["rank"] == trainer.rank
    print("restored", step, step, where, flush=True)
    del restored
    batches = iter(stream)
    while step < cfg["stop"]:
        next(batches)
        step = stream.step(step + 1)
        w = np.full(50000, 100 * step + trainer.rank)
        saved = ck.save(step, {"rank": trainer.rank, "w": w}, storage=step % 10 == 0)
        w[:] = -1
        saved.wait_memory()
        if cfg.get("dies") and step % 10 == 0:
            saved.wait()  # otherwise the save pins this slot, and a kill in mid copy goes back to it
        open(f"{cfg['dir']}/{cfg['life']}-{step}-{trainer.rank}", "w").close()
        while not os.path.exists(f"{cfg['dir']}/{cfg['life']}-{step}-{1 - trainer.rank}"):
            time.sleep(0.002)
    if cfg.get("kills"):
        ck._finish()
        print("saved", step, flush=True)
        signal.pause()
    saved = ck.save(step, {"rank": trainer.rank, "w": np.full(50000, 100 * step + trainer.rank)})
    saved.wait()
print("end", step, flush=True)
"""


def sharded(job: Any, memory: Path, life: int, stop: int, kills: bool = True, dies: str = "") -> list[Any]:
    env = {ROOT: str(memory), "HEADRACE_WORLD_SIZE": "2"}
    how = settings(job, 0, life=life, stop=stop, kills=kills, dies=dies)
    return [job.trainer(SHARDED, **how, **env, HEADRACE_RANK=str(rank)) for rank in (0, 1)]


def killed(ranks: list[Any], step: int) -> None:
    """Kills both ranks once they have saved the step."""
    for rank in ranks:
        told(rank, f"saved {step}")
    for rank in ranks:
        rank.process.kill()
        rank.process.wait()


def test_each_rank_of_a_sharded_model_comes_back_from_memory_and_from_storage_with_its_part(
    job: Any, memory: Path
) -> None:
    job.write(20000)
    job.up("--model", "replicated")
    job.apply()
    (job.folder / "ckpt").mkdir()
    killed(sharded(job, memory, 0, stop=25), 25)
    ranks = sharded(job, memory, 1, stop=33)
    killed(ranks, 33)
    for rank in ranks:
        assert restored(rank.log.read_text())[1:4] == ["25", "25", "memory"], rank.log.read_text()
    # Rank 1's memory is lost, so both go back to storage, which has all parts of step 30.
    for path in slots_of(job, 1):
        os.unlink(path)
    out = [rank.ended() for rank in sharded(job, memory, 2, stop=36, kills=False)]
    for text in out:
        assert restored(text)[1:3] == ["30", "30"], text + job.logs()
        assert "end 36" in text
    assert restored(out[1])[3] == "storage", out  # rank 0 may still have it in memory
    listed = json.loads(job.headrace("ckpt", "list", str(job.folder / "ckpt"), "-o", "json").stdout)
    assert next(v["step"] for v in listed if v["state"] == "whole") == 36, listed
    assert job.headrace("ckpt", "verify", str(job.folder / "ckpt")).returncode == 0


@pytest.mark.parametrize("point", ["copying", "frozen", "sealed"])
def test_a_rank_of_a_sharded_model_that_is_killed_takes_all_to_a_step_that_both_hold(
    job: Any, memory: Path, point: str
) -> None:
    job.write(20000)
    job.up("--model", "replicated")
    job.apply()
    (job.folder / "ckpt").mkdir()
    ranks = sharded(job, memory, 0, stop=25, dies=point)
    ranks[1].process.wait(300)
    ranks[0].process.kill()
    ranks[0].process.wait()
    ranks = sharded(job, memory, 1, stop=30)
    killed(ranks, 30)
    both = [restored(rank.log.read_text())[1:4] for rank in ranks]
    assert both[0] == both[1], both
    assert (both[0][2], both[0][0]) in (("memory", "24"), ("memory", "25")), both
