"""Pushed records and checkpoints. A chunk stays while a kept checkpoint needs it, so a restore and a
rewind find all of their chunks. Other chunks are deleted, and the job says so if they are missing."""

from __future__ import annotations

import json
from typing import Any

import headrace
import pytest
from agent import poll
from test_rewind import TRAINER, killed, settings, stepped

SPEC = """
name: rows
landing: {{end: pushed, chunk: 1KiB, retain: 0s}}
lease: {{initial: 100, min: 50}}
{more}
decode:
  format: json
  columns:
    - {{name: id, path: /id, dtype: int64}}
"""

ROWS = 3000


def start(job: Any, monkeypatch: pytest.MonkeyPatch, more: str = "") -> None:
    monkeypatch.setenv("HEADRACE_STATE", job.env["HEADRACE_STATE"])
    spec = job.folder / "rows.yaml"
    spec.write_text(SPEC.format(more=more))
    job.up("--model", "private", "-f", str(spec))
    with headrace.Pusher("rows") as pusher:
        for n in range(0, ROWS, 300):
            with pusher.begin(f"t{n}") as t:
                for i in range(n, n + 300):
                    t.push({"id": i})
        pusher.end()


def chunks(job: Any) -> set[str]:
    folder = job.folder / "state" / "landing"
    return {str(p.relative_to(folder)) for p in folder.glob("s*/*/*/*")}


def cleaned(job: Any) -> int:
    """How often the master has deleted chunks."""
    return job.logs().count("chunks of pushed records are deleted")


def test_a_kept_checkpoint_keeps_its_chunks_and_a_rewind_finds_them(job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    start(job, monkeypatch)
    whole = chunks(job)
    killed(job, 31)  # saved at 7, 14, 21 and 28
    poll(lambda: cleaned(job) > 0)  # it deletes chunks that only older checkpoints needed
    assert chunks(job) < whole
    out = job.trainer(TRAINER, **settings(job)).ended()
    assert "restored 28" in out.splitlines(), out + job.logs()
    assert len(set(stepped(out))) == len(stepped(out)) == ROWS - 28 * 50, job.logs()

    kept = [c for c in json.loads(job.headrace("ckpt", "list", "-o", "json").stdout) if c["state"] == "bound"]
    oldest = min(kept, key=lambda c: c["step"])
    job.headrace("rewind", "default", "--to", oldest["path"], "--yes")
    out = job.trainer(TRAINER, **settings(job)).ended()
    assert f"restored {oldest['step']}" in out.splitlines(), out + job.logs()
    assert len(set(stepped(out))) == len(stepped(out)) == ROWS - oldest["step"] * 50, job.logs()

    # Now keep only the newest checkpoint, of step 56. It needs only the last 200 rows.
    assert len(chunks(job)) > 10
    job.headrace("ckpt", "rm", str(job.folder / "ckpt"), "--keep", "1", "--yes")
    poll(lambda: 0 < len(chunks(job)) < 5)


def test_what_a_start_over_would_miss_is_told_before_it(job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    start(job, monkeypatch, "guard: {every: 200ms}")
    killed(job, 31)
    poll(lambda: cleaned(job) > 0)

    def plan(to: str) -> str:
        said = job.headrace("rewind", "default", "--to", to, "--dry-run", check=False)
        return said.stdout + said.stderr

    poll(lambda: "deleted" in plan("start"))
    kept = [c for c in json.loads(job.headrace("ckpt", "list", "-o", "json").stdout) if c["state"] == "bound"]
    oldest = min(kept, key=lambda c: c["step"])
    assert "deleted" not in plan(oldest["path"]), plan(oldest["path"])  # its chunks are kept
    # Without on_loss: continue, the dataset would stop at the deleted records, so the rewind itself is refused.
    said = job.headrace("rewind", "default", "--to", "start", "--yes", check=False)
    assert said.returncode != 0, said.stdout
    assert "deleted records that would be read again" in said.stderr, said.stderr


def test_a_start_over_tells_which_records_are_deleted(job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    start(job, monkeypatch, "on_loss: continue")
    killed(job, 31)
    poll(lambda: cleaned(job) > 0)
    count = cleaned(job)
    job.headrace("ckpt", "rm", str(job.folder / "ckpt"), "--keep", "1", "--yes")
    poll(lambda: cleaned(job) > count)
    left = len(chunks(job))
    assert left > 0
    out = job.trainer(TRAINER.replace("ck.restore()", "None"), **settings(job, every=10**6), HEADRACE_RESUME="start")
    got = stepped(out.ended())
    status = json.loads(job.headrace("dataset", "status", "rows", "-o", "json").stdout)
    lost = sum(e["end"] - e["start"] for e in status["excluded"])
    assert lost > 0, status
    assert len(got) == ROWS - lost, status
    assert got == list(range(lost, ROWS)), status  # exactly the first ones are gone
    # Deleted chunks are one entry of the segment table, so offsets of their records count back from its end.
    assert min(e["start"] for e in status["excluded"]) < 0, status
