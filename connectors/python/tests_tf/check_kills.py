"""Many kills of examples/estimator_clicks: make test-tf-kills, KILLS=300.

Jobs are played one after the other until there were as many kills: one process that trains, or a
parameter server with chief and workers; over files, or online over a topic of a real Kafka. A
worker, the chief, the server, agent, master and everything are killed, at random and at named
points of a step and a save (told.py), the next one often before the last one is back. In the
end, and in checkpoints before, each record is in the model once, id by id. Only the batch that
a killed trainer of a shared model had in hand may be there twice (kills.py).

HEADRACE_SEED=SEED FIRST=N plays the same jobs again, from job N on.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import topic
from fixtures import Job

pytest.importorskip("tensorflow_estimator", reason="only TensorFlow 2.15 has Estimator")
from kills import Killed
from tasks import made_lines

KILLS = int(os.environ.get("KILLS") or 300)
OF_A_JOB = 15
RECORDS = {True: 10_000, False: 20_000}  # True: one process trains. Enough for OF_A_JOB kills
FILES = 4


@pytest.fixture
def server() -> Iterator[Path]:
    """The socket of a process that has imported TensorFlow."""
    folder = Path(tempfile.mkdtemp(prefix="hr-fork-", dir="/tmp"))
    process = subprocess.Popen([sys.executable, str(Path(__file__).parent / "forked.py"), "serve", str(folder / "s")])
    while not (folder / "s").exists():
        assert process.poll() is None, "the process that imports TensorFlow has ended"
        time.sleep(0.1)
    yield folder / "s"
    process.kill()
    process.wait()
    shutil.rmtree(folder)


@pytest.mark.timeout(0)
def test_in_many_kills_no_record_is_lost(binary: str, server: Path, rng: random.Random, capsys: Any) -> None:
    seed, kills, number = rng.randrange(1 << 32), 0, int(os.environ.get("FIRST") or 0)
    with capsys.disabled():
        while kills < KILLS:
            kills += one_job(binary, server, random.Random(f"{seed} {number}"), number, KILLS - kills)
            print(f"{kills} of {KILLS} kills", flush=True)
            number += 1


@contextlib.contextmanager
def a_job(binary: str) -> Iterator[Any]:
    """A job that fails leaves its folder, so that one can look at it."""
    folder = Path(tempfile.mkdtemp(prefix="hr-kills-", dir="/tmp"))
    job = Job(binary, folder)
    try:
        yield job
    finally:
        job.stop()
    shutil.rmtree(folder)


def one_job(binary: str, server: Path, rng: random.Random, number: int, left: int) -> int:
    alone, online = rng.random() < 0.35, rng.random() < 0.2
    keep, rows = rng.choice([0, 0, 2]), rng.choice([20, 50])
    kills = min(OF_A_JOB, left)
    began = time.monotonic()
    print(f"job {number}: {'one process' if alone else 'a cluster'}, {'online' if online else 'files'}", flush=True)
    with a_job(binary) as job:
        args = [f"--records={RECORDS[alone]}", f"--rows={rows}", f"--keep={keep}"]
        args += ["--seconds=2", "--max-wait=1"] if online else [f"--every={rng.randint(5, 20)}"]
        made = Killed(job, rng, server, alone, "kafka.yaml" if online else "clicks.yaml", *args)
        said = (online_job if online else files_job)(made, kills)
    print(f"job {number}: {len(made.kills)} kills, {said}, {time.monotonic() - began:.0f} s", flush=True)
    return len(made.kills)


def files_job(made: Killed, kills: int) -> str:
    ids: dict[str, dict[int, int]] = {}
    for f in range(FILES):
        lines, at, of = made_lines(f, made.numbers("records"), FILES), 0, {}
        for line in lines:
            of[at] = int(line.split("\t")[0])
            at += len(line)
        data = made.work / "data"
        data.mkdir(exist_ok=True)
        (data / f"part-{f}.tsv").write_text("".join(lines))
        ids[f"part-{f}.tsv"] = of

    def named(r: Any) -> list[int]:
        return [i for at, i in ids[r["name"]].items() if r["start"] <= at < r["end"]]

    made.play(kills)
    made.ends()
    return made.judge(in_ranges(named))


def online_job(made: Killed, kills: int) -> str:
    """About a batch for each trainer comes every 2 s. Then the topic is silent, and all that has come gets
    into a checkpoint."""
    records = made.numbers("records")
    log = made_lines(0, records)
    ids: dict[int, list[int]] = defaultdict(list)  # by partition
    written, at = 0, 0.0

    def goes_on() -> bool:
        nonlocal written, at
        some = log[written : written + 60]
        if time.monotonic() < at + 2:
            return True
        topic.produce(address, "".join(some))
        for i, line in enumerate(some):
            ids[i % 4].append(int(line.split("\t")[0]))
        written, at = written + len(some), time.monotonic()
        return written < records * 3 // 4

    def all_saved() -> bool:
        return made.records() >= made.needed and made.never(ids_of) == 0

    def named(r: Any) -> list[int]:
        return ids[int(r["name"].rsplit("/", 1)[-1])][r["start"] : r["end"]]

    ids_of = in_ranges(named)
    with topic.kafka(made.work, "") as address:
        goes_on()
        spec = made.work / "kafka.yaml"
        spec.write_text(spec.read_text().replace("127.0.0.1:9092", address).replace("end: latest ", "end: never "))
        made.goes_on = goes_on
        made.play(kills)
        made.needed = written
        made.until("a checkpoint of what has come", all_saved)
        made.stop()
    return made.judge(ids_of)


def in_ranges(named: Callable[[Any], list[int]]) -> Callable[[Any], np.ndarray]:
    """The ids in an audit's ranges."""

    def ids(audit: Any) -> np.ndarray:
        ranges = (r for d in audit["datasets"] for p in d["partitions"] for one in p["passes"] for r in one["ranges"])
        return np.array([i for r in ranges for i in named(r)], np.int64)

    return ids
