"""Going back: a checkpoint restores on a master without state, and `headrace rewind` takes a job back.
The records that come then are exactly the input without the checkpoint's records, which
`headrace audit` names."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from agent import poll

# Prints every id that it steps. Saves every `every` steps. With `stop` it is killed after that step.
TRAINER = """
import headrace, json, os, signal
import numpy as np

cfg = json.loads(os.environ["TRAINER"])
trainer = headrace.init()
with headrace.dataset("rows").batches(50, rounds=False) as stream, headrace.Checkpointer(cfg["dir"], stream) as ck:
    restored = ck.restore()
    step = restored.step if restored is not None else 0
    print("restored", step, flush=True)
    for b in stream:
        step = stream.step(step + 1)
        print("step", step, *b["id"].tolist(), flush=True)
        if step % cfg["every"] == 0:
            ck.save(step, {"step": np.int64(step)}).wait()
        if step == cfg.get("stop"):
            os.kill(os.getpid(), signal.SIGKILL)
print("end", step, flush=True)
"""


def settings(job: Any, **more: Any) -> dict[str, str]:
    return {"TRAINER": json.dumps({"dir": str(job.folder / "ckpt"), "every": 7, **more})}


def stepped(out: str) -> list[int]:
    """The ids that a trainer stepped, in order."""
    return [int(i) for line in out.splitlines() if line.startswith("step ") for i in line.split()[2:]]


def killed(job: Any, stop: int) -> None:
    """Runs a trainer that is killed after that step. Waits until the master has heard all its steps and
    its end."""
    trainer = job.trainer(TRAINER, **settings(job, stop=stop))
    out = trainer.ended()
    assert trainer.process.returncode == -signal.SIGKILL, out + job.logs()
    poll(lambda: json.loads(job.headrace("status", "-o", "json").stdout)["workers"] == [])


def kill_everything(job: Any) -> None:
    for process in job.processes:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.wait(300)
    Path(job.socket).unlink(missing_ok=True)


def in_model(job: Any, where: Path) -> list[int]:
    """The ids in a checkpoint's model, from `headrace audit` and the files."""
    audit = json.loads(job.headrace("audit", str(where), "-o", "json").stdout)
    ids = []
    (dataset,) = audit["datasets"]
    for partition in dataset["partitions"]:
        for pass_ in partition["passes"]:
            for r in pass_["ranges"]:
                at = 0
                for line in (job.data / r["name"]).read_bytes().splitlines(keepends=True):
                    if r["start"] <= at < r["end"]:
                        ids.append(int(line.split(b"\t")[0]))
                    at += len(line)
    return sorted(ids)


def newest(job: Any) -> Path:
    (first, *_) = json.loads(job.headrace("ckpt", "list", str(job.folder / "ckpt"), "-o", "json").stdout)
    assert first["state"] == "whole"
    return Path(first["path"])


SHUFFLED = "shuffle: {seed: 3, block: 512}"
SMALL = "lease: {initial: 1KiB, min: 1KiB}"


@pytest.mark.parametrize("model", ["replicated", "private"])
@pytest.mark.parametrize(
    "more", ["", SHUFFLED, "lease: {initial: 1KiB, min: 1KiB}"], ids=["plain", "shuffled", "small leases"]
)
def test_a_checkpoint_restores_on_a_master_that_knows_nothing(job: Any, model: str, more: str) -> None:
    n = job.write(4000)
    job.up("--model", model)
    job.apply(more=more)
    killed(job, 31)
    kill_everything(job)
    shutil.rmtree(job.folder / "state")

    where = newest(job)
    members = in_model(job, where)
    assert len(members) == 28 * 50
    job.headrace("ckpt", "verify", str(where))
    job.up("--model", model)
    job.apply(more=more)
    out = job.trainer(TRAINER, **settings(job)).ended()
    assert "restored 28" in out.splitlines(), out + job.logs()
    assert "\nend " in out, out + job.logs()
    assert sorted(stepped(out)) == sorted(set(range(n)) - set(members)), job.logs()
    # Its own newest checkpoint has the records of the old one and those that were stepped since.
    assert in_model(job, newest(job)) == sorted(members + stepped(out)[: -(len(stepped(out)) % 350) or None])
    (cut,) = [c for c in json.loads(job.headrace("ckpt", "list", "-o", "json").stdout) if c["newest"]]
    assert cut["state"] == "bound"
    assert Path(cut["path"]) == newest(job)


