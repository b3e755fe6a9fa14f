"""Files are dropped into a folder while trainers train. Every record comes once, also when trainer,
agent and master are killed."""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from agent import poll

SPEC = """
name: rows
files: {{root: {root}, end: never, refresh: 100ms, complete: {complete}}}
decode:
  format: csv
  columns:
    - {{name: id, path: 0, dtype: int64}}
lease: {{initial: 16KiB, min: 1KiB, max: 64KiB}}
"""

# Trains until it has seen the number of ids in its argument.
TRAIN = """
import headrace, sys
import numpy as np

with headrace.dataset("rows").batches(100, max_wait=0.1) as stream, headrace.Checkpointer(sys.argv[1], stream) as ck:
    restored = ck.restore()
    seen = restored.state["seen"].tolist() if restored is not None else []
    step = restored.step if restored is not None else 0
    for b in stream:
        seen += b["id"].tolist()
        step = stream.step(step + 1)
        if step % 5 == 0:
            ck.save(step, {"seen": np.array(seen)})
            print("step", step, len(seen), flush=True)
        if len(seen) >= int(sys.argv[3]):
            break
    ck.save(step, {"seen": np.array(seen)})
    print(*seen, file=open(sys.argv[2], "w"))
"""

FILES, ROWS = 60, 1000


class Writer(threading.Thread):
    """Drops files of ROWS ids each, as jobs do: first under another name, plain or compressed, in
    folders by day, with names in no order. It waits for its caller before the second and the last third."""

    def __init__(self, folder: Path, files: int) -> None:
        super().__init__(daemon=True)
        self.folder, self.files = folder, files
        self.seed = time.time_ns()
        print("seed", self.seed)
        self.thirds = [threading.Event(), threading.Event()]

    def run(self) -> None:
        rng = random.Random(self.seed)
        for n in range(self.files):
            if n in (self.files // 3, 2 * self.files // 3):
                self.thirds[3 * n // self.files - 1].wait()
            day = self.folder / f"dt=2026-11-{rng.randrange(20, 23)}"
            day.mkdir(exist_ok=True)
            text = "".join(f"{n * ROWS + i},{rng.randrange(10 ** rng.randrange(9))}\n" for i in range(ROWS)).encode()
            name = f"part-{rng.randrange(10**9):09}-{n}.csv"
            if rng.randrange(3) == 0:
                text, name = gzip.compress(text), name + ".gz"
            unfinished = day / f"{'.' if n % 2 else ''}{name}.inprogress"
            with unfinished.open("wb") as f:
                f.write(text[: len(text) // 2])
                f.flush()
                time.sleep(0.02)  # so that the master looks at the file while it is being written
                f.write(text[len(text) // 2 :])
            unfinished.rename(day / name)


def dataset(job: Any) -> Any:
    return json.loads(job.headrace("status", "-o", "json").stdout)["datasets"][0]


def test_each_record_comes_once_through_kills(job: Any) -> None:
    up = job.up("--model", "private")
    spec = job.folder / "rows.yaml"
    spec.write_text(SPEC.format(root=job.data, complete="renamed"))
    job.headrace("dataset", "apply", "-f", str(spec))  # the folder is empty
    writer = Writer(job.data, FILES)
    writer.start()
    args = (str(job.folder / "checkpoints"), str(job.folder / "ids"), str(FILES * ROWS))
    first = job.helper(TRAIN, *args)
    first.printed(2)
    first.process.kill()
    first.process.wait()
    writer.thirds[0].set()  # so the second one has something to train, however much the first one has saved
    second = job.helper(TRAIN, *args)
    second.printed(2)
    os.kill(up.pid, signal.SIGKILL)  # master and agent
    up.wait()
    second.process.kill()
    second.process.wait()
    writer.thirds[1].set()
    os.unlink(job.socket)
    job.up("--model", "private")
    said = job.helper(TRAIN, *args).ended()
    writer.join()
    ids = [int(word) for word in (job.folder / "ids").read_text().split()]
    assert sorted(ids) == list(range(FILES * ROWS)), said
    poll(lambda: dataset(job)["counts"]["settled"] == dataset(job)["counts"]["listed"])
    shown = job.headrace("status").stdout
    assert "caught up" in shown
    assert "100" not in [word.split(".")[0] for word in shown.split() if word.endswith("%")]


@pytest.mark.parametrize("complete", ["rest", "success"])
def test_files_that_are_not_complete_wait(job: Any, complete: str) -> None:
    job.up()
    spec = job.folder / "rows.yaml"
    # The file counts as at rest only after the test has set its time back, so a machine that stands still
    # does not matter.
    rest = "rest, rest: 10m" if complete == "rest" else complete
    spec.write_text(SPEC.format(root=job.data, complete=rest))
    (job.data / "a.csv").write_text("0\n1\n")
    out = job.headrace("check", "-f", str(spec)).stdout
    assert "2 records, 0 bad" in out  # `check` does not wait for the file to be complete
    job.headrace("dataset", "apply", "-f", str(spec))
    train = """
import headrace
with headrace.dataset("rows").batches(2, max_wait=0.1) as stream:
    for b in stream:
        print(*b["id"].tolist(), flush=True)
        stream.step()
"""
    trainer = job.trainer(train)
    with (job.data / "a.csv").open("a") as f:
        for i in range(2, 12):  # while it is being written, the file is not at rest
            f.write(f"{i}\n")
            f.flush()
            time.sleep(0.2)
        assert trainer.log.read_text() == ""
    if complete == "success":
        (job.data / "_SUCCESS").touch()
    else:
        hour_ago = time.time() - 3600
        os.utime(job.data / "a.csv", (hour_ago, hour_ago))
    trainer.printed(6)
    assert sorted(map(int, trainer.log.read_text().split())) == list(range(12))
