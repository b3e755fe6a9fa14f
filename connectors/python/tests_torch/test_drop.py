"""Loader(tail="drop"): two gloo ranks train full batches only, in the same rounds. Each record is
trained once, or dropped and listed."""

from __future__ import annotations

import re
from typing import Any

from check_drop import dropped
from forks import Zygote

WORLD, ROWS, RECORDS = 2, 20, 1970

PROGRAM = """
import headrace.torch, torch
import torch.distributed as dist

dist.init_process_group("gloo")
with headrace.torch.Loader("rows", 20, tail="drop") as loader:
    step = 0
    for b in loader:
        step += 1
        now = torch.tensor([b.rows, step])
        dist.all_reduce(now)
        assert now.tolist() == [b.global_rows, 2 * step] == [40, 2 * step], (now, b.global_rows)
        loader.step(step)
        print("round", int(b.last), *b["id"].tolist(), flush=True)
print("end", step, flush=True)
dist.destroy_process_group()
"""


def test_full_batches_are_trained_and_the_rest_is_dropped(job: Any, zygote: Zygote) -> None:
    job.write(RECORDS)
    job.up("--model", "replicated")
    job.apply()
    program = job.folder / "train.py"
    program.write_text(PROGRAM)
    codes, texts = zygote.group(job, WORLD, program)
    assert codes == [0] * WORLD, "\n".join(texts) + job.logs()[-4000:]
    rounds = [re.findall(r"^round (\d) (.*)$", text, re.MULTILINE) for text in texts]
    ids = [[int(i) for i in line.split()] for of_rank in rounds for _, line in of_rank]
    assert {len(batch) for batch in ids} == {ROWS}
    assert len(rounds[0]) == len(rounds[1]) > 1, texts
    for of_rank in rounds:
        assert [last for last, _ in of_rank] == ["0"] * (len(of_rank) - 1) + ["1"]
    left = dropped(job)
    assert sorted([i for batch in ids for i in batch] + left) == list(range(RECORDS))
    assert len(left) == RECORDS - len(rounds[0]) * WORLD * ROWS > 0
