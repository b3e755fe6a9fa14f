"""Rounds: either all ranks of a group get round r, or none does.

Master, agent and processes are real. A socket of the test plays the collective: it answers
a rank once all ranks have come with the same round. If ranks take different rounds, they
hang there, as they would in all-reduce.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
import time
from typing import Any

import headrace
import pytest

# How a rank takes part in the collective.
GROUP = """
import json, os, socket, sys, time
import headrace

world, rank, slow, port = (int(a) for a in sys.argv[1:5])
file = socket.create_connection(("127.0.0.1", port)).makefile("rw")

def reduce(**what):
    print(json.dumps(what), file=file, flush=True)
    line = file.readline()
    if not line:
        sys.exit("the group is gone")
    return json.loads(line)

t = headrace.init(rank=rank, world_size=world)
"""

WORKER = (
    GROUP
    + """
stream = headrace.dataset("rows").batches(100, max_wait=float(sys.argv[5]))  # rounds are the default here
step = t.last_step
try:
    for b in stream:
        step += 1
        if slow and b.number % slow == rank:
            time.sleep(0.03)
        ids = b["id"].tolist()
        whole = b.global_rows  # known without asking the other ranks
        total = reduce(rank=rank, round=b.number, rows=len(b), last=b.last)
        assert whole == total["rows"], (b.number, whole, total)
        assert b.slice(0, 1).global_rows == whole
        stream.step(step)
        print("round", b.number, len(ids), int(b.last), sum(ids), total["rows"], flush=True)
except headrace.WorldChanged as e:
    print("changed", time.monotonic(), e, flush=True)
    os._exit(3)
print("end", flush=True)
reduce(rank=rank, round=-1, rows=0, last=False)
headrace.shutdown()
"""
)

# The same for the steps of a bit_exact dataset: a list of batches is this rank's part of a round.
STEPS = (
    GROUP
    + """
steps = headrace.dataset("rows").steps(20)  # rounds are the default here
step = t.last_step
try:
    for batches in steps:
        step += 1
        if slow and step % slow == rank:
            time.sleep(0.03)
        rows, ids = sum(map(len, batches)), sum(sum(b["id"].tolist()) for b in batches)
        whole = steps.global_rows
        total = reduce(rank=rank, round=step, rows=rows, last=steps.last)
        assert whole == total["rows"], (step, whole, total)
        assert all(b.global_rows == whole and b.last == steps.last for b in batches)
        steps.step(step)
        print("round", step, rows, int(steps.last), ids, total["rows"], flush=True)
except headrace.WorldChanged as e:
    print("changed", time.monotonic(), e, flush=True)
    os._exit(3)
print("end", flush=True)
reduce(rank=rank, round=-1, rows=0, last=False)
headrace.shutdown()
"""
)


class Group:
    """The collective: answers all ranks of a round when all have come."""

    def __init__(self, world: int) -> None:
        self.world, self.wrong = world, ""
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        ranks = [self.server.accept()[0] for _ in range(self.world)]
        files = [rank.makefile("rw") for rank in ranks]
        try:
            while True:
                said: list[dict[str, Any]] = [json.loads(f.readline() or "null") or {} for f in files]
                if not all(said):
                    return
                if len({(s["round"], s["last"]) for s in said}) != 1:
                    self.wrong = f"the ranks are at different rounds: {said}"
                    return
                for f in files:
                    print(json.dumps({"rows": sum(s["rows"] for s in said)}), file=f, flush=True)
        except (OSError, ValueError):
            pass
        finally:
            ends: list[Any] = [*files, *ranks, self.server]
            for end in ends:
                with contextlib.suppress(OSError):
                    end.close()


def start(job: Any, world: int, slow: int = 0, max_wait: float = 2.0) -> tuple[Group, list[Any]]:
    group = Group(world)
    return group, [
        job.helper(WORKER, str(world), str(r), str(slow), str(group.port), str(max_wait)) for r in range(world)
    ]


def rounds_of(text: str) -> list[list[int]]:
    return [[int(v) for v in line.split()[1:]] for line in text.splitlines() if line.startswith("round ")]


def judge(group: Group, ranks: list[Any], total: int) -> list[list[list[int]]]:
    """Checks that all ranks have ended with the same rounds, and that each row came once."""
    each = [rounds_of(r.ended()) for r in ranks]
    assert not group.wrong, group.wrong
    for r in ranks:
        assert r.process.returncode == 0, r.log.read_text()
    assert len({len(e) for e in each}) == 1, [len(e) for e in each]
    for e in each:
        assert [x[0] for x in e] == list(range(1, len(e) + 1))
        assert [x[2] for x in e] == [0] * (len(e) - 1) + [1]
    assert sum(x[1] for e in each for x in e) == total
    assert sum(x[3] for e in each for x in e) == total * (total - 1) // 2
    return each


@pytest.mark.parametrize("rows", [20_000, 20_137, 150])
def test_all_ranks_get_the_same_rounds_and_all_rows_come_once(job: Any, rows: int) -> None:
    job.write(rows)
    job.up("--model", "replicated")
    job.apply()
    judge(*start(job, 4, slow=3), rows)


def test_a_round_has_its_global_rows_whatever_the_number_of_ranks(job: Any) -> None:
    """100 rows a round: 34, 33 and 33 on three ranks; then 50 and 50 on two."""
    rows = job.write(5030)
    job.up("--model", "replicated")
    job.apply()
    job.apply("again")
    for world, name, shares in ((3, "rows", [34, 33, 33]), (2, "again", [50, 50])):
        code = WORKER.replace('"rows").batches(100, ', f'"{name}").batches(global_rows=100, ')
        group = Group(world)
        ranks = [job.helper(code, str(world), str(r), "0", str(group.port), "60") for r in range(world)]
        each = judge(group, ranks, rows)
        for rank, share in enumerate(shares):
            # Rounds are shorter only at the end of the data, when a rank gets no more rows.
            assert max(x[1] for x in each[rank]) == share, (rank, share)
            assert {x[1] for x in each[rank][:10]} == {share}, (rank, share)


PADDED = (
    GROUP
    + """
