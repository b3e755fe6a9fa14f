"""A whole job with a shared model is killed and started again at once. The processes that were killed
do not delay or prevent the restore."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from agent import poll
from headrace import _manifest as manifest
from ports import free_port
from seen import ids_of

TRAINER = """
import headrace, json, logging, os, time

logging.basicConfig()
cfg = json.loads(os.environ["TRAINER"])
with headrace.dataset("rows").batches(50) as stream, headrace.Checkpointer(cfg["dir"], stream) as ck:
    restored = ck.restore()
    print("restored", restored and restored.path, flush=True)
    step = 0 if restored is None else restored.step
    for b in stream:
        step = stream.step(step + 1)
        print("ids", *b["id"].tolist(), flush=True)
        if cfg["saves"] and step == 5:
            ck.save(step, {}).wait()
            print("saved", flush=True)
        if step == cfg.get("stop"):  # with the next batches in hand
            print("stops", flush=True)
            while not os.path.exists(cfg["go"]):
                time.sleep(0.01)
"""


def trainer(job: Any, rank: int, **cfg: Any) -> Any:
    cfg = {"dir": str(job.folder / "ckpt"), "saves": False, "go": str(job.folder / "go"), **cfg}
    return job.trainer(TRAINER, TRAINER=json.dumps(cfg), RANK=str(rank), WORLD_SIZE="2")


@pytest.mark.parametrize("again", ["a1", "a2"], ids=["on the same node", "on another node"])
def test_a_job_that_was_killed_as_a_whole_and_starts_again_at_once_restores(job: Any, again: str) -> None:
    n = job.write(20_000)
    roots = ("--allow-root", str(job.folder))
    ttl = "20s" if again == "a1" else "10s"  # on another node the job waits until the session of the first agent ends
    job.env["HEADRACE_LISTEN"] = f"127.0.0.1:{free_port()}"
    job.start("master", "--model", "shared", "--http", "off", "--session-ttl", ttl, *roots)
    address = job.folder / "state" / "master.addr"
    poll(address.exists)
    job.env["HEADRACE_LISTEN"] = address.read_text().split()[0]
    job.apply()
    agent = job.start("agent", "--name", "a1", "--socket", job.socket, *roots)
    job.await_socket(agent)
    trainers = [trainer(job, 0, saves=True, stop=7), trainer(job, 1, stop=5)]
    for t in trainers:
        poll(lambda t=t: "stops" in t.log.read_text())
    for process in (agent, *(t.process for t in trainers)):
        os.kill(process.pid, signal.SIGKILL)
    for process in (agent, *(t.process for t in trainers)):
        process.wait(50)

    Path(job.socket).unlink(missing_ok=True)
    job.await_socket(job.start("agent", "--name", again, "--socket", job.socket, *roots))
    out = trainer(job, 0).ended()
    (saved,) = manifest.find(str(job.folder / "ckpt"))
    assert f"restored {saved.folder}\n" in out, out + job.logs()
    ids = sorted(int(i) for line in out.splitlines() if line.startswith("ids ") for i in line.split()[1:])
    assert ids == sorted(set(range(n)) - set(ids_of(job, saved.cut).tolist()))


def test_while_other_trainers_still_run_nothing_is_restored(job: Any) -> None:
    job.write(20_000)
    job.up("--model", "shared")
    job.apply()
    saver, other = trainer(job, 0, saves=True, stop=7), trainer(job, 1, stop=5)
    for t in (saver, other):
        poll(lambda t=t: "stops" in t.log.read_text())
    saver.process.kill()
    saver.process.wait(50)
    again = trainer(job, 0)
    poll(lambda: "restored" in again.log.read_text())
    (job.folder / "go").touch()
    out = again.ended()
    assert "restored None\n" in out, out + job.logs()
    assert "is not restored: the model outlives its workers" in out
    assert other.process.wait(300) == 0, other.log.read_text()
