"""The program that `headrace init --torch` writes runs as it is, and again from its checkpoint. Its first
run is a process that imports torch; the others are forks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from forks import Zygote


def test_the_program_that_init_writes_trains_on_every_record(binary: str, tmp_path: Path, zygote: Zygote) -> None:
    rows = 5000
    (tmp_path / "data").mkdir()
    lines = [f"u{i % 900},i{i % 400},{i % 7 / 7:.3f},{int(i % 3 == 0)}\n" for i in range(rows)]
    (tmp_path / "data" / "clicks.csv").write_text("user,item,price,label\n" + "".join(lines))
    env = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")}
    env["HEADRACE_STATE"] = str(tmp_path / "state")
    env["HEADRACE_SESSION_TTL"] = "20s"  # so long that no session ends on a slow machine

    def headrace(*args: str, status: int = 0) -> str:
        out = subprocess.run([binary, *args], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=1500)
        assert out.returncode == status, out.stdout + out.stderr
        return out.stdout + out.stderr

    headrace("init", "data/clicks.csv", "--torch")
    # Each step is saved, so also the last one, whatever its number: it is not saved again.
    program = (tmp_path / "train.py").read_text()
    assert program.count("save_every(100, ") == 1
    (tmp_path / "train.py").write_text(program.replace("save_every(100, ", "save_every(1, "))
    said = headrace("run", "-f", "clicks.yaml", "--", sys.executable, "train.py")
    assert f"end of data: {rows:,} records in this run" in said, said
    newest = max(f for f in (tmp_path / "checkpoints").iterdir() if f.name.startswith("step-"))
    assert [p.name for p in newest.glob("*.safetensors")] == ["state.safetensors"], newest
    again = headrace("run", "-f", "clicks.yaml", "--", *zygote.command("train.py"))
    assert "end of data: 0 records in this run" in again, again
    assert program.count("loss_of(model(b)") == 1
    (tmp_path / "train.py").write_text(program.replace("loss_of(model(b)", "loss_of(torch.nan * model(b)"))
    said = headrace("run", "--fresh", "-f", "clicks.yaml", "--", *zygote.command("train.py"), status=1)
    assert "batch 1: loss nan. Look at the records (headrace peek clicks), or lower lr" in said, said
    assert "Traceback" not in said
    assert newest == max(f for f in (tmp_path / "checkpoints").iterdir() if f.name.startswith("step-"))
