"""An input without an end falls silent. All that was trained comes into a checkpoint, although no
batch follows. A kill in the silence repeats nothing, and records after it are in the model once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorflow_estimator", reason="only TensorFlow 2.15 has Estimator")
from by_hand import PROGRAM, ByHand, apply_without_end, await_records, bound, drop
from test_estimator import check_bound, ended

FIRST, MORE = 210, 50  # with 20 rows a batch, both end with a short batch
ARGS = [f"--records={FIRST + MORE}", "--max-wait=0.5"]
WHEN = {"by seconds": ["--seconds=3"], "by steps": ["--every=1000"]}
SILENT = {"SILENT_SECONDS": "0.5"}


@pytest.fixture
def work(job: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A job whose folder grows."""
    job.work = Path(job.folder) / "work"
    (job.work / "model").mkdir(parents=True)
    monkeypatch.chdir(job.work)
    (job.work / "fast").touch()
    drop(job, 0, FIRST)
    return job


def start(job: Any, *args: str) -> Any:
    argv = [str(PROGRAM), *ARGS, *args]
    code = f"import sys, runpy; sys.argv = {argv!r}; runpy.run_path(sys.argv[0], run_name='__main__')"
    return job.trainer(code, **SILENT)


def saved(job: Any, records: int) -> None:
    await_records(job, records, lambda: bound(job.work))


@pytest.mark.parametrize("args", [*WHEN.values(), ["--every=1000", "--prefetch=8"]], ids=[*WHEN, "pulled ahead"])
def test_one_process(work: Any, args: list[str]) -> None:
    work.up("--model", "replicated")
    apply_without_end(work)
    trainer = start(work, *args)
    saved(work, FIRST)
    trainer.process.kill()
    trainer.process.wait()
    trainer = start(work, *args)
    drop(work, FIRST, FIRST + MORE)
    saved(work, FIRST + MORE)
    assert "begins after 11 storage" in trainer.log.read_text(), work.logs()
    check_bound(work)


@pytest.mark.parametrize("when", WHEN)
def test_a_cluster(work: Any, when: str) -> None:
    work.up("--model", "shared")
    apply_without_end(work)
    kinds = ("ps", "chief", "worker")
    tasks = ByHand(work, [*ARGS, *WHEN[when]], ps=1, chief=1, worker=1)
    first = [tasks.start(kind, **SILENT) for kind in kinds]
    saved(work, FIRST)
    for task in first:
        task.process.kill()
        task.process.wait()
    again = [tasks.start(kind, **SILENT) for kind in kinds]
    drop(work, FIRST, FIRST + MORE)
    saved(work, FIRST + MORE)
    assert re.search(r"begins after \d+ storage", again[1].log.read_text()), work.logs()
    check_bound(work)


def test_a_dataset_that_ends_before_its_input_does_not_wait_for_it(work: Any) -> None:
    work.up("--model", "replicated")
    apply_without_end(work)
    trained = ended(start(work, "--every=1000", "--take=11"))
    assert (trained["step"], trained["records"]) == (11, FIRST)
