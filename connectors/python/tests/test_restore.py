"""Restoring, against a scripted agent: which checkpoints are offered, taken and passed over."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
from agent import CALL
from headrace import _cuts
from headrace import _manifest as manifest
from saving import Agents, saved_thrice, stepped


def test_restore_passes_over_what_does_not_verify(agents: Agents, tmp_path: Path) -> None:
    agent = agents(model="private")
    with headrace.dataset("clicks").batches(10) as stream:
        paths = saved_thrice(stream, tmp_path)
        cuts = [p[-16:] for p in paths]
        with open(os.path.join(paths[2], "state.safetensors"), "r+b") as file:
            file.seek(-1, 2)
            file.write(b"\xff")
        os.unlink(os.path.join(paths[1], "state.safetensors"))
        restored = headrace.Checkpointer(tmp_path, stream).restore()
        assert restored is not None
        assert restored.step == 1
        assert restored.state["w"].tolist() == [0] * 4
        call = agent.of(CALL)[-1]
        assert (call["mode"], call["failed"], call["path"]) == ("newest", cuts[:0:-1], restored.manifest.path)


def test_restore_tries_the_newer_one_that_the_master_knows_of(agents: Agents, tmp_path: Path) -> None:
    agent = agents(model="private")
    with headrace.dataset("clicks").batches(10) as stream:
        here, there = tmp_path / "here", tmp_path / "there"
        paths = saved_thrice(stream, here)
        there.mkdir()
        newer = there / os.path.basename(paths[2])
        os.rename(paths[2], newer)
        known = {"cut": paths[2][-16:], "path": str(newer / manifest.FILE_NAME)}

        def answer(call: dict[str, Any]) -> dict[str, Any] | None:
            if call["call"] != "restore" or call["body"]["id"] == known["cut"] or known["cut"] in call["failed"]:
                return None
            return {"code": "try", "reason": "a newer one is bound", **known}

        agent.answer = answer
        restored = headrace.Checkpointer(here, stream).restore()
        assert restored is not None
        assert restored.step == 3
        assert restored.path == str(newer)
        os.unlink(newer / "state.safetensors")
        restored = headrace.Checkpointer(here, stream).restore()
        assert restored is not None
        assert restored.step == 2
        assert agent.of(CALL)[-1]["failed"] == [known["cut"]]


def test_restore_passes_over_a_voided_one_and_stops_at_another_refusal(agents: Agents, tmp_path: Path) -> None:
    agent = agents(model="private")
    with headrace.dataset("clicks").batches(10) as stream:
        paths = saved_thrice(stream, tmp_path)

        def voided(call: dict[str, Any]) -> dict[str, Any] | None:
            newest = call.get("body") and call["body"]["step"] == 3
            given_up = {"code": "refused", "reason": "its records went to others", "refusal": "given_up"}
            return given_up if newest else None

        agent.answer = voided
        restored = headrace.Checkpointer(tmp_path, stream).restore()
        assert restored is not None
        assert restored.step == 2
        with pytest.raises(headrace.CheckpointError, match=r"step 3 .* its records went to others"):
            headrace.Checkpointer(tmp_path, stream).restore(3)
        agent.answer = lambda call: {"code": "refused", "reason": "dataset clicks was shuffled then"}
        with pytest.raises(headrace.CheckpointError, match=rf"{paths[2]}.*: dataset clicks was shuffled then"):
            headrace.Checkpointer(tmp_path, stream).restore()


def test_restore_takes_a_step_or_the_start(agents: Agents, tmp_path: Path) -> None:
    agent = agents(model="private")
    with headrace.dataset("clicks").batches(10) as stream:
        saved_thrice(stream, tmp_path)
        ck = headrace.Checkpointer(tmp_path, stream)
        restored = ck.restore(2)
        assert restored is not None
        assert restored.step == 2
        assert agent.of(CALL)[-1]["mode"] == "exact"
        with pytest.raises(headrace.CheckpointError, match=r"no checkpoint of step 9 .* there are steps \[1, 2, 3\]"):
            ck.restore(9)
        assert ck.restore("start") is None
        assert agent.of(CALL)[-1]["mode"] == "start"
        assert stream.step(batches=0) == 1
        with pytest.raises(ValueError, match="'latest'"):
            ck.restore("latest")


def test_nothing_to_restore_is_none(agents: Agents, tmp_path: Path) -> None:
    agent = agents(model="replicated")
    assert headrace.Checkpointer(tmp_path / "none").restore() is None
    (call,) = agent.of(CALL)
    assert (call["mode"], call.get("body"), call["failed"]) == ("newest", None, [])


def test_a_checkpoint_that_is_not_restored_is_told_with_the_reason(
    agents: Agents, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    agent = agents(model="private")
    with headrace.dataset("clicks").batches(10) as stream:
        path = saved_thrice(stream, tmp_path)[2]
        agent.answer = lambda call: {"code": "ok", "cut": "0" * 16, "reason": "others train it"}
        assert headrace.Checkpointer(tmp_path, stream).restore() is None
    assert f"{path}/{manifest.FILE_NAME} (step 3) is not restored: others train it" in caplog.text


def test_a_restore_that_waits_says_what_for(
    agents: Agents, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = agents(model="shared")
    monkeypatch.setattr(_cuts, "SLOW_SECONDS", 0.0)
    why = "it is not known yet whether others still train this shared model"
    agent.answer = lambda call: None if why in caplog.text else {"code": "again", "reason": why}
    with headrace.dataset("clicks").batches(10) as stream:
        assert headrace.Checkpointer(tmp_path, stream).restore() is None
    assert f"restoring from {tmp_path} waits: {why}" in caplog.text
    first, *more = agent.of(CALL)
    assert more
    assert more[-1].pop("waited_ms") > first.pop("waited_ms", 0)
    assert {**more[-1], "id": 0} == {**first, "id": 0}


def test_a_trainer_that_finds_nothing_goes_on_above_the_steps_it_has_reported(agents: Agents, tmp_path: Path) -> None:
    agent = agents(model="replicated")
    with headrace.dataset("clicks").batches(10) as stream:
        assert stepped(stream, 2, np.zeros(1)) == 2
        agent.answer = lambda call: {"code": "ok", "reason": "", "cut": "0" * 16, "step": 2}
        assert headrace.Checkpointer(tmp_path / "none", stream).restore() is None
        assert stepped(stream, 1, np.zeros(1)) == 3


def test_a_job_with_a_past_is_restored_first(agents: Agents, tmp_path: Path) -> None:
    agent = agents(model="private")
    agent.hold = True
    with headrace.dataset("clicks").batches(10) as stream:
        agent.tell(20, 1, {"state": "restore", "reason": "the job has a past"})
        with pytest.raises(headrace.RestoreNeeded, match="the job has a past: call Checkpointer"):
            next(stream)
        assert headrace.Checkpointer(tmp_path, stream).restore() is None
        threading.Timer(0.1, agent.release).start()
        assert len(next(stream)) == 10  # after restore() it waits, although the agent has sent no new state
        stream.step()


@pytest.mark.parametrize("who", ["process", "dataset"])
def test_who_starts_over_waits_for_others(agents: Agents, who: str) -> None:
    agent = agents(model="replicated", resume_from="start")
    agent.hold = True
    headrace.init(resume="start" if who == "process" else None)
    assert agent.hellos[0]["resume_from"] == ("start" if who == "process" else "")
    with headrace.dataset("clicks").batches(10) as stream:
        agent.tell(20, 1, {"state": "restore", "reason": "rank 2 has not restored"})
        threading.Timer(0.1, agent.release).start()
        assert len(next(stream)) == 10
        stream.step()


def test_restore_takes_the_choice_of_the_group(agents: Agents, tmp_path: Path) -> None:
    agent = agents(model="replicated")
    with headrace.dataset("clicks").batches(10) as stream:
        paths = saved_thrice(stream, tmp_path)
        chosen = {"cut": paths[1][-16:], "step": 2, "path": os.path.join(paths[1], manifest.FILE_NAME)}
        agent.answer = lambda call: chosen
        restored = headrace.Checkpointer(tmp_path, stream).restore()
        assert restored is not None
        assert restored.step == 2
        agent.answer = lambda call: {"cut": "0" * 16, "again": 30}
        assert headrace.Checkpointer(tmp_path, stream).restore() is None
        os.unlink(os.path.join(paths[1], "state.safetensors"))
        agent.answer = lambda call: chosen
        with pytest.raises(headrace.CheckpointError, match=r"of step 2, which rank 0 cannot read: .*safetensors"):
            headrace.Checkpointer(tmp_path, stream).restore()


def test_restore_says_which_manifests_of_the_folder_do_not_count(
    agents: Agents, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = agents(model="private")
    with headrace.dataset("clicks").batches(10) as stream:
        whole = saved_thrice(stream, tmp_path)[-1]
        for name, content in (("cut-off", b'{"format": "headrace-ch'), ("empty", b"")):
            (tmp_path / name).mkdir()
            (tmp_path / name / manifest.FILE_NAME).write_bytes(content)
        restored = headrace.Checkpointer(tmp_path, stream).restore()
        assert restored is not None
        assert restored.path == whole
        for name in ("cut-off", "empty"):
            assert f"{name}/{manifest.FILE_NAME}" in caplog.text
        assert "none of its checkpoints" not in caplog.text
        monkeypatch.setattr(type(stream._trainer), "job", "renamed")
        agent.answer = lambda call: {"cut": "0" * 16}
        assert headrace.Checkpointer(tmp_path, stream).restore() is None
        assert "none of its checkpoints is of job renamed, private" in caplog.text


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Add names to the list: opening them is refused, even to root."""
    names: list[str] = []
    scandir, read, listdir = os.scandir, Path.read_bytes, os.listdir

    def refuse(path: Any) -> None:
        if {str(path), *str(path).split(os.sep)[-2:]} & set(names):
            raise PermissionError(13, "Permission denied", str(path))

    def checked(real: Any) -> Any:
        def call(path: Any) -> Any:
            refuse(path)
            return real(path)

        return call

    monkeypatch.setattr(os, "scandir", checked(scandir))
    monkeypatch.setattr(os, "listdir", checked(listdir))
    monkeypatch.setattr(Path, "read_bytes", checked(read))
    return names


