"""A wrong wall clock changes nothing about checkpoints."""

from __future__ import annotations

import json
from typing import Any

from headrace import _manifest as manifest

SAVER = """
import datetime, headrace, json, os
from headrace import _publish

cfg = json.loads(os.environ["TRAINER"])
real, saves = datetime.datetime, 0

class SetBack(datetime.datetime):  # each save's clock is an hour further back
    @classmethod
    def now(cls, tz=None):
        return real.now(tz) - saves * datetime.timedelta(hours=1)

_publish.datetime = SetBack
with headrace.dataset("rows").batches(50) as stream, headrace.Checkpointer(cfg["dir"], stream, keep=2) as ck:
    restored = ck.restore()
    print("restored", restored and restored.state, flush=True)
    step = 0 if restored is None else restored.step
    for b in stream:
        step = stream.step(step + 1)
        if step % 5 == 0 and saves < 5:
            saves += 1
            ck.save(step, {"saves": saves}).wait()
    print("end", flush=True)
"""


def test_a_clock_that_is_set_back_keeps_and_restores_no_older_checkpoint(job: Any) -> None:
    job.write(2000)
    job.up("--model", "shared")
    job.apply()
    env = {"TRAINER": json.dumps({"dir": str(job.folder / "ckpt")})}
    assert "end" in job.trainer(SAVER, **env).ended(), job.logs()
    found = manifest.find(str(job.folder / "ckpt"))
    assert [m.step for m in found] == [25, 20]
    assert found[0].fields["created"] < found[1].fields["created"]
    assert found[0].cut["order"] > found[1].cut["order"]
    assert "restored {'saves': 5}" in job.trainer(SAVER, **env).ended(), job.logs()
