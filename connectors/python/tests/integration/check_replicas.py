"""Copies of checkpoints in memory on other nodes. The agents are real; a node is an agent with a
memory folder and a socket of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from headrace import _slots
from in_memory import ROOT, TRAINER, memory, of_end, restored, told
from seen import ids_of, settings

__all__ = ["memory"]  # a fixture


class Node:
    """An agent and the memory of its node."""

    def __init__(self, job: Any, memory: Path, name: str) -> None:
        self.job, self.name = job, name
        self.memory = memory / name
        self.socket = str(job.folder / f"{name}.sock")
        self.env = {ROOT: str(self.memory), "HEADRACE_AGENT": self.socket}
        self.more: tuple[str, ...] = ()
        self.within: tuple[str, ...] = ()  # the command that starts its processes
        self.agent: subprocess.Popen[Any] | None = None

    def start(self, *more: str) -> Node:
        self.memory.mkdir(mode=0o700, exist_ok=True)
        self.more = more or self.more
        log = (self.job.folder / f"agent-{self.name}.log").open("ab")
        command = [*self.within, self.job.binary, "agent", "--name", self.name, "--socket", self.socket]
        command += ["--replicas", "1", "--allow-root", str(self.job.folder), *self.more]
        self.agent = subprocess.Popen(command, env={**self.job.env, **self.env}, stdout=log, stderr=log)
        log.close()
        self.job.processes.append(self.agent)
        agent = self.agent
        until(lambda: os.path.exists(self.socket) or agent.poll() is not None, self.job)
        assert agent.poll() is None, self.job.logs()
        return self

    def kill(self) -> None:
        assert self.agent is not None
        self.agent.kill()
        self.agent.wait()

    def lose(self) -> None:
        """Loses the node, and its memory with it."""
        self.kill()
        shutil.rmtree(self.memory)

    def slots(self, kind: str) -> list[Path]:
        """The slots of one kind on this node: "rank" or "replica"."""
        return sorted(self.memory.glob(f"headrace-{os.getuid()}/*/{kind}-*-slot-?"))

    def steps(self, kind: str = "replica", rank: int = 0) -> list[int]:
        """The steps of a rank's complete slots."""
        abouts = [_slots.peek(str(p)) for p in self.slots(kind)]
        return sorted(int(a["manifest"]["step"]) for a in abouts if a is not None and a["rank"] == rank)

    def trainer(self, code: str, rank: int = 0, world: int = 1, **how: str) -> Any:
        of_group = {"HEADRACE_RANK": str(rank), "HEADRACE_WORLD_SIZE": str(world)}
        return self.job.trainer(code, within=self.within, **how, **self.env, **of_group)


def until(done: Callable[[], Any], job: Any) -> None:
    deadline = time.monotonic() + 120
    while not done():
        assert time.monotonic() < deadline, job.logs()
        time.sleep(0.01)


def start(job: Any, memory: Path, model: str, *names: str, more: tuple[str, ...] = ()) -> list[Node]:
    """Starts a master, and an agent on each node."""
    how = ["--listen", "127.0.0.1:0", "--http", "off", "--model", model, "--session-ttl", "20s"]
    job.start("master", *how, "--allow-root", str(job.folder))
    until(lambda: (job.folder / "state" / "master.addr").exists(), job)
    job.apply()
    return [Node(job, memory, name).start(*more) for name in names]


