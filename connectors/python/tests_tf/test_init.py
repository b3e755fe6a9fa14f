"""The program that `headrace init --tf` writes runs as it is, and again from its checkpoint."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_the_program_that_init_writes_trains_on_every_record(binary: str, tmp_path: Path) -> None:
    rows = 5000
    (tmp_path / "data").mkdir()
    lines = [f"u{i % 900},i{i % 400},{i % 7 / 7:.3f},{int(i % 3 == 0)}\n" for i in range(rows)]
    (tmp_path / "data" / "clicks.csv").write_text("user,item,price,label\n" + "".join(lines))
    env = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")}
    env["TF_CPP_MIN_LOG_LEVEL"] = "2"
    env["HEADRACE_STATE"] = str(tmp_path / "state")

    def headrace(*args: str, status: int = 0) -> str:
        out = subprocess.run([binary, *args], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=900)
        assert out.returncode == status, out.stdout + out.stderr
        return out.stdout + out.stderr

    headrace("init", "data/clicks.csv", "--tf")
    said = headrace("run", "-f", "clicks.yaml", "--", sys.executable, "train.py")
    assert "end of data: 5 batches are in the model" in said, said
    assert len(list((tmp_path / "checkpoints").iterdir())) == 1
    again = headrace("run", "-f", "clicks.yaml", "--", sys.executable, "train.py")
    assert "end of data: 5 batches are in the model" in again, again
    saved = list((tmp_path / "checkpoints").iterdir())
    program = (tmp_path / "train.py").read_text()
    assert program.count("label = tf.cast(") == 1
    (tmp_path / "train.py").write_text(program.replace("label = tf.cast(", "label = float('nan') * tf.cast("))
    said = headrace("run", "--fresh", "-f", "clicks.yaml", "--", sys.executable, "train.py", status=1)
    assert "the loss is nan after step 0" in said, said
    assert "headrace peek clicks" in said
    assert "Traceback" not in said
    assert list((tmp_path / "checkpoints").iterdir()) == saved
