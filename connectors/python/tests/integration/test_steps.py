"""The rows of the table in docs/CUTS.md, Steps: a cut at a step names exactly the records that the
table says, and after a restore exactly the others come."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
from headrace import _cuts
from headrace import _manifest as manifest
from test_checkpoints import ids_of

SMALL = "lease: {initial: 1KiB, min: 1KiB, max: 1KiB}\n"


@pytest.fixture
def ck(job: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Any, Any]]:
    """A stream and a Checkpointer of a replicated model of one rank."""
    job.rows = job.write(1000)
    job.up("--model", "replicated")
    job.apply(more=getattr(request, "param", ""))
    with headrace.dataset("rows").batches(50) as stream, headrace.Checkpointer(tmp_path, stream) as ck:
        assert ck.restore() is None
        yield stream, ck


def in_cut(job: Any, path: str) -> list[int]:
    return list(ids_of(job, manifest.load(f"{path}/{manifest.FILE_NAME}").cut).tolist())


def rest(tmp_path: Path, **more: Any) -> list[int]:
    """The ids that a new process gets after it has restored."""
    headrace.shutdown()
    ids: list[int] = []
    with headrace.dataset("rows").batches(50, **more) as stream:
        assert headrace.Checkpointer(tmp_path, stream).restore() is not None
        for b in stream:
            ids += b["id"].tolist()
            stream.step()
    return ids


def test_several_batches_of_one_step_are_in_its_cut_together(job: Any, ck: Any, tmp_path: Path) -> None:
    stream, saver = ck
    first = [i for _ in range(3) for i in next(stream)["id"].tolist()]
    stream.step(1, batches=3)
    held = next(stream), next(stream)  # batches of the next step, which is not stepped yet
    path = saver.save(1, {}).wait(300)
    assert in_cut(job, path) == sorted(first)
    stream.step(2, batches=2)
    both = sorted(first + [i for b in held for i in b["id"].tolist()])
    assert in_cut(job, saver.save(2, {}).wait(300)) == both
    assert sorted(rest(tmp_path)) == sorted(set(range(job.rows)) - set(both))


def test_a_skipped_step_has_used_its_batches_up(job: Any, ck: Any, tmp_path: Path) -> None:
    stream, saver = ck
    used: list[int] = []
    weights = np.zeros(1)
    for step in range(1, 6):
        b = next(stream)
        used += b["id"].tolist()
        if step != 3:  # the update of step 3 is skipped, as after an overflow of its gradient
            weights += b["id"].sum()
        stream.step(step)
    path = saver.save(5, {"w": weights}).wait(300)
    assert in_cut(job, path) == sorted(used)
    assert not set(used) & set(rest(tmp_path))


@pytest.mark.parametrize("ck", [SMALL], indirect=True)
def test_a_batch_over_several_shards_is_in_the_cut_whole(job: Any, ck: Any, tmp_path: Path) -> None:
    stream, saver = ck
    used: list[int] = []
    over = 0
    for step in range(1, 8):
        b = next(stream)
        over += len(b.ranges) > 1
        used += b["id"].tolist()
        stream.step(step)
    assert over > 0, "no batch spans two shards, so this test has tested nothing"
    assert in_cut(job, saver.save(7, {}).wait(300)) == sorted(used)
    assert sorted(rest(tmp_path)) == sorted(set(range(job.rows)) - set(used))


def test_what_holds_no_record_rides_with_the_record_before_it(job: Any, tmp_path: Path) -> None:
    lines = [job.line(i) + "\n" * (i % 3) for i in range(400)]
    job.data.joinpath("day_0.tsv").write_text("".join(lines) + "\n" * 500)
    job.data.joinpath("day_1.tsv").write_text("\n" * 300)  # a file without a record
    job.up("--model", "replicated")
    job.apply()
    used: list[int] = []
    with headrace.dataset("rows").batches(50) as stream, headrace.Checkpointer(tmp_path, stream) as saver:
        for b in stream:
            used += b["id"].tolist()
            step = stream.step()
            if step == 4:
                path = saver.save(step, {}).wait(300)
                assert in_cut(job, path) == used
        last = manifest.load(f"{saver.save(step, {}).wait(300)}/{manifest.FILE_NAME}").cut
    assert used == list(range(400))
    (partition,) = last["datasets"][0]["partitions"]
    assert partition["done"] == 1  # its pass is finished
    assert partition["done_units"]["acked"] == sum(f.stat().st_size for f in job.data.iterdir())
    assert partition["done_records"]["rows"] == 400
    assert rest(tmp_path) == []


def test_what_is_read_without_steps_is_in_every_cut(job: Any, tmp_path: Path) -> None:
    n = job.write(1000)
    job.up("--model", "replicated")
    job.apply()
    with headrace.dataset("rows").batches(50, track=False) as stream:
        ck = headrace.Checkpointer(tmp_path, stream)
        assert ck.restore() is None
        ids = [i for b in stream for i in b["id"].tolist()]
        assert sorted(ids) == list(range(n))
        with headrace.dataset("rows").batches(50) as other:
            assert next(other, None) is None  # the untracked stream has acked all records
            path = ck.save(other.step(batches=0), {}).wait(300)
    assert in_cut(job, path) == list(range(n))


# Rank 1 of 2. It opens its stream at its first command. Rank 0 has all batches in hand by then, so
# rank 1 can take none.
OTHER = """
import headrace, sys

