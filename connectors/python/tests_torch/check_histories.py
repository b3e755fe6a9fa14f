"""Random histories of a group of gloo ranks: make test-torch-long, HISTORIES=500.

Ranks are idle, stall, and are killed; groups of 4, 3 and 4 ranks follow each other. No rank
hangs, all ranks end at the same round with the same weights, and each record is in the
model once: at the end, and at every checkpoint. One process imports torch and forks the
ranks, so a history takes seconds.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from collections.abc import Iterator
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


def hashed(rows: int) -> list[int]:
    return [rows, sum(i * 7919 + i * i for i in range(rows))]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("history", range(HISTORIES))
def test_no_history_hangs_or_loses_or_repeats_a_record(
    job: Any, zygote: Zygote, rng: random.Random, history: int
) -> None:
    rows = rng.choice([rng.randint(1, 60), rng.randint(100, 1500), rng.randint(1000, 4000)])
    job.write(rows, files=rng.randint(1, 4))
    job.up("--model", "replicated")
    job.apply()
    worlds = [4, 3, 4] if rng.random() < 0.5 else [4, rng.randint(1, 4)]
    base = {"STALL": str(rng.choice([0, 0.1, 0.5])), "EVERY": str(rng.randint(2, 12)), "SEED": str(rng.random())}
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
    assert str(hashed(rows)) in ends.pop(), (rows, texts)
    for folder in saved.whole(job.folder / "checkpoints"):
        records = int(saved.state(folder)["sums"][0])
        audit = json.loads(job.headrace("audit", str(folder), "-o", "json").stdout)
        assert records == audit["datasets"][0]["records"]["rows"], folder
    shutil.rmtree(job.folder / "checkpoints", ignore_errors=True)
