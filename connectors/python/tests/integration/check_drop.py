"""tail="drop": every round is full on every rank. At the end of the data, rows that fill no
round are dropped at the step of the last round: they are settled, in no model, and listed. A
group that goes back to a checkpoint before that step gets them again.

Master, agents and processes are real. A socket of the test plays the collective, as in
check_rounds.py.
"""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from agent import poll
from check_rounds import Group

WORKER = """
import json, os, signal, socket, sys, time
import headrace
import numpy as np

cfg = json.loads(sys.argv[1])
rank, world = int(sys.argv[2]), cfg["world"]
group = socket.create_connection(("127.0.0.1", cfg["port"]))
file = group.makefile("rw")

def reduce(**what):
    print(json.dumps(what), file=file, flush=True)
    line = file.readline()
    if not line:
        os._exit(4)
    return json.loads(line)

t = headrace.init(rank=rank, world_size=world)
stream = headrace.dataset("rows").batches(100, tail="drop", max_wait=cfg.get("max_wait", 2.0))
ck = headrace.Checkpointer(cfg["dir"], stream)
restored = ck.restore()
step = restored.step if restored is not None else 0
print("began", step, flush=True)
number = 0
try:
    for b in stream:
        step, number = step + 1, number + 1
        assert b.number == number and len(b) == 100, (b.number, number, len(b))
        if cfg.get("slow") and number % cfg["slow"] == rank:
            time.sleep(0.02)
        assert b.global_rows == reduce(rank=rank, round=number, rows=len(b), last=b.last)["rows"]
        if cfg.get("dies") == [rank, number]:
            os.kill(os.getpid(), signal.SIGKILL)
        if cfg.get("forgets") and b.last:
            step -= 1
            break
        stream.step(step)
        print("round", step, int(b.last), *b["id"].tolist(), flush=True)
        if number in cfg.get("saves", ()):
            ck.save(step, {"step": np.int64(step)}).wait()
except headrace.WorldChanged as e:
    print("changed", e, flush=True)
    os._exit(3)
print("end", step, flush=True)
if cfg.get("last"):
    ck.save(step, {"step": np.int64(step)}).wait()
reduce(rank=rank, round=-1, rows=0, last=False)
if cfg.get("forgets"):
    stream.close()
headrace.shutdown()
"""


class Run:
    """One start of a group. first: the ranks that start now; the others start with start()."""

    def __init__(self, job: Any, world: int, first: Sequence[int] | None = None, **cfg: Any) -> None:
        self.group = Group(world)
        said = json.dumps({"world": world, "port": self.group.port, "dir": str(job.folder / "ckpt"), **cfg})
        self._helper = lambda rank: job.helper(WORKER, said, str(rank))
        self.by_rank: dict[int, Any] = {}
        for rank in range(world) if first is None else first:
            self.start(rank)

    def start(self, rank: int) -> None:
        self.by_rank[rank] = self._helper(rank)

    @property
    def ranks(self) -> list[Any]:
        return [self.by_rank[rank] for rank in sorted(self.by_rank)]

    def lines(self, rank: int, word: str) -> list[list[int]]:
        text = self.by_rank[rank].log.read_text()
        whole = text.rpartition("\n")[0].splitlines()
        return [[int(v) for v in line.split()[1:]] for line in whole if line.startswith(word + " ")]

    def ids(self, upto: int = 1 << 60) -> list[int]:
        """The ids that all ranks together have trained, up to a step."""
        return [i for r in range(len(self.ranks)) for x in self.lines(r, "round") if x[0] <= upto for i in x[2:]]

    def ended(self) -> list[int]:
        """Checks that all ranks end without an error and with the same rounds, and that only the last
        round was marked as the last. Returns the steps."""
        for r in self.ranks:
            r.ended()
        assert not self.group.wrong, self.group.wrong
        for r in self.ranks:
            assert r.process.returncode == 0, r.log.read_text()
        steps = [[x[:2] for x in self.lines(r, "round")] for r in range(len(self.ranks))]
        assert all(s == steps[0] for s in steps), [len(s) for s in steps]
        assert [last for _, last in steps[0]] == [0] * (len(steps[0]) - 1) + [1] * bool(steps[0])
        return [step for step, _ in steps[0]]

    def broken(self) -> None:
        for r in self.ranks:
            r.ended()


