"""A real limit on the size of files, and the real binary: the save of a model that is too large
fails with an error, and the job goes on."""

from __future__ import annotations

import json
from typing import Any

from headrace import _manifest as manifest

TRAINER = """
import headrace, json, os, resource
import numpy as np

cfg = json.loads(os.environ["TRAINER"])
seen = []
with headrace.dataset("rows").batches(50) as stream, headrace.Checkpointer(cfg["dir"], stream) as ck:
    restored = ck.restore()
    print("restored", restored and restored.step, flush=True)
    step = 0 if restored is None else restored.step
    for b in stream:
        seen += b["id"].tolist()
        step = stream.step(step + 1)
        if step in (5, 10, 15):
            _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20 if step == 10 else hard, hard))
            try:
                ck.save(step, {"w": np.ones(1 << 18)}).wait()
                print("saved", step, flush=True)
            except headrace.CheckpointError as error:
                print("failed", step, error, flush=True)
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    print("ids", *seen, flush=True)
"""


def test_a_save_over_the_limit_fails_and_the_job_goes_on(job: Any) -> None:
    n = job.write(2000)
    job.up("--model", "replicated")
    job.apply()
    env = {"TRAINER": json.dumps({"dir": str(job.folder / "ckpt")})}
    out = job.trainer(TRAINER, **env).ended()
    said = [line for line in out.splitlines() if line.startswith(("saved", "failed"))]
    assert [line.split()[:2] for line in said] == [["saved", "5"], ["failed", "10"], ["saved", "15"]], out
    assert f"{job.folder}/ckpt/step-0000000010-" in said[1]
    assert "File too large" in said[1]
    assert f"({8 << 18} bytes" in said[1]
    (ids,) = [line for line in out.splitlines() if line.startswith("ids")]
    assert sorted(map(int, ids.split()[1:])) == list(range(n))
    assert [m.step for m in manifest.find(str(job.folder / "ckpt"))] == [15, 5]
    assert len(list((job.folder / "ckpt").iterdir())) == 2
    assert "restored 15\n" in job.trainer(TRAINER, **env).ended(), job.logs()