@pytest.mark.parametrize("model", ["replicated", "private"])
def test_a_rank_whose_node_was_lost_comes_back_from_another_nodes_memory(job: Any, memory: Path, model: str) -> None:
    n = job.write(5000)
    a, b = start(job, memory, model, "node-a", "node-b")
    trainer = a.trainer(TRAINER, **settings(job, n, every=1000, waits=31))
    until(lambda: 31 in b.steps(), job)
    trainer.process.kill()
    trainer.process.wait()
    (about,) = [x for p in b.slots("replica") if (x := _slots.peek(str(p))) and x["manifest"]["step"] == 31]
    a.lose()
    c = Node(job, memory, "node-c").start()
    (job.folder / "ckpt" / "go").touch()
    out = c.trainer(TRAINER, **settings(job, n, every=1000)).ended()
    line = restored(out)
    assert line[1:4] == ["31", "1550", "peer"], out + job.logs()
    assert "memory of agent node-b" in out, out
    assert len(ids_of(job, about["manifest"]["cut"])) == 1550  # and each record is there once at the end
    assert (of_end(out) == 1).all(), out


def test_a_changed_bit_in_the_copy_is_found_and_storage_is_taken(job: Any, memory: Path) -> None:
    n = job.write(5000)
    a, b = start(job, memory, "private", "node-a", "node-b")
    trainer = a.trainer(TRAINER, **settings(job, n, every=10, waits=31))
    until(lambda: 31 in b.steps(), job)
    trainer.process.kill()
    trainer.process.wait()
    a.lose()
    for path in b.slots("replica"):
        with path.open("r+b") as slot:
            slot.seek(4096 + 4096 + 100)
            slot.write(b"\xff")
    (job.folder / "ckpt" / "go").touch()
    out = b.trainer(TRAINER, **settings(job, n, every=1000)).ended()
    line = restored(out)
    assert line[1:4] == ["30", "1500", "storage"], out + job.logs()
    assert (of_end(out) == 1).all(), out


# A rank of a replicated group. All ranks step together: each writes a file for each step. They wait at step `waits`.
GROUP = """
import headrace, json, os, signal, time
import numpy as np

cfg = json.loads(os.environ["TRAINER"])
trainer = headrace.init()
rows = headrace.dataset("rows")
with rows.batches(50, rounds=False) as stream, headrace.Checkpointer(cfg["dir"], stream, memory=True) as ck:
    restored = ck.restore()
    step = restored.step if restored is not None else 0
    total = int(restored.state["total"]) if restored is not None else 0
    if restored is not None:
        assert (restored.state["w"] == step).all()
    print("restored", step, total, *((restored.source, restored.why) if restored else ("-",)), flush=True)
    del restored
    batches = iter(stream)
    while step < cfg["steps"]:
        total += len(next(batches))
        step = stream.step(step + 1)
        w = np.full(50000, step)
        saved = ck.save(step, {"total": total, "w": w}, storage=False)
        w[:] = -1
        saved.wait_memory()
        open(f"{cfg['dir']}/{cfg['life']}-{step}-{trainer.rank}", "w").close()
        while not os.path.exists(f"{cfg['dir']}/{cfg['life']}-{step}-{1 - trainer.rank}"):
            time.sleep(0.002)
    print("saved", step, flush=True)
    if cfg["stays"]:
        signal.pause()
print("end", step, flush=True)
"""


def test_a_group_goes_on_from_memory_when_one_of_its_nodes_was_lost(job: Any, memory: Path) -> None:
    """All ranks have the same state, so the lost rank takes the copy of a rank that still runs."""
    job.write(20000)
    (job.folder / "ckpt").mkdir()
    a, b = start(job, memory, "replicated", "node-a", "node-b")

    def group(nodes: list[Node], life: int, steps: int, stays: bool) -> list[Any]:
        how = settings(job, 0, life=life, steps=steps, stays=stays)
        return [node.trainer(GROUP, rank, 2, **how) for rank, node in enumerate(nodes)]

    ranks = group([a, b], 0, 30, True)
    for rank in ranks:
        told(rank, "saved 30")
    until(lambda: 30 in b.steps() and 30 in a.steps(rank=1), job)
    ranks[0].process.kill()
    a.lose()
    ranks[1].process.kill()
    ranks[1].process.wait()
    c = Node(job, memory, "node-c").start()
    out = [r.ended() for r in group([c, b], 1, 40, False)]
    assert restored(out[0])[1:4] == ["30", "1500", "peer"], out
    assert restored(out[1])[1:4] == ["30", "1500", "memory"], out
    assert all("end 40" in o for o in out), out


