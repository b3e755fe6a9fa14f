"""The quick start with its kills, on a small log. Its report is checked: what the program claims, and
against a recount of the journals that shares no code with it.

    make test-quickstart
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from demo_run import BINARY, Run, click_trainer, interrupted, killed, nothing_is_lost, recount, run_of

RECORDS = 900_000  # 19 s at 46,500/s on any machine: three kills take at most 6 s each
KILLS = ["trainer", "agent", "master"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_of(tmp_path_factory.mktemp("quickstart"), RECORDS, KILLS)


def test_the_first_line_says_what_is_to_come(run: Run) -> None:
    assert "A trainer, an agent and the master will be killed" in run.output.splitlines()[0]


def test_no_record_is_lost_and_each_repeat_has_its_reason(run: Run) -> None:
    nothing_is_lost(run.report, run.records)


def test_a_trainer_an_agent_and_the_master_were_killed(run: Run) -> None:
    assert killed(run.report) == KILLS
    assert set(run.report["release_ms"]) >= set(KILLS)
    for what, ms in run.report["release_ms"].items():
        assert ms is None or ms > 0, what  # None: no other trainer needed its rows
    assert run.output.count("SIGKILL to") == 3


def test_each_trainer_did_what_its_pace_allows(run: Run) -> None:
    share = run.report["worker_share"]
    assert set(share) == {"0", "1", "2", "3"}
    assert sum(share.values()) == pytest.approx(1)
    assert share["3"] < min(share["0"], share["1"], share["2"])
    assert run.report["makespan_ratio"] > 0.99


def test_the_model_has_learned(run: Run) -> None:
    # A trainer that waits for a CPU in the instant of its write undoes what others learned meanwhile. On a busy
    # machine that may spoil some tenths of the run, but not all ten.
    assert max(tenth["auc"] for tenth in run.report["over_time"]) > 0.65


def test_one_trainer_learns_the_log_in_its_order_and_the_drift_shows(run: Run) -> None:
    manifest = json.loads((run.folder / "run" / "truth" / "manifest.json").read_text())
    before, after, batch = 51_200, 5_120, 512
    lines: list[str] = []
    for f in manifest["files"]:
        text = (run.folder / "run" / "log" / f["name"]).read_text().splitlines()
        first = manifest["drift"] - before - f["first"]
        lines += text[max(first, 0) : max(first + before + after, 0)]
    assert len(lines) == before + after

    model = click_trainer().SharedModel(str(run.folder / "model"))
    p, labels = [], []
    for at in range(0, len(lines), batch):
        rows = [line.split("\t") for line in lines[at : at + batch]]
        label = np.array([row[0] for row in rows], np.int64)
        dense = np.array([[v or "-1" for v in row[1:14]] for row in rows], np.int64)
        cat = np.array([[zlib.crc32(v.encode()) % (1 << 15) for v in row[14:]] for row in rows])
        p.append(model.learn(dense, cat, label))
        labels.append(label)
    last = auc(np.concatenate(p)[before - after : before], np.concatenate(labels)[before - after : before])
    drifted = auc(np.concatenate(p)[before:], np.concatenate(labels)[before:])
    assert last > 0.65
    assert drifted < last - 0.02, "the model is not worse after the drift"


def auc(p: np.ndarray, label: np.ndarray) -> float:
    """The share of (click, no click) pairs that are ranked right; there are no ties."""
    rank = np.argsort(np.argsort(p)) + 1
    clicks = int(label.sum())
    return float((rank[label == 1].sum() - clicks * (clicks + 1) / 2) / (clicks * (len(p) - clicks)))


def test_the_last_line_is_the_next_command(run: Run) -> None:
    assert "headrace init " in run.output.strip().splitlines()[-1]


def test_a_recount_of_the_journals_agrees(run: Run) -> None:
    truth = run.folder / "run" / "truth"
    manifest = json.loads((truth / "manifest.json").read_text())
    entry = np.dtype([("offset", "<i8"), ("check", "<u8"), ("label", "u1")])
    names = [f["name"] for f in manifest["files"]]
    offsets = {name: np.fromfile(truth / f"{name}.truth", entry)["offset"] for name in names}
    first = {f["name"]: f["first"] for f in manifest["files"]}

    def numbers(name: str, at: np.ndarray) -> np.ndarray:
        file = os.path.basename(name)
        return np.searchsorted(offsets[file], at) + first[file]

    counted = recount(run.folder / "run" / "journals", run.records, numbers)
    counted.agrees_with(run.report)
    assert int(np.maximum(counted.yielded - 1, 0).sum()) == run.report["redelivered"]


BEFORE_TRAINERS = ["Headrace:", "writing a click log"]
STAGES = [*BEFORE_TRAINERS, "two on each agent", "SIGKILL to trainer-1", "SIGKILL to the master"]


@pytest.mark.parametrize("stage", STAGES)
def test_an_interrupt_leaves_no_process_and_no_file(tmp_path: Path, stage: str) -> None:
    interrupted(tmp_path, stage, "--records", str(RECORDS), trains=stage not in BEFORE_TRAINERS)


def test_a_python_without_the_package_gets_told_what_to_install(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    command = [str(BINARY), "demo", "--dir", str(tmp_path / "run"), "--python", str(python)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300,
                          env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"})
    assert done.returncode != 0
    assert "pip install headrace" in done.stdout + done.stderr
