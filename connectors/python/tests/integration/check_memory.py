"""Checkpoints in memory against the real agent and master: they outlive the trainer
and the agent, and hold exactly the records of their cut."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agent import poll
from headrace import _manifest as manifest
from headrace import _slots
from seen import checked, ids_of, settings

# The model says how often it has seen each id. `copies` are as large as the test wants
# them, and have to be what the model was when save() was called.
TRAINER = """
import headrace, json, os, signal, sys, time
import numpy as np

cfg = json.loads(os.environ["TRAINER"])

class Checkpointer(headrace.Checkpointer):
    def _reached(self, point):
        if cfg.get("die") == point and cfg.get("die_after", 0) <= self._trainer.last_step:
            print(f"\\ndies at {point} {self._trainer.last_step}\\n", end="", flush=True)  # "saved" may be half printed
            os.kill(os.getpid(), signal.SIGKILL)

    def _by_agent(self, pinned, deadline):
        return not cfg.get("alone") and super()._by_agent(pinned, deadline)

seen = np.zeros(cfg["rows"], np.int64)
trainer = headrace.init()
with headrace.dataset("rows").batches(50) as stream, Checkpointer(cfg["dir"], stream, memory=True) as ck:
    restored = ck.restore()
    if restored is not None:
        seen[:] = restored.state["seen"]
        assert restored.state["copies"].shape == (40, 1000)
        assert (restored.state["copies"] == restored.step).all(), "the checkpoint is torn"
        assert restored.state["step"] == restored.step
    step = restored.step if restored is not None else 0
    source, why = (restored.source, restored.why) if restored is not None else ("-", "")
    print("restored", step, int(seen.sum()), source, why, flush=True)
    del restored
    copies = np.zeros((40, 1000))
    for b in stream:
        np.add.at(seen, b["id"], 1)
        step = stream.step(step + 1)
        copies[:] = step
        saved = ck.save(step, {"seen": seen, "copies": copies, "step": step}, storage=step % cfg["every"] == 0)
        copies[:] = -1  # a tear would show this
        seen[:] += 1000000
        seen[:] -= 1000000
        if cfg.get("wait", True):
            saved.wait_memory()
        if cfg.get("stored") and step % cfg["every"] == 0:
            saved.wait()
        print("saved", step, flush=True)
        if step == cfg.get("stop"):
            os.kill(os.getpid(), signal.SIGKILL)
        while step == cfg.get("waits") and not os.path.exists(cfg["dir"] + "/go"):
            time.sleep(0.01)
    copies[:] = step
    ck.save(step, {"seen": seen, "copies": copies, "step": step}).wait() if step != 0 else None
print("end", step, *seen.tolist(), flush=True)
"""


# Rank 0 is killed once, by itself. A replicated group steps together, through a file for each step.
KILLED_ONCE = """
import headrace, json, os, signal, sys, time
import numpy as np

cfg = json.loads(os.environ["TRAINER"])
trainer = headrace.init()
with headrace.dataset("rows").batches(50) as stream, headrace.Checkpointer(cfg["dir"], stream, memory=True) as ck:
    restored = ck.restore()
    step = restored.step if restored is not None else 0
    total = int(restored.state["total"]) if restored is not None else 0
    print("restored", step, total, restored.source if restored else "-", flush=True)
    del restored
    for b in stream:
        total += len(b)
        step = stream.step(step + 1)
        if step <= 21:
            ck.save(step, {"total": total, "w": np.full(5000, step)}, storage=False).wait_memory()
        while step == cfg["stop"] and trainer.rank != 0 and not os.path.exists(cfg["dir"] + "/killed"):
            time.sleep(0.01)  # else it may train all that there is before rank 0 comes so far
        if step == cfg["stop"] and trainer.rank == 0 and os.environ["HEADRACE_ATTEMPT"] == "0":
            open(cfg["dir"] + "/killed", "x").close()
            os.kill(os.getpid(), signal.SIGKILL)
print("end", step, total, flush=True)
"""


@pytest.fixture(autouse=True)
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Slots of this test alone, in the real tmpfs."""
    folder = Path("/dev/shm") / f"headrace-test-{os.getpid()}-{tmp_path.name}"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv(_slots.ROOT_VARIABLE, str(folder))
    yield folder
    shutil.rmtree(folder)


