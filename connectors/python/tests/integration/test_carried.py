"""A framework keeps the cut in its own file. The file restores even if the master has lost its
state."""

from __future__ import annotations

import shutil
import signal
from typing import Any

import numpy as np
import pytest
from seen import of_end
from test_frameworks import FRAMEWORK
from test_rewind import SHUFFLED, kill_everything

MODELS = ["replicated", "private", "shared"]


def trainer_file(job: Any, rank: int = 0) -> str:
    return str(job.folder / f"model-{rank}.json")


def env(job: Any, rows: int, rank: int = 0, world: int = 1) -> dict[str, str]:
    return {"FILE": trainer_file(job, rank), "ROWS": str(rows), "RANK": str(rank), "WORLD_SIZE": str(world)}


def all_is_lost(job: Any, *more: str, spec: str = "") -> None:
    """Kills everything, removes the master's state, and starts it again."""
    kill_everything(job)
    shutil.rmtree(job.folder / "state")
    job.up(*more)
    job.apply(more=spec)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("spec", ["", SHUFFLED], ids=["plain", "shuffled"])
def test_a_state_dict_loads_on_a_master_that_knows_nothing(job: Any, model: str, spec: str) -> None:
    n = job.write(3000)
    job.up("--model", model)
    job.apply(more=spec)
    for stop, loaded in ((10, 0), (24, 7), (33, 21)):  # every 7th step is saved; the third life saves step 28
        trainer = job.trainer(FRAMEWORK, STOP=str(stop), **env(job, n))
        out = trainer.ended()
        assert trainer.process.returncode == -signal.SIGKILL, out + job.logs()
        assert f"loaded {loaded}\n" in out, out + job.logs()
        all_is_lost(job, "--model", model, spec=spec)
    out = job.trainer(FRAMEWORK, STOP="0", **env(job, n)).ended()
    assert "loaded 28\n" in out, out + job.logs()
    assert np.array_equal(of_end(out), np.ones(n)), job.logs()


def test_state_dicts_of_private_ranks_load_on_a_master_that_knows_nothing(job: Any) -> None:
    n = job.write(6000)
    small = "lease: {initial: 1KiB, min: 1KiB}"  # so small that both ranks get records
    job.up("--model", "private")
    job.apply(more=small)
    ranks = [job.trainer(FRAMEWORK, STOP="24", **env(job, n, r, 2)) for r in range(2)]
    for t in ranks:
        assert t.ended().startswith("loaded 0"), job.logs()
    all_is_lost(job, "--model", "private", spec=small)
    outs = [t.ended() for t in [job.trainer(FRAMEWORK, STOP="0", **env(job, n, r, 2)) for r in range(2)]]
    assert all("loaded 21\n" in out for out in outs), str(outs) + job.logs()
    assert np.array_equal(of_end(outs[0]) + of_end(outs[1]), np.ones(n)), job.logs()


# The other rank of a group. It loads the same file, and is idle in every step.
IDLE = """
import headrace, json, os, sys, time

path, last = sys.argv[1], int(sys.argv[2])
headrace.init(rank=1, world_size=2)
with headrace.dataset("rows").batches(50, rounds=False) as stream:
    step = 0
    if os.path.exists(path):
        kept = json.load(open(path))
        stream.load_state_dict(kept["data"])
        step = kept["step"]
    print("loaded", step, flush=True)
    while step < last:
        step = stream.step(step + 1, batches=0)
    while not os.path.exists(sys.argv[3]):
        time.sleep(0.01)
"""


def test_the_ranks_of_a_group_load_one_state_dict_on_a_master_that_knows_nothing(job: Any) -> None:
    n, done = job.write(3000), job.folder / "done"
    job.up("--model", "replicated")
    job.apply()
    trainer = job.trainer(FRAMEWORK, STOP="24", **env(job, n, 0, 2))
    job.helper(IDLE, trainer_file(job), "24", str(done))
    assert "loaded 0\n" in trainer.ended(), job.logs()
    all_is_lost(job, "--model", "replicated")
    trainer = job.trainer(FRAMEWORK, STOP="0", **env(job, n, 0, 2))
    idle = job.helper(IDLE, trainer_file(job), "80", str(done))
    out = trainer.ended()
    done.touch()
    assert "loaded 21\n" in out, out + job.logs()
    assert "loaded 21\n" in idle.ended(), job.logs()
    assert np.array_equal(of_end(out), np.ones(n)), job.logs()
