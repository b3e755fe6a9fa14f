"""The quick start with its kills, small, and its report checked: against what the
program claims, and against a recount of the journals that shares no code with it.

    make test-quickstart
"""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
BINARY = Path(os.environ.get("HEADRACE_BIN", ROOT / "build" / "headrace"))
RECORDS = 600_000  # 13 s at 46,500/s: time for three kills


class Run(NamedTuple):
    folder: Path
    report: dict
    output: str
    first_line_seconds: float
    seconds: float


def demo(folder: Path, *flags: str) -> list[str]:
    return [str(BINARY), "demo", "--dir", str(folder / "run"), "--report", str(folder / "report.json"),
            "--python", sys.executable, *flags]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("quickstart")
    start = time.monotonic()
    with subprocess.Popen(demo(folder, "--records", str(RECORDS), "--keep"), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout
        first = process.stdout.readline()
        first_line_seconds = time.monotonic() - start
        output = first + process.stdout.read()
    print(output)
    assert process.returncode == 0, output
    return Run(folder, json.loads((folder / "report.json").read_text()), output, first_line_seconds,
               time.monotonic() - start)


def test_the_first_line_comes_at_once_and_the_end_within_two_minutes(run: Run) -> None:
    assert run.first_line_seconds < 5
    assert run.seconds < 120


def test_no_record_is_lost_and_each_repeat_has_its_reason(run: Run) -> None:
    r = run.report
    assert r["records"] == RECORDS
    assert r["never"] == 0
    assert r["foreign"] == 0
    assert r["applied_once"] + r["applied_twice"] == RECORDS
    assert r["twice_unexplained"] == 0
    # A trainer dies once, with one batch in hand and a step or two on their way.
    assert r["applied_twice"] <= 4 * r["batch_rows"]


def test_a_trainer_an_agent_and_the_master_were_killed(run: Run) -> None:
    assert [k["what"] for k in run.report["kills"]] == ["trainer", "agent", "master"]
    assert set(run.report["release_ms"]) == {"trainer", "agent", "master"}
    for what, ms in run.report["release_ms"].items():
        assert ms is None or 0 < ms < 5_500, f"{what}: within the session TTL and 500 ms"
    assert run.output.count("SIGKILL to") == 3


def test_each_trainer_did_what_its_pace_allows(run: Run) -> None:
    share = run.report["worker_share"]
    assert set(share) == {"0", "1", "2", "3"}
    assert sum(share.values()) == pytest.approx(1)
    assert share["3"] < 0.1 < min(share["0"], share["1"], share["2"])
    assert run.report["makespan_ratio"] > 0.99


def test_the_model_has_learned_and_the_drift_shows(run: Run) -> None:
    assert run.report["auc"] > 0.65
    assert run.report["over_time"][4]["auc"] > run.report["over_time"][0]["auc"]
    assert run.report["auc_after_drift"] < run.report["auc_before_drift"], "the world changes half way"


def test_the_last_line_is_the_next_command(run: Run) -> None:
    assert "headrace run --nproc-per-node 2 -f" in run.output.strip().splitlines()[-1]


def entries(path: Path) -> Iterator[tuple[int, int, int, bytes]]:
    """(kind, number, rows, payload) of each whole entry of a journal."""
    raw = path.read_bytes()
    at = 0
    while len(raw) - at >= 36:
        magic, kind, number, _, rows, size = struct.unpack_from("<4sIQqII", raw, at)
        assert magic == b"HRJ1"
        end = at + 32 + size
        if end + 4 > len(raw):
            return
        assert zlib.crc32(raw[at:end]) == struct.unpack_from("<I", raw, end)[0]
        yield kind, number, rows, raw[at + 32 : end]
        at = end + 4


def test_a_recount_of_the_journals_agrees(run: Run) -> None:
    truth = run.folder / "run" / "truth"
    manifest = json.loads((truth / "manifest.json").read_text())
    entry = np.dtype([("offset", "<i8"), ("check", "<u8"), ("label", "u1")])
    names_of_files = [f["name"] for f in manifest["files"]]
    offsets = {name: np.fromfile(truth / f"{name}.truth", entry)["offset"] for name in names_of_files}
    first = {f["name"]: f["first"] for f in manifest["files"]}
    yielded, sure, doubt = (np.zeros(RECORDS, int) for _ in range(3))
    for path in (run.folder / "run" / "journals").glob("*.journal"):
        names: dict[int, str] = {}
        hand, begun = np.empty(0, int), False
        for kind, _, rows, payload in entries(path):
            if kind == 3:
                said = json.loads(payload)
                names[said["segment"]] = os.path.basename(said["name"])
            elif kind == 4:
                runs, _ = struct.unpack_from("<II", payload)
                where = np.frombuffer(payload, "<i8", 2 * runs, 8).reshape(runs, 2)
                at = np.frombuffer(payload, "<i8", rows, 8 + 16 * runs)
                cuts = np.split(at, np.cumsum(where[:, 1])[:-1])
                hand = np.concatenate([
                    np.searchsorted(offsets[names[s]], part) + first[names[s]]
                    for (s, _), part in zip(where.tolist(), cuts)
                ])
                np.add.at(yielded, hand, 1)
            elif kind == 5:
                begun = True
            elif kind == 6:
                np.add.at(sure, hand, 1)
                begun = False
        if begun:
            np.add.at(doubt, hand, 1)
    r = run.report
    assert int((sure == 0).sum()) == r["never"]
    assert int(((sure == 1) & (doubt == 0)).sum()) == r["applied_once"]
    assert int(((sure > 0) & (sure + doubt > 1)).sum()) == r["applied_twice"]
    assert int(np.maximum(yielded - 1, 0).sum()) == r["redelivered"]


def processes_of(folder: Path) -> list[str]:
    """Command lines that name the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue  # it has just ended
        if str(folder) in line:
            found.append(line)
    return found


STAGES = ["Headrace:", "writing a click log", "two on each agent", "SIGKILL to trainer-1", "SIGKILL to the master"]


@pytest.mark.parametrize("stage", STAGES)
def test_an_interrupt_leaves_no_process_and_no_file(tmp_path: Path, stage: str) -> None:
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    models = set(Path("/dev/shm").glob("headrace-demo-*"))
    with subprocess.Popen(demo(tmp_path, "--records", "300000"), stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.STDOUT, env={**os.environ, "TMPDIR": str(scratch)}) as process:
        assert process.stdout
        seen = next((line for line in process.stdout if stage in line), None)
        assert seen, f"it ended before {stage!r}"
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=30)
    assert process.returncode != 0
    assert "interrupted" in output
    assert processes_of(tmp_path) == []
    assert not (tmp_path / "run").exists(), "the run's folder"
    assert list(scratch.iterdir()) == [], "sockets"
    assert set(Path("/dev/shm").glob("headrace-demo-*")) == models


def test_a_python_without_the_package_gets_told_what_to_install(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    command = [str(BINARY), "demo", "--dir", str(tmp_path / "run"), "--python", str(python)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30,
                          env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"})
    assert done.returncode != 0
    assert "pip install headrace" in done.stdout + done.stderr