def slots_of(job: Any, rank: int = 0) -> list[str]:
    return _slots.Folder(str(job.folder / "ckpt"), "default").of(rank)


def in_memory(job: Any, rank: int = 0) -> list[dict[str, Any]]:
    """What the complete slots say of themselves."""
    return [about for path in slots_of(job, rank) if (about := _slots.peek(path)) is not None]


def of_end(out: str) -> np.ndarray:
    lines = [line for line in out.splitlines() if line.startswith("end ")]
    assert lines, out
    return np.array([int(w) for w in lines[0].split()[2:]])


def restored(out: str) -> list[str]:
    (line,) = [line for line in out.splitlines() if line.startswith("restored ") and line.split()[1].isdigit()]
    return line.split()


@pytest.mark.parametrize("model", ["replicated", "private"])
def test_a_killed_trainer_comes_back_from_memory_with_exactly_its_records(job: Any, model: str) -> None:
    n = job.write(5000)
    job.up("--model", model)
    job.apply()
    env = {_slots.ROOT_VARIABLE: os.environ[_slots.ROOT_VARIABLE]}
    last = 0
    for stop in (13, 28, 61):
        trainer = job.trainer(TRAINER, **settings(job, n, stop=stop, every=1000), **env)
        out = trainer.ended()
        assert trainer.process.returncode == -signal.SIGKILL, out + job.logs()
        assert restored(out)[1:4] == [str(last), str(50 * last), "memory" if last else "-"], out
        last = stop
    assert manifest.find(str(job.folder / "ckpt")) == []
    out = job.trainer(TRAINER, **settings(job, n, every=1000), **env).ended()
    assert restored(out)[1:4] == ["61", "3050", "memory"], out + job.logs()
    assert np.array_equal(of_end(out), np.ones(n)), out + job.logs()
    assert checked(job, n) == 1
    assert slots_of(job) == []  # it ended as it should, with everything on storage


def test_memory_outlives_the_agent_and_the_master_too(job: Any) -> None:
    n = job.write(3000)
    up = job.up("--model", "replicated")
    job.apply()
    env = {_slots.ROOT_VARIABLE: os.environ[_slots.ROOT_VARIABLE]}
    trainer = job.trainer(TRAINER, **settings(job, n, waits=17, every=5), **env)
    trainer.printed(18)
    poll(lambda: len(manifest.find(str(job.folder / "ckpt"))) > 0)
    up.kill()
    up.wait()
    trainer.process.kill()
    trainer.process.wait()
    os.unlink(job.socket)
    job.up("--model", "replicated")
    out = job.trainer(TRAINER, **settings(job, n, every=5), **env).ended()
    assert restored(out)[1:4] == ["17", "850", "memory"], out + job.logs()
    assert np.array_equal(of_end(out), np.ones(n)), out + job.logs()
    assert checked(job, n) > 0


POINTS = ["copying", "captured", "frozen", "sealed", "files", "manifest", "renamed", "bound"]


@pytest.mark.parametrize("model", ["replicated", "private"])
def test_a_crash_at_every_point_leaves_the_newest_checkpoint_that_was_whole(job: Any, model: str) -> None:
    """Each save to storage is awaited. One that still runs keeps its slot, so the next save
    takes the other slot, in which the newest checkpoint lies."""
    n = job.write(6000)
    job.up("--model", model)
    job.apply()
    env = {_slots.ROOT_VARIABLE: os.environ[_slots.ROOT_VARIABLE]}
    last = 0
    for number, point in enumerate(POINTS):
        dies = 10 * (number + 1)
        trainer = job.trainer(
            TRAINER,
            **settings(job, n, die=point, die_after=dies, every=10, stored=True, alone=point in ("files", "manifest")),
            **env,
        )
        out = trainer.ended()
        assert trainer.process.returncode == -signal.SIGKILL, out + job.logs()
        assert restored(out)[1:3] == [str(last), str(50 * last)], out + job.logs()
        assert f"\ndies at {point} {dies}\n" in out, out
        checked(job, n)
        whole = in_memory(job)
        for about in whole:
            counts = np.zeros(n, np.int64)
            np.add.at(counts, ids_of(job, about["manifest"]["cut"]), 1)
            assert counts.sum() == 50 * about["manifest"]["step"]
        last = max(about["manifest"]["step"] for about in whole)
        assert last == (dies - 1 if point in ("copying", "captured", "frozen") else dies), (point, out)
    out = job.trainer(TRAINER, **settings(job, n, every=10), **env).ended()
    assert restored(out)[1] == str(last), out + job.logs()
    assert np.array_equal(of_end(out), np.ones(n)), out[:2000] + job.logs()
    checked(job, n)