stream = headrace.dataset("rows").batches(100, tail="pad")
for b in stream:
    assert b["id"].shape == b.weight.shape == (100,), (b["id"].shape, b.weight.shape)
    ids = b["id"][b.weight > 0].tolist()
    assert len(ids) == len(b), (len(ids), len(b))
    total = reduce(rank=rank, round=b.number, rows=len(ids), last=b.last)
    assert b.global_rows == total["rows"]
    stream.step(b.number)
    print("round", b.number, len(ids), int(b.last), sum(ids), total["rows"], flush=True)
print("end", flush=True)
reduce(rank=rank, round=-1, rows=0, last=False)
headrace.shutdown()
"""
)


@pytest.mark.parametrize("rows", [1537, 3])
def test_padded_rounds_have_constant_shapes_and_each_row_has_weight_once(job: Any, rows: int) -> None:
    job.write(rows)
    job.up("--model", "replicated")
    job.apply()
    group = Group(3)
    judge(group, [job.helper(PADDED, "3", str(r), "0", str(group.port)) for r in range(3)], rows)


def test_more_ranks_than_rows(job: Any) -> None:
    """Ranks without a row take part in each round, with an empty batch."""
    job.write(3, files=1)
    job.up("--model", "replicated")
    job.apply()
    each = judge(*start(job, 4), 3)
    assert sum(x[1] == 0 for e in each for x in e) >= 1


def test_the_rows_of_a_round_that_max_wait_closes_are_spread_over_the_ranks(job: Any) -> None:
    """Each file is one lease, so one rank reads it. The other ranks get their share before max_wait has
    passed. A machine that stands still meanwhile may miss that, so more files come until each rank has
    had its share of one."""
    spec = job.folder / "rows.yaml"
    spec.write_text(
        f"name: rows\nfiles: {{root: {job.data}, end: never, refresh: 100ms}}\n"
        "decode: {format: csv, columns: [{name: id, path: 0, dtype: int64}]}\n"
    )
    job.up("--model", "replicated")
    job.headrace("dataset", "apply", "-f", str(spec))
    _, ranks = start(job, 3, max_wait=3.0)
    deadline = time.monotonic() + 120
    written, each = 0, [[], [], []]  # type: int, list[list[list[int]]]
    while not any(min(sizes) >= 15 for sizes in zip(*([x[1] for x in e] for e in each))):
        assert time.monotonic() < deadline, each
        if sum(x[1] for e in each for x in e) == written * 60:
            part = job.data / f".{written:04}"
            part.write_text("".join(f"{i}\n" for i in range(written * 60, written * 60 + 60)))
            part.rename(job.data / f"{written:04}.csv")
            written += 1
        time.sleep(0.1)
        each = [rounds_of(r.log.read_text().rpartition("\n")[0]) for r in ranks]


def test_when_a_rank_ends_next_raises_world_changed_on_the_others(job: Any) -> None:
    """The others may be in next(), in step(), or in the collective, which breaks."""
    job.write(40_000)
    job.up("--model", "replicated")
    job.apply()
    _, ranks = start(job, 3, slow=3)
    ranks[1].printed(20)
    os.kill(ranks[1].process.pid, signal.SIGKILL)
    for r in (ranks[0], ranks[2]):
        text = r.ended()
        # In the collective the connection breaks; next() raises WorldChanged.
        assert "changed" in text or "the group is gone" in text, text


def test_a_rank_that_closes_early_lets_the_others_know_and_save(job: Any) -> None:
    job.write(40_000)
    job.up("--model", "replicated")
    job.apply()
    code = """
