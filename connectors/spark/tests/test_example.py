"""examples/spark_backfill: Parquet through Spark into a landing, and then live, with a kill."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headrace
import pytest

PYTHON, JAR = os.environ["HEADRACE_SPARK_PYTHON"], os.environ["HEADRACE_SPARK_JAR"]
EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "spark_backfill"


class Run:
    def __init__(self, job: Any) -> None:
        self.job = job
        self.env = {**job.env, "PYSPARK_PYTHON": PYTHON, "SPARK_LOCAL_IP": "127.0.0.1"}
        self.env["JAVA_TOOL_OPTIONS"] = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # it starts often
        self.env["PATH"] = f"{Path(PYTHON).parent}:{self.env['PATH']}"
        self.submit = [str(Path(PYTHON).parent / "spark-submit"), "--master", "local[2]"]
        self.submit += ["--conf", "spark.ui.enabled=false", "--driver-memory", "1g"]

    def make(self, first: int, rows: int) -> None:
        make = [*self.submit, EXAMPLE / "make_clicks.py", "clicks", str(first), str(rows)]
        done = subprocess.run(make, env=self.env, cwd=self.job.folder, capture_output=True, text=True, timeout=800)
        assert done.returncode == 0, done.stderr[-4000:]

    def backfill(self) -> subprocess.Popen[bytes]:
        command = [*self.submit, "--jars", JAR, EXAMPLE / "backfill.py", "clicks", "checkpoint"]
        with (self.job.folder / "backfill.log").open("ab") as log:
            process = subprocess.Popen(
                command, env=self.env, cwd=self.job.folder, stdout=log, stderr=log, start_new_session=True
            )
        self.job.processes.append(process)
        return process

    def until(self, what: str, reached: Callable[[], bool], *alive: Any) -> None:
        deadline = time.monotonic() + 800
        while not reached():
            for process in alive:
                assert process.poll() is None, f"{what}: {self.job.logs()[-8000:]}"
            assert time.monotonic() < deadline, f"{what}: {self.job.logs()[-8000:]}"
            time.sleep(0.1)


def end(process: subprocess.Popen[bytes]) -> None:
    """With kill -9, the shell, Python and the JVM alike."""
    os.killpg(process.pid, 9)
    process.wait()


def test_the_history_and_what_follows_come_once(job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_STATE", job.env["HEADRACE_STATE"])
    run = Run(job)
    job.up("-f", str(EXAMPLE / "clicks.yaml"))
    journal = job.folder / "journal"
    journal.touch()

    def trained() -> list[int]:
        return [int(n) for n in journal.read_text().split()]

    run.make(0, 5000)
    with (job.folder / "train.log").open("wb") as log:
        trainer = subprocess.Popen([sys.executable, EXAMPLE / "train.py", journal], env=job.env, stdout=log, stderr=log)
    job.processes.append(trainer)
    query = run.backfill()
    try:
        run.until("the history is trained on", lambda: len(trained()) >= 5000, query, trainer)
        run.make(5000, 300)
        run.until("a new file is trained on", lambda: len(trained()) >= 5001, query, trainer)
        end(query)
        run.make(5300, 300)
        query = run.backfill()
        run.until("what came while it was away", lambda: len(trained()) >= 5600, query, trainer)
    finally:
        if query.poll() is None:
            end(query)
    with headrace.Pusher("clicks") as pusher:
        pusher.end()
    assert trainer.wait(120) == 0
    assert sorted(trained()) == list(range(5600))
