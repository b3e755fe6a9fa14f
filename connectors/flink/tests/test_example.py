"""examples/flink_clicks: each joined row is trained on once, with a kill of Flink's task manager."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "flink_clicks"


def test_each_joined_row_is_trained_on_once(folder: str) -> None:
    command = [sys.executable, str(EXAMPLE / "run.py"), "--flink", os.environ["HEADRACE_FLINK"], "--folder", folder]
    done = subprocess.run([*command, "--impressions", "8000", "--kill"], capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
    lines = {line[:15].strip(): line[15:].strip() for line in done.stdout.splitlines()}
    assert lines["trained on once"] == "8,000"
    assert "kill -9 of the task manager" in done.stdout
    assert "the trainer learns while the job is RUNNING" in done.stdout
