"""Private ranks: each restores alone, and each record is in exactly one of their models."""

from __future__ import annotations

import os
import signal
from collections import Counter
from typing import Any

import headrace
import numpy as np
from headrace import _manifest as manifest
from seen import TRAINER, checked, of_end, settings


def test_private_ranks_restore_alone_and_all_records_are_in_one_model(job: Any) -> None:
    n = job.write(12_000)
    job.up("--model", "private")
    job.apply()
    ranks = {"WORLD_SIZE": "2"}
    other = job.trainer(TRAINER, **settings(job, n, pause=0.03, waits=20), RANK="1", **ranks)
    other.printed(1)
    for stop in (13, 28):
        victim = job.trainer(TRAINER, **settings(job, n, stop=stop, pause=0.005), RANK="0", **ranks)
        out = victim.ended()
        assert victim.process.returncode == -signal.SIGKILL, out + job.logs()
    (job.folder / "ckpt" / "go").touch()
    out = job.trainer(TRAINER, **settings(job, n, pause=0.005), RANK="0", **ranks).ended()
    assert "restored 25 1250" in out, out + job.logs()
    both = of_end(out) + of_end(other.ended())
    assert np.array_equal(both, np.ones(n)), Counter(both.tolist())
    checked(job, n)


def test_private_ranks_come_and_go_while_others_train(job: Any) -> None:
    """A rank is killed and never comes back. Its checkpoint stays, and the other ranks get the rest of
    its rows, also a rank that joins after its end."""
    n = job.write(12_000)
    job.up("--model", "private")
    job.apply()
    stays = job.trainer(TRAINER, **settings(job, n, pause=0.005, waits=20), RANK="0", WORLD_SIZE="2")
    stays.printed(1)
    leaves = job.trainer(TRAINER, **settings(job, n, stop=13), RANK="1", WORLD_SIZE="2")
    assert "saved 10" in leaves.ended(), job.logs()
    joins = job.trainer(TRAINER, **settings(job, n, pause=0.005), RANK="2", WORLD_SIZE="3")
    joins.printed(2)  # by now it has saved
    (job.folder / "ckpt" / "go").touch()
    models = [of_end(stays.ended()), of_end(joins.ended())]
    assert all(m.sum() > 0 for m in models)
    (last,) = [m for m in manifest.find(str(job.folder / "ckpt")) if m.rank == 1][:1]
    assert last.step == 10
    models.append(headrace._restore._load(last, 1)["seen"])
    assert np.array_equal(sum(models), np.ones(n)), Counter(sum(models).tolist())
    checked(job, n)


def test_a_private_rank_whose_only_checkpoint_is_damaged_starts_over_when_told(job: Any) -> None:
    n = job.write(4000)
    job.up("--model", "private")
    job.apply()
    job.trainer(TRAINER, **settings(job, n, every=10, stop=13)).ended()
    (only,) = manifest.find(str(job.folder / "ckpt"))
    os.truncate(os.path.join(only.folder, "state.safetensors"), 100)
    out = job.trainer(TRAINER, **settings(job, n)).ended()
    assert "CheckpointError" in out, out
    assert "none of the bound checkpoints of rank 0 verifies: " + only.path in out, out
    assert "HEADRACE_RESUME=start" in out, out
    out = job.trainer(TRAINER, HEADRACE_RESUME="start", **settings(job, n)).ended()
    assert "restored 0 0" in out, out + job.logs()
    assert np.array_equal(of_end(out), np.ones(n)), Counter(of_end(out).tolist())
