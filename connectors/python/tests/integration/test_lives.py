"""A master has lost its state and numbers its cuts from 1 again, while the folder has checkpoints of
its life before. The newest checkpoint is still the one that was saved last."""

from __future__ import annotations

import json
import shutil
import signal
from typing import Any

import numpy as np
import pytest
from headrace import _manifest as manifest
from test_checkpoints import of_end
from test_rewind import kill_everything

MODELS = ["private", "replicated", "shared"]

# The model counts which records are in it. The trainer is killed after `stop` steps.
TRAINER = """
import headrace, json, os, signal
import numpy as np

cfg = json.loads(os.environ["TRAINER"])
seen = np.zeros(cfg["rows"], np.int64)
with headrace.dataset("rows").batches(10) as stream, headrace.Checkpointer(cfg["dir"], stream) as ck:
    restored = ck.restore(cfg.get("to", "newest")) if cfg.get("restores", True) else None
    step = 0
    if restored is not None:
        seen, step = restored.state["seen"], restored.step
    elif ck._trainer.model == "shared":
        step = ck._trainer.last_step
    print("begins at", step, flush=True)
    for b in stream:
        np.add.at(seen, b["id"], 1)
        step = stream.step(step + 1)
        if step % 5 == 0:
            ck.save(step, {"seen": seen}).wait()
        if step == cfg.get("stop"):
            os.kill(os.getpid(), signal.SIGKILL)
    ck.save(step, {"seen": seen}).wait()
print("end", step, *seen.tolist(), flush=True)
"""


class Life:
    def __init__(self, job: Any, model: str) -> None:
        self.job, self.model, self.rows = job, model, job.write(400)
        self.begin()

    def begin(self) -> None:
        self.job.up("--model", self.model, "--session-ttl", "20s")
        self.job.apply()

    def again(self) -> None:
        """Kills everything, removes the master's state, and starts it again."""
        kill_everything(self.job)
        shutil.rmtree(self.job.folder / "state")
        self.begin()

    def run(self, resume: str = "", **more: Any) -> str:
        """Runs a trainer. Returns its line "begins at STEP"."""
        settings = {"rows": self.rows, "dir": str(self.job.folder / "ckpt"), **more}
        env = {"TRAINER": json.dumps(settings), **({"HEADRACE_RESUME": resume} if resume else {})}
        trainer = self.job.trainer(TRAINER, **env)
        self.out = trainer.ended()
        assert trainer.process.returncode == (-signal.SIGKILL if "stop" in more else 0), self.out + self.job.logs()
        return next(line for line in self.out.splitlines() if line.startswith("begins at "))

    def steps(self) -> list[int]:
        return [m.step for m in manifest.find(str(self.job.folder / "ckpt"))]


@pytest.fixture
def life(job: Any, request: pytest.FixtureRequest) -> Life:
    return Life(job, request.param)


every_model = pytest.mark.parametrize("life", MODELS, indirect=True)


@every_model
def test_who_starts_over_on_an_empty_master_goes_back_to_what_it_saved_since(life: Life) -> None:
    assert life.run(stop=13) == "begins at 0"
    life.again()
    assert life.run(resume="start", stop=7) == "begins at 0"
    assert life.steps()[0] == 5
    assert life.run(stop=9) == "begins at 5"
    life.again()  # the new master does not know the checkpoint, but the folder has it
    assert life.run() == "begins at 5"
    assert np.array_equal(of_end(life.out), np.ones(life.rows))


@every_model
def test_who_restores_nothing_on_an_empty_master_goes_back_to_what_it_saved_since(life: Life) -> None:
    assert life.run(stop=13) == "begins at 0"
    life.again()
    assert life.run(restores=False, stop=7) == "begins at 0"
    assert life.run() == "begins at 5"
    assert np.array_equal(of_end(life.out), np.ones(life.rows))


@every_model
def test_who_went_back_by_step_on_an_empty_master_stays_there(life: Life) -> None:
    assert life.run(stop=18) == "begins at 0"
    life.again()
    assert life.run(to=10, stop=13) == "begins at 10"  # killed before it saved anything
    assert life.run(stop=17) == "begins at 10"
    assert life.steps()[0] == 15
    life.again()
    assert life.run() == "begins at 15"
    assert np.array_equal(of_end(life.out), np.ones(life.rows))


@every_model
def test_a_rewind_of_an_empty_master_is_not_undone_by_what_lies_there(life: Life) -> None:
    assert life.run(stop=18) == "begins at 0"
    life.again()
    (to,) = (m.folder for m in manifest.find(str(life.job.folder / "ckpt")) if m.step == 10)
    life.job.headrace("rewind", "default", "--to", to, "--yes")
    assert life.run() == "begins at 10"
    assert np.array_equal(of_end(life.out), np.ones(life.rows))
