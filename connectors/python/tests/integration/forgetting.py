"""Shared by the tests of files.remember: a trainer that goes back to its checkpoints, and processes
that are killed."""

from __future__ import annotations

import json
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent import poll

ROWS = 30  # of a file

# Trains until it has as many ids as the number in the file sys.argv[2], once that file exists. It
# prints a line for each checkpoint.
TRAIN = """
import headrace, pathlib, sys
import numpy as np

enough = pathlib.Path(sys.argv[2])
stream = headrace.dataset("rows").batches(20, max_wait=0.1)
with stream, headrace.Checkpointer(sys.argv[1], stream, keep=2) as ck:
    restored = ck.restore()
    seen = restored.state["seen"].tolist() if restored is not None else []
    step = restored.step if restored is not None else 0
    print("restored", step, flush=True)
    for b in stream:
        seen += b["id"].tolist()
        step = stream.step(step + 1)
        if step % 5 == 0:
            ck.save(step, {"seen": np.array(seen)}).wait()
            print("saved", step, flush=True)
        if enough.exists() and len(seen) >= int(enough.read_text()):
            break
    ck.save(step, {"seen": np.array(seen)})
    print("ids", *seen)
"""


class Writer(threading.Thread):
    """A context in which one more file is dropped again and again."""

    def __init__(self, drop: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self.drop, self.left = drop, threading.Event()

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *_: object) -> None:
        self.left.set()
        self.join()

    def run(self) -> None:
        while not self.left.wait(0.15):
            self.drop()


class Lives:
    """A master, an agent and a trainer. Each is a process of its own that the tests kill and start
    again."""

    def __init__(self, job: Any, spec: Path, *settings: str) -> None:
        self.job, self.spec, self.settings = job, spec, settings
        self.enough = job.folder / "enough"
        self.begin()

    def begin(self) -> None:
        self.start_master()
        self.job.headrace("dataset", "apply", "-f", str(self.spec), *self.settings)
        self.start_agent()
        self.start_trainer()
        # Wait until it is connected: it gives up if there is no socket, and start_agent removes the old one.
        self.trainer.printed(1)

    def start_master(self) -> None:
        """Starts a master, also after a kill, which leaves the address file of the one before."""
        address = Path(self.job.env["HEADRACE_STATE"]) / "master.addr"
        address.unlink(missing_ok=True)
        self.master = self.job.start(
            *("master", "--model", "private", "--listen", "127.0.0.1:0", "--http", "off", "--session-ttl", "20s"),
            *("--allow-root", str(self.job.folder), *self.settings),
        )
        poll(lambda: address.exists() or self.master.poll() is not None)
        assert self.master.poll() is None, self.job.logs()

    def start_agent(self) -> None:
        Path(self.job.socket).unlink(missing_ok=True)
        self.agent = self.job.start(
            *("agent", "--name", "one", "--socket", self.job.socket, "--allow-root", str(self.job.folder)),
            *self.settings,
        )
        self.job.await_socket(self.agent)

    def start_trainer(self) -> None:
        self.trainer = self.job.helper(TRAIN, str(self.job.folder / "checkpoints"), str(self.enough))

    def saves(self, more: int) -> None:
        """Waits for so many more saves of the trainer."""
        self.trainer.printed(self.trainer.log.read_text().count("\n") + more)

    def kill(self, what: str) -> None:
        """Kills one of the processes, or all, with kill -9, and starts new ones."""
        trains = self.trainer.log.read_text().count("\n")
        names = ["trainer", "agent", "master"] if what == "all" else [what]
        for name in names:
            process = self.trainer.process if name == "trainer" else getattr(self, name)
            process.kill()
            process.wait()
        for name in reversed(names):
            getattr(self, f"start_{name}")()
        # Wait for a save after the kill. A new trainer first prints what it has restored.
        self.trainer.printed(2 if "trainer" in names else trains + 1)

    def lose_the_state(self) -> None:
        """Kills all processes, removes the master's state, and starts them again."""
        for process in (self.trainer.process, self.agent, self.master):
            process.kill()
            process.wait()
        shutil.rmtree(self.job.env["HEADRACE_STATE"])
        self.begin()
        self.trainer.printed(2)

    def forgotten(self) -> int:
        """How many bytes of files are forgotten. A new master answers once its agents have come back."""

        def ask() -> bool:
            nonlocal said
            said = self.job.headrace("rewind", "default", "--to", "start", "--dry-run", "-o", "json", check=False)
            return said.returncode == 0 or "waits for its agents" not in said.stderr

        said: Any = None
        poll(ask)
        assert said.returncode == 0, said.stderr + self.job.logs()
        gone = json.loads(said.stdout)["gone"]
        return int(gone["units"]) if gone else 0

    def told(self, word: str) -> bool:
        """Whether a master has logged these words."""
        return any(word in log.read_text() for log in self.job.folder.glob("master-*.log"))

    def ends_with(self, expected: Counter[int], drop: Callable[[], range]) -> None:
        """Ends the trainer. Checks that its model has the expected records, and those of one more file."""
        part = self.enough.with_suffix(".part")
        part.write_text(str(expected.total() + ROWS))
        part.rename(self.enough)  # by renaming, so that the trainer never reads half a number
        expected.update(drop())
        said = self.trainer.ended(300)
        lines = [line for line in said.splitlines() if line.startswith("ids")]
        assert len(lines) == 1, said + self.job.logs()
        ids = Counter(map(int, lines[0].split()[1:]))
        assert ids == expected, (
            sorted((ids - expected).elements()),
            sorted((expected - ids).elements()),
            self.job.logs(),
        )
