"""files.remember with real processes. Old names are forgotten while files are dropped in and master,
agent and trainer are killed. Each record comes once; late files are treated as files.late says."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from agent import poll
from forgetting import ROWS, Lives, Writer

SPEC = """
name: rows
files: {{root: {root}, end: never, refresh: 100ms, complete: renamed, remember: 1m, late: {late}}}
decode:
  format: csv
  columns:
    - {{name: id, path: 0, dtype: int64}}
lease: {{initial: 1KiB, min: 1KiB, max: 4KiB}}
"""


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("late", ["read", "skip"])
def test_names_are_forgotten_and_each_record_comes_once_through_kills(job: Any, late: str) -> None:
    seed = time.time_ns()
    print("seed", seed)
    rng = random.Random(seed)
    spec = job.folder / "rows.yaml"
    spec.write_text(SPEC.format(root=job.data, late=late))
    number = 0

    def drop(file: Path | None = None, age: float = 0) -> range:
        """Writes a file elsewhere and renames it. With late: read, the order of names is not that of times."""
        nonlocal number
        ids = range(number * ROWS, (number + 1) * ROWS)
        if file is None:
            in_order = f"dt=2026-11-22/part-{number:06}.csv"
            file = job.data / (
                in_order if late == "skip" else f"dt={number % 3}/{rng.randrange(10**9):09}-{number}.csv"
            )
        number += 1
        part = job.folder / "part"
        part.write_text("".join(f"{i}\n" for i in ids))
        os.utime(part, (time.time() - age,) * 2)
        file.parent.mkdir(exist_ok=True)
        part.rename(file)
        return ids

    first = job.data / "dt=2026-11-22" / "part-.csv"  # its name sorts before the other names
    of_first = drop(first)
    lives = Lives(job, spec)
    with Writer(drop):
        lives.saves(3)
        # Files are forgotten a minute after they came. Wait until that has happened three times. A new
        # master knows what is forgotten once it has listed the folder.
        forgotten = [0]
        while len(forgotten) < 4:
            for _ in range(rng.randrange(4)):
                lives.kill(rng.choice(["trainer", "agent", "master", "all"]))
            lives.saves(10)
            lives.kill("master")
            lives.saves(5)
            if (now := lives.forgotten()) > forgotten[-1]:
                forgotten.append(now)
                print("forgotten", now, "bytes of", number, "files", flush=True)

    drop()
    # Two files come late: one with a name that sorts before all others, and one that keeps its old
    # time. A third one was forgotten and is written to. A master looks at all names when it starts.
    young, old = job.data / "dt=0" / "+young.csv", job.data / "dt=9" / "moved.csv"
    of_young, of_old = drop(young), drop(old, age=3600)
    first.touch()
    written = Counter(range(number * ROWS))
    if late == "read":
        written.subtract(of_old)
        written.update(of_first)
    else:
        written.subtract(of_young)
    with Writer(lambda: written.update(drop())):
        lives.kill("master")
        poll(lambda: lives.told("moved.csv" if late == "read" else "+young.csv"))
        lives.lose_the_state()  # from now on, only the checkpoint says what is forgotten
        lives.kill("all")
    assert not lives.told("+young.csv" if late == "read" else "moved.csv")
    lives.ends_with(+written, drop)
