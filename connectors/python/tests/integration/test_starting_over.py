"""Processes that start over without a checkpoint, and one that comes back without its group."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
from agent import poll


@pytest.mark.parametrize("model", ["private", "replicated"])
@pytest.mark.parametrize("who", ["process", "dataset"])
def test_a_process_that_starts_over_gets_everything(
    job: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, who: str
) -> None:
    n = job.write(1000)
    job.up("--model", model)
    job.apply()
    with headrace.dataset("rows").batches(50) as stream, headrace.Checkpointer(tmp_path, stream) as ck:
        next(stream)
        ck.save(stream.step(), {}).wait(300)
    headrace.shutdown()
    if who == "process":
        monkeypatch.setenv("HEADRACE_RESUME", "start")
    else:
        job.apply(more="resume: start\n")
    with headrace.dataset("rows").batches(50) as stream:
        ids = []
        for b in stream:
            ids += b["id"].tolist()
            stream.step()
    assert sorted(ids) == list(range(n))


def test_the_resume_of_a_process_overrides_that_of_its_dataset(
    job: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = job.write(1000)
    job.up("--model", "replicated")
    job.apply(more="resume: start\n")
    monkeypatch.setenv("HEADRACE_RESUME", "bound")
    for first in (True, False):
        with headrace.dataset("rows").batches(50) as stream, headrace.Checkpointer(tmp_path, stream) as ck:
            if not first:
                with pytest.raises(headrace.RestoreNeeded):
                    next(stream)
            restored = ck.restore()
            ids = [] if restored is None else restored.state["ids"].tolist()
            for b in stream:
                ids += b["id"].tolist()
                step = stream.step()
                if first:
                    ck.save(step, {"ids": np.array(ids)}).wait(300)
                    break
        headrace.shutdown()
    assert sorted(ids) == list(range(n))


@pytest.mark.parametrize(("resume", "wrong"), [("acked", "ends with its processes"), ("never", "resume")])
def test_an_impossible_resume_is_refused_when_its_dataset_is_applied(job: Any, resume: str, wrong: str) -> None:
    job.write(10)
    job.up("--model", "replicated")
    with pytest.raises(Exception, match=wrong):
        job.apply(more=f"resume: {resume}\n")


# One rank of a group that is started by hand, so no launcher ends it when another rank dies.
BY_HAND = """
import headrace, numpy as np, os, time

folder = os.environ["FOLDER"]
stream = headrace.dataset("rows").batches(10)
with stream, headrace.Checkpointer(folder + "/ckpt", stream) as ck:
    restored = ck.restore()
    step = restored.step if restored is not None else 0
    print("restored", step, flush=True)
    try:
        for b in stream:
            step = stream.step(step + 1)
            if step == 5:
                ck.save(step, {"w": np.zeros(1)}).wait()
                print("saved", flush=True)
            while step == 8 and not os.path.exists(folder + "/go"):
                time.sleep(0.01)
                headrace.init().check()
    except headrace.Fenced as error:
        os.write(1, f"fenced: {error}\\n".encode())
        os._exit(3)
print("end", flush=True)
"""


def test_a_rank_that_comes_alone_is_told_to_restart_with_the_others(job: Any) -> None:
    job.write(4000)
    job.up("--model", "replicated")
    job.apply()

    def start(rank: int) -> Any:
        return job.trainer(BY_HAND, FOLDER=str(job.folder), HEADRACE_RANK=str(rank), HEADRACE_WORLD_SIZE="2")

    first = [start(0), start(1)]
    for rank in first:
        rank.printed(2)  # by now it has saved
    first[1].process.kill()
    out = first[0].ended()
    # It learns this from the loss of rank 1, or from a refused ack.
    assert "fenced: this process is not of the group any more: " in out
    alone = start(1)  # without rank 0
    says = (
        "rows: next() waits: it waits until all 2 ranks have joined and restored. Ranks that are started by hand "
        "restart together: end those that still run, then start all"
    )
    poll(lambda: says in alone.log.read_text())
    assert "restored 5" in alone.log.read_text()
    (job.folder / "go").touch()
    other = start(0)
    for rank in (alone, other):
        assert "end" in rank.ended().splitlines(), job.logs()
