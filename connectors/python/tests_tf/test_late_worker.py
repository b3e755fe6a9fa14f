"""A worker that starts late: the job ends before it has the model, and then it ends, too."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fixtures import Job

pytest.importorskip("tensorflow_estimator", reason="only TensorFlow 2.15 has Estimator")
import tensorflow as tf
from by_hand import PROGRAM, ByHand, bound, until
from headrace import _ended
from headrace.tensorflow import _roles, _waiting
from tasks import WITHIN

N = 400  # 20 batches
ARGS = [f"--records={N}", "--every=10"]
ENDS = "this worker ends: the job ended before it began to train"


@pytest.fixture
def work(job: Job, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = Path(job.folder) / "work"
    folder.mkdir()
    (folder / "model").mkdir()
    monkeypatch.chdir(folder)
    job.write(N)
    return folder


def test_a_worker_that_waits_for_the_model_ends_with_the_job(job: Job, work: Path) -> None:
    """The server is there, and there is no model: the chief has not come. train_and_evaluate() returns."""
    tasks = ByHand(job, ARGS, ps=1, chief=1, worker=1)
    job.up("--model", "shared")
    job.apply()
    server, worker = tasks.start("ps"), tasks.start("worker", VERBOSITY="INFO", STUCK_SECONDS=str(WITHIN))
    until("a worker that waits", lambda: "waits for the model" in worker.log.read_text(), job.logs)
    _ended.say(str(work / "model"))
    assert [tasks.status(worker), tasks.status(server)] == [0, 0], job.logs()
    assert ENDS in worker.log.read_text(), job.logs()
    assert "ended well" in worker.log.read_text(), "its program goes on"


def test_a_worker_that_waits_for_servers_that_are_gone_ends_with_the_job(job: Job, work: Path) -> None:
    """The worker is in a call of TensorFlow that never returns."""
    tasks = ByHand(job, ARGS, ps=1, chief=1, worker=1)
    job.up("--model", "shared")
    job.apply()
    worker = tasks.start("worker", VERBOSITY="INFO")
    until("a worker that looks", lambda: "looks for the model" in worker.log.read_text(), job.logs)
    _ended.say(str(work / "model"))
    assert tasks.status(worker) == 0, job.logs()
    assert worker.log.read_text().count(ENDS) == 1, job.logs()


def test_a_worker_that_has_begun_does_not_outlive_the_job(job: Job, work: Path) -> None:
    """The worker may wait for data, for example, while the chief has done all its steps."""
    tasks = ByHand(job, ARGS, ps=1, chief=1, worker=1)
    job.up("--model", "shared")
    job.apply()
    server, _ = tasks.start("ps"), tasks.start("chief", HELD="never")
    worker = tasks.start("worker", HELD="never", FINISH_SECONDS="0.1")
    until("a worker that holds", lambda: "held" in worker.log.read_text(), job.logs)
    _ended.say(str(work / "model"))
    assert [tasks.status(worker), tasks.status(server)] == [0, 0], job.logs()
    assert "this worker ends: the job ended 0.1 s ago" in worker.log.read_text(), job.logs()


def test_a_worker_that_goes_on_after_the_job_ends_without_an_error(job: Job, work: Path) -> None:
    """Its server is gone. The worker does not end with status 75, which asks for another start."""
    tasks = ByHand(job, ARGS, ps=1, chief=1, worker=1)
    job.up("--model", "shared")
    job.apply()
    server, chief = tasks.start("ps"), tasks.start("chief", HELD="never")
    worker = tasks.start("worker", HELD="fast")
    until("a worker that holds", lambda: "held" in worker.log.read_text(), job.logs)
    chief.process.kill()  # its records come to the worker
    _ended.say(str(work / "model"))
    assert tasks.status(server) == 0, job.logs()
    (work / "fast").touch()
    assert tasks.status(worker) == 0, job.logs()
    assert "this worker ends: the job" in worker.log.read_text(), job.logs()


def test_under_headrace_run_a_worker_may_start_when_the_job_has_ended(job: Job, work: Path) -> None:
    """The chief's program goes on after its training. Its server does not count as lost then."""
    program = [sys.executable, str(PROGRAM), *ARGS]
    late = ["sh", "-c", f'until [ -e model/{_ended.ENDED} ]; do sleep 0.05; done; exec "$@"', "sh", *program]
    told = {
        "specs": ["rows.yaml"],
        "roles": {"ps": 1, "chief": 1, "worker": {"count": 1, "command": late}},
        "command": program,
        "env": {"CHIEF_WAITS": "go-on", "AGAIN_SECONDS": "0", "STAY_SECONDS": "0"},
    }
    (work / "fast").touch()
    (work / "rows.yaml").write_text(job.spec("rows"))
    (work / "job.yaml").write_text("".join(f"{name}: {json.dumps(value)}\n" for name, value in told.items()))
    log, env = work / "run.log", {**job.env, "PYTHONPATH": os.environ["PYTHONPATH"], "TF_CPP_MIN_LOG_LEVEL": "2"}
    with log.open("wb") as out:
        command = [job.binary, "run", "job.yaml", "--socket", job.socket]
        run = subprocess.Popen(command, env=env, cwd=work, stdout=out, stderr=out)
    job.processes.append(run)
    text = log.read_text
    until("the worker's end", lambda: "worker 0 has ended well" in text() or run.poll() is not None, text)
    (work / "go-on").touch()
    run.wait(WITHIN)
    assert run.returncode == 0, text()
    for line in (f"[worker 0] {ENDS}", "[headrace] chief has ended well", "[headrace] ps 0 has ended ("):
        assert line in text(), text()
    assert not re.search("starts? again", text()), text()
    prefix = str(bound(work)[-1]).removesuffix(".headrace-manifest.json")
    assert (tf.train.load_variable(prefix, "hist") == 1).all()