def counts(job: Any) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(job.headrace("dataset", "status", "rows", "-o", "json").stdout)["counts"]
    return said


def ids_in(job: Any, ranges: list[tuple[str, int, int]]) -> list[int]:
    """The ids of the lines that begin in ranges of files."""
    out = []
    for name, start, end in ranges:
        at = 0
        for line in (job.data / Path(name).name).read_bytes().splitlines(keepends=True):
            if start <= at < end:
                out.append(int(line.split(b"\t")[0]))
            at += len(line)
    return out


def dropped(job: Any) -> list[int]:
    """The ids that `status` lists as dropped, each once."""
    status = json.loads(job.headrace("dataset", "status", "rows", "-o", "json").stdout)
    assert status["state"] == "done", status
    assert len(status["dropped"]) == status["dropped_ranges"]
    names = sorted(p.name for p in job.data.glob("*.tsv"))
    ids = ids_in(job, [(names[x["segment"]], x["start"], x["end"]) for x in status["dropped"]])
    assert sum(x["end"] - x["start"] for x in status["dropped"]) == status["counts"]["dropped"]
    assert len(ids) == len(set(ids))
    return ids


def once_or_dropped(job: Any, trained: list[int], rows: int) -> list[int]:
    out = dropped(job)
    assert sorted(trained + out) == list(range(rows))
    return out


def audited(job: Any, step: int) -> dict[str, Any]:
    [path] = (job.folder / "ckpt").glob(f"step-{step:010d}-*")
    return json.loads(job.headrace("audit", str(path), "-o", "json").stdout)


@pytest.mark.parametrize(("rows", "world"), [(20_137, 4), (150, 4), (1_200, 3), (3_050, 2)])
def test_each_row_is_trained_once_or_dropped(job: Any, rows: int, world: int) -> None:
    job.write(rows)
    job.up("--model", "replicated")
    job.apply()
    run = Run(job, world, slow=3)
    steps = run.ended()
    left = once_or_dropped(job, run.ids(), rows)
    assert steps == list(range(1, len(steps) + 1))
    assert len(left) == rows - len(steps) * world * 100
    assert len(left) < 2 * world * 100  # a rank may have one full batch more than another one
    if left:
        assert "DROPPED: NOT IN THE MODEL" in job.headrace("dataset", "describe", "rows").stdout
    assert ("rows beyond the last full round are dropped" in job.logs()) == bool(left)


def test_a_checkpoint_of_the_last_step_lists_them_and_one_before_it_gives_them_again(job: Any) -> None:
    rows = 5_030
    job.write(rows)
    job.up("--model", "replicated")
    job.apply()
    first = Run(job, 4, slow=3, saves=[5], last=True)
    steps = first.ended()
    left = once_or_dropped(job, first.ids(), rows)
    assert left

    [partition] = audited(job, steps[-1])["datasets"][0]["partitions"]
    [one] = partition["passes"]
    ranges = [(r["name"], r["start"], r["end"]) for x in one["dropped"] for r in x["ranges"]]
    assert sorted(ids_in(job, ranges)) == sorted(left)
    assert {x["step"] for x in one["dropped"]} == {steps[-1]}
    members = ids_in(job, [(r["name"], r["start"], r["end"]) for r in one["ranges"]])
    assert sorted(members) == sorted(first.ids())
    assert one["whole"]
    name, start, _ = ranges[0]
    [path] = (job.folder / "ckpt").glob(f"step-{steps[-1]:010d}-*")
    said = job.headrace("audit", str(path), "--contains", f"{Path(name).name}/{start}", check=False).stdout
    assert "dropped: not in the model: no full round had it; the last one was step" in said, said

    [partition] = audited(job, 5)["datasets"][0]["partitions"]
    assert "dropped" not in partition["passes"][0]

    # No row is left: the next group gets no round, and the list of dropped rows stays.
    again = Run(job, 4)
    assert again.ended() == []
    assert again.lines(0, "began") == [[steps[-1]]]
    assert sorted(dropped(job)) == sorted(left)

    # Back to step 5: the dropped rows come again, with all rows that were trained after step 5.
    [path] = (job.folder / "ckpt").glob("step-0000000005-*")
    job.headrace("rewind", "default", "--to", str(path), "--yes")
    assert json.loads(job.headrace("dataset", "status", "rows", "-o", "json").stdout)["dropped"] == []
    run = Run(job, 3)
    assert run.ended()[0] == 6
    assert run.lines(0, "began") == [[5]]
    once_or_dropped(job, first.ids(5) + run.ids(), rows)


