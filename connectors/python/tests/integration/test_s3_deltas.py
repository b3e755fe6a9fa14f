"""Deltas in a bucket of a real S3 server, with and without memory=True: `make test-s3`."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from in_memory import told
from s3_server import Server, server
from test_s3_checkpoints import TRAINER, keys, listed, of_end, of_line, settings, surroundings, url

__all__ = ["server", "surroundings"]  # fixtures

OPTIONS: dict[str, Any] = {"deltas": ["seen"], "full_every": 5}
# (memory, point). With memory=True, at "sealed" the slot is complete, and at "staged" its delta. Without, at
# "sealed" the copy that is uploaded is complete.
POINTS = [(True, "frozen"), (True, "sealed"), (True, "staged"), (True, "renamed"), (True, "bound")]
POINTS += [(False, "frozen"), (False, "sealed"), (False, "renamed")]


def needs(job: Any) -> dict[int, list[str]]:
    """The bases that each checkpoint in the bucket needs, by its step."""
    said = [json.loads(job.headrace("ckpt", "show", v["path"], "-o", "json").stdout) for v in listed(job)]
    return {v["step"]: v["needs"] for v in said}


@pytest.mark.parametrize("model", ["replicated", "private"])
@pytest.mark.parametrize("memory", [True, False])
def test_a_trainer_goes_on_from_a_delta_in_a_bucket(job: Any, server: Server, model: str, memory: bool) -> None:
    n = job.write(5_000)
    up = job.up("--model", model)
    job.apply()
    for stop in (23, 48):
        trainer = job.trainer(TRAINER, **settings(job, n, memory=memory, stop=stop, kib=1, options=OPTIONS))
        out = trainer.ended()
        assert trainer.process.returncode == -signal.SIGKILL, out + job.logs()
    of = needs(job)
    assert len(of[45]) == 1, of
    assert [] in of.values(), of
    job.headrace("ckpt", "verify", url(job))
    # Start a new master without state, and lose this node's memory.
    up.kill()
    up.wait()
    shutil.rmtree(job.folder / "state")
    shutil.rmtree(job.env["HEADRACE_MEMORY_DIR"])
    os.mkdir(job.env["HEADRACE_MEMORY_DIR"], 0o700)
    os.unlink(job.socket) if os.path.exists(job.socket) else None
    job.up("--model", model)
    job.apply()
    out = job.trainer(TRAINER, **settings(job, n, memory=memory, kib=1, options=OPTIONS)).ended()
    assert of_line(out, "restored")[1:] == ["45", "2250", "storage"], out
    assert (of_end(out) == 1).all(), out
    job.headrace("ckpt", "verify", url(job))


@pytest.mark.parametrize(("memory", "point"), POINTS)
def test_a_crash_at_every_point_of_a_delta_leaves_whole_checkpoints(
    job: Any, server: Server, memory: bool, point: str
) -> None:
    n = job.write(5_000)
    job.up("--model", "replicated")
    job.apply()
    how = settings(job, n, memory=memory, die=point, die_after=20, kib=1, options=OPTIONS)
    trainer = job.trainer(TRAINER, **how)
    out = trainer.ended()
    assert trainer.process.returncode == -signal.SIGKILL, out
    assert f"dies at {point} 20" in out, out
    job.headrace("ckpt", "verify", url(job))
    out = job.trainer(TRAINER, **settings(job, n, memory=memory, kib=1, options=OPTIONS)).ended()
    step = int(of_line(out, "restored")[1])
    assert step in (15, 20), out
    assert int(of_line(out, "restored")[2]) == 50 * step, out
    assert (of_end(out) == 1).all(), out
    job.headrace("ckpt", "verify", url(job))
    left = Path(job.env["HEADRACE_MEMORY_DIR"]).rglob("staged-rank-0")
    assert not list(left), "the next save has not removed the files that a killed save had left"


def test_a_save_whose_base_was_taken_away_fails_and_the_next_one_is_whole(job: Any, server: Server) -> None:
    n = job.write(5_000)
    job.up("--model", "replicated")
    job.apply()
    old = """                saved.wait()
                print("stored", step, flush=True)
"""
    assert old in TRAINER
    code = TRAINER.replace(old, """                try:
                    saved.wait()
                    print("stored", step, flush=True)
                except headrace.CheckpointError as error:
                    print("failed", step, error, flush=True)
        if step == 12:
            print("waits", flush=True)
            sys.stdin.readline()
""")  # fmt: skip
    trainer = job.trainer(code, stdin=True, **settings(job, n, kib=1, options=OPTIONS))
    told(trainer, "waits")
    base = next(v for v in listed(job) if v["step"] == 5)
    at = f"{job.folder.name}/ckpt/{base['path'].rsplit('/', 2)[1]}"
    for name in ("headrace-manifest.json", "state.safetensors"):
        server.delete(f"{at}/{name}")
    assert trainer.process.stdin is not None
    trainer.process.stdin.close()
    out = trainer.ended()
    assert (of_end(out) == 1).all(), out
    assert out.count("\nfailed ") == 1, out
    assert "failed 15 " in out, out
    assert "is gone, and this save holds only what has changed since" in out, out
    assert needs(job)[max(needs(job))] is not None
    back = job.trainer(TRAINER, **settings(job, n, kib=1, options=OPTIONS)).ended()
    assert of_line(back, "restored")[1:] == ["100", "5000", "storage"], back


def test_a_base_in_a_bucket_stays_while_a_delta_needs_it(job: Any, server: Server) -> None:
    n = job.write(5_000)
    job.up("--model", "replicated")
    job.apply()
    how = settings(job, n, stop=23, keep=1, kib=1, options=OPTIONS)
    job.trainer(TRAINER, **how).ended()
    of = needs(job)
    assert sorted(of) == [5, 20], of
    base = next(v for v in listed(job) if v["step"] == 5)
    said = job.headrace("ckpt", "rm", base["path"], "--yes", check=False)
    assert said.returncode != 0
    assert "step 20 needs it" in said.stdout + said.stderr
    name = base["path"].rsplit("/", 2)[1] + "/state.safetensors"
    assert name in keys(job, server)
    server.delete(f"{job.folder.name}/ckpt/{name}")
    said = job.headrace("ckpt", "verify", url(job), check=False)
    assert said.returncode != 0
    # The remaining checkpoint does not verify, so the trainer gets an error and does not train records again.
    out = job.trainer(TRAINER, **settings(job, n, kib=1, options=OPTIONS)).ended()
    assert "its base does not verify" in out, out
