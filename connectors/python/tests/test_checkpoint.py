"""Checkpointer against a scripted agent: what is asked when, and what goes wrong."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
from agent import CALL, STEP, poll
from headrace import _manifest as manifest
from headrace import _state
from saving import Agents, calls, saved_thrice, stepped


def test_a_save_freezes_writes_binds_and_restores(agents: Agents, tmp_path: Path) -> None:
    agent = agents(model="private")
    weights = np.zeros(3)
    with headrace.dataset("clicks").batches(10) as stream, headrace.Checkpointer(tmp_path, stream) as ck:
        step = stepped(stream, 3, weights)
        saved = ck.save(step, {"w": weights, "lr": 0.1})
        weights += 1000  # a later change is not in the checkpoint
        path = saved.wait(300)
        assert saved.done
        assert saved.error is None
        assert saved.path == path
        assert saved.cut in path
        assert os.listdir(tmp_path) == [f"step-0000000003-rank-0-{saved.cut}"]
        assert sorted(os.listdir(path)) == [manifest.FILE_NAME, "state.safetensors"]
        assert agent.bound == {saved.cut: os.path.join(path, manifest.FILE_NAME)}
        assert calls(agent) == ["ask", "bind"]
        restored = headrace.Checkpointer(tmp_path, stream).restore()
        assert restored is not None
        assert restored.step == 3
        assert restored.path == path
        assert restored.cut.id == saved.cut
        assert restored.state["lr"] == 0.1
        assert np.array_equal(restored.state["w"], np.full(3, sum(range(30))))
        with pytest.raises(ValueError, match="step 3 after step 3"):
            stream.step(3, batches=0)
        assert stream.step(batches=0) == 4
        assert agent.of(CALL)[-1]["body"] == agent.body(saved.cut, 3) | {"epoch": 1}


def test_save_wants_the_last_step(agents: Agents, tmp_path: Path) -> None:
    agents()
    with headrace.dataset("clicks").batches(10) as stream:
        ck = headrace.Checkpointer(tmp_path, stream)
        stepped(stream, 2, np.zeros(1))
        for step in (1, 3):
            with pytest.raises(ValueError, match=rf"step {step}, but the last step that this rank has reported is 2"):
                ck.save(step, {})
        with pytest.raises(TypeError, match=r"'f' is a builtins\.builtin_function"):
            ck.save(2, {"f": print})
        ck.save(2, {}).wait(300)


def test_steps_arrive_before_the_cut_is_asked_for(agents: Agents, tmp_path: Path) -> None:
    agent = agents(total=300)
    with headrace.dataset("clicks").batches(10) as stream:
        ck = headrace.Checkpointer(tmp_path, stream)
        for _ in range(10):
            step = stepped(stream, 3, np.zeros(1))
            ck.save(step, {"n": step}).wait(300)
        ck.close()
    agent.wait(lambda: calls(agent).count("ask") == 10)


def test_save_returns_while_the_cut_waits_for_other_ranks(
    agents: Agents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = agents(model="private")
    agent.silent = {"ask"}
    over = threading.Event()
    with headrace.dataset("clicks").batches(10) as stream:
        waiting = headrace.init().control.calls
        wait = waiting.wait

        def until_its_deadline(number: int, deadline: float) -> Any:
            if over.is_set():
                return wait(number, deadline)
            assert over.wait(300)
            return wait(number, 0.0)

        monkeypatch.setattr(waiting, "wait", until_its_deadline)
        ck = headrace.Checkpointer(tmp_path, stream)
        saved = ck.save(stepped(stream, 1, np.zeros(1)), {})
        assert not saved.done
        with pytest.raises(TimeoutError, match="step 1 goes on"):
            saved.wait(0.01)
        stepped(stream, 2, np.zeros(1))  # training goes on meanwhile
        agent.wait(lambda: calls(agent) == ["ask"])
        over.set()
        poll(lambda: saved.done)
        # What went wrong is raised by the next call, once.
        with pytest.raises(headrace.CheckpointError, match="checkpoint of step 1: the master did not answer in time"):
            ck.save(3, {})
        agent.wait(lambda: calls(agent) == ["ask", "drop"])
        agent.silent = set()
        ck.save(3, {}).wait(300)
        ck.close()
    assert len(os.listdir(tmp_path)) == 1


def test_one_save_is_under_way_and_the_next_one_waits(agents: Agents, tmp_path: Path) -> None:
    agents(model="private")
    order: list[str] = []
    first = threading.Event()

    class Slow(headrace.Checkpointer):
        def _reached(self, point: str) -> None:
            order.append(point)
            if point == "files" and len(order) < 5:
                assert first.wait(300)

    with headrace.dataset("clicks").batches(10) as stream:
        ck = Slow(tmp_path, stream)
        one = ck.save(stepped(stream, 1, np.zeros(1)), {})
        stepped(stream, 1, np.zeros(1))
        threading.Timer(0.1, first.set).start()
        two = ck.save(2, {})
        assert one.done
        two.wait(300)
    assert order == ["captured", "frozen", "files", "manifest", "renamed", "bound"] * 2


def test_a_failed_write_is_told_and_leaves_nothing(agents: Agents, tmp_path: Path) -> None:
    agent = agents(model="private")

    class Full(headrace.Checkpointer):
        def _reached(self, point: str) -> None:
            if point == "manifest":
                raise OSError(28, "No space left on device")

    with headrace.dataset("clicks").batches(10) as stream:
        ck = Full(tmp_path, stream)
        saved = ck.save(stepped(stream, 1, np.zeros(1)), {"w": np.ones(3)})
        with pytest.raises(OSError, match="No space left"):
            saved.wait(300)
        assert isinstance(saved.error, OSError)
        ck.close()  # does not raise: the error was raised by wait()
    assert os.listdir(tmp_path) == []
    assert calls(agent) == ["ask", "drop"]
    assert not agent.bound


def test_a_refused_cut_is_told(agents: Agents, tmp_path: Path) -> None:
    agent = agents(model="private")
    agent.answer = lambda call: {"code": "refused", "reason": "the job declares no model kind"}
    with headrace.dataset("clicks").batches(10) as stream:
        with pytest.raises(headrace.CheckpointError, match="of step 1: the job declares no model kind"):
            with headrace.Checkpointer(tmp_path, stream) as ck:
                ck.save(stepped(stream, 1, np.zeros(1)), {})


def test_a_fenced_trainer_saves_and_binds_nothing_more(agents: Agents, tmp_path: Path) -> None:
    agent = agents(model="private")
    agent.answer = lambda call: {"code": "fenced", "reason": "a newer process of rank 0"}
    stream = headrace.dataset("clicks").batches(10)
    ck = headrace.Checkpointer(tmp_path, stream)
    saved = ck.save(stepped(stream, 1, np.zeros(1)), {"w": np.ones(1)})
    with pytest.raises(headrace.Fenced, match="a newer process of rank 0"):
        saved.wait(300)
    for call in (stream.step, lambda: next(stream), lambda: ck.save(1, {}), ck.restore, ck.cut, stream.state_dict):
        with pytest.raises(headrace.Fenced, match="a newer process of rank 0"):
            call()
    stream.close()
    assert os.listdir(tmp_path) == []
    assert not agent.bound


def test_a_call_is_said_again_to_an_agent_that_comes_back(agents: Agents, tmp_path: Path) -> None:
    first = agents(model="private")
    first.silent = {"ask"}
    with headrace.dataset("clicks").batches(10) as stream:
        ck = headrace.Checkpointer(tmp_path, stream)
        saved = ck.save(stepped(stream, 2, np.zeros(1)), {})
        first.wait(lambda: calls(first) == ["ask"])
        first.kill()
        second = agents(model="private", last_step=2)
        saved.wait(300)
        assert second.of(CALL)[0] == first.of(CALL)[0]
        ck.close()


def test_a_restored_checkpoint_is_there_after_a_power_failure(
    agents: Agents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writer may have died between the rename and the fsync of the folder."""
    agent = agents(model="private")
    with headrace.dataset("clicks").batches(10) as stream:
        paths = saved_thrice(stream, tmp_path)
        synced: list[str] = []
        real = os.fsync

        def fsync(fd: int) -> None:
            path = os.readlink(f"/proc/self/fd/{fd}")
            synced.append(path)
            if path == paths[2]:
                raise OSError(errno.EIO, "the disk is broken")
            real(fd)

        monkeypatch.setattr(os, "fsync", fsync)
        restored = headrace.Checkpointer(tmp_path, stream).restore()
        assert restored is not None
        assert restored.path == paths[1]
        assert synced[-2:] == [paths[2], paths[1]]
        assert agent.of(CALL)[-1]["failed"] == [paths[2][-16:]]