def test_a_program_that_ends_without_stepping_its_last_round_drops_nothing(job: Any) -> None:
    """The rows of that round and the rows after it stay pending. The next group gets them."""
    rows = 2_450  # 8 rounds of 300
    job.write(rows)
    job.up("--model", "replicated")
    job.apply()
    run = Run(job, 3, forgets=True, saves=[7])
    run.broken()
    assert [r.process.returncode for r in run.ranks] == [0, 0, 0], run.ranks[0].log.read_text()
    trained = len(run.ids())
    assert trained == 7 * 300

    poll(lambda: counts(job)["leased"] == 0)
    assert counts(job)["dropped"] == 0
    assert counts(job)["pending"] > 0
    again = Run(job, 3, last=True)
    again.ended()  # with one round, or with none if the leases of the rest do not fill a round
    assert again.lines(0, "began") == [[7]]
    once_or_dropped(job, run.ids() + again.ids(), rows)


@pytest.mark.parametrize("at", ["before", "last"])
def test_a_rank_that_is_killed_at_the_end_takes_no_row_along(job: Any, at: str) -> None:
    """The rank is killed in the last round, or in the one before it. The next group begins at the
    checkpoint, and gets the rest."""
    rows = 2_450
    job.write(rows)
    job.up("--model", "replicated")
    job.apply()
    rounds = 8  # of 300 rows
    run = Run(job, 3, saves=[4], dies=[1, rounds if at == "last" else rounds - 1])
    run.broken()
    assert run.ranks[1].process.returncode == -signal.SIGKILL, run.ranks[1].log.read_text()
    poll(lambda: json.loads(job.headrace("status", "-o", "json").stdout)["workers"] == [])
    again = Run(job, 3, last=True)
    assert again.ended() == list(range(5, rounds + 1))
    assert again.lines(0, "began") == [[4]]
    once_or_dropped(job, run.ids(4) + again.ids(), rows)


@pytest.mark.parametrize("at", [1, 18, 19, 20])
def test_master_and_agent_end_near_the_end_and_come_again(job: Any, at: int) -> None:
    rows = 6_137  # 20 rounds of 300
    job.write(rows)
    up = job.up("--model", "replicated")
    job.apply()
    run = Run(job, 3, slow=2, last=True)
    poll(lambda: len(run.lines(0, "round")) >= at)
    up.kill()
    up.wait()
    os.unlink(job.socket)
    job.up("--model", "replicated")
    steps = run.ended()
    left = once_or_dropped(job, run.ids(), rows)
    [one] = audited(job, steps[-1])["datasets"][0]["partitions"][0]["passes"]
    ranges = [(r["name"], r["start"], r["end"]) for x in one["dropped"] for r in x["ranges"]]
    assert sorted(ids_in(job, ranges)) == sorted(left)


