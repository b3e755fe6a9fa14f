"""Checkpoints in memory, against the real agent and master. They outlive the trainer and the
agent, and hold exactly the records of their cut."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agent import poll
from headrace import _manifest as manifest
from headrace import _slots
from in_memory import ROOT, TRAINER, in_memory, memory, of_end, restored, slots_of
from seen import checked, ids_of, settings

__all__ = ["memory"]  # a fixture


@pytest.mark.parametrize("model", ["replicated", "private"])
def test_a_killed_trainer_comes_back_from_memory_with_exactly_its_records(job: Any, model: str) -> None:
    n = job.write(5000)
    job.up("--model", model)
    job.apply()
    env = {ROOT: os.environ[ROOT]}
    last = 0
    for stop in (13, 28, 61):
        trainer = job.trainer(TRAINER, **settings(job, n, stop=stop, every=1000), **env)
        out = trainer.ended()
        assert trainer.process.returncode == -signal.SIGKILL, out + job.logs()
        assert restored(out)[1:4] == [str(last), str(50 * last), "memory" if last else "-"], out
        last = stop
    assert manifest.find(str(job.folder / "ckpt")) == []
    out = job.trainer(TRAINER, **settings(job, n, every=1000), **env).ended()
    assert restored(out)[1:4] == ["61", "3050", "memory"], out + job.logs()
    assert np.array_equal(of_end(out), np.ones(n)), out + job.logs()
    assert checked(job, n) == 1
    assert slots_of(job) == []  # a trainer that ends without an error leaves everything on storage


def test_memory_outlives_the_agent_and_the_master_too(job: Any) -> None:
    n = job.write(3000)
    up = job.up("--model", "replicated")
    job.apply()
    env = {ROOT: os.environ[ROOT]}
    trainer = job.trainer(TRAINER, **settings(job, n, waits=17, every=5), **env)
    trainer.printed(18)
    poll(lambda: len(manifest.find(str(job.folder / "ckpt"))) > 0)
    up.kill()
    up.wait()
    trainer.process.kill()
    trainer.process.wait()
    os.unlink(job.socket)
    job.up("--model", "replicated")
    out = job.trainer(TRAINER, **settings(job, n, every=5), **env).ended()
    assert restored(out)[1:4] == ["17", "850", "memory"], out + job.logs()
    assert np.array_equal(of_end(out), np.ones(n)), out + job.logs()
    assert checked(job, n) > 0


POINTS = ["copying", "captured", "frozen", "sealed", "files", "manifest", "renamed", "bound"]


@pytest.mark.parametrize("model", ["replicated", "private"])
def test_a_crash_at_every_point_leaves_the_newest_checkpoint_that_was_whole(job: Any, model: str) -> None:
    """Each save to storage is awaited. Otherwise a running one would keep its slot, and the next save
    would overwrite the other slot, which has the newest checkpoint."""
    n = job.write(6000)
    job.up("--model", model)
    job.apply()
    env = {ROOT: os.environ[ROOT]}
    last = 0
    for number, point in enumerate(POINTS):
        dies = 10 * (number + 1)
        trainer = job.trainer(
            TRAINER,
            **settings(job, n, die=point, die_after=dies, every=10, stored=True, alone=point in ("files", "manifest")),
            **env,
        )
        out = trainer.ended()
        assert trainer.process.returncode == -signal.SIGKILL, out + job.logs()
        assert restored(out)[1:3] == [str(last), str(50 * last)], out + job.logs()
        assert f"\ndies at {point} {dies}\n" in out, out
        checked(job, n)
        whole = in_memory(job)
        for about in whole:
            counts = np.zeros(n, np.int64)
            np.add.at(counts, ids_of(job, about["manifest"]["cut"]), 1)
            assert counts.sum() == 50 * about["manifest"]["step"]
        last = max(about["manifest"]["step"] for about in whole)
        assert last == (dies - 1 if point in ("copying", "captured", "frozen") else dies), (point, out)
    out = job.trainer(TRAINER, **settings(job, n, every=10), **env).ended()
    assert restored(out)[1] == str(last), out + job.logs()
    assert np.array_equal(of_end(out), np.ones(n)), out[:2000] + job.logs()
    checked(job, n)


def test_what_was_changed_in_memory_is_passed_over(job: Any) -> None:
    n = job.write(3000)
    job.up("--model", "replicated")
    job.apply()
    env = {ROOT: os.environ[ROOT]}
    job.trainer(TRAINER, **settings(job, n, stop=17, every=5), **env).ended()
    steps = {int(about["manifest"]["step"]): path for path in slots_of(job) if (about := _slots.peek(path)) is not None}
    assert len(steps) == 2, steps
    assert max(steps) == 17, steps  # the other is 16, or 15 if it was being written to storage
    with open(steps[17], "r+b") as slot:
        slot.seek(4096 + 4096 + 100)
        byte = slot.read(1)
        slot.seek(-1, os.SEEK_CUR)
        slot.write(bytes([byte[0] ^ 1]))
    out = job.trainer(TRAINER, **settings(job, n, every=5), **env).ended()
    assert restored(out)[1:4] == [str(min(steps)), str(50 * min(steps)), "memory"], out + job.logs()
    assert np.array_equal(of_end(out), np.ones(n)), out + job.logs()


@pytest.mark.parametrize("model", ["replicated", "private"])
def test_an_older_checkpoint_in_memory_is_restored_by_its_step(job: Any, model: str) -> None:
    """A single rank verifies only the newest one before it asks the master."""
    n = job.write(3000)
    job.up("--model", model)
    job.apply()
    env = {ROOT: os.environ[ROOT]}
    job.trainer(TRAINER, **settings(job, n, stop=17, every=100), **env).ended()
    assert {int(about["manifest"]["step"]) for about in in_memory(job)} == {16, 17}
    out = job.trainer(TRAINER, **settings(job, n, every=100, step=16), **env).ended()
    assert restored(out)[1:4] == ["16", "800", "memory"], out + job.logs()
    assert np.array_equal(of_end(out), np.ones(n)), out + job.logs()


@pytest.mark.parametrize("model", ["replicated", "private"])
def test_checkpoints_on_storage_stay_bound_when_their_slots_are_used_again(job: Any, model: str) -> None:
    n = job.write(3000)
    job.up("--model", model)
    job.apply()
    env = {ROOT: os.environ[ROOT]}
    job.trainer(TRAINER, **settings(job, n, stop=19, every=5, stored=True), **env).ended()
    kept = json.loads(job.headrace("ckpt", "list", "-o", "json").stdout)
    assert sorted(cut["step"] for cut in kept if cut["state"] == "bound") == [5, 10, 15], kept
    out = job.trainer(TRAINER, **settings(job, n, every=5, step=5), **env).ended()
    assert restored(out)[1:4] == ["5", "250", "storage"], out + job.logs()
    assert np.array_equal(of_end(out), np.ones(n)), out + job.logs()


def test_without_memory_the_newest_on_storage_is_taken_and_the_lost_one_is_voided(job: Any, memory: Path) -> None:
    n = job.write(3000)
    job.up("--model", "replicated")
    job.apply()
    env = {ROOT: str(memory)}
    # stored: each save to storage is awaited. A save that waits for the one before could be of step 17.
    trainer = job.trainer(TRAINER, **settings(job, n, waits=17, every=5, stored=True), **env)
    trainer.printed(18)
    assert max(m.step for m in manifest.find(str(job.folder / "ckpt"))) == 15
    trainer.process.kill()
    trainer.process.wait()
    for folder in memory.iterdir():
        shutil.rmtree(folder)  # as if the node had been started again
    out = job.trainer(TRAINER, **settings(job, n, every=5), **env).ended()
    assert restored(out)[1:4] == ["15", "750", "storage"], out + job.logs()
    assert np.array_equal(of_end(out), np.ones(n)), out + job.logs()
    lost = [cut for cut in json.loads(job.headrace("ckpt", "list", "-o", "json").stdout) if cut["step"] == 17]
    assert "voided" in {cut["state"] for cut in lost}, lost


def test_top_tells_how_old_the_checkpoint_in_memory_is(job: Any) -> None:
    n = job.write(3000)
    job.up("--model", "replicated")
    job.apply()
    env = {ROOT: os.environ[ROOT]}
    trainer = job.trainer(TRAINER, **settings(job, n, waits=17, every=1000), **env)
    trainer.printed(18)
    text = job.headrace("top", "--once").stdout
    (line,) = [line for line in text.splitlines() if line.startswith("in memory only: step 17")]
    assert line.split()[7:] == ["ago", "kept", "2"], text  # the two slots
    shown = json.loads(job.headrace("top", "--once", "-o", "json").stdout)["in_memory"]
    assert shown["step"] == 17, shown
    assert 0 < shown["age_seconds"] < 100, shown
    trainer.process.kill()
