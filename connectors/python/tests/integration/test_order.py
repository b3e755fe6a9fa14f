"""Two processes of one rank. The one that was started later counts, even if the master hears of the
earlier one last, because its agent stood still."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest
from agent import poll
from ports import free_port

# It prints "made" when it has noted the time of its start, before its HELLO, which its agent does not read.
EARLY = """
import headrace, headrace._trainer as trainer

made = trainer._made_ns

def at():
    ns = made()
    print("made", flush=True)
    return ns

trainer._made_ns = at
try:
    with headrace.dataset("rows").batches(50) as stream:
        for b in stream:
            stream.step()
            print("got", len(b["id"]), flush=True)
except headrace.Fenced as why:
    print("fenced:", why, flush=True)
"""

LATE = """
import headrace, sys

with headrace.dataset("rows").batches(50) as stream:
    rows = 0
    for b in stream:
        stream.step()
        rows += len(b["id"])
        if rows == 500:
            print("some", flush=True)
            sys.stdin.readline()
print("read", rows, flush=True)
"""


def rest(job: Any) -> tuple[str, int]:
    """The dataset's state, and the units of it that are not acked."""
    (dataset,) = json.loads(job.headrace("status", "-o", "json").stdout)["datasets"]
    return dataset["state"], dataset["counts"]["listed"] - dataset["counts"]["acked"]


@pytest.mark.parametrize("whole", [False, True], ids=["while the newer one runs", "when the newer one has read all"])
@pytest.mark.parametrize("model", ["shared", "replicated", "private"])
def test_a_process_whose_agent_stood_still_is_not_the_newer_one(job: Any, model: str, whole: bool) -> None:
    n = job.write(2_000)
    roots = ("--allow-root", str(job.folder))
    job.env["HEADRACE_LISTEN"] = f"127.0.0.1:{free_port()}"
    job.start("master", "--model", model, "--http", "off", "--session-ttl", "20s", *roots)
    address = job.folder / "state" / "master.addr"
    poll(address.exists)
    job.env["HEADRACE_LISTEN"] = address.read_text().split()[0]
    job.apply()
    agents = {}
    for name in ("a1", "a2"):
        agents[name] = job.start("agent", "--name", name, "--socket", str(job.folder / f"{name}.sock"), *roots)
        job.socket = str(job.folder / f"{name}.sock")
        job.await_socket(agents[name])
    os.kill(agents["a1"].pid, signal.SIGSTOP)
    try:
        early = job.trainer(EARLY, HEADRACE_AGENT=str(job.folder / "a1.sock"))
        early.printed(1)
        late = job.trainer(LATE, HEADRACE_AGENT=str(job.folder / "a2.sock"), stdin=True)
        late.printed(1)
        if whole:
            late.process.stdin.close()
            assert f"read {n}" in late.ended()
            assert rest(job) == ("done", 0)
    finally:
        os.kill(agents["a1"].pid, signal.SIGCONT)
    told = early.ended()
    assert "fenced: a newer process of rank 0 has joined since this one was started" in told, told + job.logs()
    if not whole:
        late.process.stdin.close()
        assert f"read {n}" in late.ended(), job.logs()
    assert rest(job) == ("done", 0), job.logs()
