"""The fsync after the rename of a manifest fails. The save reports that and binds nothing. But the
checkpoint is there, and a restore that finds it whole takes it."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import numpy as np
import pytest
from headrace import _manifest as manifest
from seen import checked, of_end

TRAINER = """
import errno, headrace, json, os, signal
from headrace import _manifest, _publish
import numpy as np

cfg = json.loads(os.environ["TRAINER"])
sync, broken = _publish.sync, False

def fails(path):
    if broken and os.path.exists(os.path.join(path, _manifest.FILE_NAME)):
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)
    sync(path)

_publish.sync = fails
seen = np.zeros(cfg["rows"], np.int64)
with headrace.dataset("rows").batches(50) as stream, headrace.Checkpointer(cfg["dir"], stream) as ck:
    restored = ck.restore()
    if restored is not None:
        seen = restored.state["seen"]
    step = 0 if restored is None else restored.step
    print("restored", step, flush=True)
    for b in stream:
        np.add.at(seen, b["id"], 1)
        step = stream.step(step + 1)
        if step % 5 == 0:
            broken = step == cfg.get("breaks")
            try:
                ck.save(step, {"seen": seen}).wait()
            except headrace.CheckpointError as error:
                print("failed", step, error, flush=True)
        if step == cfg.get("stop"):
            os.kill(os.getpid(), signal.SIGKILL)
    ck.save(step, {"seen": seen}).wait()
print("end", step, *seen.tolist(), flush=True)
"""


@pytest.mark.parametrize("model", ["replicated", "private"])
def test_a_checkpoint_whose_folder_could_not_be_synced_is_gone_back_to(job: Any, model: str) -> None:
    n = job.write(2000)
    job.up("--model", model)
    job.apply()
    env = {"rows": n, "dir": str(job.folder / "ckpt")}
    trainer = job.trainer(TRAINER, TRAINER=json.dumps({**env, "breaks": 10, "stop": 12}))
    out = trainer.ended()
    assert trainer.process.returncode == -signal.SIGKILL, out + job.logs()
    newest = manifest.find(str(job.folder / "ckpt"))[0]
    assert newest.step == 10
    assert f"failed 10 {newest.path} is there, but {newest.folder} could not be synced: Input/output error" in out, out
    assert "so it is not bound: save, or bind, again" in out
    out = job.trainer(TRAINER, TRAINER=json.dumps(env)).ended()
    assert "restored 10\n" in out, out + job.logs()
    assert np.array_equal(of_end(out), np.ones(n))
    assert checked(job, n) == 3


def test_the_next_save_takes_its_place_and_retention_removes_it(job: Any) -> None:
    n = job.write(2000)
    job.up("--model", "replicated")
    job.apply()
    env = {"rows": n, "dir": str(job.folder / "ckpt"), "breaks": 10}
    out = job.trainer(TRAINER, TRAINER=json.dumps(env)).ended()
    assert "failed 10" in out, out
    assert np.array_equal(of_end(out), np.ones(n))
    steps = [m.step for m in manifest.find(str(job.folder / "ckpt"))]
    assert steps == [40, 35, 30]
    assert len(os.listdir(job.folder / "ckpt")) == 3
    kept = json.loads(job.headrace("ckpt", "list", "-o", "json").stdout)
    assert [(c["step"], c["state"]) for c in kept] == [(40, "bound"), (35, "bound"), (30, "bound")]