def test_a_file_that_may_not_be_opened_hides_no_other_checkpoint(
    agents: Agents, tmp_path: Path, closed: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    agents(model="private", total=300)
    (tmp_path / "lost+found").mkdir()
    with headrace.dataset("clicks").batches(10) as stream:
        paths = saved_thrice(stream, tmp_path)
        closed += ["lost+found", os.path.basename(paths[2])]
        os.symlink(os.path.join(paths[2], manifest.FILE_NAME), tmp_path / f"model.{manifest.FILE_NAME}")
        closed.append(f"model.{manifest.FILE_NAME}")
        ck = headrace.Checkpointer(tmp_path, stream, keep=1)
        restored = ck.restore()
        assert restored is not None
        assert restored.step == 2
        assert f"{paths[2]}: Permission denied" in caplog.text
        assert f"model.{manifest.FILE_NAME}: Permission denied" in caplog.text
        assert "lost+found" not in caplog.text
        caplog.clear()
        last = ck.save(stepped(stream, 1, np.zeros(1)), {}).wait(300)
        # Nobody knows what the closed one needs, so nothing is removed while it is closed.
        assert "it may be needed by a checkpoint that cannot be read now: " in caplog.text
        assert {m.folder for m in manifest.find(str(tmp_path))} == {*paths[:2], last}
        closed.clear()
        newest = ck.save(stepped(stream, 2, np.zeros(1)), {}).wait(300)
        assert [path for path in [*paths, last, newest] if os.path.exists(path)] == [newest]


def test_a_folder_of_checkpoints_that_can_not_be_read_is_no_reason_to_start_over(
    agents: Agents, tmp_path: Path, closed: list[str]
) -> None:
    agents(model="private")
    with headrace.dataset("clicks").batches(10) as stream:
        saved_thrice(stream, tmp_path)
        closed.append(tmp_path.name)
        with pytest.raises(headrace.CheckpointError, match=f"{tmp_path} cannot be seen: Permission denied"):
            headrace.Checkpointer(tmp_path, stream).restore()
        closed.clear()
        (file := tmp_path / "a file").touch()
        with pytest.raises(headrace.CheckpointError, match=f"{file} cannot be seen: Not a directory"):
            headrace.Checkpointer(file, stream).restore()


@pytest.mark.parametrize(
    ("chosen", "says"),
    [
        ("0" * 16, "began with nothing already"),
        ("00000000000000aa", "went back to checkpoint 00000000000000aa of step 7 already"),
    ],
)
def test_a_state_that_comes_too_late_is_refused_with_what_was_chosen(agents: Agents, chosen: str, says: str) -> None:
    agent = agents(model="replicated")
    with headrace.dataset("clicks").batches(10) as stream:
        stepped(stream, 2, np.zeros(1))
        state = stream.state_dict(2)
        agent.answer = lambda call: {"code": "ok", "cut": chosen, "step": 7} if call["call"] == "restore" else None
        late = rf"{says}, so load_state_dict\(\) of step 2 \(id {state['id']}\) .* once, before"
        with pytest.raises(headrace.CheckpointError, match=late):
            stream.load_state_dict(state)


@pytest.mark.parametrize("name", ["a copy", "zz"])  # sorts before the other's name, and after it
def test_a_copy_stands_for_a_damaged_checkpoint_whatever_it_is_called(
    agents: Agents, tmp_path: Path, name: str
) -> None:
    agent = agents(model="replicated")
    with headrace.dataset("clicks").batches(10) as stream:
        paths = saved_thrice(stream, tmp_path)
        copy = shutil.copytree(paths[2], tmp_path / name)
        with open(os.path.join(paths[2], "state.safetensors"), "ab") as file:
            file.write(b"x")
        restored = headrace.Checkpointer(tmp_path, stream).restore()
        assert restored is not None
        assert (restored.step, restored.path) == (3, str(copy))
        assert agent.of(CALL)[-1]["failed"] == []
        chosen = {"code": "ok", "cut": paths[2][-16:], "step": 3}
        agent.answer = lambda call: chosen if call["call"] == "restore" else None
        shutil.rmtree(paths[1])
        restored = headrace.Checkpointer(tmp_path, stream).restore()
        assert restored is not None
        assert restored.path == str(copy)
