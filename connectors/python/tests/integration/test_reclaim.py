"""An operator takes back the rows that an idle process holds, and the process goes on."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

N = 900

# A notebook. It saves after its first batch, steps a second one, takes a third one, and then waits
# for its user. Each line of its input is a cell.
NOTEBOOK = """
import headrace, os, sys, time

def begin():
    headrace.init(rank=0, world_size=int(os.environ["RANKS"]))
    stream = headrace.dataset("rows").batches(10, rounds=False)
    ck = headrace.Checkpointer("ckpt", stream)
    return stream, ck, ck.restore()

def refused(call):
    try:
        call()
    except headrace.Fenced as error:
        print("refused", error, flush=True)

def told():
    # `headrace reclaim` ends when the master has decided. The agent tells this process a little later.
    while True:
        try:
            stream.step(batches=0)
        except headrace.Fenced:
            return
        time.sleep(0.01)

os.chdir(os.environ["WORK"])
stream, ck, restored = begin()
assert restored is None
ids = next(stream)["id"].tolist()
stream.step()
ck.save(1, {"ids": ids}).wait()
second = next(stream)
stream.step()
third = next(stream)
while stream.stats().durable < 2:  # the master has heard of both steps
    time.sleep(0.001)
print("thinks", flush=True)
sys.stdin.readline()
told()
for call in (stream.step, lambda: next(stream), lambda: ck.save(3, {"ids": []})):
    refused(call)
headrace.shutdown()
stream, ck, restored = begin()
assert restored.step == 1
ids = restored.state["ids"]
print("goes on", flush=True)
for b in stream:
    ids += b["id"].tolist()
    stream.step()
print("in the model", ids, flush=True)
"""

OTHER = """
import headrace
headrace.init(rank=1, world_size=2)
ids = []
stream = headrace.dataset("rows").batches(10)
for b in stream:
    ids += b["id"].tolist()
    stream.step()
print(ids, flush=True)
"""


def thinking(job: Any, ranks: int) -> Any:
    job.write(N)
    job.apply()
    notebook = job.trainer(NOTEBOOK, stdin=True, RANKS=str(ranks), WORK=str(job.folder))
    notebook.printed(1)
    return notebook


def next_cell(process: Any) -> str:
    """Runs the last cell. Returns everything that the notebook has printed."""
    process.process.stdin.write(b"\n")
    process.process.stdin.close()
    text: str = process.ended()
    assert process.process.returncode == 0, text
    return text


def goes_on(notebook: Any) -> list[int]:
    """Checks that each call was refused after the reclaim. Returns the ids in the notebook's model at its end."""
    text = next_cell(notebook)
    refused = re.findall(r"^refused (.*)", text, re.MULTILINE)
    assert len(refused) == 3, text
    for said in refused:
        assert "an operator took its rows back with `headrace reclaim`" in said, text
        assert "call headrace.shutdown(), headrace.init() and restore()" in said, text
    assert "\ngoes on\n" in text
    ids: list[int] = json.loads(re.findall(r"^in the model (.*)", text, re.MULTILINE)[0])
    return ids


def reclaim(job: Any, *more: str) -> Any:
    return json.loads(job.headrace("reclaim", "0", "-o", "json", *more).stdout)


def test_rows_of_an_idle_notebook_go_to_the_rank_that_waits_and_it_goes_on_from_its_checkpoint(job: Any) -> None:
    job.up("--model", "private")
    notebook = thinking(job, ranks=2)
    planned = reclaim(job, "--dry-run")
    assert (planned["reclaimed"], planned["pid"], planned["step"], planned["checkpoint"]) == (
        False, notebook.process.pid, 2, 1,
    )  # fmt: skip
    other = job.trainer(OTHER)
    done = reclaim(job, "--yes")
    assert done["reclaimed"]
    assert done["fenced"] == [0]
    theirs, own = json.loads(other.ended()), goes_on(notebook)
    assert len(own) == 10  # the ids of its checkpoint
    assert sorted(theirs + own) == list(range(N))


def test_a_replicated_model_goes_on_from_its_checkpoint(job: Any) -> None:
    job.up("--model", "replicated")
    notebook = thinking(job, ranks=1)
    assert reclaim(job, "--yes")["fenced"] == [0]
    assert sorted(goes_on(notebook)) == list(range(N))


@pytest.mark.parametrize("more", [["--yes"], ["--dry-run"]])
def test_rows_of_a_shared_model_stay_where_they_are(job: Any, more: list[str]) -> None:
    job.up("--model", "shared")
    job.write(N)
    job.apply()
    trainer = job.trainer(
        "import headrace, sys\n"
        'stream = headrace.dataset("rows").batches(10)\n'
        "next(stream)\n"
        'print("thinks", flush=True)\n'
        "sys.stdin.readline()\n"
        "print(stream.step(), flush=True)\n",
        stdin=True,
    )
    trainer.printed(1)
    refused = job.headrace("reclaim", "0", *more, check=False)
    assert refused.returncode != 0
    assert "may be in the shared model already" in refused.stderr, refused.stderr
    assert f"End process {trainer.process.pid} " in refused.stderr, refused.stderr
    assert next_cell(trainer).splitlines()[-1] == "1"


def test_a_rank_that_has_no_process_is_named(job: Any) -> None:
    job.up("--model", "private")
    refused = job.headrace("reclaim", "7", "--yes", check=False)
    assert refused.returncode != 0
    assert "rank 7 has no process" in refused.stderr, refused.stderr
    refused = job.headrace("reclaim", "seven", check=False)
    assert '"seven" is not the number of a rank' in refused.stderr, refused.stderr
