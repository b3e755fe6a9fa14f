"""Frameworks that write their checkpoints themselves, with the cut inside or in a manifest next to them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
from headrace import _manifest as manifest
from seen import ids_of, of_end

FRAMEWORK = """
import headrace, json, os, signal
import numpy as np

path = os.environ["FILE"]
stop, n = int(os.environ["STOP"]), int(os.environ["ROWS"])
seen, step = np.zeros(n, np.int64), 0
with headrace.dataset("rows").batches(50, rounds=False) as stream:
    if os.path.exists(path):
        kept = json.load(open(path))
        stream.load_state_dict(kept["data"])
        seen, step = np.array(kept["seen"]), kept["step"]
    print("loaded", step, flush=True)
    for b in stream:
        np.add.at(seen, b["id"], 1)
        step = stream.step(step + 1)
        if step % 7 == 0:
            with open(path + ".new", "w") as file:
                json.dump({"seen": seen.tolist(), "step": step, "data": stream.state_dict(step)}, file)
            os.rename(path + ".new", path)
        if step == stop:
            os.kill(os.getpid(), signal.SIGKILL)
print("end", step, *seen.tolist(), flush=True)
"""


def test_a_framework_keeps_the_cut_in_its_own_file(job: Any) -> None:
    n = job.write(3000)
    job.up("--model", "replicated")
    job.apply()
    env = {"FILE": str(job.folder / "model.json"), "ROWS": str(n)}
    for stop in (10, 24, 33):
        assert "loaded " in job.trainer(FRAMEWORK, STOP=str(stop), **env).ended()
    out = job.trainer(FRAMEWORK, STOP="0", **env).ended()
    assert "loaded 28" in out, out + job.logs()
    assert np.array_equal(of_end(out), np.ones(n)), Counter(of_end(out).tolist())


def test_a_framework_binds_its_own_file(job: Any, tmp_path: Path) -> None:
    n = job.write(2000)
    job.up("--model", "replicated")
    job.apply()
    ids: list[int] = []
    with headrace.dataset("rows").batches(50) as stream, headrace.Checkpointer(tmp_path, stream) as ck:
        assert ck.restore() is None
        for _ in range(10):
            ids += next(stream)["id"].tolist()
            stream.step()
        cut = ck.cut(10)
        file = tmp_path / "model.bin"
        file.write_bytes(np.array(ids).tobytes())
        path = ck.bind(cut, file)
    assert sorted(ids) == ids_of(job, manifest.load(path).cut).tolist()
    headrace.shutdown()
    with headrace.dataset("rows").batches(50) as stream, headrace.Checkpointer(tmp_path, stream) as ck:
        with pytest.raises(headrace.RestoreNeeded, match="restore"):
            next(stream)
        restored = ck.restore()
        assert restored is not None
        assert (restored.path, restored.state, restored.step) == (str(file), None, 10)
        for b in stream:
            ids += b["id"].tolist()
            stream.step()
    assert sorted(ids) == list(range(n))