def test_a_frameworks_file_is_bound_and_restored_by_its_path(agents: Agents, tmp_path: Path) -> None:
    agent = agents(model="replicated")
    with headrace.dataset("clicks").batches(10) as stream, headrace.Checkpointer(tmp_path, stream) as ck:
        step = stepped(stream, 2, np.zeros(1))
        cut = ck.cut(step)
        assert cut.step == 2
        assert agent.of(CALL)[-1]["carried"] is True
        file = tmp_path / "model-2.bin"
        file.write_bytes(b"weights")
        bound = ck.bind(cut, file)
        assert bound == f"{file}.{manifest.FILE_NAME}"
        assert agent.bound == {cut.id: bound}
        stepped(stream, 1, np.zeros(1))
        folder = tmp_path / "dcp-3"
        (folder / "shards").mkdir(parents=True)
        (folder / "shards" / "0.distcp").write_bytes(b"0")
        (folder / ".metadata").write_bytes(b"m")
        ck.cut()
        inside = ck.bind(3, folder)
        assert [f["path"] for f in manifest.load(inside).files] == [".metadata", "shards/0.distcp"]
        restored = ck.restore()
        assert restored is not None
        assert (restored.step, restored.path, restored.state) == (3, str(folder), None)
        (folder / "shards" / "0.distcp").write_bytes(b"1")
        restored = ck.restore()
        assert restored is not None
        assert (restored.step, restored.path, restored.state) == (2, str(file), None)


