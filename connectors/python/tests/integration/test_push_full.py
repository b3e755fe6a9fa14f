"""Pushers wait while a dataset is full (landing.max_bytes), against the real binary."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import headrace
import pytest
from test_push import TRAINER, numbers, start, start_agent, state

__all__ = ["state"]  # a fixture


def test_a_full_dataset_makes_pushers_wait_and_loses_nothing(job: Any) -> None:
    start(job, more=", max_bytes: 1MiB")
    told: list[str] = []
    done: list[Any] = []

    def work() -> None:
        for n in range(30):  # each transaction has 45 KB, even compressed
            data = [{"user": os.urandom(1500).hex(), "number": i} for i in range(30 * n, 30 * (n + 1))]
            done.append(headrace.push("clicks", data, transaction=f"t{n}", on_wait=told.append))

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    deadline = time.monotonic() + 120
    while not told:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert "max_bytes is 1048576" in told[0]
    assert len(done) < 30

    def over(_: str) -> None:
        """Once it was told why it waits, its patience is over."""
        p._master.patience = 0.0

    with pytest.raises(headrace.MasterUnavailable, match="max_bytes"), headrace.Pusher("clicks", on_wait=over) as p:
        t = p.begin()
        t.push({"number": 1, "user": os.urandom(100_000).hex()})
        t.stage()
    start_agent(job)
    trainer = job.trainer(TRAINER)
    worker.join(120)
    assert not worker.is_alive(), job.logs()
    with headrace.Pusher("clicks") as pusher:
        pusher.end()
    assert sorted(numbers(trainer.ended())) == list(range(900))


def test_a_slow_trainer_makes_pushers_wait_and_nothing_is_lost(job: Any) -> None:
    start(job, more=", max_bytes: 1MiB")
    start_agent(job)
    slow = TRAINER.replace("stream.step()", "sys.stdin.readline(); stream.step()")
    trainer = job.trainer(slow, stdin=True)
    assert trainer.process.stdin is not None
    pushed: list[int] = []
    waited: set[int] = set()  # numbers of the transactions that had to wait

    def work() -> None:
        for n in range(40):  # each transaction has 45 KB, even compressed
            data = [{"user": os.urandom(1500).hex(), "number": i} for i in range(30 * n, 30 * (n + 1))]
            headrace.push("clicks", data, transaction=f"t{n}", on_wait=lambda _, n=n: waited.add(n))  # type: ignore[misc]
            pushed.append(n)

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    steps, deadline = 0, time.monotonic() + 600
    while worker.is_alive():  # about 690 records fit; the trainer goes on only while a pusher waits
        assert time.monotonic() < deadline, job.logs()
        if len(trainer.log.read_text().splitlines()) > steps and len(pushed) in waited:
            trainer.process.stdin.write(b"\n")
            trainer.process.stdin.flush()
            steps += 1
        else:
            time.sleep(0.01)
    assert len(pushed) == 40
    assert waited
    with headrace.Pusher("clicks") as pusher:
        pusher.end()
    trainer.process.stdin.close()  # from now on the trainer is as fast as it can be
    assert sorted(numbers(trainer.ended())) == list(range(1200))