headrace.init(rank=1, world_size=2)
headrace.Checkpointer(sys.argv[1]).restore()
print("restored", flush=True)
stream = None
while line := sys.stdin.readline().split():
    stream = stream or headrace.dataset("rows").batches(50, rounds=False)
    if line[0] == "idle":
        stream.step(int(line[1]), batches=0)
    else:
        print("got", len(list(stream)), flush=True)
"""


@pytest.fixture
def pair(job: Any, tmp_path: Path) -> Iterator[Any]:
    """Two ranks of a replicated model: this process, which has taken the only two batches, and another
    one, which follows the test's commands."""
    job.rows = job.write(100)
    job.up("--model", "replicated")
    job.apply()
    other = job.trainer(OTHER.replace("sys.argv[1]", repr(str(tmp_path))), stdin=True)
    other.printed(1)
    headrace.init(rank=0, world_size=2)

    def tell(line: str) -> None:
        other.process.stdin.write(f"{line}\n".encode())
        other.process.stdin.flush()

    with headrace.dataset("rows").batches(50, rounds=False) as stream:
        ck = headrace.Checkpointer(tmp_path, stream)
        assert ck.restore() is None
        yield stream, ck, tell, [next(stream)["id"].tolist() for _ in range(2)]
    other.process.stdin.close()
    assert "got" not in other.ended().replace("got 0", ""), "rank 1 took a batch"


def test_a_cut_waits_for_an_idle_rank_to_say_the_step(
    job: Any, pair: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, ck, tell, (first, second) = pair
    stream.step(3, batches=1)
    say = _cuts._say

    def soon(trainer: Any, fields: dict[str, Any], deadline: float, what: str) -> Any:
        """The master's deadline comes after 0.2 s. Its answer has more time."""
        return say(trainer, {**fields, "deadline_ms": 200}, deadline + 300, what)

    with monkeypatch.context() as m:
        m.setattr(_cuts, "_say", soon)
        with pytest.raises(headrace.CheckpointError, match="rank 1 has reported step 0"):
            ck.cut(3)
    saved = ck.save(3, {})
    tell("idle 3")
    assert in_cut(job, saved.wait(300)) == sorted(first)
    saved = ck.save(stream.step(4, batches=1), {})
    tell("idle 6")  # reporting step 6 also reports the steps below it
    assert in_cut(job, saved.wait(300)) == sorted(first + second)


def test_a_rank_that_was_told_the_end_counts_as_having_said_every_step(job: Any, pair: Any) -> None:
    stream, ck, tell, (first, second) = pair
    stream.step(5, batches=2)
    assert next(stream, None) is None
    saved = ck.save(5, {})
    tell("end")
    assert in_cut(job, saved.wait(300)) == sorted(first + second) == list(range(job.rows))
