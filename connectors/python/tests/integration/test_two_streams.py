"""Two streams of one dataset in one process, against the real agent and master."""

from __future__ import annotations

from typing import Any

from agent import poll

IN_TURNS = """
import headrace

first, second = (headrace.dataset("rows").batches(50) for _ in range(2))
rows = 0
for a in first:
    b = next(second)
    rows += len(a) + len(b)
    first.step()
    second.step()
"""

WITH_THREADS = """
import headrace
from concurrent.futures import ThreadPoolExecutor

def read(stream):
    rows = 0
    for b in stream:
        rows += len(b)
        stream.step()
    return rows

with ThreadPoolExecutor() as pool:
    streams = [headrace.dataset("rows").batches(50) for _ in range(2)]
    print("rows", sum(pool.map(read, streams)), flush=True)
"""


def test_a_thread_that_reads_two_streams_in_turns_is_told_why_it_waits(job: Any) -> None:
    job.write(500)
    job.up()
    job.apply()
    trainer = job.trainer(IN_TURNS)
    poll(lambda: "This thread reads another stream of the same dataset too" in trainer.log.read_text())
    assert trainer.process.poll() is None
    trainer.process.kill()
    trainer.ended()


def test_two_streams_with_a_thread_each_read_everything(job: Any) -> None:
    n = job.write(5000)
    job.up()
    job.apply()
    out = job.trainer(WITH_THREADS).ended()
    assert f"rows {n}" in out, out + job.logs()
    assert "reads another stream" not in out
