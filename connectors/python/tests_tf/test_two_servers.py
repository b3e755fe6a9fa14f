"""A model that lies on two or three parameter servers, a part on each. One of them is killed. All parts
go back to the newest checkpoint, and in the end each record is in each part once."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fixtures import Job

pytest.importorskip("tensorflow_estimator", reason="only TensorFlow 2.15 has Estimator")
import tensorflow as tf
from by_hand import PROGRAM, ByHand, bound, until
from tasks import WITHIN, Tasks

N = 6000  # 300 batches


@pytest.fixture
def work(job: Job, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = Path(job.folder) / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    job.write(N)
    return folder


def arguments(servers: int) -> list[str]:
    return [f"--records={N}", f"--copies={servers}", "--every=10", "--keep=0"]


def check(work: Path, servers: int) -> None:
    """Checks that all parts of each checkpoint have the records of its manifest, and that all parts
    of the last one have each record once."""
    hist, names = None, ["hist", *(f"hist_{i}" for i in range(1, servers))]
    for path in bound(work):
        fields = json.loads(path.read_text())
        prefix = str(path)[: -len(".headrace-manifest.json")]
        assert len(list(work.glob(f"model/{Path(prefix).name}.data-*"))) == servers, "want a data file of each server"
        assert int(tf.train.load_variable(prefix, "global_step")) == fields["step"]
        rows = Tasks.rows(fields)
        hist, *others = (tf.train.load_variable(prefix, name) for name in names)
        assert all((hist == other).all() for other in others), prefix
        assert hist.max() <= 1, prefix
        assert hist.sum() == rows, (prefix, int(hist.sum()), rows)
    assert hist is not None
    assert (hist == 1).all()


def test_under_headrace_run_both_servers_start_again(job: Job, work: Path, rng: random.Random) -> None:
    (work / "rows.yaml").write_text(job.spec("rows"))
    (work / "job.yaml").write_text("specs: [rows.yaml]\nroles: {ps: 2, chief: 1, worker: 1}\n")
    log, env = work / "run.log", {**job.env, "PYTHONPATH": os.environ["PYTHONPATH"], "TF_CPP_MIN_LOG_LEVEL": "2"}
    command = [job.binary, "run", "job.yaml", "--socket", job.socket, "--", sys.executable, str(PROGRAM), *arguments(2)]
    with log.open("wb") as out:
        run = subprocess.Popen(command, env=env, cwd=work, stdout=out, stderr=out)
    job.processes.append(run)

    def until_there(what: str, there: Callable[[], Any]) -> None:
        until(what, lambda: there() or run.poll() is not None, log.read_text)
        assert run.poll() is None, log.read_text()

    def pids(task: str) -> list[str]:
        return re.findall(rf"^\[headrace\] {task} runs, pid (\d+)$", log.read_text(), re.MULTILINE)

    def begun() -> list[str]:
        return re.findall(r"begins after \d+ ?(\w*)$", log.read_text(), re.MULTILINE)

    until_there("a checkpoint and a worker", lambda: len(bound(work)) >= 2 and len(begun()) >= 2)
    victim = rng.randrange(2)
    os.kill(int(pids(f"ps {victim}")[0]), signal.SIGKILL)
    until_there("the servers again", lambda: len(pids("ps 0")) == len(pids("ps 1")) == 2)
    until_there("the chief again", lambda: len(begun()) >= 3)
    (work / "fast").touch()
    run.wait(WITHIN)
    assert run.returncode == 0, log.read_text()
    assert "storage" in begun()[2:], log.read_text()
    check(work, 2)


@pytest.mark.parametrize("servers", [2, 3])
def test_the_other_servers_live_on_and_their_parts_go_back_too(
    job: Job, work: Path, rng: random.Random, servers: int
) -> None:
    """As on Kubernetes: each task is started again alone, and only if it has ended."""
    tasks = ByHand(job, arguments(servers), ps=servers, chief=1, worker=1)
    job.up("--model", "shared")
    job.apply()
    running, chief = [tasks.start("ps", i) for i in range(servers)], tasks.start("chief")
    until("a checkpoint", lambda: bound(work), job.logs)
    worker = tasks.start("worker")
    until("a worker", lambda: "begins after" in worker.log.read_text(), job.logs)
    before = len(bound(work))
    until("the next checkpoints", lambda: len(bound(work)) >= before + 2, job.logs)
    victim = rng.randrange(servers)
    running[victim].process.kill()
    running[victim].process.wait()
    running[victim] = tasks.start("ps", victim)
    assert [tasks.status(chief), tasks.status(worker)] == [75, 75], job.logs()
    # This chief is killed when it has loaded the lost part, and not the others. All variables are
    # there, and the model is not whole: neither a worker nor the next chief may go on with it.
    assert tasks.status(tasks.start("chief", KILL_AT_HALF=str(victim))) == -signal.SIGKILL, job.logs()
    worker = tasks.start("worker", VERBOSITY="INFO")
    said = worker.log.read_text
    told = ("waits for the model", "begins after")
    until("a worker that waits", lambda: any(text in said() for text in told), job.logs)
    assert "begins after" not in said(), job.logs()
    chief = tasks.start("chief")
    until("both again", lambda: all("begins after" in task.log.read_text() for task in (chief, worker)), job.logs)
    assert "Waiting for model to be ready" not in said(), "TensorFlow's own wait, of 30 s, has begun"
    (work / "fast").touch()
    assert {tasks.status(task) for task in (chief, worker, *running)} == {0}, job.logs()
    assert "storage" in chief.log.read_text()
    check(work, servers)
