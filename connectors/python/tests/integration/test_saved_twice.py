"""Saving one step twice."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import numpy as np
import pytest
from headrace import _manifest as manifest
from seen import checked, of_end

# Saves each fifth step twice, and is killed in the second save of step 10.
TWICE = """
import headrace, json, os, signal
import numpy as np

cfg = json.loads(os.environ["TRAINER"])

class Checkpointer(headrace.Checkpointer):
    twice = False

    def _reached(self, point):
        if point == cfg.get("die") and self.twice and self._trainer.last_step == 10:
            os.kill(os.getpid(), signal.SIGKILL)

trainer = headrace.init()
seen, saves = np.zeros(cfg["rows"], np.int64), 0
stream = headrace.dataset("rows").batches(50, rounds=False)
with stream, Checkpointer(cfg["dir"], stream, sharded=cfg["sharded"]) as ck:
    restored = ck.restore()
    if restored is not None:
        seen, saves = restored.state["seen"], restored.state["saves"]
    step = restored.step if restored is not None else 0
    print("restored", step, saves, flush=True)
    for b in stream:
        np.add.at(seen, b["id"], 1)
        step = stream.step(step + 1)
        if step % 5 == 0:
            for ck.twice in (False, True):
                saves += 1
                ck.save(step, {"seen": seen, "saves": saves, "more": np.zeros(1000 * saves)}).wait()
print("end", step, *seen.tolist(), flush=True)
"""


@pytest.mark.parametrize("model", ["replicated", "sharded", "private"])
@pytest.mark.parametrize("die", ["captured", "frozen", "files", "manifest", "renamed", "bound"])
def test_a_step_that_is_saved_twice_has_a_whole_checkpoint_at_every_point(job: Any, model: str, die: str) -> None:
    n = job.write(1500)
    job.up("--model", "private" if model == "private" else "replicated")
    job.apply()
    cfg = {"rows": n, "dir": str(job.folder / "ckpt"), "sharded": model == "sharded"}
    trainer = job.trainer(TWICE, TRAINER=json.dumps({**cfg, "die": die}))
    out = trainer.ended()
    once = model == "sharded" and die not in ("captured", "frozen")  # its parts are there, and not written again
    assert trainer.process.returncode == (0 if once else -signal.SIGKILL), out + job.logs()
    assert checked(job, n) > 0
    out = job.trainer(TWICE, TRAINER=json.dumps(cfg)).ended()
    second = model != "sharded" and die in ("renamed", "bound")
    assert f"restored {30 if once else 10} {11 if once else 4 if second else 3}\n" in out, out + job.logs()
    assert np.array_equal(of_end(out), np.ones(n)), out + job.logs()
    for m in manifest.find(str(job.folder / "ckpt")):
        own = [name for name in os.listdir(m.folder) if name.endswith(".safetensors")]
        assert sorted(own) == [f["path"] for f in m.files]
