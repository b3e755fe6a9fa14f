"""The programs of docs/CHECKPOINTS.md and the README, killed at a random moment and started again."""

from __future__ import annotations

import random
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "CHECKPOINTS.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
ALONE = [p for p in PROGRAMS if "from train import" not in p]
SLOW = """
import headrace, time

def slow(said):
    def step(*args, **more):
        time.sleep(0.01)
        return said(*args, **more)
    return step

headrace.Stream.step = slow(headrace.Stream.step)
"""


def killed_and_again(start: Callable[[], Any], rng: random.Random, times: int) -> str:
    for _ in range(times):
        trainer = start()
        time.sleep(rng.uniform(0.3, 1.5))
        trainer.process.kill()
        trainer.process.wait()
    return str(start().ended())


@pytest.mark.parametrize("number", range(len(ALONE)))
@pytest.mark.parametrize("model", ["replicated", "private"])
def test_a_program_of_the_page_ends_with_every_record_once(
    job: Any, rng: random.Random, monkeypatch: pytest.MonkeyPatch, number: int, model: str
) -> None:
    n = job.write(5000)
    job.up("--model", model)
    job.apply()
    work = job.folder / "work"
    work.mkdir()
    monkeypatch.chdir(work)  # the programs name files where they run
    out = killed_and_again(lambda: job.trainer(SLOW + ALONE[number]), rng, times=3)
    assert f"step {n // 50}" in out, out + job.logs()
    assert "records" not in ALONE[number] or f"records {n}" in out, out + job.logs()


def test_the_pages_group_of_ranks_counts_every_record_once(job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (group,) = (p for p in PROGRAMS if "from train import" in p)
    n = job.write(6000)
    script = job.folder / "train_group.py"
    script.write_text(SLOW + group)
    spec = job.folder / "rows.yaml"
    spec.write_text(job.spec("rows"))
    job.env["PYTHONPATH"] = str(ROOT / "examples" / "checkpoint")
    monkeypatch.chdir(job.folder)
    options = ("-f", str(spec), "--model", "replicated", "--nproc-per-node", "3", "--max-restarts", "20")
    out = job.headrace("run", *options, "--", sys.executable, str(script)).stdout
    assert out.count(f"records {n}") == 3, out


FRONT = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
MODEL = """
import atexit
import headrace
import numpy as np

class Model:
    def __init__(self):
        self.seen = np.zeros(0, np.int64)

    def learn(self, cat, label):
        self.seen = np.append(self.seen, label.astype(np.int64))

    def state(self):
        return {"seen": self.seen}

    def load(self, state):
        self.seen = state["seen"]

m = Model()
atexit.register(lambda: print("records", len(m.seen), "of", len(set(m.seen.tolist()))))
"""


def front(job: Any, program: str) -> str:
    """A program of the README as somebody runs it: small batches, a save more often."""
    spec = job.spec("clicks").replace("name: id", "name: label")
    (job.folder / "clicks.yaml").write_text(spec)
    job.headrace("dataset", "apply", "-f", str(job.folder / "clicks.yaml"))
    return str(program.replace("batches(1024)", "batches(50)").replace("% 1000", "% 10"))


def test_the_readmes_trainer_reads_every_record_once(job: Any) -> None:
    n = job.write(3000)
    job.up()
    out = job.trainer(MODEL + front(job, FRONT[0])).ended()
    assert f"records {n} of {n}" in out, out + job.logs()


@pytest.mark.parametrize("model", ["replicated", "private"])
def test_the_readmes_checkpoint_ends_with_every_record_once(
    job: Any, rng: random.Random, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    n = job.write(5000)
    job.up("--model", model)
    program = SLOW + MODEL + front(job, FRONT[1])
    monkeypatch.chdir(job.folder)
    out = killed_and_again(lambda: job.trainer(program), rng, times=3)
    assert f"records {n} of {n}" in out, out + job.logs()