def test_what_was_changed_in_memory_is_passed_over(job: Any) -> None:
    n = job.write(3000)
    job.up("--model", "replicated")
    job.apply()
    env = {_slots.ROOT_VARIABLE: os.environ[_slots.ROOT_VARIABLE]}
    job.trainer(TRAINER, **settings(job, n, stop=17, every=5), **env).ended()
    steps = {int(about["manifest"]["step"]): path for path in slots_of(job) if (about := _slots.peek(path)) is not None}
    assert len(steps) == 2, steps
    assert max(steps) == 17, steps  # the other is 16, or 15 if it was being written to storage
    with open(steps[17], "r+b") as slot:
        slot.seek(4096 + 4096 + 100)
        byte = slot.read(1)
        slot.seek(-1, os.SEEK_CUR)
        slot.write(bytes([byte[0] ^ 1]))
    out = job.trainer(TRAINER, **settings(job, n, every=5), **env).ended()
    assert restored(out)[1:4] == [str(min(steps)), str(50 * min(steps)), "memory"], out + job.logs()
    assert np.array_equal(of_end(out), np.ones(n)), out + job.logs()


@pytest.mark.parametrize(("model", "ranks"), [("replicated", 1), ("replicated", 2), ("private", 2)])
def test_run_writes_what_a_killed_trainer_left_in_memory_before_it_starts_again(
    job: Any, memory: Path, model: str, ranks: int
) -> None:
    n = job.write(6000)
    (job.folder / "rows.yaml").write_text(job.spec("rows"))
    script = job.folder / "train.py"
    script.write_text(KILLED_ONCE)
    env = {**job.env, **settings(job, n, every=100000, stop=21), _slots.ROOT_VARIABLE: str(memory)}
    args = ["run", "--model", model, "-f", str(job.folder / "rows.yaml"), "--nproc-per-node", str(ranks)]
    args += ["--max-restarts", "3", "--http", "off", "--socket", job.socket, "--", sys.executable, str(script)]
    out = subprocess.run([job.binary, *args], env=env, capture_output=True, text=True, timeout=120)
    text = out.stdout + out.stderr
    assert out.returncode == 0, text
    assert "the checkpoint of step 21 lay in memory only; it is on storage now" in text, text
    assert "[0] restored 21 1050 memory" in text, text
    found = manifest.find(str(job.folder / "ckpt"))
    assert all(manifest.verify(m) is None for m in found)
    assert 21 in {m.step for m in found}, [m.path for m in found]


def test_without_memory_the_newest_on_storage_is_taken_and_the_lost_one_is_voided(job: Any, memory: Path) -> None:
    n = job.write(3000)
    job.up("--model", "replicated")
    job.apply()
    env = {_slots.ROOT_VARIABLE: str(memory)}
    # Awaited: a save to storage that has to wait for the one before may be that of step 17.
    trainer = job.trainer(TRAINER, **settings(job, n, waits=17, every=5, stored=True), **env)
    trainer.printed(18)
    assert max(m.step for m in manifest.find(str(job.folder / "ckpt"))) == 15
    trainer.process.kill()
    trainer.process.wait()
    for folder in memory.iterdir():
        shutil.rmtree(folder)  # as if the node had been started again
    out = job.trainer(TRAINER, **settings(job, n, every=5), **env).ended()
    assert restored(out)[1:4] == ["15", "750", "storage"], out + job.logs()
    assert np.array_equal(of_end(out), np.ones(n)), out + job.logs()
    lost = [cut for cut in json.loads(job.headrace("ckpt", "list", "-o", "json").stdout) if cut["step"] == 17]
    assert "voided" in {cut["state"] for cut in lost}, lost


