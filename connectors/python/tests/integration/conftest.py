"""The real binary, in a folder of its own for each test."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forking
import pytest

ROOT = Path(__file__).parents[4]

SPEC = """
name: {name}
files: {{root: {root}, paths: ["*.tsv"]}}
decode:
  format: tsv
  columns:
    - {{name: id, path: "0", dtype: int64}}
    - {{name: dense, paths: ["1..3"], dtype: float32, default: "-1"}}
    - {{name: cat, paths: ["4..5"], dtype: int64, hash: {{buckets: 1000, salt: s}}}}
    - {{name: word, path: "4", dtype: string}}
{more}
"""


# Long enough for a process to be started again within it, even on a slow machine.
TTL = "20s"
HANGS = 300.0  # seconds; a process that has not done by then what the test waits for hangs


@pytest.fixture(scope="session")
def binary() -> str:
    path = Path(os.environ.get("HEADRACE_BIN") or ROOT / "build" / "headrace").resolve()
    if not os.access(path, os.X_OK):
        pytest.fail(f"{path} is not there: run make build", pytrace=False)
    return str(path)


class Trainer:
    """A training process and the file that it prints to."""

    def __init__(
        self, code: str, env: dict[str, str], log: Path, *args: str, stdin: bool = False, within: tuple[str, ...] = ()
    ) -> None:
        """within: a command that starts the program."""
        self.log = log
        with log.open("wb") as out:
            self.process = forking.program(code, args, env, out, stdin=stdin, within=within)

    def printed(self, lines: int) -> None:
        """Waits until it has printed that many lines."""
        deadline = time.monotonic() + HANGS
        while True:
            lives = self.process.poll() is None  # before its log is read: it may print its last lines and end meanwhile
            if self.log.read_text().count("\n") >= lines:
                return
            assert lives, self._logs()
            assert time.monotonic() < deadline, self._logs()
            time.sleep(0.005)

    def ended(self, within: float = HANGS) -> str:
        """Waits for its end. Returns everything that it has printed."""
        try:
            self.process.wait(within)
        except subprocess.TimeoutExpired:
            pytest.fail(f"{self.log.name} did not end within {within:.0f} s:{self._logs()}", pytrace=False)
        return self.log.read_text()

    def _logs(self) -> str:
        """The output of all processes of the job."""
        return "".join(f"\n--- {p.name}\n{p.read_text()}" for p in sorted(self.log.parent.glob("*.log")))


class Job:
    """The processes of one job. Those that still run at the end of the test are ended."""

    def __init__(self, binary: str, folder: Path) -> None:
        self.binary, self.folder = binary, folder
        self.socket = str(folder / "a.sock")
        self.data = folder / "data"
        self.data.mkdir()
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")}
        self.env.update(HEADRACE_STATE=str(folder / "state"), HEADRACE_AGENT=self.socket)
        self.env.update(HEADRACE_BIN=binary, HEADRACE_SESSION_TTL=TTL)
        self.processes: list[Any] = []

    def write(self, rows: int, files: int = 3) -> int:
        """Writes so many records into some files. Their ids count from 0. Returns the number of records."""
        per = -(-rows // files)
        for f in range(files):
            lines = [self.line(i) for i in range(f * per, min((f + 1) * per, rows))]
            (self.data / f"day_{f}.tsv").write_text("".join(lines))
        return rows

    @staticmethod
    def line(i: int) -> str:
        return f"{i}\t{i % 7}\t{'' if i % 5 == 0 else i % 11}\t0.5\tw{i % 97}\tz{i}\n"

    def start(self, *args: str) -> subprocess.Popen[Any]:
        log = (self.folder / f"{args[0]}-{len(self.processes)}.log").open("wb")
        process = subprocess.Popen([self.binary, *args], env=self.env, stdout=log, stderr=log)
        log.close()
        self.processes.append(process)
        return process

    def up(self, *more: str) -> subprocess.Popen[Any]:
        process = self.start(
            "up",
            "--socket",
            self.socket,
            "--http",
            "off",
            "--allow-root",
            str(self.folder),
            *more,
        )
        self.await_socket(process)
        return process

    def await_socket(self, process: subprocess.Popen[Any]) -> None:
        deadline = time.monotonic() + HANGS
        while not os.path.exists(self.socket):
            assert process.poll() is None, self.logs()
            assert time.monotonic() < deadline, self.logs()
            time.sleep(0.01)

    def headrace(self, *args: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        out = subprocess.run([self.binary, *args], env=self.env, capture_output=True, text=True, timeout=300)
        assert not check or out.returncode == 0, out.stderr + self.logs()
        return out

    def spec(self, name: str, more: str = "") -> str:
        return SPEC.format(name=name, root=self.data, more=more)

    def apply(self, name: str = "rows", more: str = "") -> None:
        spec = self.folder / f"{name}.yaml"
        spec.write_text(self.spec(name, more))
        self.headrace("dataset", "apply", "-f", str(spec))

    def trainer(self, code: str, stdin: bool = False, within: tuple[str, ...] = (), **env: str) -> Trainer:
        number = len(self.processes)
        code = f"import sys; sys.path.append({str(Path(__file__).parents[1])!r}); import tearing\n{code}"
        log = self.folder / f"trainer-{number}.log"
        trainer = Trainer(code, {**self.env, **env}, log, stdin=stdin, within=within)
        self.processes.append(trainer.process)
        return trainer

    def helper(self, code: str, *args: str) -> Trainer:
        """A process that is no trainer: a program of the test, with arguments."""
        trainer = Trainer(code, self.env, self.folder / f"process-{len(self.processes)}.log", *args)
        self.processes.append(trainer.process)
        return trainer

    def rows_through_a_kill(self, spec: Path, code: str) -> tuple[list[Any], str]:
        """Runs a trainer that writes JSON lines into the file $ROWS. Once it has written something, master
        and agent are killed and started again. Returns the values, sorted, and what the trainer printed."""
        up = self.up()
        self.headrace("dataset", "apply", "-f", str(spec))
        out = self.folder / "rows"
        trainer = self.trainer(code, ROWS=str(out))
        while True:
            lives = trainer.process.poll() is None
            if out.exists() and out.read_text():
                break
            assert lives, trainer.log.read_text()
            time.sleep(0.001)
        up.kill()
        up.wait()
        os.unlink(self.socket)
        self.up()
        said = trainer.ended()
        return sorted(json.loads(line) for line in out.read_text().splitlines()), said

    def logs(self) -> str:
        return "".join(f"\n--- {p.name}\n{p.read_text()}" for p in sorted(self.folder.glob("*.log")))

    def stop(self) -> None:
        for process in reversed(self.processes):
            if process.poll() is None:
                process.terminate()
        for process in self.processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture
def job(binary: str, folder: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    import headrace

    job = Job(binary, Path(folder))
    monkeypatch.setenv("HEADRACE_AGENT", job.socket)
    yield job
    headrace.shutdown()
    job.stop()