def test_a_rank_without_a_checkpoint_leaves_the_others_records_alone_on_a_master_that_knows_nothing(job: Any) -> None:
    n = job.write(4000)
    job.up("--model", "private")
    job.apply(more=SMALL)
    world = {"HEADRACE_WORLD_SIZE": "2"}
    job.trainer(TRAINER, **settings(job, stop=15), **world, HEADRACE_RANK="1").ended()
    kill_everything(job)
    shutil.rmtree(job.folder / "state")
    members = in_model(job, newest(job))
    assert len(members) == 14 * 50

    job.up("--model", "private")
    job.apply(more=SMALL)
    fresh = job.trainer(TRAINER, **settings(job), **world, HEADRACE_RANK="0")
    fresh.printed(1)  # it has found no checkpoint, and asks for batches
    saver = job.trainer(TRAINER, **settings(job), **world, HEADRACE_RANK="1")
    outs = [fresh.ended(), saver.ended()]
    assert "restored 0" in outs[0].splitlines(), outs[0] + job.logs()
    assert "restored 14" in outs[1].splitlines(), outs[1] + job.logs()
    again = sorted(stepped(outs[0]) + stepped(outs[1]))
    assert again == sorted(set(range(n)) - set(members)), job.logs()


@pytest.mark.parametrize("model", ["replicated", "private"])
@pytest.mark.parametrize("steps", [14, 49], ids=["in the first file", "in the last file"])
def test_a_folder_that_grew_before_the_restore_is_read_where_it_was_left(job: Any, model: str, steps: int) -> None:
    """All files have the same size, and a new one sorts before them. To an empty master the same numbers
    could mean other files."""
    lines = [f"{i:05d}\t1\t1\t1\tw\tz\n" for i in range(3000)]
    for f in range(3):
        (job.data / f"day_{f}.tsv").write_text("".join(lines[f * 1000 : (f + 1) * 1000]))
    job.up("--model", model)
    job.apply()
    killed(job, steps + 1)
    kill_everything(job)
    shutil.rmtree(job.folder / "state")
    members = in_model(job, newest(job))
    assert len(members) == steps * 50

    more = [f"{i:05d}\t1\t1\t1\tw\tz\n" for i in range(3000, 4000)]
    (job.data / "day_+.tsv").write_text("".join(more))  # sorts first
    job.up("--model", model)
    job.apply()
    out = job.trainer(TRAINER, **settings(job)).ended()
    assert f"restored {steps}" in out.splitlines(), out + job.logs()
    assert sorted(stepped(out)) == sorted(set(range(4000)) - set(members)), job.logs()


