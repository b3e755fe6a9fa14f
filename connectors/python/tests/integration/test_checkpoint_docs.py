"""The programs of docs/CHECKPOINTS.md and the README, killed at a random moment and started again."""

from __future__ import annotations

import json
import random
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
from agent import poll

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "CHECKPOINTS.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
ALONE = [p for p in PROGRAMS if "from train import" not in p]
# Kills its process just before or just after a call of step(). KILLS says at which call, counted
# in this process. If a group is started again, KILLS has a number for each start: the first start
# kills rank 0, the second one rank 1, and so on.
KILLED = """
import headrace, os, signal

kills = [int(n) for n in os.environ.get("KILLS", "").split(",") if n]
start = int(os.environ.get("HEADRACE_ATTEMPT") or 0)
left = kills[start] if start < len(kills) and int(os.environ.get("RANK") or 0) == start else 0
said = headrace.Stream.step

def step(*args, **more):
    global left
    left -= 1
    if left == 0 and os.environ["KILLED"] == "behind":
        said(*args, **more)
    if left == 0:
        print("killed", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return said(*args, **more)

headrace.Stream.step = step
"""


def kills(rng: random.Random, *steps: tuple[int, int]) -> dict[str, str]:
    where = rng.choice(["before", "behind"])
    return {"KILLS": ",".join(str(rng.randint(*s)) for s in steps), "KILLED": where}


def killed_and_again(start: Callable[[dict[str, str]], Any], rng: random.Random, times: int) -> str:
    """Starts the program, kills it so many times, then lets it end. Returns what it printed last. A
    killed life does at most 30 of its 100 steps."""
    for _ in range(times):
        trainer = start(kills(rng, (1, 30)))
        out = trainer.ended()
        assert trainer.process.returncode == -signal.SIGKILL, out
        assert "killed" in out
    return str(start({}).ended())


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
    out = killed_and_again(lambda env: job.trainer(KILLED + ALONE[number], **env), rng, times=3)
    assert f"step {n // 50}" in out, out + job.logs()
    assert "records" not in ALONE[number] or f"records {n}" in out, out + job.logs()


def test_the_pages_program_saves_while_its_input_is_silent(job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first five steps, and two more after a restart, are too few for a save by steps. It is killed
    while the input is silent."""
    (program,) = (p for p in ALONE if "stream.ready(60)" in p)
    program = program.replace("ready(60)", "ready(0.2)")
    grows = 'paths: ["*.tsv"], end: never, complete: renamed, refresh: 100ms'
    spec = job.folder / "rows.yaml"
    spec.write_text(job.spec("rows").replace('paths: ["*.tsv"]', grows))
    job.up("--model", "replicated")
    job.headrace("dataset", "apply", "-f", str(spec))
    monkeypatch.chdir(job.folder)

    def saved() -> int:
        audit = job.headrace("audit", "checkpoints", "-o", "json", check=False).stdout
        return json.loads(audit)["datasets"][0]["records"]["rows"] if audit else 0

    for start, end in ((0, 250), (250, 350)):
        (job.data / "new.tmp").write_text("".join(job.line(i) for i in range(start, end)))
        (job.data / "new.tmp").rename(job.data / f"from-{start}.tsv")
        trainer = job.trainer(program)
        poll(lambda end=end: saved() == end, 900)  # type: ignore[misc]
        trainer.process.kill()
        trainer.process.wait()
    assert (job.folder / "checkpoints").exists()
    newest = max((job.folder / "checkpoints").iterdir())
    dense = [[float(x or -1) for x in job.line(i).split("\t")[1:4]] for i in range(350)]
    assert np.allclose(headrace.load(newest)["weights"], np.sum(dense, axis=0))


def run_of_group(job: Any, program: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Runs the page's program, which kills itself, under headrace run."""
    script = job.folder / "train_group.py"
    script.write_text(KILLED + program)
    spec = job.folder / "rows.yaml"
    spec.write_text(job.spec("rows"))
    job.env["PYTHONPATH"] = str(ROOT / "examples" / "checkpoint")
    monkeypatch.chdir(job.folder)  # the program names files where it runs

    def run(ranks: int, restarts: int, check: bool = True) -> Any:
        options = ("-f", spec, "--model", "replicated", "--nproc-per-node", ranks, "--max-restarts", restarts)
        return job.headrace("run", *map(str, options), "--", sys.executable, str(script), check=check)

    return run


def test_the_pages_group_of_ranks_counts_every_record_once(
    job: Any, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has at least 40 steps, saves at step 20, and is killed before and after that."""
    (group,) = (p for p in PROGRAMS if "from train import" in p)
    n = job.write(6000)
    run = run_of_group(job, group, monkeypatch)
    job.env.update(kills(rng, (1, 19), (21, 30), (1, 9)))
    out = run(3, restarts=20).stdout
    assert out.count("killed") == 3, out
    assert out.count(f"records {n}") == 3, out


def test_the_pages_group_goes_on_with_another_number_of_ranks(
    job: Any, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3 ranks, then 1, then 2. There are 120 batches, each rank takes one in each step, and every 20th
    step is saved."""
    (group,) = (p for p in PROGRAMS if "from train import" in p)
    n = job.write(6000)
    run = run_of_group(job, group.replace('print("step"', 'print("sum", int(total[1]), "step"'), monkeypatch)
    for ranks, steps in ((3, (25, 35)), (1, (25, 35)), (2, None)):
        job.env.update(kills(rng, steps) if steps else {"KILLS": ""})
        ended = run(ranks, restarts=0, check=False)
        assert ("killed" in ended.stdout) == bool(steps), ended.stdout + ended.stderr
    assert ended.stdout.count(f"records {n}") == 2, ended.stdout + ended.stderr
    assert ended.stdout.count(f"sum {n * (n - 1) // 2} ") == 2, ended.stdout


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
    """A program of the README with smaller batches and more frequent saves."""
    spec = job.spec("clicks").replace("name: id", "name: label")
    (job.folder / "clicks.yaml").write_text(spec)
    job.headrace("dataset", "apply", "-f", str(job.folder / "clicks.yaml"))
    return str(program.replace("batches(1024)", "batches(50)").replace("save_every(1000", "save_every(10"))


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
    program = KILLED + MODEL + front(job, FRONT[1])
    monkeypatch.chdir(job.folder)
    out = killed_and_again(lambda env: job.trainer(program, **env), rng, times=3)
    assert f"records {n} of {n}" in out, out + job.logs()


def test_the_readmes_checkpoint_leaves_no_row_outside_of_the_newest_checkpoint(
    job: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = job.write(4970)  # the last batches come after the last tenth step
    job.up("--model", "replicated")
    monkeypatch.chdir(job.folder)
    job.trainer(MODEL + front(job, FRONT[1])).ended()
    audit = json.loads(job.headrace("audit", "checkpoints", "-o", "json").stdout)
    assert audit["datasets"][0]["records"]["rows"] == n, audit


@pytest.mark.parametrize(("rows", "program"), [(4970, FRONT[1]), (5000, FRONT[1]), (4970, ALONE[0])])
def test_a_start_that_trains_nothing_saves_nothing(
    job: Any, monkeypatch: pytest.MonkeyPatch, rows: int, program: str
) -> None:
    job.write(rows)
    job.up("--model", "replicated")
    monkeypatch.chdir(job.folder)
    job.apply()
    program = MODEL + front(job, program)
    job.trainer(program).ended()
    saved = sorted(path.name for path in (job.folder / "checkpoints").iterdir())
    assert saved
    job.trainer(program).ended()
    assert sorted(path.name for path in (job.folder / "checkpoints").iterdir()) == saved
