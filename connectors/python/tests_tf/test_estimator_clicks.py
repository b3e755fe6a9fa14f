"""examples/estimator_clicks in one process under `headrace run`, with a kill, over files and over a
topic of a real Kafka: each record is in the model once."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import topic

pytest.importorskip("tensorflow_estimator", reason="only TensorFlow 2.15 has Estimator")
from tasks import Tasks, made_lines

EXAMPLE = Path(__file__).parents[3] / "examples" / "estimator_clicks"
N = 20_000


@pytest.mark.parametrize("spec", ["clicks.yaml", "kafka.yaml"])
def test_under_headrace_run_with_a_kill(job: Any, spec: str) -> None:
    work = Path(job.folder) / "work"
    shutil.copytree(EXAMPLE, work)
    subprocess.run([sys.executable, "make_log.py", str(N), "data"], cwd=work, check=True)
    with contextlib.ExitStack() as ends:
        if spec == "kafka.yaml":
            lines = "".join(f.read_text() for f in sorted((work / "data").iterdir()))
            address = ends.enter_context(topic.kafka(work, lines))
            (work / spec).write_text((work / spec).read_text().replace("127.0.0.1:9092", address))
        runs_with_a_kill(job, work, spec)


def runs_with_a_kill(job: Any, work: Path, spec: str) -> None:
    env = {**job.env, "PYTHONPATH": os.environ["PYTHONPATH"], "TF_CPP_MIN_LOG_LEVEL": "2"}
    flags = ["--model", "replicated", "--max-restarts", "3", "-f", spec]
    program = [sys.executable, "train.py", "--records", str(N), "--rows", "100", "--every", "20"]
    with (work / "run.log").open("wb") as out:
        command = [job.binary, "run", "--socket", job.socket, *flags, "--", *program]
        run = subprocess.Popen(command, env=env, cwd=work, stdout=out, stderr=out)
    job.processes.append(run)
    log, killed, deadline = work / "run.log", False, time.monotonic() + 900
    while run.poll() is None:
        assert time.monotonic() < deadline, log.read_text()
        if not killed and list((work / "model").glob("*.headrace-manifest.json")):
            killed = True
            out = subprocess.run(["pgrep", "-P", str(run.pid)], capture_output=True, text=True, check=True)
            os.kill(int(out.stdout.split()[0]), signal.SIGKILL)
        time.sleep(0.05)
    text = log.read_text()
    assert killed
    assert run.returncode == 0, text
    assert f"in the model once {N}, never 0, more often 0" in text, text


class Alone(Tasks):
    kind = "replicated"

    def runs_what(self) -> list[str]:
        return ["--model", "replicated", "--max-restarts", "3", "-f", "kafka.yaml"]

    def kill_trainer(self) -> None:
        out = subprocess.run(["pgrep", "-P", str(self.runs.pid)], capture_output=True, text=True, check=True)
        os.kill(int(out.stdout.split()[0]), signal.SIGKILL)


def test_a_topic_that_falls_silent_comes_into_a_checkpoint(job: Any) -> None:
    """The topic has no end. All that was trained comes into a checkpoint, although no batch follows. So a
    kill in the silence repeats nothing."""
    records, first = 2000, 1220  # each ends with a short batch
    made = Alone(job, "kafka.yaml", f"--records={records}", "--rows=100", "--seconds=2", "--max-wait=1")
    lines = made_lines(0, records)
    with topic.kafka(made.work, "".join(lines[:first])) as address:
        spec = made.work / "kafka.yaml"
        spec.write_text(spec.read_text().replace("127.0.0.1:9092", address).replace("end: latest ", "end: never "))
        made.start()
        made.until("a checkpoint of what has come", lambda: made.saved(first // 4))
        made.kill_trainer()
        topic.produce(address, "".join(lines[first:]))
        made.until("a checkpoint of all", lambda: made.saved(records // 4))
        made.stop()
    assert (made.check() == 1).all(), f"a record is lost, or twice in the model\n{made.text()}"
