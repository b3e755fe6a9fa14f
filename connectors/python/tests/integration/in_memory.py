"""Shared by the tests of checkpoints in memory: a trainer, and a folder of slots for each test."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agent import poll
from headrace import _slots

ROOT = _slots.ROOT_VARIABLE

# The model counts how often it has seen each id. `copies` has any size that the test wants. In a
# checkpoint it must be equal to the model as it was when save() was called.
TRAINER = """
import headrace, json, os, signal, sys, time
import numpy as np

cfg = json.loads(os.environ["TRAINER"])

class Checkpointer(headrace.Checkpointer):
    def _reached(self, point):
        if cfg.get("die") == point and cfg.get("die_after", 0) <= self._trainer.last_step:
            print(f"\\ndies at {point} {self._trainer.last_step}\\n", end="", flush=True)  # "saved" may be half printed
            os.kill(os.getpid(), signal.SIGKILL)

    def _by_agent(self, pinned, deadline):
        return not cfg.get("alone") and super()._by_agent(pinned, deadline)

seen = np.zeros(cfg["rows"], np.int64)
trainer = headrace.init()
options = {"memory": True, **cfg.get("options", {})}
with headrace.dataset("rows").batches(50) as stream, Checkpointer(cfg["dir"], stream, **options) as ck:
    restored = ck.restore(cfg.get("step", "newest"))
    if restored is not None:
        seen[:] = restored.state["seen"]
        assert restored.state["copies"].shape == (40, 1000)
        assert (restored.state["copies"] == restored.step).all(), "the checkpoint is torn"
        assert restored.state["step"] == restored.step
    step = restored.step if restored is not None else 0
    source, why = (restored.source, restored.why) if restored is not None else ("-", "")
    print("restored", step, int(seen.sum()), source, why, flush=True)
    del restored
    copies = np.zeros((40, 1000))
    for b in stream:
        np.add.at(seen, b["id"], 1)
        for table in options.get("deltas", ()):
            ck.touch(table, b["id"])
        step = stream.step(step + 1)
        copies[:] = step
        saved = ck.save(step, {"seen": seen, "copies": copies, "step": step}, storage=step % cfg["every"] == 0)
        copies[:] = -1  # a torn copy would have it
        seen[:] += 1000000
        seen[:] -= 1000000
        if cfg.get("wait", True):
            saved.wait_memory()
        if step % (cfg["every"] if cfg.get("stored") else cfg.get("settles", 1 << 30)) == 0:
            saved.wait()
        print("saved", step, flush=True)
        if step == cfg.get("stop"):
            os.kill(os.getpid(), signal.SIGKILL)
        while step == cfg.get("waits") and not os.path.exists(cfg["dir"] + "/go"):
            time.sleep(0.01)
    copies[:] = step
    ck.save(step, {"seen": seen, "copies": copies, "step": step}).wait() if step != 0 else None
print("end", step, *seen.tolist(), flush=True)
"""


@pytest.fixture(autouse=True)
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for the slots of this test, in the real tmpfs."""
    folder = Path("/dev/shm") / f"headrace-test-{os.getpid()}-{tmp_path.name}"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv(_slots.ROOT_VARIABLE, str(folder))
    yield folder
    shutil.rmtree(folder)


def slots_of(job: Any, rank: int = 0) -> list[str]:
    return _slots.Folder(str(job.folder / "ckpt"), "default").of(rank)


def in_memory(job: Any, rank: int = 0) -> list[dict[str, Any]]:
    """The descriptions of the complete slots."""
    return [about for path in slots_of(job, rank) if (about := _slots.peek(path)) is not None]


def told(trainer: Any, words: str) -> None:
    """Waits until the trainer has printed these words."""

    def printed() -> bool:
        text = trainer.log.read_text()
        assert words in text or trainer.process.poll() is None or words in trainer.log.read_text(), text
        return words in text

    poll(printed)


def of_end(out: str) -> np.ndarray:
    lines = [line for line in out.splitlines() if line.startswith("end ")]
    assert lines, out
    return np.array([int(w) for w in lines[0].split()[2:]])


def restored(out: str) -> list[str]:
    (line,) = [line for line in out.splitlines() if line.startswith("restored ") and line.split()[1].isdigit()]
    return line.split()
