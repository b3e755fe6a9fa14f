"""examples/checkpoint: ranks are killed, and the model has each record once.

    make test-quickstart
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
BINARY = Path(os.environ.get("HEADRACE_BIN", ROOT / "build" / "headrace"))
HERE = ROOT / "examples" / "checkpoint"


def mix(ids: np.ndarray) -> np.ndarray:
    spec = importlib.util.spec_from_file_location("train", HERE / "train.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.mix(ids)


def trainers(run: subprocess.Popen) -> list[int]:
    """The processes that `headrace run` has started."""
    children = Path(f"/proc/{run.pid}/task")
    pids: list[int] = []
    for task in children.iterdir():
        pids += [int(p) for p in (task / "children").read_text().split()]
    return pids


def saved(folder: Path) -> int:
    """The step of the newest checkpoint, 0 without one."""
    manifests = folder.glob("checkpoints/step-*/headrace-manifest.json")
    return max((int(m.parent.name.split("-")[1]) for m in manifests), default=0)


KILLS = 4


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("more", [(), ("--sharded",)], ids=["rank 0 saves", "sharded"])
def test_ranks_that_are_killed_repeat_nothing_in_the_model(tmp_path: Path, more: tuple[str, ...]) -> None:
    seed = int(os.environ.get("HEADRACE_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"HEADRACE_SEED={seed}")
    rng = random.Random(seed)
    for attempt in range(5):  # a job that ends before the last kill is right too; then another begins
        folder = tmp_path / str(attempt)
        folder.mkdir()
        if trained(folder, more, rng) == KILLS:
            return
    pytest.fail("five jobs have ended before they were killed four times")


def trained(folder: Path, more: tuple[str, ...], rng: random.Random) -> int:
    """Runs a job whose ranks are killed, up to KILLS times, and checks its end. Returns the number of kills."""
    records = 40_000
    data = folder / "data"
    data.mkdir()
    for f in range(4):
        rows = range(f, records, 4)
        (data / f"{f}.tsv").write_text("".join(f"{i}\t{i % 100 / 100}\t{i % 100 / 50 + 1}\n" for i in rows))
    (folder / "numbers.yaml").write_text((HERE / "numbers.yaml").read_text())
    env = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")}
    env.update(HEADRACE_STATE=str(folder / "state"), HEADRACE_SESSION_TTL="20s")
    command = [str(BINARY), "run", "--model", "replicated", "--nproc-per-node", "3", "--max-restarts", "50",
               "-f", "numbers.yaml", "--", sys.executable, str(HERE / "train.py"), "--every", "10", "--pause", "0.03",
               *more]
    log, end = folder / "log", time.monotonic() + 600  # later it hangs
    kills, before = 0, 0
    with log.open("wb") as out:
        run = subprocess.Popen(command, cwd=folder, env=env, stdout=out, stderr=out)
    try:
        while run.poll() is None:
            assert time.monotonic() < end, log.read_text()[-4000:]
            time.sleep(0.05)
            # Kill when the group has begun and has a newer checkpoint than at the last kill. That is a few of its
            # 200 steps later, and each step has a pause.
            begun = log.read_text().count("begins after") >= 3 * (kills + 1)
            if kills < KILLS and begun and (newest := saved(folder)) > before:
                time.sleep(rng.uniform(0, 0.3))
                with contextlib.suppress(ProcessLookupError):
                    for victim in (alive := trainers(run)) and rng.sample(alive, 1):
                        os.kill(victim, signal.SIGKILL)
                        kills, before = kills + 1, newest
    finally:
        run.kill()
        run.wait()
    text = log.read_text()
    assert run.returncode == 0, text[-4000:]
    ends = re.findall(r"rank (\d) ends: step \d+ records (\d+) checksum (\w+)", text)
    want = int(mix(np.arange(records)).sum(dtype=np.uint64))
    assert sorted(ends[-3:]) == [(str(r), str(records), f"{want:016x}") for r in range(3)], text[-4000:]
    behind = [int(n) for n in re.findall(r"begins after step (\d+)", text)]
    assert kills == 0 or max(behind) > 0, "no checkpoint was restored"
    return kills
