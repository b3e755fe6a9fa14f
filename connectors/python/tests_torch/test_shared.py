"""Ranks that train in step, in a job whose model is `shared`. That is the default, and wrong for them."""

from __future__ import annotations

from typing import Any

import pytest
from forks import Zygote

PROGRAM = """
import sys
import headrace.torch
import torch.distributed as dist

dist.init_process_group("gloo")
with headrace.torch.Loader("rows", 10, **eval(sys.argv[1])) as loader:
    for b in loader:
        loader.step()
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.parametrize(("options", "warns"), [("{}", True), ("{'rounds': False}", False)])
def test_ddp_in_a_shared_job_is_warned_of_what_hangs(job: Any, zygote: Zygote, options: str, warns: bool) -> None:
    job.write(500)
    job.up()
    job.apply()
    program = job.folder / "ddp.py"
    program.write_text(PROGRAM)
    codes, texts = zygote.group(job, 2, program, options)
    text = "\n".join(texts)
    assert codes == [0, 0], text[-6000:] + job.logs()[-4000:]
    said = "torch.distributed has 2 ranks, and this job's model is 'shared'" in text
    assert said == warns, text[-6000:]
    assert ("--model replicated" in text) == warns