import os, sys
import headrace
t = headrace.init(rank=int(sys.argv[1]), world_size=2)
s = headrace.dataset("rows").batches(100)
for b in s:
    s.step(b.number)
    print("round", b.number, flush=True)
    if t.rank == 1 and b.number == 5:
        s.close()
        print("closed", flush=True)
        sys.stdin.read()
        break
"""
    left = job.trainer("import sys; sys.argv[1:] = ['1']\n" + code, stdin=True)
    stays = job.helper(code, "0")
    text = stays.ended()
    assert "WorldChanged: no round follows after round" in text, text
    assert "rank 1 closed its stream" in text, text
    left.process.stdin.close()
    left.ended()


def test_agent_and_master_end_and_come_again(job: Any) -> None:
    """`headrace up` is both. The trainers tell the next one their rounds, and no rank gets a round that
    another rank never gets."""
    job.write(30_000)
    up = job.up("--model", "replicated")
    job.apply()
    group, ranks = start(job, 3, slow=3)
    for n in (10, 30):
        ranks[0].printed(n)
        up.kill()
        up.wait()
        os.unlink(job.socket)
        up = job.up("--model", "replicated")
    judge(group, ranks, 30_000)


@pytest.mark.parametrize("model", ["replicated", "shared"])
def test_without_rounds_a_rank_that_stands_still_while_another_waits_is_named(job: Any, model: str) -> None:
    """Without rounds, rank 0 has the only rows and waits for rank 1, as in all-reduce, while rank 1 waits
    for rows. The status and the log name both ranks and say what to do."""
    job.write(60, files=1)
    job.up("--model", model)
    job.apply()
    code = """
import sys
import headrace
t = headrace.init(rank=int(sys.argv[1]), world_size=2)
s = headrace.dataset("rows").batches(100, rounds=False)
print("opened", flush=True)
if t.rank == 0:
    b = next(s)
    try:
        print("has", len(b), b.global_rows, flush=True)
    except ValueError as e:
        print("has", len(b), e, flush=True)
    sys.stdin.read()
    s.step(1)
else:
    print("got", len(list(s)), flush=True)
