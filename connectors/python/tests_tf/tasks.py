"""Runs the example's cluster with `headrace run job.yaml`, with its own master and agent, and
kills any of them."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

EXAMPLE = Path(__file__).parents[3] / "examples" / "estimator_clicks"
TASKS = ("ps 0", "chief", "worker 0", "worker 1", "evaluator")
HOLDS_A_BATCH = ("chief", "worker 0", "worker 1")  # if one is killed, its batch may be in the model and comes again
WITHIN = 900.0  # a deadline that only ends a hang: TensorFlow takes minutes to start on a busy machine


def made_lines(first: int, last: int, step: int = 1) -> list[str]:
    """Lines of the example's log."""
    spec = importlib.util.spec_from_file_location("make_log", EXAMPLE / "make_log.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return list(loaded.lines(first, last, step))


class Tasks:
    """One job. spec: the file of its dataset, beside job.yaml."""

    kind = "shared"  # the model kind
    program: tuple[str, ...] = ("train.py",)

    def __init__(self, job: Any, spec: str, *args: str) -> None:
        self.job, self.args = job, list(args)
        self.work = Path(job.folder) / "work"
        shutil.copytree(EXAMPLE, self.work, ignore=shutil.ignore_patterns("data", "model", "__pycache__"))
        file = self.work / "job.yaml"
        file.write_text(file.read_text().replace("clicks.yaml", spec))
        self.model = self.work / "model"
        self.log = self.work / "run.log"
        self.master = self.agent = self.runs = None
        self.address = ""

    # Processes.

    def start_master(self) -> None:
        where = ["--http", "off", "--listen", self.address or "127.0.0.1:0", "--allow-root", str(self.job.folder)]
        found = Path(self.job.folder) / "state" / "master.addr"
        before = found.stat().st_mtime_ns if found.exists() else 0
        self.master = self.job.start("master", "--model", self.kind, "--session-ttl", "20s", *where)
        self.until("a master", lambda: found.exists() and found.stat().st_mtime_ns != before and found.read_text())
        self.address = found.read_text().split()[0]

    def start_agent(self) -> None:
        Path(self.job.socket).unlink(missing_ok=True)
        where = ["--socket", self.job.socket, "--allow-root", str(self.job.folder)]
        self.agent = self.job.start("agent", "--name", "one", *where)
        self.job.await_socket(self.agent)

    def start(self) -> None:
        self.start_master()
        self.start_agent()
        self.start_run()

    def start_run(self) -> None:
        env = {**self.job.env, "PYTHONPATH": os.environ["PYTHONPATH"], "TF_CPP_MIN_LOG_LEVEL": "2"}
        command = [self.job.binary, "run", *self.runs_what(), "--socket", self.job.socket]
        command += ["--", sys.executable, *self.program, *self.args]
        with self.log.open("ab") as out:
            self.runs = subprocess.Popen(command, env=env, cwd=self.work, stdout=out, stderr=out)
        self.job.processes.append(self.runs)

    def runs_what(self) -> list[str]:
        """What `headrace run` is told."""
        return ["job.yaml"]

    # Waiting.

    def until(self, what: str, there: Callable[[], Any]) -> None:
        deadline = time.monotonic() + WITHIN
        while not there():
            assert time.monotonic() < deadline, f"{what} did not come\n{self.text()}"
            for process in (self.runs, self.master, self.agent):
                assert process is None or process.poll() is None, f"a process ended before {what} came\n{self.text()}"
            time.sleep(0.05)

    def text(self) -> str:
        return (self.log.read_text() if self.log.exists() else "") + self.job.logs()

    def pids(self, task: str) -> list[int]:
        """The pids of all starts of a task."""
        text = self.log.read_text() if self.log.exists() else ""
        return [int(pid) for pid in re.findall(rf"^\[headrace\] {task} runs, pid (\d+)$", text, re.MULTILINE)]

    def bound(self) -> list[Path]:
        """The checkpoints that have a manifest, the oldest first."""
        found = self.model.glob("*.headrace-manifest.json")
        return sorted(found, key=lambda p: int(p.name.split("-")[1].split(".")[0]))

    def trains(self) -> None:
        """Waits until a checkpoint is bound that is newer than this call."""
        before = time.time_ns()

        def newer() -> bool:
            for path in self.bound():
                try:
                    if path.stat().st_mtime_ns > before:
                        return True
                except FileNotFoundError:
                    continue  # removed, as keep_checkpoint_max says
            return False

        self.until("a checkpoint", newer)

    # Kills.

    def kill(self, victim: str) -> None:
        if victim == "agent":
            self._kill(self.agent)
            self.start_agent()
        elif victim == "master":
            self._kill(self.master)
            self.start_master()
        elif victim == "everything":
            for process in (self.runs, self.agent, self.master):
                self._kill(process)
            self.runs = self.agent = self.master = None
            self.start()
        else:
            before = {task: len(self.pids(task)) for task in TASKS}
            os.kill(self.pids(victim)[-1], signal.SIGKILL)
            again = TASKS[:4] if victim == "ps 0" else (victim,)
            self.until(f"{victim} again", lambda: all(len(self.pids(t)) > before[t] for t in again))

    def _kill(self, process: Any) -> None:
        process.kill()
        process.wait()

    # The end.

    def stop(self) -> None:
        """Ends the job as a person does: SIGTERM."""
        self.runs.terminate()
        self.runs.wait(WITHIN)

    def records(self) -> int:
        """How many records the newest checkpoint has."""
        for path in reversed(self.bound()):
            try:
                return self.rows(json.loads(path.read_text()))
            except FileNotFoundError:
                continue  # removed, as keep_checkpoint_max says
        return 0

    def saved(self, offset: int) -> bool:
        """Whether the newest checkpoint has each partition up to an offset."""
        for path in reversed(self.bound()):
            try:
                fields = json.loads(path.read_text())
            except FileNotFoundError:
                continue  # removed, as keep_checkpoint_max says
            parts = [q for d in fields["cut"]["datasets"] for q in d["partitions"]]
            return all(p["low"][1] >= offset for q in parts for p in q["passes"])
        return False

    def trained(self, records: int) -> bool:
        """Whether the master knows that so many records are trained."""
        shown = self.job.headrace("status", "clicks", "--output", "json", "--master", self.address)
        return bool(json.loads(shown.stdout)["counts"]["settled"] == records)

    @staticmethod
    def rows(fields: Any) -> int:
        parts = [q for d in fields["cut"]["datasets"] for q in d["partitions"]]
        rows = sum(p["records"]["rows"] for q in parts for p in q["passes"])
        return int(rows + sum(q.get("done_records", {}).get("rows", 0) for q in parts))

    def ends(self) -> str:
        assert self.runs is not None
        try:
            self.runs.wait(WITHIN)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"the job did not end\n{self.text()}") from error
        assert self.runs.returncode == 0, self.text()
        return self.log.read_text()

    def check(self, in_hand: int = 0) -> Any:
        """Checks that each checkpoint has the records of its manifest, and that the manifest has the
        model's global step. in_hand: how many records may be in the model without a step, because
        their trainer was killed. No manifest has them until they have come again. Returns `hist` of
        the last checkpoint."""
        hist = None
        for path in self.bound():
            fields = json.loads(path.read_text())
            prefix = str(path)[: -len(".headrace-manifest.json")]
            assert int(tf.train.load_variable(prefix, "global_step")) == fields["step"], prefix
            assert fields["cut"]["exact"] is True, f"{prefix}: the cut is not exact"
            rows = self.rows(fields)
            hist = tf.train.load_variable(prefix, "hist")
            assert 0 <= (hist > 0).sum() - rows <= in_hand, (prefix, int((hist > 0).sum()), rows)
        assert hist is not None
        return hist
