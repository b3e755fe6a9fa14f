"""save_every() with real processes that are killed between saves and during saves. Each record is in
the model once, and the last step is saved once."""

from __future__ import annotations

import json
import random
import re
import signal
import sys
from typing import Any

import numpy as np
import pytest
from headrace import _manifest as manifest
from in_memory import memory
from seen import POINTS, checked, of_end

__all__ = ["memory"]  # a fixture

STEPS, EVERY, ROWS = 40, 7, 2000  # 40 batches of 50 rows; the last multiple of 7 is 35
TRAINER = """
import headrace, json, os, signal
import numpy as np

cfg = json.loads(os.environ["TRAINER"])

class Checkpointer(headrace.Checkpointer):
    def _reached(self, point):
        if cfg.get("die") == point and self._trainer.last_step >= cfg["die_after"]:
            os.kill(os.getpid(), signal.SIGKILL)

seen, begun = np.zeros(cfg["rows"], np.int64), []
memory = cfg.get("options", {}).get("memory")
trainer = headrace.init()
stream = headrace.dataset("rows").batches(50)
with stream, Checkpointer(cfg["dir"], stream, keep=99, **cfg.get("options", {})) as ck:
    restored = ck.restore()
    if restored is not None:
        seen[:] = restored.state["seen"]
    where = restored.source if restored is not None else "-"
    print("restored", restored.step if restored is not None else 0, where, flush=True)
    del restored
    step = 0
    for b in stream:
        np.add.at(seen, b["id"], 1)
        step = stream.step(trainer.last_step + 1)
        saved = ck.save_every(7, step, {"seen": seen})
        if saved is not None:
            begun.append(step)
            saved.wait()
        elif memory:
            ck.save(step, {"seen": seen}, storage=False).wait_memory()
        if step == cfg.get("stop"):
            os.kill(os.getpid(), signal.SIGKILL)
print("begun", *begun, flush=True)
print("end", step, *seen.tolist(), flush=True)
"""


def settings(job: Any, **more: Any) -> dict[str, str]:
    return {"TRAINER": json.dumps({"rows": ROWS, "dir": str(job.folder / "ckpt"), **more})}


def steps_of(job: Any) -> list[int]:
    return sorted(m.step for m in manifest.find(str(job.folder / "ckpt")))


def started(job: Any, model: str) -> None:
    job.write(ROWS)
    job.up("--model", model)
    job.apply()


def killed(job: Any, **more: Any) -> str:
    trainer = job.trainer(TRAINER, **settings(job, **more))
    out = trainer.ended()
    assert trainer.process.returncode == -signal.SIGKILL, out + job.logs()
    return str(out)


def ended(job: Any, **more: Any) -> str:
    trainer = job.trainer(TRAINER, **settings(job, **more))
    out = trainer.ended()
    assert trainer.process.returncode == 0, out + job.logs()
    assert np.array_equal(of_end(out), np.ones(ROWS)), out + job.logs()
    return str(out)


@pytest.mark.parametrize("model", ["replicated", "private"])
def test_kills_between_saves_lose_and_repeat_nothing(job: Any, rng: random.Random, model: str) -> None:
    started(job, model)
    at = 0
    for stop in sorted(rng.sample(range(1, STEPS), 4)):
        assert f"restored {at} " in killed(job, stop=stop)
        at = stop // EVERY * EVERY
        assert steps_of(job) == list(range(EVERY, at + 1, EVERY))
        assert checked(job, ROWS) == len(steps_of(job))
    assert f"restored {at} " in ended(job)
    assert steps_of(job) == [7, 14, 21, 28, 35, 40]
    assert checked(job, ROWS) == 6


@pytest.mark.parametrize("model", ["replicated", "private"])
@pytest.mark.parametrize("die", POINTS)
def test_a_kill_inside_the_last_save_leaves_it_whole_or_not_there(job: Any, model: str, die: str) -> None:
    started(job, model)
    killed(job, die=die, die_after=STEPS)
    whole = die in ("renamed", "bound")
    assert steps_of(job) == [7, 14, 21, 28, 35] + [40] * whole
    out = ended(job) if not whole else job.trainer(TRAINER, **settings(job)).ended()
    assert f"restored {40 if whole else 35} storage" in out, out + job.logs()
    assert "begun\n" in out, out  # no save before the end: only the last step is saved, unless it is there
    assert steps_of(job) == [7, 14, 21, 28, 35, 40]
    assert checked(job, ROWS) == 6


def test_a_step_that_came_back_from_memory_is_saved_to_storage_at_once(
    job: Any,
) -> None:
    started(job, "replicated")
    killed(job, stop=17, options={"memory": True})
    assert steps_of(job) == [7, 14]
    out = ended(job, options={"memory": True})
    assert "restored 17 memory\n" in out, out + job.logs()
    assert "begun 18 21 28 35\n" in out, out
    assert steps_of(job) == [7, 14, 18, 21, 28, 35, 40]
    assert checked(job, ROWS) == 7


@pytest.mark.parametrize("sharded", [False, True])
def test_all_ranks_of_a_group_save_the_same_steps(job: Any, rng: random.Random, sharded: bool) -> None:
    """One of two ranks is killed, and the group starts again. Each record is in one of the two sums."""
    job.write(ROWS)
    script, spec = job.folder / "train.py", job.folder / "rows.yaml"
    script.write_text(TRAINER.replace('cfg.get("stop")', 'cfg.get("stop") and os.environ["HEADRACE_ATTEMPT"] == "0"'))
    spec.write_text(job.spec("rows"))
    job.env.update(settings(job, stop=rng.randrange(8, 14), options={"sharded": sharded}))
    options = ("-f", str(spec), "--model", "replicated", "--nproc-per-node", "2", "--max-restarts", "1")
    done = job.headrace("run", *options, "--", sys.executable, str(script))
    assert len(re.findall("restored 7 storage", done.stdout)) == 2, done.stdout + done.stderr
    assert len(set(re.findall(r"begun ([0-9 ]*)", done.stdout))) == 1, done.stdout
    ends = [np.array(line.split()[2:], int) for line in re.findall(r"end .*", done.stdout)]
    assert len(ends) == 2, done.stdout
    steps = {int(step) for step in re.findall(r"end (\d+)", done.stdout)}
    assert steps == {max(steps_of(job))}
    assert sorted(set(steps_of(job))) == steps_of(job)  # no step is there twice
    if sharded:  # each rank has counted only its own records
        assert np.array_equal(sum(ends), np.ones(ROWS)), done.stdout


def test_nothing_is_left_of_a_program_that_ends_with_an_error(job: Any) -> None:
    started(job, "replicated")
    broken = TRAINER.replace('if step == cfg.get("stop"):', 'if step == 10:\n            raise SystemExit("loss nan")')
    trainer = job.trainer(broken, **settings(job))
    out = trainer.ended()
    assert trainer.process.returncode == 1, out
    assert "loss nan" in out
    assert steps_of(job) == [7]
    assert "restored 7 storage" in ended(job)
