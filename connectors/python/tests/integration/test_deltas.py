"""Deltas against the real agent and master. Wherever the trainer is killed, base and delta restore
to exactly the records of the delta's cut."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections import Counter
from typing import Any

import numpy as np
import pytest
from headrace import _manifest as manifest
from seen import POINTS, TRAINER, checked, of_end, settings

# A save every 5 steps of 50 rows. The model has many more rows than the steps between two whole saves touch.
OPTIONS = {"deltas": ["seen"], "full_every": 3, "keep": 2}


def deltas(job: Any) -> list[manifest.Manifest]:
    return [m for m in manifest.find(str(job.folder / "ckpt")) if m.needs]


@pytest.mark.parametrize("model", ["replicated", "private"])
def test_a_crash_at_every_point_of_a_delta_leaves_the_old_checkpoint_or_the_new_one(job: Any, model: str) -> None:
    n = job.write(8000)
    job.up("--model", model)
    job.apply()
    last = met = 0
    for point in POINTS:
        # After a restore the first save is whole, and the one that dies is a delta.
        saves = last + 15
        trainer = job.trainer(TRAINER, **settings(job, n, die=point, die_after=saves, options=OPTIONS))
        out = trainer.ended()
        assert trainer.process.returncode == -signal.SIGKILL, out + job.logs()
        assert f"restored {last} {50 * last}" in out, out + job.logs()
        assert f"dies at {point}" in out
        checked(job, n)
        met += len(deltas(job))
        last = max(m.step for m in manifest.find(str(job.folder / "ckpt")))
        assert last == saves if point in ("renamed", "bound") else last < saves
    assert met
    out = job.trainer(TRAINER, **settings(job, n, options=OPTIONS)).ended()
    assert np.array_equal(of_end(out), np.ones(n)), Counter(of_end(out).tolist())
    checked(job, n)


def test_the_tools_know_what_a_delta_needs(job: Any) -> None:
    n = job.write(8000)
    job.up("--model", "replicated")
    job.apply()
    job.trainer(TRAINER, **settings(job, n, stop=18, options=OPTIONS)).ended()
    folder = str(job.folder / "ckpt")
    newest, *_, base = sorted(manifest.find(folder), key=lambda m: m.step, reverse=True)
    assert (newest.step, newest.needs, base.step) == (15, [base.cut_id], 5)

    def headrace(*args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([job.binary, "ckpt", *args], env=job.env, capture_output=True, text=True, timeout=300)

    said = headrace("rm", base.path, "--yes")
    assert said.returncode != 0
    assert "step 15 needs it" in said.stdout + said.stderr
    assert headrace("verify", folder).returncode == 0
    with open(os.path.join(base.folder, "state.safetensors"), "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\xff")
    said = headrace("verify", newest.path, "-o", "json")
    assert said.returncode != 0
    assert "its checksum is" in json.loads(said.stdout)[0]["faults"][0]["reason"], said.stdout
    shutil.rmtree(base.folder)
    said = headrace("verify", newest.path)
    assert said.returncode != 0
    assert f"it needs the checkpoint of cut {base.cut_id}, and that is not here" in said.stdout, said.stdout
    # No checkpoint verifies, so the trainer gets an error and does not train records again.
    out = job.trainer(TRAINER, **settings(job, n, options=OPTIONS)).ended()
    assert "copy both" in out, out