"""
    holds = job.trainer("import sys; sys.argv[1:] = ['0']\n" + code, stdin=True)
    holds.printed(2)
    assert "global_rows is of a round, and this batch is of a stream without rounds" in holds.log.read_text()
    waits = job.helper(code, "1")

    def told() -> Any:
        return json.loads(job.headrace("dataset", "list", "-o", "json").stdout)[0]["imbalance"]

    deadline = time.monotonic() + 120
    while (said := told()) is None:
        assert time.monotonic() < deadline, job.logs()
        time.sleep(0.1)
    assert {k: said[k] for k in ("idle", "busy", "leases")} == {"idle": 1, "busy": 0, "leases": 1}
    assert "rank 1 waits for rows while rank 0 has 1 leases" in job.headrace("dataset", "status", "rows").stdout
    while "idle=1 busy=0" not in job.logs():
        assert time.monotonic() < deadline, job.logs()
        time.sleep(0.1)
    holds.process.stdin.close()
    assert "got 0" in waits.ended()
    holds.ended()
    assert told() is None


def start_steps(job: Any, world: int, slow: int = 0) -> tuple[Group, list[Any]]:
    group = Group(world)
    return group, [job.helper(STEPS, str(world), str(r), str(slow), str(group.port)) for r in range(world)]


@pytest.mark.parametrize("world", [1, 2, 3, 5])
@pytest.mark.parametrize("rows", [5000, 150, 30])
def test_steps_are_rounds(job: Any, rows: int, world: int) -> None:
    """Five virtual ranks have different numbers of records; with 30 rows, some have none. A rank without
    records gets an empty list, so that all ranks get the same number of lists."""
    job.write(rows, files=1)
    job.up("--model", "replicated")
    job.apply(more="bit_exact: {virtual_ranks: 5, block: 700}\n")
    if world == 1:
        code = STEPS.replace("steps(20)", "steps(20, rounds=True)")
        group = Group(1)
        judge(group, [job.helper(code, "1", "0", "0", str(group.port))], rows)
        return
    each = judge(*start_steps(job, world, slow=3), rows)
    if rows == 30 and world == 5:
        assert any(x[1] == 0 for e in each for x in e), each


def test_steps_of_an_input_without_a_record_end_at_once(job: Any) -> None:
    job.data.mkdir(exist_ok=True)
    (job.data / "empty.tsv").write_bytes(b"")
    job.up("--model", "replicated")
    job.apply(more="bit_exact: {virtual_ranks: 5, block: 700}\n")
    group, ranks = start_steps(job, 3)
    assert [rounds_of(r.ended()) for r in ranks] == [[], [], []]
    assert not group.wrong, group.wrong


def test_a_rank_that_closes_its_steps_early_ends_them_for_all(job: Any) -> None:
    job.write(20_000)
    job.up("--model", "replicated")
    job.apply(more="bit_exact: {virtual_ranks: 5, block: 700}\n")
    code = """
import os, sys
import headrace
t = headrace.init(rank=int(sys.argv[1]), world_size=2)
steps = headrace.dataset("rows").steps(20)
for n, batches in enumerate(steps, 1):
    steps.step(n)
    print("round", n, flush=True)
    if t.rank == 1 and n == 5:
        steps.close()
        print("closed", flush=True)
        sys.stdin.read()
        break
"""
    left = job.trainer("import sys; sys.argv[1:] = ['1']\n" + code, stdin=True)
    text = job.helper(code, "0").ended()
    assert "WorldChanged: no round follows after round" in text, text
    assert "rank 1 closed its stream" in text, text
    left.process.stdin.close()
    left.ended()


def test_when_a_rank_ends_the_others_get_no_further_step(job: Any) -> None:
    job.write(20_000)
    job.up("--model", "replicated")
    job.apply(more="bit_exact: {virtual_ranks: 5, block: 700}\n")
    _, ranks = start_steps(job, 3, slow=3)
    ranks[1].printed(20)
    os.kill(ranks[1].process.pid, signal.SIGKILL)
    for r in (ranks[0], ranks[2]):
        text = r.ended()
        assert "changed" in text or "the group is gone" in text, text


def test_agent_and_master_end_while_steps_are_taken(job: Any) -> None:
    job.write(20_000)
    up = job.up("--model", "replicated")
    job.apply(more="bit_exact: {virtual_ranks: 5, block: 700}\n")
    group, ranks = start_steps(job, 3, slow=3)
    for n in (10, 30):
        ranks[0].printed(n)
        up.kill()
        up.wait()
        os.unlink(job.socket)
        up = job.up("--model", "replicated")
    judge(group, ranks, 20_000)


def test_steps_without_rounds_end_with_a_ranks_own_records(job: Any) -> None:
    job.write(30, files=1)
    job.up("--model", "replicated")
    job.apply(more="bit_exact: {virtual_ranks: 5, block: 700}\n")
    code = """
import sys
import headrace
t = headrace.init(rank=int(sys.argv[1]), world_size=5)
s = headrace.dataset("rows").steps(20, rounds=False)
n = 0
for batches in s:
    n += 1
    assert all(len(b) for b in batches)
    s.step(n)
try:
    s.last
except ValueError as e:
    print("lists", n, e, flush=True)
while n < 10:  # a rank without records goes on reporting steps
    n += 1
    s.step(n)
headrace.shutdown()
"""
    lists = {int(r.ended().split("lists ")[1].split()[0]) for r in [job.helper(code, str(r)) for r in range(5)]}
    assert 0 in lists, lists
    assert len(lists) > 1, lists


def test_options_that_exclude_rounds_of_steps_are_refused(job: Any) -> None:
    job.write(30)
    job.up("--model", "private")
    job.apply(more="")
    with pytest.raises(ValueError, match="this job's model is 'private'"):
        headrace.dataset("rows").steps(20, rounds=True)
