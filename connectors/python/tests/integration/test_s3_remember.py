"""files.remember on a real S3 server: when objects of the last hour come, the master forgets those of
earlier hours, while master, agent and trainer are killed. Each record comes once."""

from __future__ import annotations

import random
import time
from collections import Counter
from typing import Any

import pytest
from agent import poll
from forgetting import ROWS, Lives, Writer
from s3_server import Server, server
from test_s3 import settings

__all__ = ["server"]

SPEC = """
name: rows
files: {{root: s3://lake/{prefix}, connection: lake, end: never, refresh: 100ms, remember: 1h, late: {late}}}
decode:
  format: csv
  columns:
    - {{name: id, path: 0, dtype: int64}}
lease: {{initial: 1KiB, min: 1KiB, max: 4KiB}}
"""


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("late", ["read", "skip"])
def test_names_of_objects_are_forgotten_and_each_record_comes_once(job: Any, server: Server, late: str) -> None:
    seed = time.time_ns()
    print("seed", seed)
    rng = random.Random(seed)
    prefix = f"remember-{late}-{job.folder.name}"
    settings(job, server, prefix)
    spec, number = job.folder / "rows.yaml", 0
    spec.write_text(SPEC.format(prefix=prefix, late=late))

    def put(key: str = "", age: str = "") -> range:
        nonlocal number
        ids = range(number * ROWS, (number + 1) * ROWS)
        key = key or (f"part-{number:06}" if late == "skip" else f"{rng.randrange(10**9):09}-{number}")
        number += 1
        file = job.folder / "object"
        file.write_text("".join(f"{i}\n" for i in ids))
        server.put(f"{prefix}/{key}", file)
        if age:
            server.age(f"{prefix}/{key}", age)
        return ids

    for n in range(30):
        put(age=f"{100 - n}h")
    lives = Lives(job, spec, *job.config)
    with Writer(put):
        rounds = 0
        while rounds < 5 or not lives.forgotten():
            rounds += 1
            lives.kill(rng.choice(["trainer", "agent", "master", "all"]))
            lives.saves(3)
        lives.kill("master")

    of_young = put("+young")  # its name sorts before all other names
    written = Counter(range(number * ROWS))
    if late == "skip":
        written.subtract(of_young)
    with Writer(lambda: written.update(put())):
        lives.kill("all")  # a master looks at all names when it starts
        if late == "skip":
            poll(lambda: lives.told("+young"))
        lives.lose_the_state()  # from now on, only the checkpoint says what is forgotten
        lives.kill("all")
    lives.ends_with(+written, put)
