"""Deltas of a shared model, against the real agent and master and a server of the model. The function
that returns the state also says which rows have changed."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
from headrace import _manifest as manifest
from seen import ids_of
from test_exact import World, end

OPTIONS: dict[str, Any] = {"deltas": ["seen"], "full_every": 4}


def test_deltas_of_a_shared_model_are_exact_also_after_its_saver_was_killed(job: Any) -> None:
    n = job.write(40_000)
    job.up("--model", "shared")
    job.apply()
    world = World(job, n, options=OPTIONS)
    others = [world.start(1, pause=0.01), world.start(2, pause=0.01)]
    saver = world.start(0, kill=0)
    saver.process.wait(300)
    assert saver.process.returncode == -signal.SIGKILL, saver.ended() + job.logs()
    out, *_ = end(world, world.start(0), *others)
    assert "failed" not in out, out + job.logs()
    found = manifest.find(str(job.folder / "ckpt"))
    assert any(m.needs for m in found), [m.path for m in found]
    assert any(not m.needs for m in found)


def test_a_lost_model_goes_back_to_a_delta_and_gets_exactly_the_rest(job: Any, tmp_path: Path) -> None:
    n = job.write(10_000)
    job.up("--model", "shared")
    job.apply()
    seen = np.zeros(n, np.int64)
    where = tmp_path / "ckpt"
    with headrace.dataset("rows").batches(50) as stream, headrace.Checkpointer(where, stream, **OPTIONS) as ck:
        for count in range(1, 31):
            ids = next(stream)["id"]
            np.add.at(seen, ids, 1)
            ck.touch("seen", ids)
            step = stream.step()
            if count % 10 == 0:
                ck.save(step, lambda: {"seen": seen}).wait(300)
        assert len(manifest.find(str(where))[0].needs) == 1
        with pytest.raises(ValueError, match=r"deltas= of a shared model.*Save exactly"):
            ck.save(step, {"seen": seen})
    headrace.shutdown()
    with headrace.dataset("rows").batches(50) as stream, headrace.Checkpointer(where, stream, **OPTIONS) as ck:
        restored = ck.restore()
        assert restored is not None
        back = restored.state["seen"]
        counts = np.zeros(n, np.int64)
        np.add.at(counts, ids_of(job, restored.cut.body), 1)
        assert np.array_equal(back, counts)
        assert back.sum() == 1500
        for b in stream:
            np.add.at(back, b["id"], 1)
            ck.touch("seen", b["id"])
            step = stream.step()
        ck.save(step, lambda: {"seen": back}).wait(300)
    assert np.array_equal(back, np.ones(n))
