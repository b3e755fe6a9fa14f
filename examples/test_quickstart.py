"""The quick start with its kills, on a small log. Its report is checked: what the program claims, and
against a recount of the journals that shares no code with it.

    make test-quickstart
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from demo_run import BINARY, Run, interrupted, killed, nothing_is_lost, recount, run_of

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


def test_the_model_has_learned_and_the_drift_shows(run: Run) -> None:
    assert run.report["auc"] > 0.65
    assert run.report["over_time"][4]["auc"] > run.report["over_time"][0]["auc"]
    assert run.report["auc_after_drift"] < run.report["auc_before_drift"], "the model is not worse after the drift"


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
