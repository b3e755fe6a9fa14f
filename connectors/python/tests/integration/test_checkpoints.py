"""Checkpoints against the real agent and master: what is in the model is what its
cut says, wherever the trainer is killed."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
from agent import poll
from headrace import _manifest as manifest

# A model that tells which records are in it: how often it has seen each id.
TRAINER = """
import headrace, json, os, signal, sys, time
import numpy as np

cfg = json.loads(os.environ["TRAINER"])

class Checkpointer(headrace.Checkpointer):
    def _reached(self, point):
        if cfg.get("die") == point and cfg.get("die_after", 0) <= self._last_step():
            print("dies at", point, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

    def _last_step(self):
        return self._trainer.last_step

seen = np.zeros(cfg["rows"], np.int64)
trainer = headrace.init()
stream = headrace.dataset("rows").batches(50, rounds=False)
with stream, Checkpointer(cfg["dir"], stream, **cfg.get("options", {})) as ck:
    restored = ck.restore()
    if restored is not None:
        seen = restored.state["seen"]
    step = restored.step if restored is not None else 0
    print("restored", step, int(seen.sum()), flush=True)
    for b in stream:
        np.add.at(seen, b["id"], 1)
        for table in cfg.get("options", {}).get("deltas", ()):
            ck.touch(table, b["id"])
        step = stream.step(step + 1)
        if step % cfg["every"] == 0:
            saved = ck.save(step, {"seen": seen, "step": step})
            if cfg.get("wait", True):
                saved.wait()
            print("saved", step, flush=True)
        time.sleep(cfg.get("pause", 0))
        if step == cfg.get("stop"):
            os.kill(os.getpid(), signal.SIGKILL)
        while step == cfg.get("waits") and not os.path.exists(cfg["dir"] + "/go"):
            time.sleep(0.01)
    ck.save(step, {"seen": seen, "step": step}).wait() if step != 0 else None
print("end", step, *seen.tolist(), flush=True)
"""


def settings(job: Any, rows: int, **more: Any) -> dict[str, str]:
    return {"TRAINER": json.dumps({"rows": rows, "dir": str(job.folder / "ckpt"), "every": 5, **more})}


def of_end(out: str) -> np.ndarray:
    (line,) = [line for line in out.splitlines() if line.startswith("end ")]
    return np.array([int(w) for w in line.split()[2:]])


def ids_of(job: Any, cut: dict[str, Any]) -> np.ndarray:
    """Which ids a cut holds, by the files: computed from the manifest alone."""
    inside: list[int] = []
    (dataset,) = cut["datasets"]
    for partition in dataset["partitions"]:
        segments = {s["id"]: s for s in partition["segments"]}
        if partition["done"]:
            return np.arange(sum(path.read_bytes().count(b"\n") for path in job.data.glob("*.tsv")))
        for pass_ in partition["passes"] or ():
            low = pass_["low"]
            ranges = [tuple(r) for r in (pass_.get("ranges") or {}).get("acked") or ()]
            ranges += [(i, s["start"], s["end"]) for i, s in segments.items() if i < low[0]]
            ranges += [(low[0], segments[low[0]]["start"], low[1])] if low[0] in segments else []
            for segment, start, end in ranges:
                at = 0
                for line in (job.data / Path(segments[segment]["name"]).name).read_bytes().splitlines(keepends=True):
                    if start <= at < end and line.strip():  # a blank line is no record
                        inside.append(int(line.split(b"\t")[0]))
                    at += len(line)
    return np.array(sorted(inside), np.int64)


def checked(job: Any, rows: int) -> int:
    """Every checkpoint holds exactly the records that its cut says. How many there are."""
    found = manifest.find(str(job.folder / "ckpt"))
    for m in found:
        assert manifest.verify(m) is None
        state = headrace._restore._load(m, m.rank or 0)
        counts = np.zeros(rows, np.int64)
        np.add.at(counts, ids_of(job, m.cut), 1)
        assert np.array_equal(state["seen"], counts), m.path
    return len(found)


@pytest.mark.parametrize("model", ["replicated", "private"])
def test_a_killed_trainer_restores_and_repeats_nothing_in_the_model(job: Any, model: str) -> None:
    n = job.write(5000)
    job.up("--model", model)
    job.apply()
    for stop in (13, 28, 61):
        trainer = job.trainer(TRAINER, **settings(job, n, stop=stop))
        out = trainer.ended()
        assert trainer.process.returncode == -signal.SIGKILL, out + job.logs()
        assert checked(job, n) > 0
    out = job.trainer(TRAINER, **settings(job, n)).ended()
    assert "restored 60 3000" in out, out + job.logs()
    assert np.array_equal(of_end(out), np.ones(n)), Counter(of_end(out).tolist())


POINTS = ["captured", "frozen", "files", "manifest", "renamed", "bound"]


@pytest.mark.parametrize("model", ["replicated", "private"])
def test_a_crash_at_every_point_of_a_save_leaves_the_old_checkpoint_or_the_new_one(job: Any, model: str) -> None:
    n = job.write(6000)
    job.up("--model", model)
    job.apply()
    last = 0
    for number, point in enumerate(POINTS):
        saves = 5 * (2 * number + 2)  # the save before it is whole, this one dies
        trainer = job.trainer(TRAINER, **settings(job, n, die=point, die_after=saves))
        out = trainer.ended()
        assert trainer.process.returncode == -signal.SIGKILL, out + job.logs()
        assert f"restored {last} {50 * last}" in out, out + job.logs()
        assert f"dies at {point}" in out
        checked(job, n)
        last = max(m.step for m in manifest.find(str(job.folder / "ckpt")))
        assert last == saves if point in ("renamed", "bound") else last < saves
    out = job.trainer(TRAINER, **settings(job, n)).ended()
    assert np.array_equal(of_end(out), np.ones(n)), out[:2000] + job.logs()
    checked(job, n)


def test_a_checkpoint_restores_on_an_empty_master(job: Any) -> None:
    n = job.write(5000)
    up = job.up("--model", "replicated")
    job.apply()
    job.trainer(TRAINER, **settings(job, n, stop=33)).ended()
    up.terminate()
    up.wait(60)
    job.env["HEADRACE_STATE"] = str(job.folder / "another")
    job.up("--model", "replicated")
    job.apply()
    out = job.trainer(TRAINER, **settings(job, n)).ended()
    assert "restored 30 1500" in out, out + job.logs()
    assert np.array_equal(of_end(out), np.ones(n)), Counter(of_end(out).tolist())
    checked(job, n)


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(job: Any) -> None:
    n = job.write(4000)
    job.up("--model", "replicated")
    job.apply()
    job.trainer(TRAINER, **settings(job, n, stop=33)).ended()
    newest = manifest.find(str(job.folder / "ckpt"))[0]
    assert newest.step == 30
    with open(os.path.join(newest.folder, "state.safetensors"), "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\xff")
    out = job.trainer(TRAINER, **settings(job, n)).ended()
    assert "restored 25 1250" in out, out + job.logs()
    assert np.array_equal(of_end(out), np.ones(n)), Counter(of_end(out).tolist())


def test_private_ranks_restore_alone_and_all_records_are_in_one_model(job: Any) -> None:
    n = job.write(12_000)
    job.up("--model", "private")
    job.apply()
    ranks = {"WORLD_SIZE": "2"}
    other = job.trainer(TRAINER, **settings(job, n, pause=0.03, waits=20), RANK="1", **ranks)
    other.printed(1)
    for stop in (13, 28):
        victim = job.trainer(TRAINER, **settings(job, n, stop=stop, pause=0.005), RANK="0", **ranks)
        out = victim.ended()
        assert victim.process.returncode == -signal.SIGKILL, out + job.logs()
    (job.folder / "ckpt" / "go").touch()
    out = job.trainer(TRAINER, **settings(job, n, pause=0.005), RANK="0", **ranks).ended()
    assert "restored 25 1250" in out, out + job.logs()
    both = of_end(out) + of_end(other.ended())
    assert np.array_equal(both, np.ones(n)), Counter(both.tolist())
    checked(job, n)


def test_private_ranks_come_and_go_while_others_train(job: Any) -> None:
    """Of one that is killed and never comes again the checkpoint stays, and the rest is
    the others', one of which joined behind its end."""
    n = job.write(12_000)
    job.up("--model", "private")
    job.apply()
    stays = job.trainer(TRAINER, **settings(job, n, pause=0.005, waits=20), RANK="0", WORLD_SIZE="2")
    stays.printed(1)
    leaves = job.trainer(TRAINER, **settings(job, n, stop=13), RANK="1", WORLD_SIZE="2")
    assert "saved 10" in leaves.ended(), job.logs()
    joins = job.trainer(TRAINER, **settings(job, n, pause=0.005), RANK="2", WORLD_SIZE="3")
    joins.printed(2)  # it has saved something
    (job.folder / "ckpt" / "go").touch()
    models = [of_end(stays.ended()), of_end(joins.ended())]
    assert all(m.sum() > 0 for m in models)
    (last,) = [m for m in manifest.find(str(job.folder / "ckpt")) if m.rank == 1][:1]
    assert last.step == 10
    models.append(headrace._restore._load(last, 1)["seen"])
    assert np.array_equal(sum(models), np.ones(n)), Counter(sum(models).tolist())
    checked(job, n)


def test_a_private_rank_whose_only_checkpoint_is_damaged_starts_over_when_told(job: Any) -> None:
    n = job.write(4000)
    job.up("--model", "private")
    job.apply()
    job.trainer(TRAINER, **settings(job, n, every=10, stop=13)).ended()
    (only,) = manifest.find(str(job.folder / "ckpt"))
    os.truncate(os.path.join(only.folder, "state.safetensors"), 100)
    out = job.trainer(TRAINER, **settings(job, n)).ended()
    assert "CheckpointError" in out, out
    assert "the checkpoints of rank 0 that are bound do not verify there: " + only.path in out, out
    assert "HEADRACE_RESUME=start" in out, out
    out = job.trainer(TRAINER, HEADRACE_RESUME="start", **settings(job, n)).ended()
    assert "restored 0 0" in out, out + job.logs()
    assert np.array_equal(of_end(out), np.ones(n)), Counter(of_end(out).tolist())


FRAMEWORK = """
import headrace, json, os, signal
import numpy as np

path = os.environ["FILE"]
stop, n = int(os.environ["STOP"]), int(os.environ["ROWS"])
seen, step = np.zeros(n, np.int64), 0
with headrace.dataset("rows").batches(50, rounds=False) as stream:
    if os.path.exists(path):
        kept = json.load(open(path))
        stream.load_state_dict(kept["data"])
        seen, step = np.array(kept["seen"]), kept["step"]
    print("loaded", step, flush=True)
    for b in stream:
        np.add.at(seen, b["id"], 1)
        step = stream.step(step + 1)
        if step % 7 == 0:
            with open(path + ".new", "w") as file:
                json.dump({"seen": seen.tolist(), "step": step, "data": stream.state_dict(step)}, file)
            os.rename(path + ".new", path)
        if step == stop:
            os.kill(os.getpid(), signal.SIGKILL)
print("end", step, *seen.tolist(), flush=True)
"""


def test_a_framework_keeps_the_cut_in_its_own_file(job: Any) -> None:
    n = job.write(3000)
    job.up("--model", "replicated")
    job.apply()
    env = {"FILE": str(job.folder / "model.json"), "ROWS": str(n)}
    for stop in (10, 24, 33):
        assert job.trainer(FRAMEWORK, STOP=str(stop), **env).ended().startswith("loaded")
    out = job.trainer(FRAMEWORK, STOP="0", **env).ended()
    assert "loaded 28" in out, out + job.logs()
    assert np.array_equal(of_end(out), np.ones(n)), Counter(of_end(out).tolist())


def test_a_framework_binds_its_own_file(job: Any, tmp_path: Path) -> None:
    n = job.write(2000)
    job.up("--model", "replicated")
    job.apply()
    ids: list[int] = []
    with headrace.dataset("rows").batches(50) as stream, headrace.Checkpointer(tmp_path, stream) as ck:
        assert ck.restore() is None
        for _ in range(10):
            ids += next(stream)["id"].tolist()
            stream.step()
        cut = ck.cut(10)
        file = tmp_path / "model.bin"
        file.write_bytes(np.array(ids).tobytes())
        path = ck.bind(cut, file)
    assert sorted(ids) == ids_of(job, manifest.load(path).cut).tolist()
    headrace.shutdown()
    with headrace.dataset("rows").batches(50) as stream, headrace.Checkpointer(tmp_path, stream) as ck:
        with pytest.raises(headrace.RestoreNeeded, match="restore"):
            next(stream)
        restored = ck.restore()
        assert restored is not None
        assert (restored.path, restored.state, restored.step) == (str(file), None, 10)
        for b in stream:
            ids += b["id"].tolist()
            stream.step()
    assert sorted(ids) == list(range(n))


@pytest.mark.parametrize("model", ["private", "replicated"])
@pytest.mark.parametrize("who", ["process", "dataset"])
def test_a_process_that_starts_over_gets_everything(
    job: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, who: str
) -> None:
    n = job.write(1000)
    job.up("--model", model)
    job.apply()
    with headrace.dataset("rows").batches(50) as stream, headrace.Checkpointer(tmp_path, stream) as ck:
        next(stream)
        ck.save(stream.step(), {}).wait(60)
    headrace.shutdown()
    if who == "process":
        monkeypatch.setenv("HEADRACE_RESUME", "start")
    else:
        job.apply(more="resume: start\n")
    with headrace.dataset("rows").batches(50) as stream:
        ids = []
        for b in stream:
            ids += b["id"].tolist()
            stream.step()
    assert sorted(ids) == list(range(n))


def test_what_a_process_says_goes_before_what_its_dataset_says(
    job: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = job.write(1000)
    job.up("--model", "replicated")
    job.apply(more="resume: start\n")
    monkeypatch.setenv("HEADRACE_RESUME", "bound")
    for first in (True, False):
        with headrace.dataset("rows").batches(50) as stream, headrace.Checkpointer(tmp_path, stream) as ck:
            if not first:
                with pytest.raises(headrace.RestoreNeeded):
                    next(stream)
            restored = ck.restore()
            ids = [] if restored is None else restored.state["ids"].tolist()
            for b in stream:
                ids += b["id"].tolist()
                step = stream.step()
                if first:
                    ck.save(step, {"ids": np.array(ids)}).wait(20)
                    break
        headrace.shutdown()
    assert sorted(ids) == list(range(n))


@pytest.mark.parametrize(("resume", "wrong"), [("acked", "goes with its processes"), ("never", "resume")])
def test_a_resume_that_can_not_be_is_refused_when_its_dataset_is_applied(job: Any, resume: str, wrong: str) -> None:
    job.write(10)
    job.up("--model", "replicated")
    with pytest.raises(Exception, match=wrong):
        job.apply(more=f"resume: {resume}\n")


def test_a_shared_models_checkpoint_holds_at_least_its_cut(job: Any, tmp_path: Path) -> None:
    n = job.write(2000)
    job.up()
    job.apply()
    seen: list[int] = []
    with headrace.dataset("rows").batches(50) as stream, headrace.Checkpointer(tmp_path, stream) as ck:
        for b in stream:
            seen += b["id"].tolist()
            step = stream.step()
            if step % 10 == 0:
                m = manifest.load(os.path.join(ck.save(step, {"n": len(seen)}).wait(60), manifest.FILE_NAME))
                assert m.cut["exact"] is False
                assert set(ids_of(job, m.cut).tolist()) == set(seen)
    assert sorted(seen) == list(range(n))


def test_a_newer_process_of_the_rank_fences_the_save_of_the_older(job: Any, tmp_path: Path) -> None:
    job.write(5000)
    job.up("--model", "replicated")
    job.apply()
    stream = headrace.dataset("rows").batches(50)
    ck = headrace.Checkpointer(tmp_path, stream)
    next(stream)
    stream.step(1)
    out = job.trainer(TRAINER, **settings(job, 5000, stop=12)).ended()
    assert "saved 10" in out, out + job.logs()
    poll(lambda: headrace.init().control.fault)
    with pytest.raises(headrace.Fenced):
        ck.save(1, {})
    stream.close()
    assert manifest.find(str(tmp_path)) == []


@pytest.mark.parametrize("model", ["replicated", "private"])
def test_saves_go_on_while_master_and_agent_are_killed(job: Any, model: str) -> None:
    n = job.write(20_000)
    job.env["HEADRACE_LISTEN"] = "127.0.0.1:0"
    of_master = ("master", "--model", model, "--http", "off", "--session-ttl", "20s", "--allow-root", str(job.folder))
    of_agent = ("agent", "--name", "a1", "--socket", job.socket, "--allow-root", str(job.folder))
    master = job.start(*of_master)
    address = job.folder / "state" / "master.addr"
    poll(address.exists, 120)
    job.env["HEADRACE_LISTEN"] = address.read_text().split()[0]
    agent = job.start(*of_agent)
    job.await_socket(agent)
    job.apply()
    trainer = job.trainer(TRAINER, **settings(job, n, every=3, wait=False, pause=0.01))
    for kill in range(4):
        trainer.printed(10 + 20 * kill)  # one line a save
        if kill % 2:
            agent.kill()
            agent.wait()
            agent = job.start(*of_agent)
        else:
            master.kill()
            master.wait()
            master = job.start(*of_master)
    out = trainer.ended()
    assert np.array_equal(of_end(out), np.ones(n)), out[-2000:] + job.logs()
    assert checked(job, n) == 3
    again = job.trainer(TRAINER, **settings(job, n)).ended()
    assert f"restored {n // 50} {n}" in again, again + job.logs()


def test_the_command_reads_what_python_wrote(job: Any) -> None:
    n = job.write(3000)
    job.up("--model", "replicated")
    job.apply()
    job.trainer(TRAINER, **settings(job, n, stop=22)).ended()
    newest = manifest.find(str(job.folder / "ckpt"))[0]
    listed = job.headrace("ckpt", "list", str(job.folder / "ckpt")).stdout
    assert all(str(step) in listed for step in (10, 15, 20)), listed
    assert job.headrace("ckpt", "verify", newest.folder).returncode == 0
    job.headrace("ckpt", "pin", newest.folder)
    assert newest.pinned
    audit = job.headrace("audit", newest.folder, "--output", "json", check=False)
    assert audit.returncode == 0, audit.stderr
    assert str(len(b"".join(job.line(i).encode() for i in ids_of(job, newest.cut)))) in audit.stdout, audit.stdout
    with open(os.path.join(newest.folder, "state.safetensors"), "ab") as file:
        file.write(b"x")
    damaged = job.headrace("ckpt", "verify", newest.folder, check=False)
    assert damaged.returncode != 0
    assert "state.safetensors" in damaged.stdout + damaged.stderr


# Saves each fifth step twice, and is killed in the second save of step 10.
TWICE = """
import headrace, json, os, signal
import numpy as np

cfg = json.loads(os.environ["TRAINER"])

class Checkpointer(headrace.Checkpointer):
    twice = False

    def _reached(self, point):
        if point == cfg.get("die") and self.twice and self._trainer.last_step == 10:
            os.kill(os.getpid(), signal.SIGKILL)

trainer = headrace.init()
seen, saves = np.zeros(cfg["rows"], np.int64), 0
stream = headrace.dataset("rows").batches(50, rounds=False)
with stream, Checkpointer(cfg["dir"], stream, sharded=cfg["sharded"]) as ck:
    restored = ck.restore()
    if restored is not None:
        seen, saves = restored.state["seen"], restored.state["saves"]
    step = restored.step if restored is not None else 0
    print("restored", step, saves, flush=True)
    for b in stream:
        np.add.at(seen, b["id"], 1)
        step = stream.step(step + 1)
        if step % 5 == 0:
            for ck.twice in (False, True):
                saves += 1
                ck.save(step, {"seen": seen, "saves": saves, "more": np.zeros(1000 * saves)}).wait()
print("end", step, *seen.tolist(), flush=True)
"""


@pytest.mark.parametrize("model", ["replicated", "sharded", "private"])
@pytest.mark.parametrize("die", ["captured", "frozen", "files", "manifest", "renamed", "bound"])
def test_a_step_that_is_saved_twice_has_a_whole_checkpoint_at_every_point(job: Any, model: str, die: str) -> None:
    n = job.write(1500)
    job.up("--model", "private" if model == "private" else "replicated")
    job.apply()
    cfg = {"rows": n, "dir": str(job.folder / "ckpt"), "sharded": model == "sharded"}
    trainer = job.trainer(TWICE, TRAINER=json.dumps({**cfg, "die": die}))
    out = trainer.ended()
    once = model == "sharded" and die not in ("captured", "frozen")  # it is there: its parts are not written again
    assert trainer.process.returncode == (0 if once else -signal.SIGKILL), out + job.logs()
    assert checked(job, n) > 0
    out = job.trainer(TWICE, TRAINER=json.dumps(cfg)).ended()
    second = model != "sharded" and die in ("renamed", "bound")
    assert f"restored {30 if once else 10} {11 if once else 4 if second else 3}\n" in out, out + job.logs()
    assert np.array_equal(of_end(out), np.ones(n)), out + job.logs()
    for m in manifest.find(str(job.folder / "ckpt")):
        own = [name for name in os.listdir(m.folder) if name.endswith(".safetensors")]
        assert sorted(own) == [f["path"] for f in m.files]


# One rank of a group that is started by hand: no launcher ends it when another rank dies.
BY_HAND = """
import headrace, numpy as np, os, time

folder = os.environ["FOLDER"]
stream = headrace.dataset("rows").batches(10)
with stream, headrace.Checkpointer(folder + "/ckpt", stream) as ck:
    restored = ck.restore()
    step = restored.step if restored is not None else 0
    print("restored", step, flush=True)
    try:
        for b in stream:
            step = stream.step(step + 1)
            if step == 5:
                ck.save(step, {"w": np.zeros(1)}).wait()
                print("saved", flush=True)
            while step == 8 and not os.path.exists(folder + "/go"):
                time.sleep(0.01)
                headrace.init().check()
    except headrace.Fenced as error:
        os.write(1, f"fenced: {error}\\n".encode())
        os._exit(3)
print("end", flush=True)
"""


def test_a_rank_that_comes_alone_is_told_to_restart_with_the_others(job: Any) -> None:
    job.write(4000)
    job.up("--model", "replicated")
    job.apply()

    def start(rank: int) -> Any:
        return job.trainer(BY_HAND, FOLDER=str(job.folder), HEADRACE_RANK=str(rank), HEADRACE_WORLD_SIZE="2")

    first = [start(0), start(1)]
    for rank in first:
        rank.printed(2)  # it has saved
    first[1].process.kill()
    out = first[0].ended()
    assert "fenced: this process is not of the group any more: " in out  # by the loss, or by a refused ack
    alone = start(1)  # and rank 0 does not come
    says = (
        "rows: next() waits: it waits until all 2 ranks have joined and restored. Ranks that are started by hand "
        "restart together: end those that still run, then start all"
    )
    poll(lambda: says in alone.log.read_text())
    assert "restored 5" in alone.log.read_text()
    (job.folder / "go").touch()
    other = start(0)
    for rank in (alone, other):
        assert "end" in rank.ended().splitlines(), job.logs()