@pytest.mark.parametrize("model", ["replicated", "private"])
def test_a_rewind_delivers_what_is_not_in_the_checkpoint(job: Any, model: str) -> None:
    n = job.write(3000)
    job.up("--model", model)
    job.apply()
    killed(job, 38)
    found = json.loads(job.headrace("ckpt", "list", str(job.folder / "ckpt"), "-o", "json").stdout)
    assert [(c["step"], c["ledger"]) for c in found] == [(35, "bound"), (28, "bound"), (21, "bound")]
    to = found[-1]["path"]
    members = in_model(job, Path(to))
    before = json.loads(job.headrace("status", "-o", "json").stdout)

    dry = json.loads(job.headrace("rewind", "default", "--to", to, "--dry-run", "-o", "json").stdout)
    assert not dry["rewound"]
    assert sum(a["units"] for a in dry["again"]) > 0
    assert sorted(v["step"] for v in dry["voided"]) == [28, 35]
    assert json.loads(job.headrace("status", "-o", "json").stdout)["datasets"] == before["datasets"]

    refused = job.headrace("rewind", "default", "--to", to, check=False)
    assert refused.returncode == 2
    assert "--yes" in refused.stderr
    done = json.loads(job.headrace("rewind", "default", "--to", to, "--yes", "-o", "json").stdout)
    assert done["rewound"]
    assert done["step"] == 21
    after = json.loads(job.headrace("ckpt", "list", str(job.folder / "ckpt"), "-o", "json").stdout)
    assert [(c["step"], c["ledger"]) for c in after] == [(35, "voided"), (28, "voided"), (21, "bound")]
    kept = job.headrace("ckpt", "rm", to, "--yes", check=False)
    assert kept.returncode == 1
    assert "newest that verifies" in kept.stdout

    out = job.trainer(TRAINER, **settings(job)).ended()
    assert "restored 21" in out.splitlines(), out + job.logs()
    assert sorted(stepped(out)) == sorted(set(range(n)) - set(members)), job.logs()


@pytest.mark.parametrize("model", ["replicated", "private"])
def test_a_rewind_to_the_start_delivers_everything_again(job: Any, model: str) -> None:
    n = job.write(1500)
    job.up("--model", model)
    job.apply()
    killed(job, 16)
    job.headrace("rewind", "default", "--to", "start", "--yes")
    out = job.trainer(TRAINER, **settings(job)).ended()
    assert "restored 0" in out.splitlines(), out + job.logs()
    assert sorted(stepped(out)) == list(range(n)), job.logs()


def test_the_ledger_forgets_a_damaged_checkpoint_that_is_removed(job: Any) -> None:
    """Its manifest is damaged and names no cut, so the master finds the cut by its path. The newest
    checkpoint is not removed without a warning, because a job might start over then."""
    job.write(3000)
    job.up("--model", "replicated")
    job.apply()
    killed(job, 38)
    found = json.loads(job.headrace("ckpt", "list", str(job.folder / "ckpt"), "-o", "json").stdout)
    for c in found[:2]:
        os.truncate(c["path"], 100)
        job.headrace("ckpt", "rm", c["path"], "--yes")
    kept = json.loads(job.headrace("ckpt", "list", "-o", "json").stdout)
    assert [(c["step"], c["state"]) for c in kept] == [(35, "bound"), (21, "bound")]
    assert sorted(os.listdir(job.folder / "ckpt")) == [Path(found[2]["path"]).parent.name]
    out = job.trainer(TRAINER, **settings(job)).ended()
    assert "restored 21" in out.splitlines(), out + job.logs()


def test_the_ledger_forgets_by_its_id_a_cut_whose_files_are_gone(job: Any) -> None:
    job.write(3000)
    job.up("--model", "replicated")
    job.apply()
    killed(job, 38)
    kept = json.loads(job.headrace("ckpt", "list", "-o", "json").stdout)
    assert [c["step"] for c in kept] == [35, 28, 21]
    for c in kept[:2]:
        shutil.rmtree(Path(c["path"]).parent)  # somebody removes the files without headrace
    stays = job.headrace("ckpt", "rm", kept[0]["cut"], "--yes", check=False)
    assert stays.returncode == 1
    assert f"{kept[0]['path']} stays: it is the newest that is bound" in stays.stdout
    job.headrace("ckpt", "rm", kept[1]["cut"], "--yes")
    left = json.loads(job.headrace("ckpt", "list", "-o", "json").stdout)
    assert [c["step"] for c in left] == [35, 21]
    there = job.headrace("ckpt", "rm", kept[2]["cut"], "--yes", check=False)  # the id works like the path
    assert f"{kept[2]['path']} stays: it is the newest that verifies" in there.stdout
    nobody = job.headrace("ckpt", "rm", "00000000000000aa", "--yes", check=False)
    assert "00000000000000aa: no such file or folder" in nobody.stderr
    out = job.trainer(TRAINER, **settings(job)).ended()
    assert "restored 21" in out.splitlines(), out + job.logs()
