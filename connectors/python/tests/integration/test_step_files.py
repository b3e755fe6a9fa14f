"""Stepped batches stay stepped, whichever processes of a node are killed (guarantee 5)."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
from collections import Counter
from typing import Any

import pytest
from agent import poll
from ports import free_port

ROWS = 6000
STEPS = 40

# Steps some batches one at a time, then waits, or goes on to the end.
TRAINER = """
import os, signal, sys, headrace
most, ends = int(os.environ.get("MOST", 1 << 30)), os.environ.get("ENDS")
stream = headrace.dataset("rows").batches(16)
n = 0
for batch in stream:
    ids = batch["id"].tolist()
    stream.step()
    os.write(1, (" ".join(map(str, ids)) + "\\n").encode())
    n += 1
    if n == most:
        if ends:
            os.kill(os.getpid(), signal.SIGKILL)
        sys.stdin.read()
headrace.shutdown()
"""


class Node:
    """A master and an agent, each a process of its own."""

    def __init__(self, job: Any) -> None:
        self.job, self.folder, self.trainer, self.logs = job, job.folder, job.trainer, job.logs

    def begin(self, ttl: str = "120s") -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self.job.env["HEADRACE_MASTER"] = self.address
        self.ttl = ttl
        self.job.write(ROWS)
        self.master = self.start_master()
        poll(self.answers)
        self.agent = self.start_agent()
        self.job.apply()

    def start_master(self, *more: str) -> subprocess.Popen[Any]:
        state = str(self.folder / "state")
        return self.job.start(
            "master", "--listen", self.address, "--http", "off", "--state", state, "--session-ttl", self.ttl,
            "--allow-root", str(self.folder), *more,
        )  # fmt: skip

    def answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", int(self.address.split(":")[1])), 1):
            return True
        return False

    def start_agent(self) -> subprocess.Popen[Any]:
        agent = self.job.start(
            "agent", "--name", "a", "--master", self.address, "--socket", self.job.socket, "--state",
            str(self.folder / "state"), "--allow-root", str(self.folder),
        )  # fmt: skip
        self.job.await_socket(agent)
        return agent

    @staticmethod
    def kill(*processes: subprocess.Popen[Any]) -> None:
        for p in processes:
            p.kill()
        for p in processes:
            p.wait()
            if p.stdin:
                p.stdin.close()


@pytest.fixture
def node(job: Any) -> Node:
    return Node(job)


def applied(*trainers: Any) -> Counter[int]:
    """How often each record was stepped, from what the trainers printed."""
    return Counter(
        int(n) for t in trainers for line in t.log.read_text().splitlines() if line[:1].isdigit() for n in line.split()
    )


def once(node: Node, *trainers: Any) -> None:
    got = applied(*trainers)
    repeated = {k: n for k, n in got.items() if n > 1}
    assert not repeated, f"{len(repeated)} records came again:{node.logs()}"
    assert len(got) == ROWS, f"{ROWS - len(got)} records never came:{node.logs()}"


def test_steps_that_the_master_did_not_hear_outlive_trainer_and_agent(node: Node) -> None:
    node.begin()
    first = node.trainer(TRAINER, stdin=True, MOST=str(STEPS))
    first.printed(1)
    node.master.send_signal(signal.SIGSTOP)
    first.printed(STEPS)
    node.kill(first.process, node.agent)
    node.agent = node.start_agent()
    node.master.send_signal(signal.SIGCONT)
    second = node.trainer(TRAINER)
    second.ended()
    once(node, first, second)


def test_a_step_counts_from_when_step_returned_though_it_was_not_sent(node: Node) -> None:
    node.begin()
    first = node.trainer(TRAINER, MOST=str(STEPS), ENDS="1")
    first.process.wait(300)
    second = node.trainer(TRAINER)
    second.ended()
    once(node, first, second)


def test_a_master_that_starts_again_hears_of_them_too(node: Node) -> None:
    node.begin()
    first = node.trainer(TRAINER, stdin=True, MOST=str(STEPS))
    first.printed(1)
    node.master.send_signal(signal.SIGSTOP)
    first.printed(STEPS)
    node.kill(first.process, node.agent, node.master)
    node.agent = node.start_agent()
    node.master = node.start_master()
    second = node.trainer(TRAINER)
    second.ended()
    once(node, first, second)