def without_end(job: Any) -> Any:
    """Starts a job whose input is a folder that grows. Returns a function that adds rows in one more
    file. All rows have the same length, because rows are levelled between ranks by bytes
    (docs/ROUNDS.md)."""
    spec = job.folder / "rows.yaml"
    spec.write_text(
        f"name: rows\nfiles: {{root: {job.data}, end: never, refresh: 100ms, complete: renamed}}\n"
        "decode: {format: csv, columns: [{name: id, path: 0, dtype: int64}]}\n"
    )
    job.up("--model", "replicated")
    job.headrace("dataset", "apply", "-f", str(spec))

    def add(first: int, rows: int) -> None:
        part = job.data / f".{first:05}"
        part.write_text("".join(f"{i:05}\n" for i in range(first, first + rows)))
        part.rename(job.data / f"{first:05}.csv")

    return add


@pytest.mark.parametrize("drawn", [False, True])
def test_on_an_input_without_end_rows_wait_until_a_round_is_full(job: Any, rng: random.Random, drawn: bool) -> None:
    """Each file is read by one rank. Rows that do not fill a round wait for the next files, and
    max_wait does not close the round."""
    files = [150, 150, 60, 240]  # rounds of 200
    if drawn:
        files = [2 * rng.randint(1, 250) for _ in range(12)]
    add = without_end(job)
    run = Run(job, 2, max_wait=0.5)
    written = 0
    for rows in files:
        add(written, rows)
        written += rows
        full = written // 200
        try:
            poll(lambda: all(len(run.lines(r, "round")) >= full for r in (0, 1)), 120)  # noqa: B023
        except AssertionError:  # seen once in a busy CI: say which rank holds which rows
            said = job.headrace("status", "rows").stdout + job.headrace("status").stdout
            said += "".join(r.log.read_text() for r in run.ranks) + job.logs()
            raise AssertionError(f"round {full} did not come after file {written}:\n{said}") from None
        at = [len(run.lines(r, "round")) for r in (0, 1)]
        assert at == [full, full]
    poll(lambda: counts(job)["leased"] == 6 * (written % 200), 120)  # all steps are durable
    assert len(set(run.ids())) == len(run.ids()) == written // 200 * 200
    assert counts(job)["dropped"] == 0
    for r in run.ranks:
        r.process.kill()


def test_on_an_input_without_end_no_process_gets_what_another_one_lacks(job: Any) -> None:
    """Rank 1 comes first and is leased all 200 rows: two batches. One of them has to stay at its agent,
    because the round needs it for rank 0."""
    without_end(job)(0, 200)
    run = Run(job, 2, [1], max_wait=0.5)
    poll(lambda: counts(job)["leased"] == 1200)
    run.start(0)
    poll(lambda: all(len(run.lines(r, "round")) == 1 for r in (0, 1)))
    assert sorted(run.ids()) == list(range(200))
    for r in run.ranks:
        r.process.kill()


@pytest.mark.parametrize(("more", "error"), [("tail='full'", "short"), ("tail='drop', rounds=False", "no")])
def test_settings_that_exclude_tail_drop_are_refused(job: Any, more: str, error: str) -> None:
    job.write(100)
    job.up("--model", "replicated")
    job.apply()
    code = f"""
import headrace
headrace.init(rank=0, world_size=1)
try:
    headrace.dataset("rows").batches(10, {more})
except ValueError as e:
    print("refused", e, flush=True)
"""
    said = job.helper(code).ended()
    assert "refused" in said, said
    assert error in said


def test_order_strict_is_refused(job: Any) -> None:
    job.write(100)
    job.up("--model", "replicated")
    job.apply("rows", "order: strict\n")
    code = """
import headrace
headrace.init(rank=0, world_size=1)
try:
    headrace.dataset("rows").batches(10, rounds=True, tail="drop")
except headrace.DatasetError as e:
    print("refused", e, flush=True)
"""
    said = job.helper(code).ended()
    assert "refused" in said, said
    assert "order: strict" in said