def test_too_little_room_is_told_once_and_storage_goes_on(job: Any, memory: Path) -> None:
    n = job.write(3000)
    job.up("--model", "replicated")
    job.apply()
    code = TRAINER.replace("saved.wait_memory()", "pass").replace(
        "cfg = json", "from headrace import _slots; import errno\n"
        "def no_room(path, more): raise OSError(errno.ENOSPC, 'No space left on device', path)\n"
        "_slots._affordable = no_room\ncfg = json"
    )  # fmt: skip
    out = job.trainer(code, **settings(job, n, every=5), **{_slots.ROOT_VARIABLE: str(memory)}).ended()
    assert out.count("checkpoints stay on storage only") == 1, out
    assert f"in {memory}" in out, out
    assert "--shm-size" in out, out
    assert np.array_equal(of_end(out), np.ones(n)), out + job.logs()
    assert checked(job, n) > 0


@pytest.fixture
def small(memory: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A tmpfs of so many KiB. Only root can make one."""
    if os.getuid() != 0:
        pytest.fail("this test mounts a tmpfs: run it as root", pytrace=False)
    folder = memory / "small"
    folder.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={request.param}k,mode=700", "none", folder], check=True)
    monkeypatch.setenv(_slots.ROOT_VARIABLE, str(folder))
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("small", [1024, 2048], indirect=True, ids=["no-slot", "one-slot"])
def test_a_full_tmpfs_is_told_once_and_storage_goes_on(job: Any, small: Path) -> None:
    n = job.write(3000)
    job.up("--model", "replicated")
    job.apply()
    env = {_slots.ROOT_VARIABLE: str(small)}
    code = TRAINER.replace("saved.wait_memory()", "pass")
    out = job.trainer(code, **settings(job, n, every=5, stop=32), **env).ended()
    assert out.count("checkpoints stay on storage only") == 1, out
    assert f"in {small}" in out, out
    assert "No space left on device" in out, out
    assert checked(job, n) > 0
    out = job.trainer(code, **settings(job, n, every=5), **env).ended()
    assert int(restored(out)[1]) >= 25, out + job.logs()
    assert restored(out)[3] == "storage", out + job.logs()
    assert np.array_equal(of_end(out), np.ones(n)), out + job.logs()
    assert checked(job, n) > 0


def test_top_tells_how_old_the_checkpoint_in_memory_is(job: Any) -> None:
    n = job.write(3000)
    job.up("--model", "replicated")
    job.apply()
    env = {_slots.ROOT_VARIABLE: os.environ[_slots.ROOT_VARIABLE]}
    trainer = job.trainer(TRAINER, **settings(job, n, waits=17, every=1000), **env)
    trainer.printed(18)
    text = job.headrace("top", "--once").stdout
    (line,) = [line for line in text.splitlines() if line.startswith("in memory only: step 17")]
    assert line.split()[7:] == ["ago", "kept", "2"], text  # the two slots
    shown = json.loads(job.headrace("top", "--once", "-o", "json").stdout)["in_memory"]
    assert shown["step"] == 17, shown
    assert 0 < shown["age_seconds"] < 100, shown
    trainer.process.kill()


# A rank of a replicated group, on a node of its own. All step together, through a file
# for each step. Rank 1 is killed at step 21 of its first life, before its copy is whole.
ON_TWO_NODES = """
import headrace, json, os, signal, sys, time
import numpy as np

cfg = json.loads(os.environ["TRAINER"])
trainer = headrace.init()

class Checkpointer(headrace.Checkpointer):
    def _reached(self, point):
        if point == "frozen" and trainer.last_step == cfg["stop"] and trainer.rank == cfg["dies"]:
            os.kill(os.getpid(), signal.SIGKILL)

with headrace.dataset("rows").batches(50, rounds=False) as stream, Checkpointer(cfg["dir"], stream, memory=True) as ck:
    restored = ck.restore()
    step = restored.step if restored is not None else 0
    total = int(restored.state["total"]) if restored is not None else 0
    where = (restored.source, restored.why) if restored else ("-", "")
    if restored is not None:
        assert (restored.state["w"] == step).all()
    print("restored", step, total, *where, flush=True)
    del restored
    def both(step):
        open(f"{cfg['dir']}/{cfg['life']}-{step}-{trainer.rank}", "w").close()
        while not os.path.exists(f"{cfg['dir']}/{cfg['life']}-{step}-{1 - trainer.rank}"):
            time.sleep(0.002)
    batches = iter(stream)
    while step < 30:
        total += len(next(batches))
        step = stream.step(step + 1)
        w = np.full(5000, step)
        saved = ck.save(step, {"total": total, "w": w}, storage=False)
        w[:] = -1
        saved.wait_memory()
        both(step)
    print("end", step, flush=True)
"""


def test_a_group_on_two_nodes_goes_back_to_the_newest_that_both_hold(job: Any, memory: Path) -> None:
    job.write(20000)
    job.up("--model", "replicated")
    job.apply()
    for node in (0, 1):
        (memory / f"node-{node}").mkdir(mode=0o700)
    (job.folder / "ckpt").mkdir()

    def group(life: int, stop: int, dies: int) -> list[str]:
        ranks = [
            job.trainer(
                ON_TWO_NODES,
                **settings(job, 0, life=life, stop=stop, dies=dies),
                **{_slots.ROOT_VARIABLE: str(memory / f"node-{rank}")},
                HEADRACE_RANK=str(rank),
                HEADRACE_WORLD_SIZE="2",
            )
            for rank in (0, 1)
        ]
        if stop:
            ranks[dies].process.wait(60)
            ranks[1 - dies].process.kill()
        return [r.ended() for r in ranks]

    group(0, stop=21, dies=1)
    out = group(1, stop=25, dies=0)
    assert [restored(o)[1:4] for o in out] == [["20", str(t), "memory"] for t in (1000, 1000)], out
    # Rank 0's node is lost: nobody can go back to what lies in memory.
    shutil.rmtree(memory / "node-0")
    (memory / "node-0").mkdir(mode=0o700)
    out = group(2, stop=0, dies=0)
    assert [restored(o)[1:4] for o in out] == [["0", "0", "-"], ["0", "0", "-"]], out


def test_a_changed_bit_of_one_rank_takes_the_checkpoint_from_the_whole_group(job: Any, memory: Path) -> None:
    """The others must not choose what that rank cannot read."""
    job.write(20000)
    job.up("--model", "replicated")
    job.apply()
    (job.folder / "ckpt").mkdir()
    env = {_slots.ROOT_VARIABLE: str(memory), "HEADRACE_WORLD_SIZE": "2"}

    def group(life: int, stop: int) -> list[Any]:
        how = settings(job, 0, life=life, stop=stop, dies=1)
        return [job.trainer(ON_TWO_NODES, **how, **env, HEADRACE_RANK=str(rank)) for rank in (0, 1)]

    ranks = group(0, 21)
    ranks[1].process.wait(60)
    ranks[0].process.kill()
    ranks[0].process.wait()
    steps = {int(a["manifest"]["step"]): p for p in slots_of(job, 1) if (a := _slots.peek(p)) is not None}
    with open(steps[20], "r+b") as slot:
        slot.seek(4096 + 4096 + 100)
        slot.write(b"\xff")
    for rank in group(1, 0):
        out = rank.ended()
        assert restored(out)[1] == "0", out + job.logs()


# A rank of a sharded group: each has a part of its own. All step together, through a file for each step.
SHARDED = """
import headrace, json, os, signal, time
import numpy as np

cfg = json.loads(os.environ["TRAINER"])
trainer = headrace.init()
rows = headrace.dataset("rows")

class Checkpointer(headrace.Checkpointer):
    def _reached(self, point):
        if point == cfg.get("dies") and trainer.last_step == cfg["stop"] and trainer.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)