def test_state_dict_is_the_whole_cut_at_the_last_step(agents: Agents, caplog: pytest.LogCaptureFixture) -> None:
    agent = agents(model="replicated")
    with headrace.dataset("clicks").batches(10) as stream:
        stepped(stream, 2, np.zeros(1))
        with pytest.raises(ValueError, match="step 1, but the last step that this rank has reported is 2"):
            stream.state_dict(1)
        state = json.loads(json.dumps(stream.state_dict(2)))
        assert state == agent.body(agent.of(CALL)[-1]["cut"], 2)
        assert agent.of(CALL)[-1]["carried"] is True
        assert agent.of(CALL)[-1]["path"] == ""
        stepped(stream, 1, np.zeros(1))
        stream.load_state_dict(state)
        call = agent.of(CALL)[-1]
        assert (call["call"], call["mode"], call["body"], call["path"]) == ("restore", "exact", state, "")
        assert "load_state_dict() of step 2: 7 units" in caplog.text
        assert stream.step(batches=0) == 3
        with pytest.raises(headrace.CheckpointError, match=r"not a state of Stream\.state_dict"):
            stream.load_state_dict({"step": 3})


def test_state_dict_raises_what_the_master_says_at_its_deadline(agents: Agents) -> None:
    agent = agents(model="replicated")
    agent.answer = lambda call: {"code": "timeout", "reason": "rank 2 has reported step 0"}
    with headrace.dataset("clicks").batches(10) as stream:
        stepped(stream, 1, np.zeros(1))
        with pytest.raises(headrace.CheckpointError, match="the records at step 1: rank 2 has reported step 0"):
            stream.state_dict()


def test_a_shared_cut_is_frozen_before_the_state_is_copied(agents: Agents, tmp_path: Path) -> None:
    agent = agents(model="shared")
    order: list[str] = []

    class Watched(headrace.Checkpointer):
        def _reached(self, point: str) -> None:
            order.append(f"{point} after {calls(agent)}")

    with headrace.dataset("clicks").batches(10) as stream, Watched(tmp_path, stream) as ck:
        path = ck.save(stepped(stream, 1, np.zeros(1)), {}).wait(300)
    assert order[0] == "captured after ['ask']"
    assert manifest.load(os.path.join(path, manifest.FILE_NAME)).cut["exact"] is False


def test_a_process_that_ends_finishes_its_save(agents: Agents, tmp_path: Path) -> None:
    agent = agents(model="private")
    code = (
        "import headrace, numpy, sys\n"
        "s = headrace.dataset('clicks').batches(10); next(s); s.step()\n"
        f"headrace.Checkpointer({str(tmp_path)!r}, s).save(1, {{'w': numpy.zeros(1 << 22)}})\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
    assert len(agent.bound) == 1
    (found,) = manifest.find(str(tmp_path))
    assert manifest.verify(found) is None


def test_a_step_has_left_when_the_process_is_killed_behind_it(agents: Agents) -> None:
    code = (
        "import headrace, os, signal, time\n"
        "s = headrace.dataset('clicks').batches(10)\n"
        "for n in range(5):\n"
        "    next(s); time.sleep(0.01); s.step()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    for _ in range(5):
        agent = agents(total=300, ack=False, pong=False)  # writing to a dead trainer would end the reading
        done = subprocess.run([sys.executable, "-c", code], timeout=300)
        assert done.returncode == -signal.SIGKILL
        poll(lambda a=agent: len(a.of(STEP)) == 5)
        agent.kill()


def test_a_file_that_can_not_be_written_is_named(tmp_path: Path) -> None:
    path = str(tmp_path / "no-folder" / "state.safetensors")
    with pytest.raises(headrace.CheckpointError, match=f"{path} could not be written"):
        _state.write({"w": np.ones(3)}, path, {})


def test_a_url_is_refused_and_makes_no_folder_of_that_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url in ("gs://lake/ckpt", "s3://", "s3://Lake/ckpt", "s3://lake/a//b", "s3://lake/../b"):
        with pytest.raises(ValueError, match=f"^{re.escape(url)}: (checkpoints lie in|a prefix has)"):
            headrace.Checkpointer(url)
    assert os.listdir(tmp_path) == []
