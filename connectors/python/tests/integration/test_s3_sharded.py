"""Sharded and shared models with checkpoints in a bucket of a real S3 server, with kills at every
point: `make test-s3`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
from headrace import _manifest as manifest
from s3_server import Server, server
from seen import ids_of
from test_exact import World, end
from test_s3_checkpoints import keys, listed, of_line, surroundings, url

__all__ = ["server", "surroundings"]  # fixtures

# A rank of a sharded group. Its part counts how often it has seen each id. All ranks step together:
# each writes a file for each step. A single rank goes on with the parts of all.
TRAINER = """
import headrace, json, os, signal, sys, time
import numpy as np

cfg = json.loads(os.environ["TRAINER"])
trainer = headrace.init()
rank, world = trainer.rank, trainer.world_size
options = cfg["options"]

class Checkpointer(headrace.Checkpointer):
    def _reached(self, point):
        if point == cfg["die"] and trainer.last_step >= cfg["die_after"] and rank == cfg["victim"]:
            print(f"\\ndies at {point} {trainer.last_step}\\n", end="", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

seen = np.zeros(cfg["rows"], np.int64)
rows = headrace.dataset("rows")
with rows.batches(50, rounds=False) as stream, Checkpointer(cfg["dir"], stream, sharded=True, **options) as ck:
    restored = ck.restore()
    if restored is not None and restored.shards == world:
        assert restored.state["rank"] == rank
        seen[:] = restored.state["seen"]
    elif restored is not None:
        for other in range(rank, restored.shards, world):
            part = restored.shard(other)
            assert part["rank"] == other
            seen += part["seen"]
    step = restored.step if restored is not None else 0
    print("restored", step, int(seen.sum()), restored.source if restored else "-", flush=True)
    del restored
    batches = iter(stream)
    while step < cfg["stop"]:
        b = next(batches)
        np.add.at(seen, b["id"], 1)
        if options.get("deltas"):
            ck.touch("seen", b["id"])
        step = stream.step(step + 1)
        if step % 5 == 0 or cfg["each"]:
            now = seen.copy()
            saved = ck.save(step, {"rank": rank, "seen": now}, storage=step % 5 == 0)
            now[:] = -1  # a torn copy would have it
            saved.wait()
            print("saved", step, flush=True)
        open(f"{cfg['sync']}-{step}-{rank}", "w").close()
        while not all(os.path.exists(f"{cfg['sync']}-{step}-{r}") for r in range(world)):
            time.sleep(0.002)
print("end", step, flush=True)
"""

DELTAS: dict[str, Any] = {"deltas": ["seen"], "full_every": 5}
# The point at which a rank dies, and the rank. Only rank 0 writes the manifest. At "sealed" the copy
# that is uploaded is complete in memory.
STORAGE = [("captured", 1), ("frozen", 0), ("sealed", 1), ("part", 1), ("part", 0), ("renamed", 0), ("bound", 0)]
MEMORY = [("copying", 1), ("frozen", 1), ("sealed", 0), ("part", 1), ("part", 0), ("renamed", 0), ("bound", 0)]


def copied(job: Any, server: Server) -> list[manifest.Manifest]:
    """Copies the checkpoints in the bucket to a folder, and finds them there."""
    return manifest.find(str(server.folder(f"{job.folder.name}/ckpt/", job.folder / "copied")))


def checked(job: Any, server: Server, rows: int) -> list[manifest.Manifest]:
    """Checks that the parts of each checkpoint together hold exactly the records of its cut."""
    found = copied(job, server)
    for m in found:
        assert headrace._restore._verified(m) is None
        counts = np.zeros(rows, np.int64)
        np.add.at(counts, ids_of(job, m.cut), 1)
        parts = [headrace._restore._load(m, rank)["seen"] for rank in range(int(m.fields["world_size"]))]
        assert np.array_equal(sum(parts), counts), m.path
    return found


def settings(job: Any, life: int, rows: int, stop: int, **more: Any) -> dict[str, str]:
    cfg = {"dir": url(job), "sync": str(job.folder / f"at-{life}"), "rows": rows, "stop": stop, "each": False}
    nobody = {"die": "", "die_after": 0, "victim": 0, "options": {}}
    return {"TRAINER": json.dumps({**cfg, **nobody, **more})}


def group(job: Any, life: int, rows: int, stop: int, world: int = 2, **more: Any) -> list[Any]:
    env = {**settings(job, life, rows, stop, **more), "HEADRACE_WORLD_SIZE": str(world)}
    return [job.trainer(TRAINER, HEADRACE_RANK=str(rank), **env) for rank in range(world)]


def restored(out: str) -> list[str]:
    return of_line(out, "restored")


def lose_memory(job: Any) -> None:
    """Removes the slots, as a restart of the node does."""
    root = job.env["HEADRACE_MEMORY_DIR"]
    shutil.rmtree(root)
    os.mkdir(root, 0o700)


@pytest.mark.parametrize(
    ("memory", "deltas"), [(False, False), (True, True)], ids=["uploaded", "in-memory-with-deltas"]
)
def test_a_crash_at_every_point_leaves_parts_that_are_together_their_cut(
    job: Any, server: Server, memory: bool, deltas: bool
) -> None:
    """At the end the master loses its state and the node its memory, and a single rank goes on with the
    parts of both."""
    n = job.write(30_000)
    up = job.up("--model", "replicated")
    job.apply()
    options = {"memory": memory, "keep": 3, **(DELTAS if deltas else {})}
    newest, may, dies = 0, {"0"}, 0
    for life, (point, victim) in enumerate(MEMORY if memory else STORAGE):
        # The checkpoints in memory may be newer than those in the bucket.
        before, dies = newest, (dies if memory else newest) + 10
        ranks = group(job, life, n, dies + 50, options=options, die=point, die_after=dies, victim=victim)
        out = ranks[victim].ended()
        assert ranks[victim].process.returncode == -signal.SIGKILL, out + job.logs()
        assert f"\ndies at {point} {dies}\n" in out, out
        ranks[1 - victim].process.kill()
        both = [restored(rank.ended()) for rank in ranks]
        assert both[0][1] == both[1][1], both
        assert sum(int(line[2]) for line in both) == 100 * int(both[0][1]), both
        assert both[0][1] in may or memory, both
        found = checked(job, server, n)
        newest = found[0].step if found else 0
        may = {str(newest)}
        goal = dies if point in ("renamed", "bound") else dies - 5
        if memory:  # uploads may be slower than the trainers
            assert before <= newest <= dies, (point, out)
        elif (point, victim) == ("part", 1):  # rank 0 finds all parts, and its agent may still write the manifest
            assert newest in (goal, dies), out
            may.add(str(dies))
        else:
            assert newest == goal, (point, out)
    ranks = group(job, 100, n, (dies if memory else newest) + 22, options=options)
    both = [restored(rank.ended()) for rank in ranks]
    assert sum(int(line[2]) for line in both) == 100 * int(both[0][1]), both
    found = checked(job, server, n)
    kept = [m for m in found if not any(m.cut_id in other.needs for other in found)]
    assert len(kept) <= 3, [m.path for m in found]
    assert any(m.needs for m in found) == deltas
    newest = found[0].step
    up.kill()
    up.wait()
    shutil.rmtree(job.folder / "state")
    lose_memory(job)
    os.unlink(job.socket) if os.path.exists(job.socket) else None
    job.up("--model", "replicated")
    job.apply()
    (alone,) = group(job, 101, n, newest + 10, world=1, options=options)
    out = alone.ended()
    assert restored(out)[1:] == [str(newest), str(100 * newest), "storage"], out + job.logs()
    checked(job, server, n)
    job.headrace("ckpt", "verify", url(job))


def test_a_part_that_was_changed_in_the_bucket_is_passed_over_by_every_rank(job: Any, server: Server) -> None:
    """The part still has the right size. Rank 0 does not download rank 1's part; it notices the change
    by the checksum that S3 keeps."""
    n = job.write(20_000)
    job.up("--model", "replicated")
    job.apply()
    for rank in group(job, 0, n, 12):
        assert "end 12" in rank.ended()
    newest, older = checked(job, server, n)
    assert (newest.step, older.step) == (10, 5)
    (part,) = [f for f in newest.files if f["rank"] == 1]
    at = f"{Path(newest.folder).name}/{part['path']}"
    file = job.folder / "copied" / at
    file.write_bytes(file.read_bytes()[:-1] + b"\xff")
    server.put(f"{job.folder.name}/ckpt/{at}", file)
    outs = [rank.ended() for rank in group(job, 1, n, 8)]
    for out in outs:
        assert restored(out)[1] == "5", out + job.logs()
        assert "its checksum is" in out, out


def test_a_checkpoint_that_killed_ranks_left_in_memory_goes_to_the_bucket_with_all_parts(
    job: Any, server: Server
) -> None:
    """`headrace run` writes it to the bucket before it starts the ranks again."""
    n = job.write(20_000)
    (job.folder / "rows.yaml").write_text(job.spec("rows"))
    program = job.folder / "train.py"
    # No rank is killed in the second life.
    program.write_text(TRAINER.replace('["die"]', '["die"] and os.environ["HEADRACE_ATTEMPT"] == "0"').replace(
        "cfg['sync']}-", "cfg['sync']}-{os.environ['HEADRACE_ATTEMPT']}-"
    ))  # fmt: skip
    how = settings(job, 0, n, 20, options={"memory": True}, each=True, die="sealed", die_after=13, victim=1)
    args = ["run", "--model", "replicated", "-f", str(job.folder / "rows.yaml"), "--nproc-per-node", "2"]
    args += ["--max-restarts", "2", "--http", "off", "--socket", job.socket, "--", sys.executable, str(program)]
    out = subprocess.run([job.binary, *args], env={**job.env, **how}, capture_output=True, text=True, timeout=800)
    text = out.stdout + out.stderr
    assert out.returncode == 0, text
    assert "dies at sealed 13" in text, text
    of = {m.step for m in checked(job, server, n)}
    step = next(s for s in (13, 12) if f"the checkpoint of step {s} lay in memory only; it is on storage now" in text)
    assert f"restored {step} " in text, text
    assert of, text
    assert max(of) == 20, of


def test_a_shared_model_is_saved_exactly_in_a_bucket_also_after_its_saver_was_killed(job: Any, server: Server) -> None:
    n = job.write(20_000)
    job.up("--model", "shared")
    job.apply()
    world = World(job, n, dir=url(job))
    world.checked = lambda repeats=0: len(exact(job, server, n))  # type: ignore[method-assign]
    others = [world.start(1, pause=0.01), world.start(2, pause=0.01)]
    saver = world.start(0, kill=0)
    saver.process.wait(300)
    assert saver.process.returncode == -signal.SIGKILL, saver.ended() + job.logs()
    out, *_ = end(world, world.start(0), *others)
    assert "failed" not in out, out + job.logs()
    assert {v["state"] for v in listed(job)} == {"whole"}


def exact(job: Any, server: Server, rows: int) -> list[manifest.Manifest]:
    """Checks that each checkpoint of a shared model holds exactly its cut."""
    found = copied(job, server)
    for m in found:
        assert manifest.verify(m) is None
        counts = np.zeros(rows, np.int64)
        np.add.at(counts, ids_of(job, m.cut), 1)
        assert np.array_equal(headrace._restore._load(m, 0)["seen"], counts), m.path
    return found


def test_a_lost_shared_model_goes_back_to_the_bucket_and_gets_exactly_the_rest(
    job: Any, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = job.write(10_000)
    job.up("--model", "shared")
    job.apply()
    seen = np.zeros(n, np.int64)
    with headrace.dataset("rows").batches(50) as stream, headrace.Checkpointer(url(job), stream, keep=2) as ck:
        for count in range(1, 41):
            np.add.at(seen, next(stream)["id"], 1)
            step = stream.step()
            if count % 10 == 0 and count < 40:
                ck.save(step, lambda: {"seen": seen}).wait(300)
                seen[:1] += 7  # a torn copy would have it
                seen[:1] -= 7
    assert [m.step for m in exact(job, server, n)] == [30, 20], "keep=2"
    assert len([k for k in keys(job, server) if k != "headrace-memory-id"]) == 4, keys(job, server)
    headrace.shutdown()
    lose_memory(job)
    with headrace.dataset("rows").batches(50) as stream, headrace.Checkpointer(url(job), stream, keep=2) as ck:
        restored = ck.restore()
        assert restored is not None
        assert (restored.step, restored.source) == (30, "storage")
        back = restored.state["seen"]
        counts = np.zeros(n, np.int64)
        np.add.at(counts, ids_of(job, restored.cut.body), 1)
        assert np.array_equal(back, counts)
        for b in stream:
            np.add.at(back, b["id"], 1)
            step = stream.step()
        ck.save(step, lambda: {"seen": back}).wait(300)
    assert np.array_equal(back, np.ones(n))
