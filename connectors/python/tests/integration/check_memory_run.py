"""When trainers fail, `headrace run` writes the checkpoints that they left in memory to storage."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from agent import poll
from headrace import _manifest as manifest
from in_memory import ROOT, memory
from seen import settings

__all__ = ["memory"]  # a fixture

# Rank 0 kills itself once. The ranks of a replicated group step together: each writes a file for each step.
KILLED_ONCE = """
import headrace, json, os, signal, sys, time
import numpy as np

cfg = json.loads(os.environ["TRAINER"])
trainer = headrace.init()
with headrace.dataset("rows").batches(50) as stream, headrace.Checkpointer(cfg["dir"], stream, memory=True) as ck:
    restored = ck.restore()
    step = restored.step if restored is not None else 0
    total = int(restored.state["total"]) if restored is not None else 0
    print("restored", step, total, restored.source if restored else "-", flush=True)
    del restored
    for b in stream:
        total += len(b)
        step = stream.step(step + 1)
        if step <= 21:
            ck.save(step, {"total": total, "w": np.full(5000, step)}, storage=False).wait_memory()
        while step == cfg["stop"] and trainer.rank != 0 and not os.path.exists(cfg["dir"] + "/killed"):
            time.sleep(0.01)  # otherwise it may train all records before rank 0 comes to its kill
        if step == cfg["stop"] and trainer.rank == 0 and os.environ["HEADRACE_ATTEMPT"] == "0":
            open(cfg["dir"] + "/killed", "x").close()
            print("kills itself", total, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        if step == cfg.get("waits"):
            print("waits", total, flush=True)  # private: less than 50 a step if the other rank has all the rest
            signal.pause()
print("end", step, total, flush=True)
"""


def running(job: Any, model: str, ranks: int, *more: str) -> tuple[int, list[str]]:
    """Writes rows, a spec and the program above. Returns the number of rows and the `headrace run` command."""
    n = job.write(60000)  # so many that one rank does not hold the rest before the other comes to its stop
    spec, program = job.folder / "rows.yaml", job.folder / "train.py"
    spec.write_text(job.spec("rows"))
    program.write_text(KILLED_ONCE)
    command = [job.binary, "run", "--model", model, "-f", str(spec), "--nproc-per-node", str(ranks), *more]
    return n, [*command, "--http", "off", "--socket", job.socket, "--", sys.executable, str(program)]


@pytest.mark.parametrize(("model", "ranks"), [("replicated", 1), ("replicated", 2), ("private", 2)])
def test_run_writes_what_a_killed_trainer_left_in_memory_before_it_starts_again(
    job: Any, memory: Path, model: str, ranks: int
) -> None:
    n, command = running(job, model, ranks, "--max-restarts", "3")
    env = {**job.env, **settings(job, n, every=100000, stop=21), ROOT: str(memory)}
    out = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
    text = out.stdout + out.stderr
    assert out.returncode == 0, text
    assert "the checkpoint of step 21 lay in memory only; it is on storage now" in text, text
    (total,) = re.findall(r"\[0\] kills itself (\d+)\n", text)
    assert f"[0] restored 21 {total} memory" in text, text
    found = manifest.find(str(job.folder / "ckpt"))
    assert all(manifest.verify(m) is None for m in found)
    assert 21 in {m.step for m in found}, [m.path for m in found]


@pytest.mark.parametrize(("model", "ranks"), [("replicated", 1), ("private", 2)])
def test_a_node_that_is_preempted_writes_what_lies_in_memory_before_it_ends(
    job: Any, memory: Path, model: str, ranks: int
) -> None:
    """`headrace run` gets SIGTERM. Then the memory of the node is lost, and storage has the last step."""
    n, command = running(job, model, ranks)

    def run(**how: Any) -> tuple[Any, Path]:
        env = {**job.env, **settings(job, n, every=100000, stop=-1, **how), ROOT: str(memory)}
        log = job.folder / f"run-{len(job.processes)}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(command, env=env, stdout=out, stderr=out)
        job.processes.append(process)
        return process, log

    process, log = run(waits=17)
    poll(lambda: log.read_text().count("] waits ") == ranks or process.poll() is not None, 600)
    process.send_signal(signal.SIGTERM)
    process.wait(600)
    text = log.read_text()
    totals = dict(re.findall(r"\[(\d)\] waits (\d+)\n", text))
    assert text.count("the checkpoint of step 17 lay in memory only; it is on storage now") == ranks, text
    found = manifest.find(str(job.folder / "ckpt"))
    assert [m.step for m in found] == [17] * ranks, text
    assert all(manifest.verify(m) is None for m in found)
    for folder in memory.iterdir():
        shutil.rmtree(folder)
    process, log = run()
    assert process.wait(600) == 0, log.read_text()
    for rank in range(ranks):
        assert f"[{rank}] restored 17 {totals[str(rank)]} storage" in log.read_text(), log.read_text()
