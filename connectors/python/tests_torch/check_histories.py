"""Random histories of a group of gloo ranks: make test-torch-long, HISTORIES=500.

Ranks are idle, stall, and are killed; groups of 4, 3 and 4 ranks follow each other. In half of
the histories all rows are there at the start; in the others files of any size arrive while the
groups train, on an input without an end. No rank hangs, all ranks end at the same round with
the same weights, and each record is in the model once: at the end, and at every checkpoint,
whose ids are read from the files by the ranges of its audit. One process imports torch and
forks the ranks, so a history takes seconds.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import saved
from forks import HERE, Zygote

HISTORIES = int(os.environ.get("HISTORIES", 5))


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    made = Zygote()
    yield made
    made.end()


def hashed(ids: Iterable[int]) -> list[int]:
    """The sums of a model that has each of these records once."""
    ids = list(ids)
    return [len(ids), sum(i * 7919 + i * i for i in ids)]


class Arrivals(threading.Thread):
    """Writes files of any size, with pauses of any length, until all rows are there."""

    def __init__(self, job: Any, rng: random.Random, rows: int) -> None:
        super().__init__(daemon=True)
        self.data, self.rows = job.data, rows
        self.rng = random.Random(rng.random())
        spec = job.spec("rows")
        assert "files: {" in spec, spec
        file = job.folder / "rows.yaml"
        file.write_text(spec.replace("files: {", "files: {end: never, refresh: 100ms, complete: renamed, "))
        job.headrace("dataset", "apply", "-f", str(file))

    def run(self) -> None:
        first = 0
        while first < self.rows:
            last = min(self.rows, first + self.rng.choice([1, 7, 100, 400]))
            part = self.data / f".{first:06}"
            part.write_text("".join(f"{i}\t{i}\t{i}\t{i}\tw\tz\n" for i in range(first, last)))
            part.rename(self.data / f"{first:06}.tsv")
            first = last
            time.sleep(self.rng.choice([0, 0.05, 0.4]))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("history", range(HISTORIES))
def test_no_history_hangs_or_loses_or_repeats_a_record(
    job: Any, zygote: Zygote, rng: random.Random, history: int
) -> None:
    rows = rng.choice([rng.randint(1, 60), rng.randint(100, 1500), rng.randint(1000, 4000)])
    job.up("--model", "replicated")
    base = {"STALL": str(rng.choice([0, 0.1, 0.5])), "EVERY": str(rng.randint(2, 12)), "SEED": str(rng.random())}
    if rng.random() < 0.5:
        job.write(rows, files=rng.randint(1, 4))
        job.apply()
    else:
        base["TOTAL"] = str(rows)
        Arrivals(job, rng, rows).start()
    worlds = [4, 3, 4] if rng.random() < 0.5 else [4, rng.randint(1, 4)]
    codes: list[int] = []
    for i, world in enumerate(worlds):
        last = i == len(worlds) - 1
        at = -1 if last else rng.randint(1, 2 + rows // (20 * world))
        kill = f"{rng.randrange(world)},{at},{rng.randrange(2)}"
        codes, texts = zygote.group(job, world, HERE / "rank.py", **base, KILL=kill)
        assert (set(codes) == {0}) or -9 in codes, "\n".join(texts) + job.logs()[-4000:]
    assert set(codes) == {0}, "\n".join(texts)
    ends = {re.findall(r"^ends .*", text, re.MULTILINE)[0] for text in texts}
    assert len(ends) == 1, ends
    assert str(hashed(range(rows))) in ends.pop(), (rows, texts)
    for folder in saved.whole(job.folder / "checkpoints"):
        audit = json.loads(job.headrace("audit", str(folder), "-o", "json").stdout)
        assert saved.state(folder)["sums"].tolist() == hashed(saved.ids(job.data, audit)), folder
    shutil.rmtree(job.folder / "checkpoints", ignore_errors=True)
