"""A model that lies on two parameter servers, a half on each. One of them is killed: all go back to
the newest checkpoint, with both halves, and each record is in both of them once."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fixtures import Job
from forks import free_port

pytest.importorskip("tensorflow_estimator", reason="only TensorFlow 2.15 has Estimator")
import tensorflow as tf
from tasks import WITHIN, Tasks

N = 6000  # 300 batches
CLUSTER = {"ps": 2, "chief": 1, "worker": 1}
PROGRAM = Path(__file__).parent / "counting.py"
ARGS = [f"--records={N}", "--copies=2", "--every=10", "--keep=0"]


@pytest.fixture
def work(job: Job, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = Path(job.folder) / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    job.write(N)
    return folder


def until(what: str, there: Callable[[], Any], text: Callable[[], str]) -> None:
    deadline = time.monotonic() + WITHIN
    while not there():
        assert time.monotonic() < deadline, f"{what} did not come\n{text()}"
        time.sleep(0.05)


def bound(work: Path) -> list[Path]:
    found = work.glob("model/*.headrace-manifest.json")
    return sorted(found, key=lambda p: int(p.name.split("-")[1].split(".")[0]))


def check(work: Path) -> None:
    """Both halves of each checkpoint have the records of its manifest, and those of the last one
    have all records once."""
    hist = None
    for path in bound(work):
        fields = json.loads(path.read_text())
        prefix = str(path)[: -len(".headrace-manifest.json")]
        assert len(list(work.glob(f"model/{Path(prefix).name}.data-*"))) == 2, "a file of each server"
        assert int(tf.train.load_variable(prefix, "global_step")) == fields["step"]
        rows = Tasks.rows(fields)
        hist, other = (tf.train.load_variable(prefix, name) for name in ("hist", "hist_1"))
        assert (hist == other).all(), prefix
        assert hist.max() <= 1, prefix
        assert hist.sum() == rows, (prefix, int(hist.sum()), rows)
    assert hist is not None
    assert (hist == 1).all()


def test_under_headrace_run_both_servers_start_again(job: Job, work: Path, rng: random.Random) -> None:
    (work / "rows.yaml").write_text(job.spec("rows"))
    (work / "job.yaml").write_text("specs: [rows.yaml]\nroles: {ps: 2, chief: 1, worker: 1}\n")
    log, env = work / "run.log", {**job.env, "PYTHONPATH": os.environ["PYTHONPATH"], "TF_CPP_MIN_LOG_LEVEL": "2"}
    command = [job.binary, "run", "job.yaml", "--socket", job.socket, "--", sys.executable, str(PROGRAM), *ARGS]
    with log.open("wb") as out:
        run = subprocess.Popen(command, env=env, cwd=work, stdout=out, stderr=out)
    job.processes.append(run)

    def until_there(what: str, there: Callable[[], Any]) -> None:
        until(what, lambda: there() or run.poll() is not None, log.read_text)
        assert run.poll() is None, log.read_text()

    def pids(task: str) -> list[str]:
        return re.findall(rf"^\[headrace\] {task} runs, pid (\d+)$", log.read_text(), re.MULTILINE)

    def begun() -> list[str]:
        return re.findall(r"begins behind \d+ ?(\w*)$", log.read_text(), re.MULTILINE)

    until_there("a checkpoint and a worker", lambda: len(bound(work)) >= 2 and len(begun()) >= 2)
    victim = rng.randrange(2)
    os.kill(int(pids(f"ps {victim}")[0]), signal.SIGKILL)
    until_there("the servers again", lambda: len(pids("ps 0")) == len(pids("ps 1")) == 2)
    until_there("the chief again", lambda: len(begun()) >= 3)
    (work / "fast").touch()
    run.wait(WITHIN)
    assert run.returncode == 0, log.read_text()
    assert "storage" in begun()[2:], log.read_text()
    check(work)


def test_the_other_server_lives_on_and_its_half_goes_back_too(job: Job, work: Path, rng: random.Random) -> None:
    """As on Kubernetes: each task is started again alone, and only if it has ended."""
    cluster = {kind: [f"127.0.0.1:{free_port()}" for _ in range(n)] for kind, n in CLUSTER.items()}

    def start(kind: str, index: int = 0, **env: str) -> Any:
        argv = [str(PROGRAM), *ARGS]
        code = f"import sys, runpy; sys.argv = {argv!r}; runpy.run_path(sys.argv[0], run_name='__main__')"
        config = json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})
        return job.trainer(code, TF_CONFIG=config, **env)

    def status(task: Any) -> int:
        task.ended(WITHIN)
        return int(task.process.returncode)

    job.up("--model", "shared")
    job.apply()
    servers, chief = [start("ps", i) for i in range(2)], start("chief")
    until("a checkpoint", lambda: bound(work), job.logs)
    worker = start("worker")
    until("a worker", lambda: "begins behind" in worker.log.read_text(), job.logs)
    before = len(bound(work))
    until("the next checkpoints", lambda: len(bound(work)) >= before + 2, job.logs)
    victim = rng.randrange(2)
    servers[victim].process.kill()
    servers[victim].process.wait()
    servers[victim] = start("ps", victim)
    assert [status(chief), status(worker)] == [75, 75], job.logs()
    # This chief is killed when it has loaded the lost half, and not the other one. All variables are
    # there, and the model is not whole: neither a worker nor the next chief may go on with it.
    assert status(start("chief", KILL_AT_HALF=str(victim))) == -signal.SIGKILL, job.logs()
    worker = start("worker", VERBOSITY="INFO")
    said = worker.log.read_text
    told = ("Waiting for model to be ready", "begins behind")
    until("a worker that waits", lambda: any(text in said() for text in told), job.logs)
    assert "begins behind" not in said(), job.logs()
    chief = start("chief")
    # TensorFlow looks for the model every 30 s. A worker that still waits when the job has ended waits on.
    until("both again", lambda: all("begins behind" in task.log.read_text() for task in (chief, worker)), job.logs)
    (work / "fast").touch()
    assert [status(task) for task in (chief, worker, *servers)] == [0, 0, 0, 0], job.logs()
    assert "storage" in chief.log.read_text()
    check(work)
