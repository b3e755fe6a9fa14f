"""Checkpoints against the real agent and master. Wherever the trainer is killed, a model holds
exactly the records of its cut."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
from agent import poll
from headrace import _manifest as manifest
from ports import free_port
from seen import POINTS, TRAINER, checked, ids_of, of_end, settings


@pytest.mark.parametrize("model", ["replicated", "private"])
def test_a_killed_trainer_restores_and_repeats_nothing_in_the_model(job: Any, model: str) -> None:
    n = job.write(5000)
    job.up("--model", model)
    job.apply()
    for stop in (13, 28, 61):
        trainer = job.trainer(TRAINER, **settings(job, n, stop=stop))
        out = trainer.ended()
        assert trainer.process.returncode == -signal.SIGKILL, out + job.logs()
        assert checked(job, n) > 0
    out = job.trainer(TRAINER, **settings(job, n)).ended()
    assert "restored 60 3000" in out, out + job.logs()
    assert np.array_equal(of_end(out), np.ones(n)), Counter(of_end(out).tolist())


@pytest.mark.parametrize("model", ["replicated", "private"])
def test_a_crash_at_every_point_of_a_save_leaves_the_old_checkpoint_or_the_new_one(job: Any, model: str) -> None:
    n = job.write(6000)
    job.up("--model", model)
    job.apply()
    last = 0
    for number, point in enumerate(POINTS):
        saves = 5 * (2 * number + 2)  # the step whose save is cut short; the save before it is whole
        trainer = job.trainer(TRAINER, **settings(job, n, die=point, die_after=saves))
        out = trainer.ended()
        assert trainer.process.returncode == -signal.SIGKILL, out + job.logs()
        assert f"restored {last} {50 * last}" in out, out + job.logs()
        assert f"dies at {point}" in out
        checked(job, n)
        last = max(m.step for m in manifest.find(str(job.folder / "ckpt")))
        assert last == saves if point in ("renamed", "bound") else last < saves
    out = job.trainer(TRAINER, **settings(job, n)).ended()
    assert np.array_equal(of_end(out), np.ones(n)), out[:2000] + job.logs()
    checked(job, n)


def test_a_checkpoint_restores_on_an_empty_master(job: Any) -> None:
    n = job.write(5000)
    up = job.up("--model", "replicated")
    job.apply()
    job.trainer(TRAINER, **settings(job, n, stop=33)).ended()
    up.terminate()
    up.wait(300)
    job.env["HEADRACE_STATE"] = str(job.folder / "another")
    job.up("--model", "replicated")
    job.apply()
    out = job.trainer(TRAINER, **settings(job, n)).ended()
    assert "restored 30 1500" in out, out + job.logs()
    assert np.array_equal(of_end(out), np.ones(n)), Counter(of_end(out).tolist())
    checked(job, n)


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(job: Any) -> None:
    n = job.write(4000)
    job.up("--model", "replicated")
    job.apply()
    job.trainer(TRAINER, **settings(job, n, stop=33)).ended()
    newest = manifest.find(str(job.folder / "ckpt"))[0]
    assert newest.step == 30
    with open(os.path.join(newest.folder, "state.safetensors"), "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\xff")
    out = job.trainer(TRAINER, **settings(job, n)).ended()
    assert "restored 25 1250" in out, out + job.logs()
    assert np.array_equal(of_end(out), np.ones(n)), Counter(of_end(out).tolist())


def test_a_shared_models_checkpoint_holds_at_least_its_cut(job: Any, tmp_path: Path) -> None:
    n = job.write(2000)
    job.up()
    job.apply()
    seen: list[int] = []
    with headrace.dataset("rows").batches(50) as stream, headrace.Checkpointer(tmp_path, stream) as ck:
        for b in stream:
            seen += b["id"].tolist()
            step = stream.step()
            if step % 10 == 0:
                m = manifest.load(os.path.join(ck.save(step, {"n": len(seen)}).wait(300), manifest.FILE_NAME))
                assert m.cut["exact"] is False
                assert set(ids_of(job, m.cut).tolist()) == set(seen)
    assert sorted(seen) == list(range(n))


def test_a_newer_process_of_the_rank_fences_the_save_of_the_older(job: Any, tmp_path: Path) -> None:
    job.write(5000)
    job.up("--model", "replicated")
    job.apply()
    stream = headrace.dataset("rows").batches(50)
    ck = headrace.Checkpointer(tmp_path, stream)
    next(stream)
    stream.step(1)
    out = job.trainer(TRAINER, **settings(job, 5000, stop=12)).ended()
    assert "saved 10" in out, out + job.logs()
    poll(lambda: headrace.init().control.fault)
    with pytest.raises(headrace.Fenced):
        ck.save(1, {})
    stream.close()
    assert manifest.find(str(tmp_path)) == []


@pytest.mark.parametrize("model", ["replicated", "private"])
def test_saves_go_on_while_master_and_agent_are_killed(job: Any, model: str) -> None:
    n = job.write(20_000)
    job.env["HEADRACE_LISTEN"] = f"127.0.0.1:{free_port()}"
    of_master = ("master", "--model", model, "--http", "off", "--session-ttl", "20s", "--allow-root", str(job.folder))
    of_agent = ("agent", "--name", "a1", "--socket", job.socket, "--allow-root", str(job.folder))
    master = job.start(*of_master)
    address = job.folder / "state" / "master.addr"
    poll(address.exists)
    job.env["HEADRACE_LISTEN"] = address.read_text().split()[0]
    agent = job.start(*of_agent)
    job.await_socket(agent)
    job.apply()
    trainer = job.trainer(TRAINER, **settings(job, n, every=3, wait=False, pause=0.01))
    for kill in range(4):
        trainer.printed(10 + 20 * kill)  # it prints a line for each save
        if kill % 2:
            agent.kill()
            agent.wait()
            agent = job.start(*of_agent)
        else:
            master.kill()
            master.wait()
            master = job.start(*of_master)
    out = trainer.ended()
    assert np.array_equal(of_end(out), np.ones(n)), out[-2000:] + job.logs()
    assert checked(job, n) == 3
    again = job.trainer(TRAINER, **settings(job, n)).ended()
    assert f"restored {n // 50} {n}" in again, again + job.logs()


def test_the_command_reads_what_python_wrote(job: Any) -> None:
    n = job.write(3000)
    job.up("--model", "replicated")
    job.apply()
    job.trainer(TRAINER, **settings(job, n, stop=22)).ended()
    newest = manifest.find(str(job.folder / "ckpt"))[0]
    listed = job.headrace("ckpt", "list", str(job.folder / "ckpt")).stdout
    assert all(str(step) in listed for step in (10, 15, 20)), listed
    assert job.headrace("ckpt", "verify", newest.folder).returncode == 0
    job.headrace("ckpt", "pin", newest.folder)
    assert newest.pinned
    audit = job.headrace("audit", newest.folder, "--output", "json", check=False)
    assert audit.returncode == 0, audit.stderr
    assert str(len(b"".join(job.line(i).encode() for i in ids_of(job, newest.cut)))) in audit.stdout, audit.stdout
    with open(os.path.join(newest.folder, "state.safetensors"), "ab") as file:
        file.write(b"x")
    damaged = job.headrace("ckpt", "verify", newest.folder, check=False)
    assert damaged.returncode != 0
    assert "state.safetensors" in damaged.stdout + damaged.stderr
