"""examples/flink_clicks: each joined row is trained on once, with a kill of Flink's task manager."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "flink_clicks"


def test_each_joined_row_is_trained_on_once(folder: str) -> None:
    """A job that has ended before the kill proves too little, so the next one is larger."""
    for impressions in (8_000, 32_000, 128_000):
        command = [sys.executable, str(EXAMPLE / "run.py"), "--flink", os.environ["HEADRACE_FLINK"], "--kill"]
        command += ["--folder", f"{folder}/{impressions}", "--impressions", str(impressions)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=1500)
        if done.returncode != 2:
            break
        assert "the job has ended too early" in done.stdout
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
    lines = {line[:15].strip(): line[15:].strip() for line in done.stdout.splitlines()}
    assert lines["trained on once"] == f"{impressions:,}"
    assert "kill -9 of the task manager" in done.stdout
    assert "the trainer learns while the job is " in done.stdout
