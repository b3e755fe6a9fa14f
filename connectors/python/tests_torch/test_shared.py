"""Ranks that train in step, in a job whose model is `shared`. That is the default, and wrong for them."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

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
def test_ddp_in_a_shared_job_is_warned_of_what_hangs(job: Any, options: str, warns: bool) -> None:
    (job.folder / "rows.yaml").write_text(job.spec("rows"))
    (job.folder / "ddp.py").write_text(PROGRAM)
    job.write(500)
    command = [job.binary, "run", "--nproc-per-node", "2", "--max-restarts", "0", "--http", "off", "-f", "rows.yaml"]
    command += ["--", sys.executable, "ddp.py", options]
    done = subprocess.run(command, cwd=job.folder, env=job.env, capture_output=True, text=True, timeout=1500)
    text = done.stdout + done.stderr
    assert done.returncode == 0, text[-6000:]
    said = "torch.distributed has 2 ranks, and this job's model is 'shared'" in text
    assert said == warns, text[-6000:]
    assert ("--model replicated" in text) == warns