def test_a_receiver_that_is_killed_in_mid_copy_costs_nothing_and_leaves_nothing_torn(job: Any, memory: Path) -> None:
    n = job.write(5000)
    a, b = start(job, memory, "private", "node-a", "node-b", more=("--replica-bandwidth", "64KiB"))
    trainer = a.trainer(TRAINER, **settings(job, n, every=1000, waits=60))
    # The state has 360 KB, so a copy takes 5.6 s. One copy is complete, and the next one is under way.
    until(lambda: b.steps() and len(b.slots("replica")) == 2 and len(b.steps()) == 1, job)
    b.kill()
    whole = b.steps()
    assert len(whole) == 1
    told(trainer, "saved 60")  # the trainer goes on
    assert b.steps() == whole
    b.start()
    until(lambda: 60 in b.steps(), job)

    def shown() -> list[Any]:
        views = json.loads(job.headrace("ckpt", "list", str(job.folder / "ckpt"), "-o", "json").stdout)
        return [(v["state"], v.get("node"), v["step"]) for v in views]

    until(lambda: ("replica", "node-b", 60) in shown(), job)  # agents tell the master each second
    trainer.process.kill()
    trainer.process.wait()
    a.lose()
    (job.folder / "ckpt" / "go").touch()
    out = b.trainer(TRAINER, **settings(job, n, every=1000)).ended()
    assert restored(out)[1:3] == ["60", "3000"], out + job.logs()
    assert (of_end(out) == 1).all(), out


def test_a_job_that_ends_as_it_should_leaves_no_copies(job: Any, memory: Path) -> None:
    n = job.write(2000)
    a, b = start(job, memory, "private", "node-a", "node-b")
    out = a.trainer(TRAINER, **settings(job, n, every=1000)).ended()
    assert (of_end(out) == 1).all(), out
    until(lambda: not b.slots("replica"), job)


def test_an_agent_that_has_no_room_is_passed_over_and_the_trainer_does_not_notice(job: Any, memory: Path) -> None:
    """node-b has a tmpfs of 64 KiB; the copies go to node-c."""
    if os.getuid() != 0:
        pytest.fail("a tmpfs of its own needs root: run this file as root", pytrace=False)
    n = job.write(5000)
    small = memory / "node-b"
    small.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", str(small)], check=True)
    try:
        a, _, c = start(job, memory, "private", "node-a", "node-b", "node-c")
        trainer = a.trainer(TRAINER, **settings(job, n, every=1000, waits=31))
        until(lambda: 31 in c.steps(), job)
        told(trainer, "saved 31")
        assert "there is no room in memory" in (job.folder / "agent-node-a.log").read_text()
    finally:
        job.stop()
        subprocess.run(["umount", str(small)], check=True)


@pytest.mark.parametrize("model", ["replicated", "private"])
def test_going_back_to_a_copy_older_than_the_newest_restores_its_own_records(
    job: Any, memory: Path, model: str
) -> None:
    """The master has forgotten the cut of the copy, because newer checkpoints were in the lost memory."""
    n = job.write(10000)
    a, b = start(job, memory, model, "node-a", "node-b")
    trainer = a.trainer(TRAINER, **settings(job, n, every=1000, waits=20, stop=150))
    until(lambda: b.steps()[-1:] == [20], job)
    b.kill()  # so that it gets no copy of the newer ones
    (job.folder / "ckpt" / "go").touch()
    assert "saved 150" in trainer.ended()
    a.lose()
    b.start()
    out = b.trainer(TRAINER, **settings(job, n, every=1000)).ended()
    # Node b's own agent keeps the copy, so nothing is fetched from a peer.
    assert restored(out)[1:3] == ["20", "1000"], out + job.logs()
    assert (of_end(out) == 1).all(), out