with rows.batches(50, rounds=False) as stream, Checkpointer(cfg["dir"], stream, memory=True, sharded=True) as ck:
    restored = ck.restore()
    step = restored.step if restored is not None else 0
    where = "-"
    if restored is not None:
        where = restored.source
        assert restored.state["rank"] == trainer.rank, restored.state
        assert (restored.state["w"] == 100 * step + trainer.rank).all(), restored.state
        assert restored.shards == 2 and restored.shard(trainer.rank)["rank"] == trainer.rank
    print("restored", step, step, where, flush=True)
    del restored
    batches = iter(stream)
    while step < cfg["stop"]:
        next(batches)
        step = stream.step(step + 1)
        w = np.full(50000, 100 * step + trainer.rank)
        saved = ck.save(step, {"rank": trainer.rank, "w": w}, storage=step % 10 == 0)
        w[:] = -1
        saved.wait_memory()
        if cfg.get("dies") and step % 10 == 0:
            saved.wait()  # else that slot is pinned, and a kill in mid copy goes back to it
        open(f"{cfg['dir']}/{cfg['life']}-{step}-{trainer.rank}", "w").close()
        while not os.path.exists(f"{cfg['dir']}/{cfg['life']}-{step}-{1 - trainer.rank}"):
            time.sleep(0.002)
    if cfg.get("kills"):
        ck._finish()
        print("saved", step, flush=True)
        time.sleep(600)
    saved = ck.save(step, {"rank": trainer.rank, "w": np.full(50000, 100 * step + trainer.rank)})
    saved.wait()