def test_a_chief_does_not_go_on_with_the_model_of_another_training(job: Job, work: Path) -> None:
    """Under `headrace run` servers outlive a training, and so does the first chief's model."""
    tasks = ByHand(job, ARGS, ps=1, chief=1)
    job.up("--model", "shared")
    job.apply()
    tasks.start("ps")
    first = tasks.start("chief", HELD="never")
    until("a chief that holds", lambda: "held" in first.log.read_text(), job.logs)
    first.process.kill()
    first.process.wait()
    tasks.argv.append("--dir=another")
    other = tasks.start("chief")
    assert tasks.status(other) == 1, job.logs()
    said = other.log.read_text()
    assert f"the model of another training, whose model_dir is {work / 'model'}; here it is {work / 'another'}" in said
    assert "begins after" not in said
    tasks.argv.pop()
    same = tasks.start("chief")
    until("a chief that goes on", lambda: "begins after" in same.log.read_text(), job.logs)
    assert "the model lives on the parameter servers" in same.log.read_text(), job.logs()


class Worker(SimpleNamespace):
    """A Trainable whose train() notes which JobEnd it watches."""

    def __init__(self, folder: Path, error: Exception | None = None) -> None:
        super().__init__(model_dir=str(folder), _end=None, heeded=[], error=error)

    def train(self, *args: Any) -> None:
        self.heeded.append(self._end)
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("error", [None, _waiting.JobHasEnded()])
def test_a_later_train_of_a_worker_heeds_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    monkeypatch.setattr(_roles, "_server", lambda trainable: None)
    worker = Worker(tmp_path, error)
    _roles._work(worker, SimpleNamespace(input_fn=None, hooks=None, max_steps=None))
    assert [type(end) for end in worker.heeded] == [_waiting.JobEnd]
    assert worker._end is None


@pytest.mark.parametrize("again", [True, False])
def test_a_worker_that_starts_after_the_end_waits_for_a_chief_that_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """As in a job whose program trains twice, and whose second worker starts before the second chief."""
    monkeypatch.setattr(_roles, "_server", lambda trainable: None)
    monkeypatch.setattr(_waiting, "AGAIN_SECONDS", WITHIN if again else 0.0)
    monkeypatch.setenv(_ended.RUN, "one")
    _ended.say(str(tmp_path))
    if again:
        monkeypatch.setattr(_ended.time, "sleep", lambda seconds: _ended.remove(str(tmp_path)))
    worker = Worker(tmp_path)
    _roles._work(worker, SimpleNamespace(input_fn=None, hooks=None, max_steps=None))
    assert len(worker.heeded) == again