print("end", step, flush=True)
"""


def sharded(job: Any, memory: Path, life: int, stop: int, kills: bool = True, dies: str = "") -> list[Any]:
    env = {_slots.ROOT_VARIABLE: str(memory), "HEADRACE_WORLD_SIZE": "2"}
    how = settings(job, 0, life=life, stop=stop, kills=kills, dies=dies)
    return [job.trainer(SHARDED, **how, **env, HEADRACE_RANK=str(rank)) for rank in (0, 1)]


def killed(ranks: list[Any], step: int) -> None:
    """Once both have saved the step."""
    for rank in ranks:
        deadline = time.monotonic() + 120
        while f"saved {step}" not in (text := rank.log.read_text()):
            assert rank.process.poll() is None, text
            assert time.monotonic() < deadline, text
            time.sleep(0.01)
    for rank in ranks:
        rank.process.kill()
        rank.process.wait()


def test_each_rank_of_a_sharded_model_comes_back_from_memory_and_from_storage_with_its_part(
    job: Any, memory: Path
) -> None:
    job.write(20000)
    job.up("--model", "replicated")
    job.apply()
    (job.folder / "ckpt").mkdir()
    killed(sharded(job, memory, 0, stop=25), 25)
    ranks = sharded(job, memory, 1, stop=33)
    killed(ranks, 33)
    for rank in ranks:
        assert restored(rank.log.read_text())[1:4] == ["25", "25", "memory"], rank.log.read_text()
    # One rank's memory is lost: both go back to storage, where all parts of step 30 are.
    for path in slots_of(job, 1):
        os.unlink(path)
    out = [rank.ended() for rank in sharded(job, memory, 2, stop=36, kills=False)]
    for text in out:
        assert restored(text)[1:3] == ["30", "30"], text + job.logs()
        assert "end 36" in text
    assert restored(out[1])[3] == "storage", out  # rank 0 may have it in memory, too
    listed = json.loads(job.headrace("ckpt", "list", str(job.folder / "ckpt"), "-o", "json").stdout)
    assert next(v["step"] for v in listed if v["state"] == "whole") == 36, listed
    assert job.headrace("ckpt", "verify", str(job.folder / "ckpt")).returncode == 0


@pytest.mark.parametrize("point", ["copying", "frozen", "sealed"])
def test_a_rank_of_a_sharded_model_that_is_killed_takes_all_to_a_step_that_both_hold(
    job: Any, memory: Path, point: str
) -> None:
    job.write(20000)
    job.up("--model", "replicated")
    job.apply()
    (job.folder / "ckpt").mkdir()
    ranks = sharded(job, memory, 0, stop=25, dies=point)
    ranks[1].process.wait(120)
    ranks[0].process.kill()
    ranks[0].process.wait()
    ranks = sharded(job, memory, 1, stop=30)
    killed(ranks, 30)
    both = [restored(rank.log.read_text())[1:4] for rank in ranks]
    assert both[0] == both[1], both
    assert (both[0][2], both[0][0]) in (("memory", "24"), ("memory", "25")), both
